// What the lines and signs of the graph stand for.

import { el, svg } from "../base/dom.js";
import { axisColour, axisName } from "../base/spec.js";

/** From this width on the legend is open at first. */
const WIDE = 1500;

function stroke(...lines) {
  return svg(
    "svg.graph-legend-line",
    { viewBox: "0 0 28 8", "aria-hidden": "true" },
    lines.map(([colour, dash]) =>
      svg("path", {
        d: "M0 4H28",
        "stroke-width": 2.4,
        style: { stroke: colour },
        "stroke-dasharray": dash,
      }),
    ),
  );
}

function sign(kind, words) {
  return el("span.graph-legend-sign", { data: { kind } }, words);
}

/** A sample of how something is drawn, which the style says by its kind. */
export function signLine(kind) {
  return el("span.graph-legend-sample", { data: { kind }, "aria-hidden": "true" });
}

/** The rows that say the colours of edges. */
export function edgeRows(meshes) {
  const axes = [...new Set(meshes.flatMap((mesh) => Object.keys(mesh.axes)))];
  const both = axes.slice(0, 2).map((axis, at) => [axisColour(axis), at ? "5 5" : undefined]);
  return [
    ...axes.map((axis) => [stroke([axisColour(axis)]), ["sharded on ", axisName(axis)]]),
    ...(axes.length > 1 ? [[stroke(...both), ["sharded on both"]]] : []),
    [stroke(["var(--graph-plain)"]), ["replicated"]],
  ];
}

/** The rows that the graph itself has beside them. */
export function signRows(data, partitioners) {
  const rows = [
    [stroke(["var(--muted)", "1 4"]), ["not known, or folded away"]],
    [sign("moves", "⇄"), [data.words.moves]],
    Object.keys(data.sent).length
      ? [sign("sent", "all-reduce"), [data.words.sent]]
      : [sign("sums", "Σ"), [data.words.sums]],
  ];
  if (partitioners.length > 1) {
    rows.push([sign("differs", "≠"), [data.words.differs]]);
  }
  return rows;
}

/** Fills a legend; it is open where there is room. */
export function legend(root, rows, notes = []) {
  root.open = globalThis.innerWidth >= WIDE;
  root.append(
    el(
      "ul",
      {},
      rows.map(([sample, words]) => el("li", {}, sample, el("span", {}, words))),
    ),
    ...notes.map((note) => el("p.muted", {}, note)),
  );
}
