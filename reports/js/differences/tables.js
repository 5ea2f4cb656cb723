// Tables of what differs: totals, memory, collectives, and tensors as they are lowered.

import { el, tableHead } from "../base/dom.js";
import { count, size, type, whole } from "../base/format.js";
import { link, sourceLink } from "../base/link.js";
import { coloured, spec } from "../base/spec.js";

/** How many ops are listed of those that differ. */
const OPS = 40;

/** "+1.5 MiB", "−512 B"; "=" for nothing. */
export function changeText(bytes) {
  if (!bytes) return "=";
  return `${bytes > 0 ? "+" : "−"}${size(Math.abs(bytes))}`;
}

function head(labels, first) {
  return tableHead(
    first.map((words) => el("th", { scope: "col" }, words)),
    labels.map((words) => el("th.end", { scope: "col" }, el("bdi", {}, words))),
    el("th.end", { scope: "col" }, "change"),
  );
}

/** Figures of several versions, a column each. */
export function figureTable({ header, rows }) {
  const [first, ...others] = header;
  return table(
    "Figures",
    tableHead(
      el("th", { scope: "col" }, first),
      others.map((words) => el("th.end", { scope: "col" }, el("bdi", {}, words))),
    ),
    rows.map(([name, ...cells]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, el("bdi", {}, name)),
        cells.map((words) => el("td.end", {}, words)),
      ),
    ),
  );
}

/** Totals by kind and axes, then in all. */
export function kindTable(compiled, labels) {
  const { a, b, kinds } = compiled;
  const cell = (tally) =>
    el(
      "td.end",
      {},
      tally.tensors
        ? [size(tally.sent), el("span.muted.compared-times", {}, ` ×${whole(tally.count)}`)]
        : "–",
    );
  const row = (name, first, second) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      cell(first),
      cell(second),
      el("td.end", {}, changeText(second.sent - first.sent)),
    );
  return table("Totals", head(labels, ["sent by a device"]), [
    ...kinds.map(([kind, over, first, second]) =>
      row([kind, " over ", coloured(over)], first, second),
    ),
    row(el("strong", {}, "total"), a.total, b.total),
  ]);
}

/** What a device needs, where it differs. */
export function memoryTable(compiled, labels) {
  const rows = byPart(compiled.memory.filter(([kind, , , a, b]) => a !== b || kind === "total"));
  if (!rows.length) return null;
  return table(
    "Memory per device",
    head(labels, ["memory per device"]),
    rows.map(([kind, , words, a, b]) =>
      el(
        "tr",
        { data: { kind } },
        el("th", { scope: "row" }, el(kind === "total" ? "strong" : "bdi", {}, words)),
        el("td.end", {}, size(a)),
        el("td.end", {}, size(b)),
        el("td.end", {}, changeText((b ?? 0) - (a ?? 0))),
      ),
    ),
  );
}

/** The groups of arguments and results below what they are part of. */
function byPart(rows) {
  const parts = { argument: "arguments", result: "results" };
  const groups = rows.filter(([kind]) => parts[kind]);
  const others = rows.filter(([kind]) => !parts[kind]);
  const named = new Set(others.map(([, name]) => name));
  return [
    ...groups.filter(([kind]) => !named.has(parts[kind])),
    ...others.flatMap((row) => [row, ...groups.filter(([kind]) => parts[kind] === row[1])]),
  ];
}

/** Arguments and results that are sharded differently, or that one side does not have. */
export function entryTable(entries, labels) {
  return table(
    "Arguments and results that differ",
    tableHead(["argument or result", ...labels].map((text) => el("th", { scope: "col" }, text))),
    entries.map(([, name, a, b, otherName]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, el("bdi", {}, name), nowNamed(otherName)),
        [a, b].map((text) => el("td", {}, el("code", {}, coloured(text)))),
      ),
    ),
  );
}

/** What the second side calls it, where that is another name. */
export function nowNamed(name) {
  return name ? [" → ", el("bdi", {}, name)] : null;
}

/** A table that scrolls by itself, and is named for who does not see it. */
function table(label, thead, rows) {
  return el(
    "div.compared-frame",
    { role: "region", "aria-label": label, tabindex: "0" },
    el("table.compared", {}, thead, el("tbody", {}, rows)),
  );
}

