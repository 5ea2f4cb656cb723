// What a device sends: in all, by kind, axis, scope and cause, and the collectives themselves.

import { append, button, el, remarks } from "../base/dom.js";
import { count, partitionerName, size, whole } from "../base/format.js";
import { escapeSearch } from "../base/keys.js";
import { press, segments } from "../base/segments.js";
import { axisColour, coloured } from "../base/spec.js";
import { causeOf } from "./cause.js";
import { estimates } from "./estimates.js";
import { measured } from "./measured.js";
import { collectiveRow } from "./rows.js";

/** How many bars, and how many collectives, are shown before the rest is asked for. */
const BARS = 10;
const ROWS = 20;

const BY = {
  kind: "Kind",
  axis: "Mesh axis",
  scope: "Scope",
  pass: "Pass",
  cause: "Annotation",
};

export function mount(_root, context) {
  const { data, slots, state, shared } = context;
  const { programs } = data;
  const several = programs.length > 1;
  slots.totals.append(...totals(data));
  if (several) causeOf(slots.cause, data, context);
  slots.estimates.append(...estimates(data.estimates, state));
  const trace = data.measured ? measured(data.measured, context) : null;
  slots.measured.hidden = !trace;
  if (trace) append(slots.trace, trace.elements);
  slots.notes.append(...remarks(data.notes));
  slots.partitioner.hidden = !several;
  segments(slots.by, Object.entries(BY), (by) =>
    state.set({ by: by === "kind" ? "" : by, all: "" }),
  );
  segments(
    slots.partitioner,
    programs.map((program) => [
      program.partitioner,
      partitionerName(program.partitioner),
      program.count,
    ]),
    (under) => state.set({ under: under === programs[0].partitioner ? "" : under, open: "" }),
  );
  slots.search.addEventListener("input", () => state.set({ q: slots.search.value }));
  slots.search.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    escapeSearch(state, ["open"], slots.search, () => slots.search.blur());
  });
  const texts = data.rows.map((row) => textOf(row, shared).toLowerCase());

  function update({
    by = "kind",
    pick = "",
    under = "",
    q = "",
    open = "",
    all = "",
    more = "",
    sort = "",
  }) {
    trace?.update(sort);
    const chosen = by in BY ? by : "kind";
    press(slots.by, chosen);
    const index = programs.findIndex((candidate) => candidate.partitioner === under);
    const program = Math.max(index, 0);
    press(slots.partitioner, programs[program]?.partitioner);
    if (slots.search.value !== q) slots.search.value = q;
    slots.bars.replaceChildren(...barList(data, chosen, pick, all, state));
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = data.rows.filter(
      (row, at) =>
        row.program === program &&
        (!pick || row.labels[chosen]?.includes(pick)) &&
        words.every((word) => texts[at].includes(word)),
    );
    const total = data.rows.filter((row) => row.program === program);
    const runs = (list) => list.reduce((sum, row) => sum + row.count, 0);
    slots.count.textContent =
      rows.length === total.length
        ? count(runs(total), "collective")
        : `${whole(runs(rows))} of ${count(runs(total), "collective")}`;
    slots.picked.hidden = !pick;
    slots.picked.replaceChildren(...(pick ? picked(pick, state) : []));
    const most = Math.max(...total.map((row) => row.sent), 1);
    const at = rows.findIndex((row) => named(row, open));
    const shown = more ? rows : rows.slice(0, Math.max(ROWS, at + 1));
    slots.rows.replaceChildren(
      ...shown.map((row) => collectiveRow(row, { most, open: named(row, open), context })),
    );
    if (!rows.length) {
      const none = programs[program]?.count ? "No collective has all of this." : "Nothing is sent.";
      slots.rows.append(el("li.missing", {}, none));
    }
    const left = rows.length - shown.length;
    slots.more.hidden = !left;
    slots.more.replaceChildren(
      button(`Show ${count(left, "more row")}`, () => state.set({ more: "1" })),
    );
  }
  const step = (by) => {
    const buttons = [...slots.rows.querySelectorAll(".collective-line")];
    const now = buttons.indexOf(document.activeElement);
    buttons[Math.min(Math.max(now + by, 0), buttons.length - 1)]?.focus();
  };
  return {
    update,
    keys: [
      { keys: "/", words: "Search collectives", run: () => slots.search.select() },
      { keys: "j", words: "Next collective", run: () => step(1) },
      { keys: "k", words: "Previous collective", run: () => step(-1) },
    ],
  };
}

function named(row, open) {
  return Boolean(open) && (row.key === open || row.members.some((member) => member.name === open));
}

