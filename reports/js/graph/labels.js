// What is said of the things in the graph, and how much room that takes.

import { count, size, whole } from "../base/format.js";

/** Widths of characters, about: of names at 12 px, of shardings and types at 10.5 px, and bold. */
const CHAR = 6.5;
const SMALL_CHAR = 6.35;
export const PILL_CHAR = 6.1;
const LONGEST = 40;

/** What is said of an item, under one partitioner: lines of text, and marks. */
export function labels(model, values, item, partitioner) {
  const form = model.form(item);
  const title = clip(model.title(item), form === "group" ? 34 : LONGEST);
  const node = model.node(item);
  const marks = [];
  if (form === "group") {
    const inside = values.inside[partitioner];
    const sent = values.sent(item, partitioner);
    const ops = model.ops[item];
    const children = model.childrenOf.get(item).length;
    const kind = model.groupKind(item);
    const inIt = kind === "arguments" ? count(children, "argument") : count(ops, "op");
    const lines = [(kind !== "arguments" && values.words?.(item)) || inIt];
    if (sent?.length) marks.push(["sent", sentWords(sent)]);
    else if (inside?.sums[item] && sent === null)
      marks.push(["sums", `Σ ${whole(inside.sums[item])}`]);
    if (inside?.moves[item]) marks.push(["moves", `⇄ ${whole(inside.moves[item])}`]);
    if (values.different[item]) marks.push(["differs", `≠ ${whole(values.different[item])}`]);
    if (kind === "repeated") lines[0] = `${whole(children)} × ${lines[0]}`;
    return { form, title, lines, marks, spec: null };
  }
  const sharding = values.sharding(node, 0, partitioner);
  const type = model.nodes.type(node);
  const spec = sharding?.short && sharding.short !== "-" ? clip(sharding.short, LONGEST) : null;
  const sent = values.sent(item, partitioner);
  for (const one of merged(sent ?? [])) marks.push(["sent", one]);
  if (sent === null && values.sums[partitioner]?.has(item)) marks.push(["sums", "Σ sums parts"]);
  if (values.different[item]) marks.push(["differs", "≠"]);
  const note = model.nodes.name(node);
  const lines = form === "small" ? [] : [clip(type, LONGEST)];
  if (note && form === "op") lines.unshift(clip(note.replace("->", " → "), LONGEST));
  return { form, title, lines, marks, spec: form === "small" ? null : spec };
}

/** "all-reduce model 64 KiB", as often as it is there. */
function merged(sent) {
  const found = new Map();
  for (const one of sent) {
    const words = `${one.kind}${one.axes ? ` ${one.axes.replaceAll(" ", "+")}` : ""}`;
    const known = found.get(words) ?? { count: 0, sent: 0 };
    found.set(words, { count: known.count + 1, sent: known.sent + one.sent });
  }
  return [...found].map(
    ([words, { count, sent: bytes }]) => `${count > 1 ? `${count} × ` : ""}${words} ${size(bytes)}`,
  );
}

function sentWords(sent) {
  const bytes = sent.reduce((sum, one) => sum + one.sent, 0);
  const names = new Set(sent.map((one) => one.name)).size;
  return `${whole(names)} ${names === 1 ? "collective" : "collectives"} ${size(bytes)}`;
}

function clip(text, most) {
  const all = Array.from(text);
  return all.length > most ? `${all.slice(0, most - 1).join("")}…` : text;
}

/** The size of an item that is not open, the same whatever partitioner is shown. */
export function sizeOf(model, values, item) {
  let width = 0;
  let height = 0;
  for (const partitioner of values.partitioners) {
    const said = labels(model, values, item, partitioner);
    const { form, title, lines, spec, marks } = said;
    const bold = form === "group" || form === "op" ? 1.07 : 1;
    const pills = marks.filter(([kind]) => kind !== "differs" || form === "group");
    const beside = form === "group" ? pills.reduce((sum, [, text]) => sum + text.length + 3, 0) : 0;
    const longest = Math.max(
      ...[...lines, spec ?? "", ...(form === "group" ? [] : pills.map(([, text]) => text))].map(
        (text) => text.length * SMALL_CHAR,
      ),
      title.length * CHAR * bold + (form === "group" ? 22 : 0),
      beside * SMALL_CHAR,
    );
    const minimum = form === "group" ? 128 : form === "small" ? 64 : 92;
    width = Math.max(width, minimum, Math.ceil(longest) + 24);
    const rows =
      lines.length + (spec ? 1 : 0) + (form === "group" ? Number(pills.length > 0) : pills.length);
    height = Math.max(
      height,
      form === "small" ? 22 + 16 * pills.length : 26 + rows * 15 + (form === "group" ? 6 : 0),
    );
  }
  return { width, height };
}
