// Propagation, played step by step: what moved, how everything is sharded then, and the chains.

import { part as partOf, Shared, Table } from "./data.js";
import { el } from "./dom.js";
import { count, dims, whole } from "./format.js";
import { meshOf } from "./placement.js";
import { Chains } from "./propagation_chains.js";
import { Propagation } from "./propagation_data.js";
import { axisText, paths } from "./propagation_path.js";
import { Player } from "./propagation_player.js";
import { spec } from "./spec.js";
import { GridTable } from "./table.js";

let opened = null;

/** The data, unpacked once for the view and the details of tensors. */
function open(data, context) {
  opened ??= (async () => {
    const propagation = new Propagation(data, meshOf(context.report.meshes)?.axes ?? {});
    return { propagation, chains: new Chains(propagation), tensors: await partOf("tensors") };
  })();
  return opened;
}

/** Fills the section of a tensor's details: the chain of each axis, and what stopped others. */
export async function detail(root, tensor, context) {
  const data = await partOf("propagation");
  if (!data || data.unavailable) return false;
  const { propagation, chains, tensors } = await open(data, context);
  const rows = new Table(tensors);
  const row = rowOf(rows, tensor.key);
  if (row < 0) return false;
  return chainOf(root, row, { propagation, chains, rows, context });
}

const keys = new WeakMap();

function rowOf(rows, key) {
  const column = rows.columns.key;
  if (!keys.has(column)) {
    const found = new Map();
    for (let row = 0; row < rows.length; row += 1) found.set(rows.get("key", row), row);
    keys.set(column, found);
  }
  return keys.get(column).get(key) ?? -1;
}

function chainOf(root, row, { propagation, chains, rows, context, step }) {
  const { data } = propagation;
  const { state, shared } = context;
  const value = data.values[row];
  const found = chains.ofRow(row);
  const stops = value === null ? null : data.stops[value];
  if (!found.length && !stops?.length) return false;
  const follow = (event, go) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go();
  };
  const link = (number) => {
    const params = { step: number, value: rows.get("key", row) };
    return el(
      "a",
      {
        href: state.href("propagation", params),
        on: {
          click: (event) =>
            follow(event, () => (step ? step(number) : state.go("propagation", params))),
        },
      },
      `step ${number}`,
    );
  };
  const toValue = (target, name) => {
    const key = rows.get("key", target);
    const here = state.view === "propagation";
    const params = here ? { ...state.params, value: key } : { ...state.params, tensor: key };
    const view = here ? "propagation" : "tensors";
    return el(
      "a.path-op",
      {
        href: state.href(view, params),
        on: { click: (event) => follow(event, () => state.go(view, params)) },
      },
      el("bdi", {}, name),
    );
  };
  root.append(
    ...paths(found, {
      stops,
      source: (number) => shared.source(number),
      place: (at) => [propagation.places.get("name", at), propagation.places.get("source", at)],
      link,
      value: toValue,
    }),
  );
  return true;
}

