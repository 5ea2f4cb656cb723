// Propagation, played step by step on the graph and in a table, and the chains of values.

import { Table } from "../base/data.js";
import { detailsHead } from "../base/details_frame.js";
import { el } from "../base/dom.js";
import { count, whole } from "../base/format.js";
import { sourceLink } from "../base/link.js";
import { press, segments } from "../base/segments.js";
import { GridTable } from "../base/table.js";
import { openGraphs } from "../graph/read.js";
import { chainOf, open, rowOf, untouched } from "./chain.js";
import { StepGraph } from "./graph.js";
import { axisText } from "./path.js";
import { Player } from "./player.js";
import { stepColumns, valueColumns } from "./tables.js";

/** Where the steps are played; from this width on both at first. */
const MODES = { graph: "Graph", table: "Table", both: "Both" };
const WIDE = 1700;

export async function mount(_root, context) {
  return new PropagationView(context, await open(context.data)).view();
}

class PropagationView {
  constructor(context, { propagation, tensors }) {
    const { data, slots, state, report, shared } = context;
    Object.assign(this, { context, data, slots, state, report, shared, propagation });
    this.rows = new Table(tensors);
    this.hasGraph = report.views.some((view) => view.name === "graph");
    this.now = -1;
    this.chosen = "";
    this.touched = { targets: new Set(), sources: new Set() };
    this.#readRows();
    this.#tables();
    this.player = new Player({
      slots,
      propagation,
      state,
      show: (step) => this.#show(step),
      rest: (step) => this.mode !== "table" && slots.follow.checked && this.graph?.openStep(step),
    });
    slots.follow.checked = true;
    slots.sharded.addEventListener("change", () =>
      state.set({ all: slots.sharded.checked ? "" : "1" }),
    );
    slots.modes.hidden = !this.hasGraph;
    segments(slots.modes, Object.entries(MODES), (show) => state.set({ show }));
    slots.note.append(propagation.data.notes.join(" "));
  }

  view() {
    return {
      keys: [
        ...this.player.keys(),
        ...(this.hasGraph
          ? Object.entries(MODES).map(([mode, words], at) => ({
              keys: String(at + 1),
              words,
              run: () => this.state.set({ show: mode }),
            }))
          : []),
        {
          keys: "e",
          words: "On the graph: open one level more",
          run: () => this.mode !== "table" && this.graph?.more(),
        },
        { keys: "Escape", words: "Close the chain", run: () => this.chosen && this.#close() },
      ],
      shown: () => {
        this.player.drawSpark();
        // The tables know how high they are a frame later.
        requestAnimationFrame(() => requestAnimationFrame(() => this.#reveal()));
      },
      update: (params) => this.#update(params),
    };
  }

  #readRows() {
    const { rows, data, propagation } = this;
    this.all = Array.from({ length: rows.length }, (_, row) => row).filter(
      (row) => data.values[row] !== null,
    );
    this.sharded = this.all.filter((row) => propagation.final(data.values[row]).axes.length);
    this.rowOfValue = new Map();
    for (const row of this.all) {
      const value = data.values[row];
      if (!this.rowOfValue.has(value)) this.rowOfValue.set(value, row);
    }
  }

  #tables() {
    const { propagation, rows, shared, slots } = this;
    this.moves = new GridTable({
      label: "Steps",
      columns: stepColumns(propagation, shared),
      line: (move) => ({
        depth: 0,
        open: null,
        selected: propagation.numbers[move] === this.now,
      }),
      activate: (move) => this.player.go(propagation.numbers[move]),
    });
    this.values = new GridTable({
      label: "Values after the step",
      columns: valueColumns(
        propagation,
        rows,
        () => this.now,
        () => this.touched,
      ),
      line: (row) => ({
        depth: 0,
        open: null,
        selected: rows.get("key", row) === this.chosen,
      }),
      activate: (row) => this.#choose(row),
    });
    slots.steps.append(this.moves.root);
    slots.values.append(this.values.root);
    const every = Array.from({ length: propagation.length }, (_, move) => move);
    this.moves.show(every, { empty: "No axis moved." });
  }

  #choose(row) {
    const key = row === null ? "" : this.rows.get("key", row);
    if (!key || key === this.chosen) this.#close();
    else this.state.set({ value: key }, { push: true });
  }

  // A step.

  #show(step) {
    this.now = step;
    this.touched = this.propagation.touched(step);
    this.#drawNow();
    this.moves.refresh();
    if (this.mode !== "graph") this.values.refresh();
    if (this.mode !== "table") this.graph?.show(step, this.#follows());
    this.#reveal();
    const { last } = this.propagation;
    this.slots.after.textContent =
      step < 0
        ? "Before the first step"
        : step >= last
          ? "In the end"
          : `After step ${whole(step)}`;
  }

