// What a trace measured: one step over time, and each op and collective beside what is predicted.

import { el, remarks } from "../base/dom.js";
import { link } from "../base/link.js";
import { GridTable } from "../base/table.js";
import { bars, legend, scale } from "./timeline.js";

/** How many rows the table is high at most. */
const ROWS = 14;

/** The height of a row of it, in pixels. */
const ROW = 28;

/** What a row is sorted by, where that is no number. */
const TEXTS = {
  what: (row) => row.what,
  scope: (row) => row.scope,
  source: (row) => row.place,
};

/** The elements, and `update(sort)`, which sorts the table. */
export function measured(data, { state, shared }) {
  const rows = data.rows.map((row) => ({ ...row, place: shared.source(row.source) ?? "" }));
  const usual = { name: data.predicts ? "difference" : "seconds", direction: "desc" };
  const table = new GridTable({
    label: "Measured and predicted",
    columns: columns(rows, data.predicts, state),
    line: () => ({ depth: 0, open: null, selected: false }),
    activate: () => {},
    sort: (name) => {
      const [now, direction] = (state.params.sort ?? "").split(":");
      const next = now !== name ? `${name}:desc` : direction === "desc" ? `${name}:asc` : "";
      state.set({ sort: next });
    },
  });
  table.root.style.setProperty("height", `${(Math.min(rows.length, ROWS) + 1) * ROW + 12}px`);
  let shown = null;
  function update(sort = "") {
    if (sort === shown) return;
    shown = sort;
    const [name, direction = "desc"] = sort.split(":");
    table.show(sorted(rows, name, direction), {
      sorted: name ? { name, direction } : usual,
      empty: "Nothing ran.",
    });
  }
  const elements = [
    el("p.timeline-title", { dir: "auto" }, data.title),
    data.words.map((words) => el("p.muted", { dir: "auto" }, words)),
    data.lanes.length ? timeline(data) : null,
    rows.length
      ? [
          el(
            "h3.timeline-subtitle",
            {},
            data.predicts ? "Measured over predicted" : "What it took",
          ),
          el("div.measured-table", {}, table.root),
        ]
      : null,
    el("div.communication-notes", {}, remarks(data.notes)),
  ];
  return { elements, update };
}

/** What has no value stands last, whichever way the rest is sorted. */
function sorted(rows, name, direction) {
  if (!name) return rows;
  const sign = direction === "asc" ? 1 : -1;
  const text = TEXTS[name];
  if (text) return rows.toSorted((a, b) => sign * text(a).localeCompare(text(b)));
  return rows.toSorted((a, b) => {
    const [first] = a[name];
    const [second] = b[name];
    if (first === null || second === null) return (first === null) - (second === null);
    return sign * (first - second);
  });
}

function columns(rows, predicts, state) {
  const longest = (text, most) =>
    Math.min(Math.max(...rows.map((row) => text(row).length), 8) + 1, most);
  const number = (name, title, priority, hint) => ({
    name,
    title,
    hint,
    chars: 11,
    least: Math.max(title.length + 2, 9),
    end: true,
    priority,
    sortable: true,
    render: (cell, row) => {
      const [value, words] = row[name];
      if (value !== null) cell.append(words);
      else if (name !== "waiting") cell.append(el("span.muted", {}, "not known"));
    },
  });
  return [
    {
      name: "what",
      title: "op",
      chars: longest(TEXTS.what, 44),
      least: 16,
      grow: 1,
      priority: 0,
      sortable: true,
      render: (cell, row) => {
        cell.title = row.what;
        cell.append(el("bdi", {}, row.what));
      },
    },
    number("seconds", "measured", 1, "In a step, on average over devices and steps"),
    number("waiting", "waiting", 4, "Of these, until the last device of the group arrives"),
    ...(predicts
      ? [
          number("predicted", "predicted", 2, "In a step"),
          number("ratio", "ratio", 3, "Measured over predicted"),
          number("difference", "difference", 1, "Measured less predicted"),
        ]
      : []),
    {
      name: "scope",
      title: "scope",
      chars: longest(TEXTS.scope, 48),
      least: 18,
      grow: 1,
      priority: 6,
      sortable: true,
      render: (cell, row) => {
        cell.title = row.scope;
        cell.append(el("bdi", {}, row.scope));
      },
    },
    {
      name: "source",
      title: "line",
      chars: longest((row) => row.place.split("/").pop(), 36) + 2,
      least: longest((row) => row.place.split("/").pop(), 26) + 2,
      grow: 1,
      priority: 5,
      sortable: true,
      render: (cell, row) => {
        cell.title = row.place;
        const tail = row.place.split("/").pop();
        if (tail)
          cell.append(el("code.source", {}, link(state, "source", { line: row.place }, tail)));
      },
    },
  ];
}

/** Each lane as it was measured, above the same as it is predicted. */
function timeline(data) {
  return el(
    "div.timeline.timeline-measured",
    {},
    el(
      "div.timeline-lanes",
      { role: "img", "aria-label": spoken(data) },
      data.lanes.map((lane, at) => row(lane, data, at === 0)),
    ),
    scale(data.length),
    legend(),
  );
}

function row(lane, data, computes) {
  const which = data.predicts || lane.predicted ? ["measured", "predicted"] : ["measured"];
  return el(
    "div.timeline-lane.measured-lane",
    { data: { rows: String(which.length) } },
    el("span.timeline-name", {}, lane.name),
    which.map((name) => [
      el("span.timeline-which", {}, which.length > 1 ? name : ""),
      bars(lane[name]?.columns ?? [], data.columns, computes),
      el("span.timeline-time", {}, lane[name]?.time ?? "not known"),
    ]),
  );
}

function spoken(data) {
  return data.lanes
    .map((lane) => {
      const predicted = lane.predicted ? `, predicted ${lane.predicted.time}` : "";
      return `${lane.name}: measured ${lane.measured?.time ?? "not known"}${predicted}`;
    })
    .join("; ");
}
