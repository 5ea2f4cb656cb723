// One tensor: its stages side by side, both notations, where its axes come from, its lines.

import { module } from "../base/data.js";
import { detailsHead, factList } from "../base/details_frame.js";
import { el } from "../base/dom.js";
import { count, dims, partitionerName, size } from "../base/format.js";
import { sourceLink } from "../base/link.js";
import { axisName, coloured, spec } from "../base/spec.js";
import { isBound, VERDICTS } from "./rows.js";

/** Titles of other views' parts of the details. Each exports `detail(root, tensor, context)`. */
const SLOTS = {
  "propagation/chain.js": "How it came there",
  "placement/view.js": "Placement",
  "graph/view.js": "In the graph",
  "ir/tensors.js": "In the module's text",
};

/** The details of a row; `close` is called by their button. */
export function details(rows, row, context, close) {
  const { get, shared } = rows;
  const verdict = VERDICTS[get.verdict(row)];
  const source = shared.source(get.source(row));
  const facts = [
    [
      "source",
      source && [sourceLink(context.state, source), within(shared.sourceFunction(get.source(row)))],
    ],
    ["type", rows.type(row)],
    ["bytes", `${size(get.bytes(row))} whole, ${size(rows.bytesPerDevice(row))} per device`],
    ["kind", get.kind(row)],
    ["SSA name", get.ssa(row)],
    ["time", timeWords(get.time?.(row))],
    ["donated", get.donated(row) ? "its buffer may be used again" : ""],
  ];
  const tensor = described(rows, row);
  const slot = (name) => {
    const section = el("section.details-slot", { hidden: true }, el("h3", {}, SLOTS[name]));
    fill(section, name, tensor, context);
    return section;
  };
  const root = el(
    "article.details",
    {},
    detailsHead(
      el("bdi", {}, get.name(row) || get.kind(row)),
      close,
      el(
        "p.details-verdict",
        {},
        el("span.verdict", { data: { tone: verdict.tone } }, verdict.mark, " ", verdict.words),
        get.op(row) ? el("code.muted", {}, get.op(row)) : null,
        elsewhere(get.ssa(row), get.key(row), context),
      ),
    ),
    factList(facts),
    // Why, and where; then how it is written.
    origins(rows, row, context),
    slot("propagation/chain.js"),
    el("h3", {}, "Through the stages"),
    stages(rows, row),
    slot("placement/view.js"),
    notes(get.notes(row)),
    merged(rows, row, context),
    slot("graph/view.js"),
    notations(rows, row),
    slot("ir/tensors.js"),
  );
  return root;
}

/** What a trace measured of the instructions that have its name. */
function timeWords(time) {
  if (!time) return "";
  const [, words, values] = time;
  const all = values > 1 ? `, of ${count(values, "value")} of this name` : "";
  return `${words} per step${all}, by the trace`;
}

/** Where else on the page it is shown. */
function elsewhere(ssa, key, { report, state }) {
  const views = { graph: { node: ssa }, propagation: { value: key } };
  return report.views
    .filter(({ name }) => ssa && views[name])
    .map(({ name, title }) => {
      const open = (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        state.go(name, views[name]);
      };
      return el("a", { href: state.href(name, views[name]), on: { click: open } }, title);
    });
}

/** What other views are told of a tensor. */
function described(rows, row) {
  const { get, shared } = rows;
  const stagesOf = {};
  for (const name of Object.keys(get)) {
    if (/^(?:requested|(?:lowered|propagated)\.\w+)$/.test(name)) {
      stagesOf[name] = shared.sharding(get[name](row));
    }
  }
  return {
    key: get.key(row),
    name: get.name(row),
    ssa: get.ssa(row),
    section: get.section(row),
    dtype: get.dtype(row),
    shape: get.shape(row),
    sharding: rows.held(row),
    stages: stagesOf,
  };
}

async function fill(slot, name, tensor, context) {
  const view = await module(name);
  if (!view?.detail) return;
  try {
    const content = el("div", {});
    const filled = await view.detail(content, tensor, context);
    if (filled === false) return;
    slot.append(content);
    slot.hidden = false;
  } catch (error) {
    console.error(error);
  }
}

