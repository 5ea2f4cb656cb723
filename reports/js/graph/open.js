// Which groups are open: at first, in the address, and one level more.

import { ROOT } from "./model.js";

/** At first groups of a program of at most so many ops are open while there is little to see. */
const SMALL = 150;
const AT_FIRST = 36;

/** Groups that are closed at first in any case. */
const CLOSED = new Set(["call", "arguments"]);

/** "One level more" stops before there are more things than this. */
const AT_MOST = 1500;

/** The passes of the program that have something in them; they are always open. */
export function lanes(model) {
  return model.childrenOf.get(ROOT).filter((lane) => model.childrenOf.get(lane).length);
}

/** As many groups as are well seen at once. */
export function openAtFirst(model) {
  const open = new Set(lanes(model));
  let seen = [...open].reduce((sum, lane) => sum + model.childrenOf.get(lane).length, 0);
  const waiting = [...open].flatMap((lane) => model.childrenOf.get(lane));
  const ops = [...open].reduce((sum, lane) => sum + model.ops[lane], 0);
  if (ops > SMALL) return open;
  while (waiting.length) {
    // What is called alike is open or closed together, the smallest first.
    const alike = new Map();
    for (const item of waiting.splice(0)) {
      if (!model.isGroup(item) || CLOSED.has(model.groupKind(item))) continue;
      const name = model.title(item).replace(/\d+/g, "#");
      const known = alike.get(name) ?? { items: [], more: 0 };
      known.items.push(item);
      known.more += model.childrenOf.get(item).length - 1;
      alike.set(name, known);
    }
    for (const { items, more } of [...alike.values()].sort((a, b) => a.more - b.more)) {
      if (seen + more > AT_FIRST) break;
      seen += more;
      for (const item of items) {
        open.add(item);
        waiting.push(...model.childrenOf.get(item));
      }
    }
  }
  return open;
}

/** The open groups that an address names. */
export function readOpen(model, text) {
  const open = new Set(lanes(model));
  for (const word of text.split(",")) {
    const group = model.firstGroup + Number(word);
    if (/^\d+$/.test(word) && model.isGroup(group)) open.add(group);
  }
  return open;
}

/** What an address says of open groups. */
export function writeOpen(model, open) {
  const always = new Set(lanes(model));
  const numbers = [...new Set(open)]
    .filter((group) => !always.has(group))
    .map((group) => group - model.firstGroup);
  return numbers.sort((a, b) => a - b).join(",") || "none";
}

/**
 * What is open with each closed group of a picture opened, the smallest first; of layers alike one.
 * Arguments that are one box stay so while there is anything else to open.
 */
export function oneLevelMore(model, picture, open) {
  const groups = [...picture.boxes].filter(([item]) => model.isGroup(item));
  const alike = (item) => `${model.parent[item]} ${model.title(item).replace(/\d+/g, "#")}`;
  const examples = new Set(groups.filter(([, box]) => box.open).map(([item]) => alike(item)));
  const all = groups.filter(([item, box]) => {
    if (box.open || examples.has(alike(item))) return false;
    if (/\d/.test(model.title(item))) examples.add(alike(item));
    return true;
  });
  const levels = all.filter(([item]) => model.groupKind(item) !== "arguments");
  const closed = levels.length ? levels : all;
  const next = new Set(open);
  let seen = picture.boxes.size;
  for (const [item] of closed.sort(([a], [b]) => model.ops[a] - model.ops[b])) {
    seen += model.childrenOf.get(item).length;
    if (seen > AT_MOST) break;
    next.add(item);
  }
  return next;
}
