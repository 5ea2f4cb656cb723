// One value of the module's text: where it comes from, where it is, and where it is used.

import { detailsHead, factList } from "../base/details_frame.js";
import { el } from "../base/dom.js";
import { count, partitionerName, whole } from "../base/format.js";
import { link, sourceLink } from "../base/link.js";
import { coloured, spec } from "../base/spec.js";

/** How many uses are listed. */
const USES = 60;

/** The details of a definition; `close` is called by their button. */
export function valueDetails(text, definition, context) {
  const { state, shared, tensors, close } = context;
  const { module } = text;
  const line = module.definedAt[definition];
  const row = text.row(definition);
  const place = tensors.place(row, text.partitioner);
  const source = shared.source(text.table.get("source", line));
  const within = shared.sourceFunction(text.table.get("source", line));
  const [name] = text.tensorNames(definition);
  const lowered = text.stage === "lowered";
  const facts = [
    ["defined in", lineLink(text, line, state)],
    ["scope", text.table.get("scope", line)],
    ["source", source && [sourceLink(state, source), within ? ` in ${within}` : ""]],
    [
      "tensor",
      row < 0
        ? null
        : link(
            state,
            "tensors",
            { tensor: tensors.get("key", row) },
            tensors.get("name", row) || tensors.get("key", row),
          ),
    ],
    [
      `ends under ${partitionerName(text.partitioner)}`,
      place && [spec(place.short), el("span.muted", {}, " ", coloured(place.words ?? ""))],
    ],
    [
      lowered ? "after propagation" : "as lowered",
      name &&
        link(
          state,
          "ir",
          { under: state.params.under, at: lowered ? "propagated" : "", of: name },
          "the same value there",
        ),
    ],
  ];
  const uses = module.uses(definition);
  return el(
    "article.details",
    {},
    detailsHead(el("code", {}, el("bdi", {}, module.written(definition))), close),
    factList(facts),
    el("h3", {}, uses.length ? `Used in ${count(uses.length, "line")}` : "Not used"),
    el(
      "ol.ir-uses",
      {},
      uses
        .slice(0, USES)
        .map((use) =>
          el(
            "li",
            {},
            lineLink(text, use, state),
            el("code", {}, el("bdi", {}, short(text.lines[use]))),
          ),
        ),
    ),
    uses.length > USES ? el("p.muted", {}, `and ${whole(uses.length - USES)} more`) : null,
  );
}

function lineLink(text, line, state) {
  const number = String(text.number(line));
  const params = { ...state.params, line: number };
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.set({ line: number }, { push: true });
  };
  return el(
    "a",
    { href: state.href("ir", params), on: { click: open } },
    `line ${whole(Number(number))}`,
  );
}

function short(line) {
  const text = line.trim();
  return text.length > 90 ? `${text.slice(0, 89)}…` : text;
}