function within(name) {
  return name ? ` in ${name}` : "";
}

/** A line a stage; partitioners that say the same share one. What is as before is only said so. */
function stages(rows, row) {
  const { get, shared, partitioners } = rows;
  const inside = get.section(row) === "inside";
  const lines = [];
  let before = null;
  const stage = (title, names, read) => {
    const entries = names.map(read).filter(Boolean);
    const grouped = new Map();
    for (const said of entries) {
      if (!grouped.has(said.key)) grouped.set(said.key, { ...said, under: [] });
      grouped.get(said.key).under.push(said.partitioner);
    }
    const groups = [...grouped.values()];
    for (const said of groups) {
      const same = before !== null && groups.length === 1 && said.place === before;
      lines.push(stageLine(title, said, same, rows.atMost));
    }
    before = groups.length === 1 && groups[0].place !== undefined ? groups[0].place : null;
  };
  const written = (name, partitioner) => {
    const said = shared.sharding(get[name]?.(row));
    const fate = get[`${name}.fate`]?.(row) ?? "";
    const wrong = get[`${name}.agrees`]?.(row) === false;
    if (inside && !said && !fate) return null;
    const key = `${said?.place ?? said?.text} ${fate} ${wrong}`;
    return { key, partitioner, said, fate, wrong, place: said?.place };
  };
  if (rows.stages.requested && !inside) {
    stage("requested", [""], () => written("requested", ""));
  }
  stage("lowered", partitioners, (name) => written(`lowered.${name}`, name));
  stage("propagated", rows.stages.propagated, (name) => written(`propagated.${name}`, name));
  stage("compiled", rows.stages.compiled, (name) => {
    const held = get[`compiled.${name}`](row);
    return held && { key: JSON.stringify(held), partitioner: name, held };
  });
  stage("executed", rows.stages.executed, (name) => {
    const executed = get[`executed.${name}`](row);
    return executed && { key: JSON.stringify(executed), partitioner: name, executed };
  });
  return el("ol.stage-lines", {}, lines);
}

function stageLine(title, line, same, atMost) {
  const { said, fate, held, executed } = line;
  const wrong = line.wrong || executed?.[0] === "differs";
  const under = line.under.filter(Boolean).map(partitionerName).join(", ");
  return el(
    "li.stage-line",
    { data: wrong ? { tone: "bad" } : {} },
    el(
      "p.stage-line-name",
      {},
      title,
      under ? el("span.muted", {}, ` ${under}`) : null,
      same ? el("span.muted", {}, " = the same place") : null,
      wrong ? el("span.verdict", { data: { tone: "bad" } }, " ✗ not as requested") : null,
    ),
    held
      ? heldLines(held)
      : executed
        ? executedLines(executed)
        : same
          ? null
          : saidLines(said, fate, isBound(said) ? atMost : ""),
  );
}

function saidLines(said, fate, bound) {
  if (!said || fate === "folded" || fate === "not partitioned") {
    return el("p.stage-line-spec", {}, el("span.none", {}, fate || "–"));
  }
  return [
    el("p.stage-line-spec", {}, spec(said.short || "–")),
    said.words
      ? el(
          "p.stage-line-words",
          {},
          coloured(said.words),
          said.block ? ` · block ${dims(said.block)}, ${size(said.bytes)}` : "",
          said.padding ? ` · padded by ${dims(said.padding)}` : "",
          said.open ? ` · open: dim ${said.open.join(", ")}` : "",
          said.manual ? ` · manual: ${said.manual.join(", ")}` : "",
        )
      : null,
    bound ? el("p.stage-line-words", {}, bound) : null,
    said.problem ? el("p.stage-line-words", { data: { tone: "bad" } }, said.problem) : null,
  ];
}

function executedLines([verdict, short, words]) {
  return [
    el("p.stage-line-spec", {}, short ? spec(short) : el("span.none", {}, verdict)),
    el(
      "p.stage-line-words",
      {},
      verdict,
      words && words !== short ? [": ", coloured(words)] : null,
    ),
  ];
}

