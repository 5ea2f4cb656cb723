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
const NAME = /(["'])((?:\\.|(?!\1).)*)\1|[\p{L}_][\p{L}\p{N}_.-]*/gu;

// What stands before the axes of "over data, model", however many of them there are.
const OVER = /\b(?:over|along|axis|axes) \(?(?:[^\s,;()]+(?:\(\d+\)\d+)?(?:, | x | and ))*$/u;
const BETWEEN = /^(?:, | x )$/u;

/**
 * Where a text names mesh axes: `[from, to, axis]` each. As `axis_spans` of sdyscope/words/mesh.py,
 * and in prose: an argument that is called like an axis is none.
 */
export function axisSpans(text) {
  const spans = [];
  for (const match of text.matchAll(NAME)) {
    const axis = match[2] ?? match[0];
    if (numbers.has(axis)) spans.push([match.index, match.index + match[0].length, axis]);
  }
  return isList(text, spans) ? spans : spans.filter((span) => isNamed(text, span));
}

/** Whether a text is nothing but axes: "data, model". */
function isList(text, spans) {
  if (!spans.length || spans[0][0] !== 0 || spans.at(-1)[1] !== text.length) return false;
  return spans.every(([from], at) => !at || BETWEEN.test(text.slice(spans[at - 1][1], from)));
}

function isNamed(text, [from, to]) {
  const [before, after] = [text.slice(0, from), text.slice(to)];
  if (/["']/.test(text[from])) return /[({ ]$/.test(before) && /^[,)}:]/.test(after);
  if (/^(?:=\d|:\(\d)/.test(after)) return !/[\w'"[.]$/.test(before);
  if (before.lastIndexOf("{") > before.lastIndexOf("}")) return /^[,}]/.test(after);
  return OVER.test(before) && /^(?:$|[\s,;:.)])/.test(after);
}

/** Nodes of a sharding's text, its axes coloured. */
export function coloured(text) {
  const nodes = [];
  let from = 0;
  for (const [begin, end, axis] of axisSpans(text)) {
    nodes.push(text.slice(from, begin), axisName(axis, text.slice(begin, end)));
    from = end;
  }
  nodes.push(text.slice(from));
  return nodes;
}

/** A sharding's text as an element, its axes coloured; one that can't be is marked with "! ". */
export function spec(text, tag = "code.spec") {
  const tone = text.startsWith("! ") ? "bad" : undefined;
  return el(tag, { dir: "ltr", data: tone ? { tone } : {} }, coloured(text));
}