  #follows() {
    return this.slots.follow.checked && !this.player.dragging && !this.player.isFast;
  }

  /** Brings what the step is about into sight. */
  #reveal() {
    const { propagation, values, now } = this;
    const at = propagation.position(now);
    if (now >= 0 && at < propagation.length) this.moves.reveal(at, { centre: true });
    if (!this.slots.follow.checked || this.player.dragging || this.mode === "graph") return;
    for (const value of this.touched.targets) {
      const row = this.rowOfValue.get(value);
      const line = row === undefined ? -1 : values.lines.indexOf(row);
      if (line >= 0) {
        values.reveal(line, { centre: true });
        return;
      }
    }
  }

  #drawNow() {
    const { propagation, now, slots } = this;
    if (now < 0) {
      slots.now.replaceChildren(
        el("p.muted", {}, "Only what is annotated is sharded. Play, or take the first step."),
      );
      return;
    }
    const moved = [];
    for (let at = propagation.position(now); propagation.numbers[at] === now; at += 1) {
      moved.push(at);
    }
    if (!moved.length) {
      slots.now.replaceChildren(el("p.muted", {}, "Shardy lists no move of this number."));
      return;
    }
    const more = moved.length - 2;
    const said = moved.slice(0, 2).map((at) => this.#sentence(at));
    if (more > 0) said.at(-1).append(el("span.muted", {}, ` and ${count(more, "more move")}`));
    slots.now.replaceChildren(...said);
  }

  #sentence(at) {
    const { propagation, rows, state } = this;
    const place = propagation.moves.get("place", at);
    const row = propagation.places.get("row", place);
    const name = propagation.places.get("name", place);
    const source = this.shared.source(propagation.places.get("source", place));
    const key = row === null ? null : rows.get("key", row);
    const choose = (event) => {
      event.preventDefault();
      state.set({ value: key }, { push: true });
    };
    const href = state.href("propagation", { ...state.params, value: key });
    return el(
      "p.player-sentence",
      {},
      axisText(propagation.axis(at)),
      " through ",
      key === null
        ? el("bdi.path-op", {}, name)
        : el("a.path-op", { href, on: { click: choose } }, el("bdi", {}, name)),
      source ? [" ", sourceLink(state, source)] : null,
      el(
        "span.player-way",
        {},
        propagation.moves.get("from", at),
        " → ",
        propagation.moves.get("to", at).join(", "),
      ),
    );
  }

  // A chain.

  #drawChain() {
    const { slots, chosen, rows, data } = this;
    slots.chain.hidden = !chosen;
    slots.split.dataset.open = String(Boolean(chosen));
    if (!chosen) return;
    const row = rowOf(rows, chosen);
    const content = el("div", {});
    const known = row >= 0 && data.values[row] !== null;
    const { propagation, context } = this;
    const step = (number) => this.player.go(number);
    if (!known || !chainOf(content, row, { propagation, rows, context, step })) {
      const words = known
        ? untouched(data, rows.get("shape", row))
        : row >= 0
          ? "The compiler has no such value after propagation."
          : `No value of this program is called ${chosen}.`;
      content.append(el("p.muted", { dir: "auto" }, words));
    }
    slots.chain.replaceChildren(
      detailsHead(
        el("bdi", {}, (row >= 0 && rows.get("name", row)) || chosen),
        () => this.#close(),
        row >= 0 ? el("p.propagation-links", {}, this.#links(row)) : null,
      ),
      content,
    );
    slots.chain.scrollTop = 0;
  }

  /** Where else the value is shown. */
  #links(row) {
    const { rows, state, chosen } = this;
    const links = [el("a", { href: state.href("tensors", { tensor: chosen }) }, "in the table")];
    if (this.hasGraph) {
      const named = ["argument", "result"].includes(rows.get("section", row));
      const href = state.href("graph", { node: rows.get(named ? "name" : "ssa", row) });
      links.push(" · ", el("a", { href }, "on the graph"));
    }
    return links;
  }

  #close() {
    // The step stays where it is.
    this.state.set({ value: "", step: String(this.now) }, { push: true });
    (this.mode === "graph" ? this.slots.picture.firstElementChild : this.values.element)?.focus();
  }

  // What the address says.

  async #update(params) {
    const { step = "", value = "", all = "" } = params;
    const { slots, values } = this;
    slots.sharded.checked = !all;
    // Before the rows, whose columns are those that the mode has room for.
    this.#setMode(params.show);
    if (all !== this.listed) {
      this.listed = all;
      values.show(all ? this.all : this.sharded, { empty: "Nothing is sharded." });
    }
    const isOther = value !== this.chosen;
    if (isOther) {
      this.chosen = value;
      this.#drawChain();
      values.refresh();
    }
    // The beginning; of a value that is chosen, where its sharding is what it is in the end.
    const at = value ? (this.data.values[rowOf(this.rows, value)] ?? null) : null;
    this.player.update(step, at === null ? -1 : this.propagation.reached(at));
    if (this.mode === "table") return;
    await this.#openGraph();
    if (!this.graph || this.state.view !== "propagation") return;
    this.graph.update(this.state.params.open);
    if (this.chained === this.chosen) return;
    this.chained = this.chosen;
    const row = this.chosen ? rowOf(this.rows, this.chosen) : -1;
    const isKnown = row >= 0 && this.data.values[row] !== null;
    this.graph.showChains(isKnown ? this.propagation.chains(row) : [], row, isKnown);
  }

  #setMode(asked) {
    const first = globalThis.innerWidth >= WIDE ? "both" : "graph";
    const mode = this.hasGraph ? (MODES[asked] ? asked : first) : "table";
    if (mode === this.mode) return;
    this.mode = mode;
    this.slots.split.dataset.show = mode;
    press(this.slots.modes, mode);
    this.slots.main.hidden = mode === "table";
    this.slots.listed.hidden = mode === "graph";
    this.values.refresh();
    this.graph?.show(this.now, false);
  }

  /** Reads the graph when it is first shown; without one there is the table. */
  #openGraph() {
    this.opening ??= (async () => {
      const graphs = await openGraphs(this.context);
      if (!graphs) {
        this.hasGraph = false;
        this.slots.modes.hidden = true;
        this.#setMode("table");
        return;
      }
      this.graph = new StepGraph(this.slots, graphs, {
        propagation: this.propagation,
        report: this.report,
        open: (text) => this.state.set({ open: text }),
        choose: (row) => (row !== null || this.chosen) && this.#choose(row),
      });
      this.graph.show(this.now, false);
    })();
    return this.opening;
  }
}