function heldLines([sharding, block, layout, stored, replicas, shares]) {
  const parts = [`block ${dims(block)}`, `${size(stored)} stored`];
  if (replicas !== null) parts.push(count(replicas, "replica"));
  if (layout) parts.push(`layout ${layout}`);
  return [
    el(
      "p.stage-line-spec",
      {},
      sharding ? spec(sharding) : el("span.none", {}, "the compiler decides"),
    ),
    el(
      "p.stage-line-words",
      {},
      parts.join(" · "),
      shares ? [" · shares its buffer with ", el("bdi", {}, shares)] : null,
    ),
  ];
}

/** Each place that the stages put it, in each notation that can say it. */
function notations(rows, row) {
  const { get, shared, partitioners } = rows;
  const places = new Map();
  const stage = (name, words) => {
    const said = shared.sharding(get[name]?.(row));
    if (!said?.text && !said?.hlo) return;
    const key = said.place ?? said.text;
    if (!places.has(key)) places.set(key, { stages: [], texts: new Map() });
    const { stages: names, texts } = places.get(key);
    names.push(words);
    const written = { "<": "Shardy", "{": "HLO" }[said.text[0]] ?? "PartitionSpec";
    if (said.text) texts.set(said.text, written);
    if (said.spec && !texts.has(said.spec)) texts.set(said.spec, "PartitionSpec");
    if (said.hlo && !texts.has(said.hlo)) texts.set(said.hlo, "HLO");
  };
  stage("requested", "requested");
  for (const partitioner of rows.stages.propagated) {
    stage(`propagated.${partitioner}`, `propagated ${partitionerName(partitioner)}`);
  }
  for (const partitioner of partitioners) {
    stage(`lowered.${partitioner}`, `lowered ${partitionerName(partitioner)}`);
  }
  if (!places.size) return null;
  return [
    el("h3", {}, "In each notation"),
    [...places.values()].map(({ stages: names, texts }) => [
      places.size > 1 ? el("p.notations-of", {}, names.join(", ")) : null,
      el(
        "dl.notations",
        {},
        [...texts]
          .sort(([, a], [, b]) => ORDER.indexOf(a) - ORDER.indexOf(b))
          .map(([text, name]) => [el("dt", {}, name), el("dd", {}, spec(text))]),
      ),
    ]),
  ];
}

const ORDER = ["PartitionSpec", "Shardy", "HLO"];

function origins(rows, row, context) {
  const { get, shared } = rows;
  const origins = rows.stages.propagated.flatMap(
    (partitioner) => get[`propagated.${partitioner}.origins`](row) ?? [],
  );
  if (!origins.length) return null;
  return [
    el("h3", {}, "Where its axes come from"),
    el(
      "ul.origins",
      {},
      origins.map(([axis, kind, name, source, followed]) =>
        el(
          "li",
          {},
          axisName(axis.split(":")[0], axis),
          " ← ",
          kind === "argument" || kind === "result"
            ? tensorLink(name, context.state)
            : el(
                "span",
                {},
                `${kind || "annotation"} `,
                el("bdi", {}, name.replace(/^jit\([^/]*\)\//, "")),
              ),
          source === null ? null : sourceLink(context.state, shared.source(source)),
          followed ? el("span.muted", {}, ` (${followed})`) : null,
        ),
      ),
    ),
  ];
}

function merged(rows, row, context) {
  const { get } = rows;
  const names = new Set(
    rows.stages.propagated.flatMap(
      (partitioner) => get[`propagated.${partitioner}.merged`](row) ?? [],
    ),
  );
  if (!names.size) return null;
  return [
    el("h3", {}, "Became one with"),
    el(
      "p.merged",
      {},
      [...names].flatMap((name, at) => [at ? ", " : "", tensorLink(name, context.state)]),
    ),
  ];
}

function notes(said) {
  if (!said?.length) return null;
  return [
    el("h3", {}, "Notes"),
    el(
      "ul.notes",
      {},
      said.map((words) => el("li", { dir: "auto" }, words)),
    ),
  ];
}

function tensorLink(name, state) {
  const open = (event) => {
    event.preventDefault();
    state.go("tensors", { ...(state.view === "tensors" ? state.params : {}), tensor: name });
  };
  return el(
    "a",
    { href: state.href("tensors", { tensor: name }), on: { click: open } },
    el("bdi", {}, name),
  );
}