/** Collectives that differ: what each side communicates, and for which op. */
export function collectiveTable(collectives, { labels, shared, state }) {
  const side = (communicated) => {
    if (!communicated.tensors) return el("td.end.muted", {}, "–");
    const [[shape, number] = ["", 0]] = communicated.shapes;
    const more = communicated.shapes.length - 1;
    return el(
      "td.end",
      { title: communicated.origins.join("\n") },
      size(communicated.sent),
      el(
        "code.muted.compared-shape",
        {},
        ` ${number > 1 ? `${number} × ` : ""}${shape}${more > 0 ? ` +${more}` : ""}`,
      ),
    );
  };
  return table(
    "Collectives that differ",
    head(labels, ["collective", "for"]),
    collectives.map((difference) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, difference.kind, " over ", coloured(difference.over)),
        el(
          "td.compared-for",
          {},
          el("bdi", {}, difference.scope || difference.primitive || "no scope"),
          difference.layers > 1 ? el("span.muted", {}, ` ${difference.layers} layers`) : null,
          difference.sources.length
            ? sourceLink(state, shared.source(difference.sources[0]))
            : null,
        ),
        side(difference.a),
        side(difference.b),
        el("td.end", {}, difference.otherwise || changeText(difference.sent)),
      ),
    ),
  );
}

/** What is lowered differently. */
export function loweredPart(lowered, context) {
  if (lowered.unavailable) return [el("p.muted", { dir: "auto" }, lowered.unavailable)];
  const parts = [];
  for (const words of lowered.meshes) parts.push(el("p", { dir: "auto" }, words));
  if (lowered.tensors.length) parts.push(tensorTable(lowered.tensors, context));
  if (lowered.ops.length) parts.push(...opTable(lowered.ops, context));
  if (!parts.length) {
    parts.push(el("p.muted", { dir: "auto" }, lowered.words));
  }
  parts.push(...lowered.notes.map((words) => el("p.muted", { dir: "auto" }, words)));
  return parts;
}

function tensorTable(tensors, { labels, state }) {
  const side = (value) =>
    el(
      "td",
      { title: value?.words },
      value
        ? [
            spec(value.sharding || "–"),
            el("code.muted", {}, ` ${type(value.dtype, value.shape)}`),
            value.beside ? el("bdi", {}, ` ${value.beside}`) : null,
          ]
        : el("span.muted", {}, "not there"),
    );
  return table(
    "Tensors that differ",
    tableHead(
      el("th", { scope: "col" }, "tensor"),
      labels.map((words) => el("th", { scope: "col" }, el("bdi", {}, words))),
      el("th", { scope: "col" }, "what"),
    ),
    tensors.map((tensor) =>
      el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          link(state, "tensors", { tensor: tensor.name }, tensor.name, tensor.a ? "a" : "b"),
          tensor.otherName
            ? [" → ", link(state, "tensors", { tensor: tensor.otherName }, tensor.otherName, "b")]
            : null,
          el("span.muted", {}, ` ${tensor.kind}`),
        ),
        side(tensor.a),
        side(tensor.b),
        el("td", {}, tensor.what.join(", ") || onlyIn(tensor.change, labels)),
      ),
    ),
  );
}

/** "only in mlp" */
function onlyIn(change, labels) {
  if (change === "changed") return change;
  return ["only in ", el("bdi", {}, labels[change === "only in a" ? 0 : 1])];
}

/** What the ops of each side have that those of the other have not: types, attributes, operands. */
function changes(ours, theirs) {
  return [
    ["−", ours],
    ["+", theirs],
  ].flatMap(([sign, texts]) =>
    Object.entries(texts).map(([text, number]) =>
      el("div", {}, el("bdi", {}, `${sign}${number > 1 ? `${number} × ` : ""}${text}`)),
    ),
  );
}

/** The name of an op or scope, which may be broken behind the marks between its words. */
function breakable(name) {
  return name.split(/(?<=[._/])/).flatMap((part) => [part, el("wbr", {})]);
}

function opTable(ops, { labels }) {
  const shown = ops.slice(0, OPS);
  const types = (counts) =>
    Object.entries(counts)
      .map(([text, number]) => `${number} more of ${text}`)
      .join(", ");
  return [
    table(
      "Ops that differ",
      head(labels, ["op", "scope"]),
      shown.map(([scope, kind, a, b, typesA, typesB]) =>
        el(
          "tr",
          {},
          el("th.compared-op", { scope: "row" }, el("code", {}, el("bdi", {}, breakable(kind)))),
          el("td.compared-for.compared-op", {}, el("bdi", {}, breakable(scope))),
          el("td.end", { title: types(typesA) }, whole(a)),
          el("td.end", { title: types(typesB) }, whole(b)),
          b === a
            ? el("td.compared-for", {}, changes(typesA, typesB))
            : el("td.end", {}, `${b > a ? "+" : "−"}${Math.abs(b - a)}`),
        ),
      ),
    ),
    ops.length > OPS
      ? el("p.muted", {}, `and ${count(ops.length - OPS, "more kind")} of ops`)
      : null,
  ].filter(Boolean);
}
