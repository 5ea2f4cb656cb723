// What is said of the things in the graph, and how much room that takes.

import { count, size, whole } from "../base/format.js";

/** How the styles write each kind of text. */
const FONTS = {
  name: "400 12px sans",
  bold: "650 12px sans",
  title: "650 13.5px sans",
  note: "400 10.5px sans",
  spec: "600 10px mono",
  pill: "550 10.5px sans",
};
const LONGEST = 40;

const widths = new Map();
const rulers = new Map();

/** What measures a kind of text. */
function ruler(kind) {
  if (!rulers.has(kind)) {
    const style = getComputedStyle(document.documentElement);
    const context = document.createElement("canvas").getContext("2d");
    context.font = FONTS[kind].replace(/sans|mono/, (name) => style.getPropertyValue(`--${name}`));
    rulers.set(kind, context);
  }
  return rulers.get(kind);
}

/** How wide a text of a kind is drawn. */
export function textWidth(words, kind) {
  const key = `${kind} ${words}`;
  if (!widths.has(key)) widths.set(key, ruler(kind).measureText(words).width);
  return widths.get(key);
}

/** How wide a mark is that says something of a box. */
export function pillWidth(words) {
  return textWidth(words, "pill") + 12;
}

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
  for (const caption of merged(sent ?? [])) marks.push(["sent", caption]);
  if (sent === null && values.sums[partitioner]?.has(item)) marks.push(["sums", "Σ sums parts"]);
  if (values.different[item]) marks.push(["differs", "≠"]);
  const note = model.nodes.name(node);
  const lines = form === "small" ? [] : [clip(type, LONGEST)];
  if (note && form === "op") lines.unshift(clip(note.replace("->", " → "), LONGEST));
  return { form, title, lines, marks, spec: form === "small" ? null : spec };
}

/** "all-reduce model 64 KiB", as often as it is there. */
function merged(sent) {
  const totals = new Map();
  for (const collective of sent) {
    const words = `${collective.kind}${collective.axes ? ` ${collective.axes}` : ""}`;
    const known = totals.get(words) ?? { count: 0, sent: 0 };
    totals.set(words, { count: known.count + 1, sent: known.sent + collective.sent });
  }
  return [...totals].map(
    ([words, { count, sent: bytes }]) => `${count > 1 ? `${count} × ` : ""}${words} ${size(bytes)}`,
  );
}

function sentWords(sent) {
  const bytes = sent.reduce((sum, collective) => sum + collective.sent, 0);
  const names = new Set(sent.map((collective) => collective.name)).size;
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
    const isGroup = form === "group";
    const pills = marks.filter(([kind]) => kind !== "differs" || isGroup);
    const pillWidths = pills.map(([, text]) => pillWidth(text));
    const longest = Math.max(
      ...lines.map((text) => textWidth(text, "note")),
      spec ? textWidth(spec, "spec") : 0,
      textWidth(title, isGroup || form === "op" ? "bold" : "name") + (isGroup ? 22 : 0),
      isGroup ? pillWidths.reduce((sum, width) => sum + width + 4, 0) : Math.max(0, ...pillWidths),
    );
    const minimum = isGroup ? 128 : form === "small" ? 64 : 92;
    width = Math.max(width, minimum, Math.ceil(longest) + 24);
    const rows =
      lines.length + (spec ? 1 : 0) + (isGroup ? Number(pills.length > 0) : pills.length);
    height = Math.max(
      height,
      form === "small" ? 22 + 16 * pills.length : 26 + rows * 15 + (isGroup ? 6 : 0),
    );
  }
  return { width, height };
}
