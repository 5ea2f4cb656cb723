// Two partitioners, programs or kinds of hardware: what differs, by where it begins.

import { button, el } from "../base/dom.js";
import { count, partitionerName } from "../base/format.js";
import { places, withoutPlace } from "./model.js";
import { place } from "./places.js";
import { snapshots } from "./snapshots.js";
import {
  collectiveTable,
  entryTable,
  figureTable,
  kindTable,
  loweredPart,
  memoryTable,
} from "./tables.js";

/** How many places are shown before the rest is asked for. */
const SHOWN = 8;

export function mount(_root, context) {
  const { data, slots, state } = context;
  if (data.across === "snapshots") return snapshots(context);
  const labels = data.labels.map(partitionerName);
  const shared = { ...context, labels };
  const entries = places(data);
  slots.totals.append(...totals(data, labels));
  slots.causesSection.hidden = !entries.length;
  const rest = withoutPlace(data);
  slots.restSection.hidden = !rest.length;
  // Between two kinds of hardware shardings are not compared.
  slots.restTitle.textContent =
    data.across === "hardware"
      ? "Collectives that differ"
      : "Collectives that differ without a sharding that does";
  if (rest.length) slots.rest.append(collectiveTable(rest, shared));
  slots.loweredSection.hidden = data.across === "hardware";
  slots.lowered.append(...loweredPart(data.lowered, shared));
  slots.notes.append(...notes(data, labels));
  slots.count.textContent = count(entries.length, "place");

  function update({ open = "1", all = "", list = "" }) {
    const opened = Number(open) - 1;
    const shown = all ? entries : entries.slice(0, Math.max(SHOWN, opened + 1));
    slots.causes.replaceChildren(
      ...shown.map((entry, at) => place(entry, at, { ...shared, open: at === opened, list })),
    );
    const left = entries.length - shown.length;
    slots.more.hidden = !left;
    slots.more.replaceChildren(
      button(`Show ${count(left, "more place")}`, () => state.set({ all: "1" })),
    );
  }
  const move = (by) => {
    const now = Number(state.params.open ?? "1");
    const next = Math.min(Math.max(now + by, 1), entries.length);
    if (next) state.set({ open: String(next) });
    slots.causes.children[next - 1]?.scrollIntoView({ block: "nearest" });
  };
  return {
    update,
    keys: [
      { keys: "j", words: "Next place", run: () => move(1) },
      { keys: "k", words: "Previous place", run: () => move(-1) },
    ],
  };
}

// --- in all --------------------------------------------------------------------------------------

function totals(data, labels) {
  return [
    el("h2.view-title", { dir: "auto" }, data.title),
    ...summary(data.summary),
    el(
      "ol.compared-stages",
      {},
      ["lowered", "propagated", "compiled"].map((name) => stage(name, data[name])),
    ),
    ...tables(data, labels),
  ];
}

/** What an upgrade changes in all, of every version. */
function summary(comparison) {
  if (!comparison) return [];
  return [
    ...comparison.lines.map(({ words, tone }) =>
      el("p.note", { dir: "auto", data: { tone } }, words),
    ),
    ...(comparison.rows.length ? [el("div.compared-figures", {}, figureTable(comparison))] : []),
  ];
}

function stage(name, data) {
  const tone = data.unavailable ? "muted" : data.same ? "good" : "warning";
  const mark = { muted: "–", good: "=", warning: "≠" }[tone];
  return el(
    "li.compared-stage",
    { data: { tone } },
    el("span.compared-mark", { "aria-hidden": "true" }, mark),
    el("strong", {}, name),
    el("span.compared-words", { dir: "auto" }, data.unavailable ?? data.words),
  );
}

function tables(data, labels) {
  const { compiled } = data;
  if (compiled.unavailable || compiled.alike || !compiled.a.total || !compiled.b.total) {
    return [];
  }
  return [
    el(
      "div.compared-tables",
      {},
      kindTable(compiled, labels),
      memoryTable(compiled, labels),
      compiled.entries?.different.length ? entryTable(compiled.entries.different, labels) : null,
    ),
  ];
}

function notes(data, labels) {
  const elements = [];
  const say = (words, tone) => elements.push(el("p.note", { dir: "auto", data: { tone } }, words));
  for (const words of data.notes ?? []) say(words, "warning");
  for (const words of data.propagated.notCompared ?? []) say(words);
  (data.propagated.exactness ?? []).forEach((exactness, at) => {
    if (exactness !== "exact") say(`The propagation of ${labels[at]} is ${exactness}.`, "bad");
  });
  for (const words of data.compiled.entries?.notCompared ?? []) say(words, "bad");
  for (const words of data.compiled.notes ?? []) say(words);
  const sides = [data.compiled.a, data.compiled.b].filter(Boolean);
  for (const [at, side] of sides.entries()) {
    for (const words of side.notes) say(`${labels[at]}: ${words}`);
  }
  return elements;
}
