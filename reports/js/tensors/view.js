// The tensors' table: by the model's tree or flat, searched as one types; a row opens its details.

import { el, whileIdle } from "../base/dom.js";
import { count, whole } from "../base/format.js";
import { escapeSearch } from "../base/keys.js";
import { GridTable } from "../base/table.js";
import { columns } from "./columns.js";
import { details } from "./details.js";
import { Rows, SECTIONS, VERDICTS } from "./rows.js";

/** Up to so many rows a group is open at first. */
const OPEN = 60;

/** Milliseconds without a key after which the count is read out. */
const QUIET = 600;

export function mount(_root, context) {
  const { data, shared, slots, state } = context;
  const rows = new Rows(data, shared);
  const tree = rows.tree();
  const totals = [];
  const worst = tree.totals((least, row) => Math.min(least, rows.severity[row]), 255);
  const order = new Map([["", null]]);
  let matches = null;
  /** What the rows that are shown take, for each group: of a search what it finds. */
  function sumBytes() {
    const counts = (row) => !matches || matches[row];
    const sums = tree.totals((sum, row) =>
      counts(row) ? sum + (rows.bytesPerDevice(row) ?? 0) : sum,
    );
    totals.splice(0, totals.length, ...sums);
  }
  let shownKey = null;
  let wanted = {};

  const table = new GridTable({
    label: "Tensors",
    columns: columns(rows, totals, worst, () => wanted.flat),
    line: (line) =>
      typeof line === "number"
        ? {
            depth: wanted.flat ? 0 : tree.parents[line].depth + 1,
            open: null,
            selected: line === wanted.row,
            tone: VERDICTS[rows.get.verdict(line)].tone,
          }
        : { depth: line.depth, open: isOpen(line), selected: false },
    activate: (line) => choose(line),
    toggle: (node, open) => toggle(node, open),
    sort: (name) => {
      const [now, direction] = (wanted.sort ?? "").split(":");
      const next = now !== name ? `${name}:desc` : direction === "desc" ? `${name}:asc` : "";
      state.set({ sort: next });
    },
  });
  slots.table.append(table.root);
  slots.bound.textContent = rows.atMost;
  slots.bound.hidden = !Array.from({ length: rows.length }, (_, row) => row).some((row) =>
    rows.isBound(row),
  );
  // What a search looks at is put together before the first key, while nothing else is to do.
  whileIdle((more) => rows.prepare(more));
  fillPicks(slots, rows);

  slots.search.addEventListener("input", () => state.set({ q: slots.search.value }));
  slots.search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      escapeSearch(state, ["tensor"], slots.search, () => table.element.focus());
    } else if (event.key === "ArrowDown") table.element.focus();
    else if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") firstMatch();
  });
  slots.section.addEventListener("change", () => state.set({ kind: slots.section.value }));
  slots.verdict.addEventListener("change", () => state.set({ verdict: slots.verdict.value }));
  slots.flat.addEventListener("change", () => state.set({ flat: slots.flat.checked ? "1" : "" }));

  function closeDetails() {
    if (state.params.tensor) state.set({ tensor: "" }, { push: true });
  }

  function openByDefault(node) {
    return node.depth === 0
      ? node.count <= 2000 || rows.length <= 5000 || node.label !== SECTIONS.inside
      : node.count <= OPEN;
  }

  function isOpen(node) {
    if (wanted.searching) return !wanted.closed.has(node.number);
    return openByDefault(node) !== wanted.toggled.has(node.number);
  }

  function toggle(node, open) {
    if (wanted.searching) {
      if (open) wanted.closed.delete(node.number);
      else wanted.closed.add(node.number);
      draw();
      return;
    }
    const toggled = new Set(wanted.toggled);
    if (open === openByDefault(node)) toggled.delete(node.number);
    else toggled.add(node.number);
    state.set({ open: [...toggled].sort((a, b) => a - b).join(".") });
  }

  function choose(row) {
    const key = rows.get.key(row);
    state.set({ tensor: state.params.tensor === key ? "" : key }, { push: true });
  }

  function firstMatch() {
    const at = table.lines.findIndex((line) => typeof line === "number");
    if (at >= 0) {
      table.reveal(at);
      choose(table.lines[at]);
    }
  }

  let announcing = 0;
  function draw() {
    const lines = wanted.flat ? flatLines() : tree.lines(matches, isOpen);
    const [name, direction] = (wanted.sort || "").split(":");
    table.show(lines, {
      sorted: name ? { name, direction } : null,
      empty: "No tensor has all of this.",
    });
    const total = matches ? matches.reduce((sum, match) => sum + match, 0) : rows.length;
    slots.count.textContent = matches
      ? `${whole(total)} of ${count(rows.length, "tensor")}`
      : count(rows.length, "tensor");
    clearTimeout(announcing);
    if (matches) announcing = setTimeout(() => context.announce(slots.count.textContent), QUIET);
  }

  function flatLines() {
    const { sort = "" } = wanted;
    const sorted = order.get(sort) ?? Array.from({ length: rows.length }, (_, row) => row);
    return matches ? sorted.filter((row) => matches[row]) : sorted;
  }

  /** Puts rows, and groups by their totals, in the order that the address asks for. */
  function sortBy(sort) {
    const [name, direction = "desc"] = sort.split(":");
    const keys = name ? rows.sortKeys(name) : null;
    if (!keys) {
      tree.sort(null);
      return;
    }
    const sign = direction === "asc" ? 1 : -1;
    const compare = comparison(keys);
    if (!order.has(sort)) {
      const all = Array.from({ length: rows.length }, (_, row) => row);
      order.set(
        sort,
        all.sort((a, b) => sign * compare(keys[a], keys[b]) || a - b),
      );
    }
    const text = typeof keys[0] === "string";
    const least = text ? null : tree.totals((most, row) => Math.max(most, keys[row]), -Infinity);
    const groups = { bytes: totals, block: totals }[name] ?? least;
    const value = (item) =>
      typeof item === "number" ? keys[item] : groups ? groups[item.number] : item.label;
    // What kind of tensor it is stays in its order.
    tree.sort((a, b) => (a.depth === 0 || b.depth === 0 ? 0 : sign * compare(value(a), value(b))));
  }

  function update(params) {
    const {
      q = "",
      kind = "",
      verdict = "",
      sort = "",
      flat = "",
      tensor = "",
      open = "",
    } = params;
    if (slots.search.value !== q) slots.search.value = q;
    slots.section.value = kind in SECTIONS ? kind : "";
    slots.verdict.value = verdict in VERDICTS ? verdict : "";
    slots.flat.checked = Boolean(flat);
    const row = rows.find(tensor);
    const searching = Boolean(q.trim() || slots.verdict.value);
    const filter = { query: q, section: slots.section.value, verdict: slots.verdict.value };
    const key = JSON.stringify(filter);
    const fresh = key !== shownKey;
    if (fresh) {
      matches = rows.matches(filter);
      shownKey = key;
      sumBytes();
    }
    if (sort !== wanted.sort || (fresh && sort)) sortBy(sort);
    const chosen = row !== wanted.row;
    const before = wanted;
    wanted = {
      sort,
      flat: Boolean(flat),
      row,
      open,
      searching,
      toggled:
        open === before.open
          ? before.toggled
          : new Set(open.split(".").filter(Boolean).map(Number)),
      closed: fresh || !before.closed ? new Set() : before.closed,
    };
    const changed =
      fresh || sort !== before.sort || wanted.flat !== before.flat || open !== before.open;
    if (changed) draw();
    if (chosen) showDetails(row, tensor);
    if (chosen && row >= 0) revealRow(row);
    else if (chosen) table.refresh();
  }

  function showDetails(row, name) {
    const none = row < 0;
    slots.details.hidden = none && !name;
    slots.split.dataset.open = String(!slots.details.hidden);
    if (none) {
      const words = `No tensor of this program is called ${name}.`;
      slots.details.replaceChildren(name ? el("p.missing", { dir: "auto" }, words) : "");
      return;
    }
    const close = () => {
      closeDetails();
      table.element.focus();
    };
    slots.details.replaceChildren(details(rows, row, context, close));
    slots.details.scrollTop = 0;
  }

  function revealRow(row) {
    let at = table.lines.indexOf(row);
    if (at < 0 && !wanted.flat && (!matches || matches[row])) {
      for (let node = tree.parents[row]; node; node = node.parent) {
        if (node.depth < 0 || isOpen(node)) continue;
        if (wanted.searching) wanted.closed.delete(node.number);
        else {
          wanted.toggled = new Set(wanted.toggled);
          if (openByDefault(node)) wanted.toggled.delete(node.number);
          else wanted.toggled.add(node.number);
        }
      }
      draw();
      at = table.lines.indexOf(row);
    }
    if (at >= 0) table.reveal(at, { centre: true });
    else table.refresh();
  }

  /** The next or the last row that is no group. */
  function step(by) {
    let at = table.active;
    do at += by;
    while (at >= 0 && at < table.lines.length && typeof table.lines[at] !== "number");
    if (at < 0 || at >= table.lines.length) return;
    table.reveal(at);
    state.set({ tensor: rows.get.key(table.lines[at]) });
  }

  return {
    update,
    keys: [
      { keys: "/", words: "Search", run: () => slots.search.focus() },
      { keys: "j", words: "The next tensor", run: () => step(1) },
      { keys: "k", words: "The one before", run: () => step(-1) },
      { keys: "f", words: "Flat, or by the model's tree", run: () => slots.flat.click() },
      {
        keys: "d",
        words: "Only where the partitioners differ",
        run: () => state.set({ verdict: state.params.verdict ? "" : "partitioners" }),
      },
      {
        keys: "Escape",
        words: "Close the details",
        run: closeDetails,
      },
    ],
  };
}

function comparison(keys) {
  if (typeof keys[0] !== "string") return (a, b) => a - b;
  const { compare } = new Intl.Collator("en", { numeric: true });
  return compare;
}

function fillPicks(slots, rows) {
  const sections = new Map();
  const verdicts = new Map();
  for (let row = 0; row < rows.length; row += 1) {
    const section = rows.get.section(row);
    const verdict = rows.get.verdict(row);
    sections.set(section, (sections.get(section) ?? 0) + 1);
    verdicts.set(verdict, (verdicts.get(verdict) ?? 0) + 1);
  }
  const option = (value, words) => el("option", { value }, words);
  slots.section.append(
    option("", "All kinds"),
    ...Object.entries(SECTIONS)
      .filter(([name]) => sections.has(name))
      .map(([name, words]) => option(name, `${words} (${whole(sections.get(name))})`)),
  );
  slots.verdict.append(
    option("", "Any verdict"),
    ...Object.entries(VERDICTS)
      .filter(([name]) => verdicts.has(name))
      .map(([name, { words }]) => option(name, `${words} (${whole(verdicts.get(name))})`)),
  );
}