// --- in all --------------------------------------------------------------------------------------

function totals(data) {
  const { programs } = data;
  const most = Math.max(...programs.map((program) => program.sent), 1);
  return [
    el("h2.view-title", {}, data.title),
    el(
      "div.sent-totals",
      {},
      programs.map((program, number) =>
        el(
          "div.sent-total",
          {},
          el("span.sent-name", {}, partitionerName(program.partitioner)),
          el(
            "span.sent-stack",
            { role: "img", "aria-label": stackWords(data, number) },
            data.bars.axis
              ?.filter((bar) => bar.tallies[number][1])
              .map((bar) =>
                el("span", {
                  title: `${bar.label}: ${size(bar.tallies[number][1])}`,
                  style: {
                    width: `${(100 * bar.tallies[number][1]) / most}%`,
                    "--part": colourOf(bar.label),
                  },
                }),
              ),
          ),
          el(
            "span.sent-value",
            {},
            el("strong", {}, size(program.sent)),
            el("span.muted", {}, ` in ${count(program.count, "collective")}`),
          ),
        ),
      ),
    ),
    el(
      "p.legend.axis-legend",
      {},
      data.bars.axis?.map((bar) =>
        el("span.axis-key", { style: { "--part": colourOf(bar.label) } }, coloured(bar.label)),
      ),
    ),
  ];
}

function stackWords(data, number) {
  return data.bars.axis
    ?.filter((bar) => bar.tallies[number][1])
    .map((bar) => `${bar.label}: ${size(bar.tallies[number][1])}`)
    .join(", ");
}

/** One axis has its colour; several together are grey. */
function colourOf(label) {
  const axes = label.split(" x ").map((axis) => axis.replace(/[:=].*$/s, ""));
  return axes.length === 1 ? axisColour(axes[0]) : "var(--line-strong)";
}

// --- bars ----------------------------------------------------------------------------------------

function barList(data, by, pick, all, state) {
  const { programs } = data;
  const bars = data.bars[by] ?? [];
  if (!bars.length) return [el("p.muted", {}, "Nothing is sent.")];
  const most = Math.max(...bars.flatMap((bar) => bar.tallies.map(([, sent]) => sent)), 1);
  const at = bars.findIndex((bar) => bar.label === pick);
  const shown = all ? bars : bars.slice(0, Math.max(BARS, at + 1));
  const left = bars.length - shown.length;
  return [
    by === "cause"
      ? el("p.muted.bars-note", {}, "What comes from several annotations counts with each of them.")
      : null,
    el(
      "ul.pairs-of-bars",
      {},
      shown.map((bar) =>
        el(
          "li",
          {},
          el(
            "button.pair-of-bars",
            {
              type: "button",
              "aria-pressed": String(bar.label === pick),
              title: "Show these collectives only",
              on: {
                click: () => state.set({ pick: bar.label === pick ? "" : bar.label, open: "" }),
              },
            },
            el("span.pair-label", {}, barLabel(by, bar.label)),
            el(
              "span.pair-lines",
              {},
              bar.tallies.map(([number, sent], side) =>
                el(
                  "span.pair-line",
                  { data: { side: String(side) } },
                  programs.length > 1
                    ? el("span.pair-side", {}, partitionerName(programs[side].partitioner))
                    : null,
                  el(
                    "span.pair-track",
                    { "aria-hidden": "true" },
                    sent ? el("span", { style: { width: `${(100 * sent) / most}%` } }) : null,
                  ),
                  el(
                    "span.pair-value",
                    {},
                    number || sent ? size(sent) : "–",
                    number ? el("span.muted", {}, ` × ${whole(number)}`) : null,
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
    left ? button(`Show ${count(left, "more bar")}`, () => state.set({ all: "1" })) : null,
  ].filter(Boolean);
}

function barLabel(by, label) {
  if (by !== "kind") return el("bdi", {}, coloured(label));
  const [kind, over] = label.split("\n");
  return [el("strong", {}, kind), " over ", coloured(over)];
}

function picked(pick, state) {
  const [first, second] = pick.split("\n");
  return [
    "Only ",
    el("bdi", {}, coloured(second ? `${first} over ${second}` : first)),
    " ",
    button("Show all", () => state.set({ pick: "" })),
  ];
}

// --- the rest ------------------------------------------------------------------------------------

function textOf(row, shared) {
  return [
    row.kind,
    row.over,
    row.scope,
    shared.source(row.source),
    row.tensor,
    row.why,
    ...row.members.flatMap((member) => [member.name, ...member.parts.map((part) => part.words)]),
  ].join("\n");
}