export async function mount(_root, context) {
  const { data, slots, state, report } = context;
  const { propagation, chains, tensors } = await open(data, context);
  const rows = new Table(tensors);
  const shared = context.shared ?? new Shared(await partOf("shared"));
  const last = propagation.last;
  const all = Array.from({ length: rows.length }, (_, row) => row).filter(
    (row) => data.values[row] !== null,
  );
  const sharded = all.filter((row) => propagation.final(data.values[row]).length);
  const rowsOf = new Map();
  for (const row of all) {
    const value = data.values[row];
    if (!rowsOf.has(value)) rowsOf.set(value, row);
  }
  let now = last;
  let chosen = "";
  let touched = { targets: new Set(), sources: new Set() };
  let shown = null;
  let stopsOf = null;

  const moves = new GridTable({
    label: "Steps",
    columns: stepColumns(propagation, shared),
    line: (move) => ({
      depth: 0,
      open: null,
      selected: propagation.numbers[move] === now,
    }),
    activate: (move) => player.go(propagation.numbers[move]),
  });
  const values = new GridTable({
    label: "Values after the step",
    columns: valueColumns(
      propagation,
      rows,
      data,
      () => now,
      () => touched,
    ),
    line: (row) => ({
      depth: 0,
      open: null,
      selected: rows.get("key", row) === chosen,
    }),
    activate: (row) => {
      const key = rows.get("key", row);
      state.set({ value: key === chosen ? "" : key }, { push: true });
    },
  });
  slots.steps.append(moves.root);
  slots.values.append(values.root);
  const every = Array.from({ length: propagation.length }, (_, move) => move);
  moves.show(every, { empty: "No axis moved." });

  const player = new Player({
    slots,
    propagation,
    state,
    show: (step) => {
      now = step;
      draw();
    },
  });
  slots.follow.checked = true;
  slots.sharded.addEventListener("change", () =>
    state.set({ all: slots.sharded.checked ? "" : "1" }),
  );
  slots.note.append(...notes(report, data, propagation));

  function draw() {
    touched = propagation.touched(now);
    drawNow();
    moves.refresh();
    values.refresh();
    reveal();
    slots.after.textContent =
      now < 0 ? "Before the first step" : now >= last ? "In the end" : `After step ${whole(now)}`;
  }

  /** Brings what the step is about into sight. */
  function reveal() {
    const at = propagation.position(now);
    if (now >= 0 && at < propagation.length) moves.reveal(at, { centre: true });
    if (slots.follow.checked && !player.dragging) follow();
  }

  function follow() {
    for (const value of touched.targets) {
      const row = rowsOf.get(value);
      const line = row === undefined ? -1 : values.lines.indexOf(row);
      if (line >= 0) {
        values.reveal(line, { centre: true });
        return;
      }
    }
  }

  function drawNow() {
    const first = propagation.position(now);
    if (now < 0) {
      slots.now.replaceChildren(
        el("p.muted", {}, "Only what is annotated is sharded. Play, or take the first step."),
      );
      return;
    }
    const moved = [];
    for (let at = first; propagation.numbers[at] === now; at += 1) moved.push(at);
    slots.now.replaceChildren(
      ...moved.slice(0, 2).map((at) => sentence(at)),
      ...rest(moved.length),
    );
  }

  function rest(length) {
    return length > 2
      ? [el("p.muted", {}, `and ${count(length - 2, "more move")} in this step`)]
      : [];
  }

  function sentence(at) {
    const place = propagation.moves.get("place", at);
    const row = propagation.places.get("row", place);
    const name = propagation.places.get("name", place);
    const source = shared.source(propagation.places.get("source", place));
    const key = row === null ? null : rows.get("key", row);
    return el(
      "p.player-sentence",
      {},
      axisText(propagation.part(at).text),
      " through ",
      key === null
        ? el("bdi.path-op", {}, name)
        : el(
            "a.path-op",
            {
              href: state.href("propagation", { ...state.params, value: key }),
              on: {
                click: (event) => {
                  event.preventDefault();
                  state.set({ value: key }, { push: true });
                },
              },
            },
            el("bdi", {}, name),
          ),
      source ? el("code.source", {}, " ", el("bdi", {}, source)) : null,
      el(
        "span.player-way",
        {},
        propagation.moves.get("from", at),
        " → ",
        propagation.moves.get("to", at).join(", "),
      ),
    );
  }

  function drawChain() {
    const row = rowOf(rows, chosen);
    slots.chain.hidden = !chosen;
    slots.split.dataset.open = String(Boolean(chosen));
    if (!chosen) return;
    const content = el("div", {});
    const known = row >= 0 && data.values[row] !== null;
    const filled =
      known &&
      chainOf(content, row, {
        propagation,
        chains,
        rows,
        context,
        step: (number) => player.go(number),
      });
    if (!filled) {
      const words = known
        ? "No axis came to it, and none was stopped beside it."
        : row >= 0
          ? "The compiler has no such value after propagation."
          : `No value of this program is called ${chosen}.`;
      content.append(el("p.muted", { dir: "auto" }, words));
    }
    const isAsked = known && asked().has(data.values[row]);
    slots.chain.replaceChildren(
      el(
        "header.propagation-chain-head",
        {},
        el("h2", {}, el("bdi", {}, (row >= 0 && rows.get("name", row)) || chosen)),
        el(
          "button.icon-button",
          {
            type: "button",
            "aria-label": "Close the chain",
            title: "Close (Esc)",
            on: { click: () => close() },
          },
          "×",
        ),
        row >= 0 ? el("p.propagation-links", {}, links(row)) : null,
      ),
      content,
      isAsked || !known
        ? ""
        : el(
            "p.muted",
            {},
            `What stopped axes is worked out for the first ${whole(data.stopped)} values: of this one, sdyscope explain says it.`,
          ),
    );
    slots.chain.scrollTop = 0;
  }

  /** Where else the value is shown. */
  function links(row) {
    const found = [el("a", { href: state.href("tensors", { tensor: chosen }) }, "in the table")];
    if (report.views.some((view) => view.name === "graph")) {
      const named = ["argument", "result"].includes(rows.get("section", row));
      const href = state.href("graph", { node: rows.get(named ? "name" : "ssa", row) });
      found.push(" · ", el("a", { href }, "on the graph"));
    }
    return found;
  }

  /** The values that it was worked out for what stopped axes: the first so many. */
  function asked() {
    if (!stopsOf) {
      stopsOf = new Set();
      for (const row of all) if (stopsOf.size < data.stopped) stopsOf.add(data.values[row]);
    }
    return stopsOf;
  }

  function close() {
    state.set({ value: "" }, { push: true });
    values.element.focus();
  }

  return {
    keys: [
      ...player.keys(),
      { keys: "Escape", words: "Close the chain", run: () => chosen && close() },
    ],
    shown() {
      player.drawSpark();
      // The tables know how high they are a frame later.
      requestAnimationFrame(() => requestAnimationFrame(reveal));
    },
    update(params) {
      const { step = "", value = "", all: every_ = "" } = params;
      const only = !every_;
      slots.sharded.checked = only;
      if (only !== shown) {
        shown = only;
        values.show(only ? sharded : all, { empty: "Nothing is sharded." });
      }
      if (value !== chosen) {
        chosen = value;
        drawChain();
        values.refresh();
      }
      player.update(step);
    },
  };
}

