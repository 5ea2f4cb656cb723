// Shardings as text in which each mesh axis has its own colour, the same everywhere on the page.

import { el } from "./dom.js";

/** How many colours there are for axes; css/colours.css has --axis-0 and so on. */
const COLOURS = 8;

const numbers = new Map();

/** Gives each axis of the meshes its colour, in the order of the meshes. */
export function colourAxes(meshes) {
  numbers.clear();
  for (const mesh of meshes) {
    for (const axis of Object.keys(mesh.axes)) {
      if (!numbers.has(axis)) numbers.set(axis, numbers.size % COLOURS);
    }
  }
}

/** The CSS colour of an axis. */
export function axisColour(axis) {
  const number = numbers.get(axis);
  return number === undefined ? "var(--muted)" : `var(--axis-${number})`;
}

/** The name of an axis in its colour. */
export function axisName(axis, text = axis) {
  const number = numbers.get(axis);
  return el("span.axis", { data: number === undefined ? {} : { axis: String(number) } }, text);
}

// A name in quotes, or a bare word, as in "dim 0 split 4 ways over data".
const QUOTED = /(["'])((?:\\.|(?!\1).)*)\1|[\p{L}_][\p{L}\p{N}_.-]*/gu;

/** Nodes of a sharding's text, its axes coloured. */
export function coloured(text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(QUOTED)) {
    const axis = match[2] ?? match[0];
    if (!numbers.has(axis)) continue;
    nodes.push(text.slice(from, match.index), axisName(axis, match[0]));
    from = match.index + match[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

/** A sharding's text as an element, its axes coloured; one that can't be is marked with "! ". */
export function spec(text, tag = "code.spec") {
  const tone = text.startsWith("! ") ? "bad" : undefined;
  return el(tag, { dir: "ltr", data: tone ? { tone } : {} }, coloured(text));
}
