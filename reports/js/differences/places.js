// A place where differences begin: both shardings, and what follows from it.

import { Table } from "../base/data.js";
import { button, el, tableHead } from "../base/dom.js";
import { count, size, type } from "../base/format.js";
import { link, sourceLink } from "../base/link.js";
import { coloured, spec } from "../base/spec.js";
import { changeText, collectiveTable } from "./tables.js";

/** How many values that follow are shown at first. */
const VALUES = 30;

/** A card; `open` shows what follows. */
export function place(entry, at, context) {
  const { open, state, shared } = context;
  const toggle = () => state.set({ open: open ? "0" : at ? String(at + 1) : "", list: "" });
  const { begins, constraint, cause } = entry;
  const source = shared.source((begins ?? constraint).source);
  const layers = cause && cause.layers > 1 ? ` and ${count(cause.layers - 1, "layer")} more` : "";
  return el(
    "li.place",
    { data: open ? { open: "" } : {} },
    el(
      "button.place-head",
      { type: "button", "aria-expanded": String(open), on: { click: toggle } },
      el("span.place-number", { "aria-hidden": "true" }, String(at + 1)),
      el(
        "span.place-name",
        {},
        constraint ? "the constraint in " : null,
        el("bdi", {}, (begins ?? constraint).name),
        begins ? el("code.place-type", {}, type(begins.dtype, begins.shape)) : null,
        layers,
        source ? el("code.source", {}, el("bdi", {}, source)) : null,
      ),
      el("span.place-effect", {}, effect(entry)),
    ),
    el("div.place-sides", {}, begins ? sides(begins, context) : lone(constraint, context)),
    open
      ? el("div.place-open", {}, source ? sourceLink(state, source) : null, follows(entry, context))
      : null,
  );
}

/** What it comes to, in a few words. */
function effect({ cause, beginning }) {
  const parts = [];
  if (cause?.sent) parts.push(el("strong", {}, `${changeText(cause.sent)} sent`));
  const values = beginning?.values ?? cause?.values;
  if (values) parts.push(el("span.muted", {}, count(values, "value")));
  return parts.flatMap((part, at) => (at ? [" · ", part] : [part]));
}

function sides(begins, { labels }) {
  return el(
    "dl.cause-sides",
    {},
    [begins.a, begins.b].map((text, at) => [
      el("dt", { data: { side: String(at) } }, el("bdi", {}, labels[at])),
      el(
        "dd",
        {},
        spec(text),
        el("span.muted", {}, " ", coloured(at ? begins.wordsB : begins.wordsA)),
      ),
    ]),
  );
}

function lone(constraint) {
  return el(
    "p",
    {},
    "only in ",
    el("bdi", {}, constraint.only),
    ": ",
    coloured(constraint.sharding),
  );
}

function follows(entry, context) {
  const { cause, beginning, collectives } = entry;
  return [
    beginning ? because(beginning) : null,
    cause ? el("p", { dir: "auto" }, cause.words, ".") : null,
    ...(cause?.behind ?? []).map((words) => el("p.place-behind", { dir: "auto" }, coloured(words))),
    collectives.length
      ? [
          el("h3.place-title", {}, `${count(collectives.length, "difference")} in collectives`),
          collectiveTable(collectives, context),
        ]
      : null,
    beginning ? values(beginning, context) : null,
  ];
}

function because({ inputs, extent }) {
  return [
    inputs ? el("p.place-inputs", { dir: "auto" }, coloured(inputs)) : null,
    el("p", { dir: "auto" }, extent, "."),
  ];
}

function values(beginning, { state, labels, list }) {
  const table = new Table(beginning.follows);
  if (!table.length) return null;
  const shown = list ? table.length : Math.min(VALUES, table.length);
  const left = table.length - shown;
  return [
    el("h3.place-title", {}, `${count(table.length, "value follows", "values follow")}`),
    el(
      "div.follows-frame",
      { role: "region", "aria-label": "Values that follow", tabindex: "0" },
      el(
        "table.follows",
        {},
        tableHead(
          ["value", "type", ...labels].map((words) =>
            el("th", { scope: "col" }, el("bdi", {}, words)),
          ),
          el("th.end", { scope: "col" }, "per device"),
        ),
        el(
          "tbody",
          {},
          Array.from({ length: shown }, (_, row) => valueRow(table, row, state)),
        ),
      ),
    ),
    left ? button(`Show ${count(left, "more value")}`, () => state.set({ list: "1" })) : null,
  ];
}

function valueRow(table, row, state) {
  const get = (name) => table.get(name, row);
  const [a, b] = [get("bytesA"), get("bytesB")];
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      link(state, "tensors", { tensor: get("ssa") || get("name") }, get("name") || get("ssa")),
    ),
    el("td", {}, el("code.muted", {}, type(get("dtype"), get("shape")))),
    el("td", {}, spec(get("a") || "–")),
    el("td", {}, spec(get("b") || "–")),
    el("td.end", {}, a === b ? size(a) : `${size(a)} → ${size(b)}`),
  );
}