function notes(report, data, propagation) {
  const parts = [
    `${count(propagation.length, "move")}; Shardy numbers its steps from 0 to ${whole(propagation.last)}. `,
    `${sentenceCase(data.exactness)}: ${data.madeBy}`.replace(/\.?$/, "."),
  ];
  if (report.partitioners.includes("gspmd")) {
    parts.push(" GSPMD does not say how it propagates: these are Shardy’s steps.");
  }
  if (!data.priorities) parts.push(" The user gave no priorities.");
  return parts;
}

function stepColumns(propagation, shared) {
  const { moves, places } = propagation;
  const at = (move, name) => places.get(name, moves.get("place", move));
  return [
    {
      name: "number",
      title: "step",
      chars: 6,
      least: 5,
      priority: 0,
      render: (cell, move) => cell.append(whole(propagation.numbers[move])),
    },
    {
      name: "axis",
      title: "axis",
      chars: 10,
      least: 7,
      priority: 0,
      render: (cell, move) => cell.append(axisText(propagation.part(move).text)),
    },
    {
      name: "op",
      title: "through",
      chars: 26,
      least: 14,
      grow: 2,
      priority: 1,
      render: (cell, move) => {
        const name = at(move, "name");
        cell.title = name;
        cell.append(el("bdi", {}, tail(name)));
      },
    },
    {
      name: "way",
      title: "from → to",
      chars: 34,
      least: 20,
      grow: 2,
      priority: 3,
      render: (cell, move) => {
        const words = `${moves.get("from", move)} → ${moves.get("to", move).join(", ")}`;
        cell.title = words;
        cell.append(words);
      },
    },
    {
      name: "source",
      title: "source",
      chars: 20,
      least: 12,
      priority: 4,
      render: (cell, move) => {
        const source = shared.source(at(move, "source"));
        cell.title = source;
        cell.append(el("bdi.muted", {}, source.split("/").pop()));
      },
    },
    ...(propagation.data.priorities
      ? [
          {
            name: "priority",
            title: "priority",
            chars: 8,
            least: 7,
            end: true,
            priority: 5,
            render: (cell, move) => cell.append(String(moves.get("priority", move))),
          },
        ]
      : []),
  ];
}

function sentenceCase(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function plainOp(kind) {
  return kind.slice(kind.lastIndexOf(".") + 1);
}

/** The last two parts of a scope. */
function tail(name) {
  return name.split("/").slice(-2).join("/");
}

function valueColumns(propagation, rows, data, step, touched) {
  const get = (name, row) => rows.get(name, row);
  return [
    {
      name: "tensor",
      title: "value",
      chars: 36,
      least: 24,
      grow: 3,
      priority: 0,
      render: (cell, row) => {
        const { targets, sources } = touched();
        const value = data.values[row];
        const name = get("name", row) || get("kind", row);
        const op =
          get("section", row) === "inside" ? get("op", row) || plainOp(get("kind", row)) : "";
        const mark = targets.has(value) ? "to" : sources.has(value) ? "from" : "";
        cell.dataset.touched = mark;
        cell.title = `${op ? `${name}/${op}` : name} ${get("ssa", row)}`;
        cell.append(
          el(
            "span.value-words",
            {},
            el("span.touch", {}, { to: "●", from: "○", "": "" }[mark]),
            mark ? el("span.unseen", {}, mark === "to" ? "came here: " : "came from: ") : "",
            el("bdi", {}, op || name),
            op ? el("span.ssa", {}, get("ssa", row)) : "",
            op ? el("bdi.ssa", {}, tail(get("name", row))) : "",
          ),
        );
      },
    },
    {
      name: "type",
      title: "type",
      chars: 18,
      least: 10,
      priority: 3,
      render: (cell, row) =>
        cell.append(el("code", {}, `${get("dtype", row)}${dims(get("shape", row))}`)),
    },
    {
      name: "sharding",
      title: "sharding then",
      chars: 34,
      least: 18,
      grow: 2,
      priority: 0,
      render: (cell, row) => {
        const value = data.values[row];
        const list = propagation.at(value, step());
        const words = propagation.words(list, get("shape", row)?.length ?? 0);
        if (touched().targets.has(value)) cell.dataset.touched = "to";
        cell.title = words;
        cell.append(list.length ? spec(words) : el("span.muted", {}, words));
      },
    },
    {
      name: "since",
      title: "since step",
      chars: 10,
      least: 9,
      end: true,
      priority: 2,
      render: (cell, row) => {
        const before = propagation.brought(data.values[row]).filter((one) => one.number <= step());
        const list = propagation.at(data.values[row], step());
        if (before.length) cell.append(whole(before.at(-1).number));
        else cell.append(el("span.muted", {}, list.length ? "annotated" : "–"));
      },
    },
  ];
}
