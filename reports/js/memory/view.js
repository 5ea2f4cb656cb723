// What a device holds: in all, by group, and what other devices could hold.

import { button, el, remarks, tableHead } from "../base/dom.js";
import { count, partitionerName, size, type, whole } from "../base/format.js";
import { link } from "../base/link.js";
import { press, segments } from "../base/segments.js";
import { spec } from "../base/spec.js";
import { miniTable } from "../base/table.js";
import { charts, heldAtPeak } from "./step.js";

/** How many suggestions are shown before the rest is asked for. */
const SAVINGS = 12;

export function mount(_root, { data, slots, state }) {
  const { holds } = data;
  slots.totals.append(el("h2.view-title", {}, data.title), ...totals(data.needs));
  segments(
    slots.partitioner,
    holds.map(({ partitioners }) => [
      partitioners[0],
      partitioners.map(partitionerName).join(" and "),
    ]),
    (under) => state.set({ under: holds[0].partitioners.includes(under) ? "" : under, all: "" }),
  );
  slots.partitioner.hidden = holds.length < 2;
  slots.notes.append(...remarks(data.notes));
  const { steps } = data;
  slots.step.hidden = !steps.length;
  const drawn = charts(steps, state);
  slots.charts.append(...drawn.elements);

  function update({ under = "", open = "", all = "", at = "" }) {
    const step = steps.find((step) => step.partitioners.includes(under)) ?? steps[0];
    drawn.update(at);
    const several = steps.length > 1;
    if (step) {
      slots.held.replaceChildren(...heldAtPeak(step, { all: all === "held", several, state }));
    }
    const chosen = holds.find(({ partitioners }) => partitioners.includes(under)) ?? holds[0];
    press(slots.partitioner, chosen.partitioners[0]);
    slots.groups.replaceChildren(...groups(chosen, state));
    slots.savings.replaceChildren(...savings(chosen, { open, all: all === "1", state }));
  }
  return { update };
}

// --- in all --------------------------------------------------------------------------------------

function totals(known) {
  if (!known.length) return [];
  const most = Math.max(...known.map((needs) => needs.total), 1);
  return [
    el(
      "div.needs",
      {},
      known.map((needs) => needsRow(needs, most)),
    ),
    needsTable(known),
  ];
}

function needsRow(needs, most) {
  return el(
    "div.sent-total",
    {},
    el("span.sent-name", {}, partitionerName(needs.partitioner)),
    el(
      "span.needs-stack",
      {
        role: "img",
        "aria-label": needs.parts.map(([, words, bytes]) => `${words}: ${size(bytes)}`).join(", "),
      },
      needs.parts.map(([name, words, bytes]) =>
        el(
          "span.stack-part",
          {
            data: { part: name },
            title: `${words}: ${size(bytes)}`,
            style: { width: `${(100 * bytes) / most}%` },
          },
          bytes > most / 7 ? el("span", {}, size(bytes)) : null,
        ),
      ),
    ),
    el("span.sent-value", {}, el("strong", {}, size(needs.total))),
  );
}

function needsTable(known) {
  const row = (name, words, bytes) => [
    el("span.legend-item", { data: { part: name } }, words),
    ...known.map((needs) => size(bytes(needs))),
  ];
  const { parts } = known[0];
  const [aliases, aliasWords] = known[0].aliases;
  const donated = known.some((needs) => needs.aliases[2]);
  return miniTable(
    "part",
    known.map((needs) => partitionerName(needs.partitioner)),
    [
      ...parts.map(([name, words], at) => row(name, words, (needs) => needs.parts[at][2])),
      ...(donated
        ? [row(aliases, `${aliasWords}, counted as arguments`, (needs) => needs.aliases[2])]
        : []),
    ],
    "table.mini.needs-table",
  );
}

// --- groups --------------------------------------------------------------------------------------

