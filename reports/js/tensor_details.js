// One tensor: its stages side by side, both notations, where its axes come from, its lines.

import { module } from "./data.js";
import { el } from "./dom.js";
import { dims, partitionerName, size, whole } from "./format.js";
import { axisName, coloured, spec } from "./spec.js";
import { VERDICTS } from "./tensor_rows.js";

/** Other views' parts of the details: module, title. Each exports `detail(root, tensor, context)`. */
const SLOTS = [
  ["placement.js", "Placement"],
  ["propagation.js", "How it came there"],
];

/** The details of a row; `close` is called by their button. */
export function details(rows, row, context, close) {
  const { get, shared } = rows;
  const verdict = VERDICTS[get.verdict(row)];
  const source = shared.source(get.source(row));
  const facts = [
    ["kind", get.kind(row)],
    ["type", rows.type(row)],
    ["bytes", `${size(get.bytes(row))} whole, ${size(rows.bytesPerDevice(row))} a device`],
    ["SSA name", get.ssa(row)],
    ["source", source && `${source}${within(shared.sourceFunction(get.source(row)))}`],
    ["donated", get.donated(row) ? "its buffer may be used again" : ""],
  ];
  const root = el(
    "article.details",
    {},
    el(
      "header.details-head",
      {},
      el("h2.details-name", {}, el("bdi", {}, get.name(row) || get.kind(row))),
      el(
        "button.icon-button",
        {
          type: "button",
          "aria-label": "Close the details",
          title: "Close (Esc)",
          on: { click: close },
        },
        "×",
      ),
      el(
        "p.details-verdict",
        {},
        el("span.verdict", { data: { tone: verdict.tone } }, verdict.mark, " ", verdict.words),
        get.op(row) ? el("code.muted", {}, get.op(row)) : null,
      ),
    ),
    el(
      "dl.pairs",
      {},
      facts
        .filter(([, value]) => value)
        .map(([name, value]) => [el("dt", {}, name), el("dd", {}, el("bdi", {}, value))]),
    ),
    el("h3", {}, "Through the stages"),
    stages(rows, row),
    notations(rows, row),
    origins(rows, row, context),
    merged(rows, row, context),
    notes(get.notes(row)),
  );
  const tensor = described(rows, row);
  for (const [name, title] of SLOTS) {
    const slot = el("section.details-slot", { hidden: true }, el("h3", {}, title));
    root.append(slot);
    fill(slot, name, tensor, context);
  }
  return root;
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
  const found = await module(name);
  if (!found?.detail) return;
  try {
    const content = el("div", {});
    const filled = await found.detail(content, tensor, context);
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

/** A line a stage and partitioner: sharding, words, block, bytes, copies. */
function stages(rows, row) {
  const { get, shared, partitioners } = rows;
  const lines = [];
  const add = (stage, partitioner, name) => {
    if (!get[name]) return;
    const said = shared.sharding(get[name](row));
    const fate = get[`${name}.fate`]?.(row) ?? "";
    const wrong = get[`${name}.agrees`]?.(row) === false;
    lines.push(stageLine(stage, partitioner, said, fate, wrong));
  };
  if (rows.stages.requested) add("requested", "", "requested");
  for (const partitioner of partitioners) add("lowered", partitioner, `lowered.${partitioner}`);
  for (const partitioner of rows.stages.propagated) {
    add("propagated", partitioner, `propagated.${partitioner}`);
  }
  for (const partitioner of rows.stages.partitioned) {
    const held = get[`partitioned.${partitioner}`](row);
    if (held) lines.push(heldLine(partitioner, held));
  }
  return el("ol.stage-lines", {}, lines);
}

function stageLine(stage, partitioner, said, fate, wrong) {
  const lost = fate === "folded" || fate === "not partitioned";
  const text = said && !lost ? said.short || "–" : lost ? fate : "–";
  return el(
    "li.stage-line",
    { data: wrong ? { tone: "bad" } : {} },
    el(
      "p.stage-line-name",
      {},
      stage,
      partitioner ? el("span.muted", {}, ` ${partitionerName(partitioner)}`) : null,
      wrong ? el("span.verdict", { data: { tone: "bad" } }, " ✗ not as requested") : null,
    ),
    el("p.stage-line-spec", {}, said && !lost ? spec(text) : el("span.none", {}, text)),
    said?.words && !lost
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
    said?.problem ? el("p.stage-line-words", { data: { tone: "bad" } }, said.problem) : null,
  );
}

function heldLine(partitioner, [sharding, block, layout, stored, copies, shares]) {
  const parts = [`block ${dims(block)}`, `${size(stored)} stored`];
  if (copies !== null) parts.push(`${whole(copies)} ${copies === 1 ? "copy" : "copies"}`);
  if (layout) parts.push(`layout ${layout}`);
  return el(
    "li.stage-line",
    {},
    el(
      "p.stage-line-name",
      {},
      "compiled",
      el("span.muted", {}, ` ${partitionerName(partitioner)}`),
    ),
    el(
      "p.stage-line-spec",
      {},
      sharding ? spec(sharding) : el("span.none", {}, "as the compiler likes"),
    ),
    el(
      "p.stage-line-words",
      {},
      parts.join(" · "),
      shares ? [" · shares its buffer with ", el("bdi", {}, shares)] : null,
    ),
  );
}

/** The same sharding in each notation that can say it. */
function notations(rows, row) {
  const { get, shared, partitioners } = rows;
  const texts = new Map();
  const note = (name, text) => {
    if (!text) return;
    if (!texts.has(text)) texts.set(text, new Set());
    texts.get(text).add(name);
  };
  const from = [
    "requested",
    ...rows.stages.propagated.map((partitioner) => `propagated.${partitioner}`),
    ...partitioners.map((partitioner) => `lowered.${partitioner}`),
  ];
  for (const name of from) {
    const said = shared.sharding(get[name]?.(row));
    if (!said) continue;
    note("PartitionSpec", said.spec);
    note(said.text.startsWith("<") ? "Shardy" : said.text.startsWith("{") ? "HLO" : "", said.text);
    note("HLO", said.hlo);
  }
  const lines = [...texts]
    .map(([text, names]) => [[...names].filter(Boolean).join(", "), text])
    .filter(([name]) => name)
    .sort(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b));
  if (!lines.length) return null;
  return [
    el("h3", {}, "In each notation"),
    el(
      "dl.notations",
      {},
      lines.map(([name, text]) => [el("dt", {}, name), el("dd", {}, spec(text))]),
    ),
  ];
}

const ORDER = ["PartitionSpec", "Shardy", "HLO"];

function origins(rows, row, context) {
  const { get, shared } = rows;
  const found = rows.stages.propagated.flatMap(
    (partitioner) => get[`propagated.${partitioner}.origins`](row) ?? [],
  );
  if (!found.length) return null;
  return [
    el("h3", {}, "Where its axes come from"),
    el(
      "ul.origins",
      {},
      found.map(([axis, kind, name, source]) =>
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
          source === null ? null : el("code.source", {}, el("bdi", {}, shared.source(source))),
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
