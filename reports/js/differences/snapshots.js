// Two snapshot files: what each program says otherwise, tensor by tensor and stage by stage.

import { button, el, tableHead } from "../base/dom.js";
import { count, whole } from "../base/format.js";
import { colourAxes, coloured } from "../base/spec.js";
import { nowNamed } from "./tables.js";

/** So many changes of a program are shown before the rest is asked for. */
const SHOWN = 200;

/** Shows what `sdyscope diff` says of two snapshot files. */
export function snapshots({ data, slots, state }) {
  for (const slot of ["causesSection", "restSection", "loweredSection", "notes"]) {
    slots[slot].hidden = true;
  }
  slots.totals.append(
    el("h2.view-title", { dir: "auto" }, data.title),
    ...only(data.onlyA, data.labels[0]),
    ...only(data.onlyB, data.labels[1]),
    el("p.note", {}, data.noViews),
  );
  slots.programs.hidden = false;
  colourAxes([{ axes: axesOf(data.snapshots) }]);
  return {
    update({ all = "" }) {
      slots.programs.replaceChildren(
        ...data.snapshots.map((comparison) => program(comparison, data.labels, all, state)),
      );
    },
  };
}

/** The axes that shardings name: a snapshot has no mesh but in words. */
function axesOf(compared) {
  const items = compared.flatMap((comparison) =>
    comparison.changes.flatMap((change) => [...change.before, ...change.after]),
  );
  const texts = items.flatMap((item) => item.cells.map((cell) => cell.text));
  const names = texts.flatMap((text) =>
    Array.from(text.matchAll(/'([^']+)'/g), (match) => match[1]),
  );
  return Object.fromEntries([...new Set(names)].map((name) => [name, 0]));
}

function only(names, label) {
  if (!names.length) return [];
  return [
    el(
      "p.note",
      { data: { tone: "warning" } },
      `Only in `,
      el("bdi", {}, label),
      ": ",
      names.map((name, at) => [at ? ", " : "", el("bdi", {}, name)]),
    ),
  ];
}

function program(comparison, labels, all, state) {
  const changes = comparison.changes;
  const shown = all ? changes : changes.slice(0, SHOWN);
  return el(
    "section",
    {},
    el(
      "div.section-bar",
      {},
      el("h2.section-title", {}, el("bdi", {}, comparison.name)),
      el("output.toolbar-count", {}, comparison.words),
    ),
    comparison.notes.map((words) => el("p.note", { data: { tone: "warning" } }, words)),
    comparison.header.map((change) =>
      el(
        "p",
        {},
        el("strong", {}, change.word),
        ": ",
        el("bdi", {}, coloured(change.before)),
        " → ",
        el("bdi", {}, coloured(change.after)),
      ),
    ),
    shown.length ? table(shown, labels) : null,
    changes.length > shown.length
      ? el(
          "p",
          {},
          button(`Show ${count(changes.length - shown.length, "more difference")}`, () =>
            state.set({ all: "1" }),
          ),
        )
      : null,
  );
}

function table(changes, labels) {
  return el(
    "div.compared-frame",
    { role: "region", "aria-label": "Tensors that differ", tabindex: "0" },
    el(
      "table.compared.snapshots",
      {},
      tableHead(
        el("th", { scope: "col" }, "tensor"),
        labels.map((words) => el("th", { scope: "col" }, el("bdi", {}, words))),
      ),
      el(
        "tbody",
        {},
        changes.map((change) => row(change, labels)),
      ),
    ),
  );
}

function row(change, labels) {
  const [before, after] = [stages(change.before), stages(change.after)];
  const isOther = (key, text, others) => others.size && others.get(key) !== text;
  const side = (own, others, label) =>
    own.size
      ? el(
          "td",
          { data: { side: label } },
          el(
            "dl.snapshot-stages",
            {},
            Array.from(own, ([key, text]) => [
              el("dt", {}, key.replace(/\n\d+$/, "")),
              el(
                "dd",
                { data: isOther(key, text, others) ? { tone: "warning" } : {} },
                el("code.spec", { dir: "ltr" }, coloured(text)),
              ),
            ]),
          ),
        )
      : el("td.muted", { data: { side: label } }, "not there");
  const type =
    change.typeAfter === change.typeBefore
      ? change.typeBefore
      : `${change.typeBefore} → ${change.typeAfter}`;
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      change.over ? [coloured(change.over), " in "] : null,
      el("bdi", {}, change.name),
      nowNamed(change.otherName),
      el("span.muted", {}, ` ${change.kind}${change.count > 1 ? ` ×${whole(change.count)}` : ""}`),
      type ? el("div", {}, el("code.muted", {}, type)) : null,
    ),
    side(before, after, labels[0]),
    side(after, before, labels[1]),
  );
}

/** What each stage says, by its name; of several items one below the other. */
function stages(items) {
  const texts = new Map();
  items.forEach((item, number) => {
    for (const { stage, partitioner, text } of item.cells) {
      const name = partitioner ? `${stage} ${partitioner}` : stage;
      const key = items.length > 1 ? `${name}\n${number}` : name;
      texts.set(key, item.count > 1 ? `×${item.count} ${text}` : text);
    }
  });
  return texts;
}