function groups(program, state) {
  const most = Math.max(...program.groups.map((group) => group.stored), 1);
  const padded = program.groups.some((group) => group.stored !== group.device);
  const shared = program.groups.some((group) => group.shared);
  const heads = [
    "group",
    "tensors",
    "whole",
    "per device",
    padded && "stored",
    "redundant",
    shared && "reused",
  ];
  const section = (kind, title) => {
    const members = program.groups.filter((group) => group.kind === kind);
    if (!members.length) return [];
    return [
      el("tr.groups-head", {}, el("th", { colspan: "8", scope: "colgroup" }, title)),
      ...members.map((group) => groupRow(group, { most, padded, shared, state })),
    ];
  };
  return [
    el(
      "div.groups-frame",
      {},
      el(
        "table.groups-table",
        {},
        tableHead(
          heads
            .filter(Boolean)
            .map((words, at) => el(at ? "th.end" : "th", { scope: "col" }, words)),
          el("th", { scope: "col" }, el("span.unseen", {}, "bar")),
        ),
        el("tbody", {}, section("argument", "arguments"), section("result", "results")),
      ),
    ),
    el("p.muted.groups-words", {}, el("span.redundant-key", {}), program.legend.join(" ")),
  ];
}

function groupRow(group, { most, padded, shared, state }) {
  const kept = Math.max(group.stored - group.replicated, 0);
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      link(state, "tensors", { q: group.name, kind: group.kind }, group.name),
    ),
    el("td.end", {}, whole(group.tensors)),
    el("td.end", {}, size(group.bytes)),
    el("td.end", {}, el("strong", {}, size(group.device))),
    padded ? el("td.end", {}, size(group.stored)) : null,
    el("td.end", {}, group.replicated ? size(group.replicated) : el("span.muted", {}, "–")),
    shared ? el("td.end", {}, group.shared ? size(group.shared) : el("span.muted", {}, "–")) : null,
    el(
      "td.groups-bar",
      { "aria-hidden": "true" },
      el(
        "span",
        {},
        el("span", { style: { width: `${(100 * kept) / most}%` }, data: { part: group.kind } }),
        el("span.redundant", {
          style: { width: `${(100 * Math.min(group.replicated, group.stored)) / most}%` },
        }),
      ),
    ),
  );
}

// --- what could be saved -------------------------------------------------------------------------

function savings(program, { open, all, state }) {
  const beyond = program.beyond.map((words) => el("p.muted", {}, words));
  if (!program.savings.length) return beyond.length ? beyond : [el("p.muted", {}, program.saved)];
  const most = Math.max(...program.savings.map((row) => row.saves), 1);
  const shown = all ? program.savings : program.savings.slice(0, SAVINGS);
  const left = program.savings.length - shown.length;
  return [
    el("p.savings-words", {}, program.saved, " It costs communication; sdyscope search tries it."),
    el(
      "ol.savings",
      {},
      shown.map((row) => saving(row, { most, open: open === row.name, state })),
    ),
    left ? button(`Show ${count(left, "more tensor")}`, () => state.set({ all: "1" })) : null,
    ...beyond,
  ].filter(Boolean);
}

function saving(row, { most, open, state }) {
  const name =
    row.tensors === 1
      ? link(state, "tensors", { tensor: row.name }, row.name)
      : el("bdi", {}, row.name);
  const replicas = row.replicas === null ? "" : count(row.replicas, "replica");
  return el(
    "li.saving",
    {},
    el(
      "span.collective-sent",
      {},
      el("span.collective-size", {}, size(row.saves)),
      el(
        "span.pair-track",
        { "aria-hidden": "true" },
        el("span", { style: { width: `${(100 * row.saves) / most}%` } }),
      ),
    ),
    el(
      "span.saving-name",
      {},
      name,
      el("code.muted.saving-type", {}, type(row.dtype, row.shape)),
      row.tensors > 1
        ? el(
            "button.more",
            {
              type: "button",
              "aria-expanded": String(open),
              on: { click: () => state.set({ open: open ? "" : row.name }) },
            },
            count(row.tensors, "tensor"),
          )
        : null,
    ),
    el(
      "span.saving-change",
      {},
      spec(row.sharding || "–"),
      el("span.muted", {}, replicas && `, ${replicas}`),
      " → ",
      spec(row.best),
    ),
    open
      ? el(
          "ul.saving-names",
          {},
          row.names.map((each) => el("li", {}, link(state, "tensors", { tensor: each }, each))),
          row.tensors > row.names.length
            ? el("li.muted", {}, `and ${count(row.tensors - row.names.length, "more")}`)
            : null,
        )
      : null,
  );
}
