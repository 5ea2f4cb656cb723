// The columns of the tensors' table: what is in their cells, and how wide they are.

import { el } from "../base/dom.js";
import { count, partitionerName, size, whole } from "../base/format.js";
import { spec } from "../base/spec.js";
import { VERDICTS } from "./rows.js";
import { pieceLabel } from "./tree.js";

/** The characters of a text that get room, if there is some; and those of a sharding that need it. */
const LONGEST = 56;
const NEEDED = 32;

/** What became of values that are nowhere. */
const NOWHERE = new Set(["folded", "not partitioned"]);

/** The columns, as wide as what is in them. */
export function columns(rows, totals, worst, isFlat) {
  const { get, partitioners, stages, shared } = rows;
  const columns = [
    {
      name: "name",
      title: "tensor",
      chars: 38,
      least: 26,
      grow: 1,
      priority: 0,
      sortable: true,
      render: (cell, line) => nameCell(cell, line, rows, isFlat()),
    },
    {
      name: "type",
      title: "type",
      chars: longest(rows, (row) => rows.type(row), LONGEST),
      whole: true,
      least: 14,
      priority: 3.5,
      sortable: true,
      render: leaf((cell, row) => cell.append(el("code", {}, rows.type(row)))),
    },
  ];
  if (stages.requested) {
    const chars = longest(rows, (row) => shared.sharding(get.requested(row))?.short ?? "", LONGEST);
    columns.push({
      name: "requested",
      title: "requested",
      hint: "What the program requests",
      chars,
      whole: true,
      least: Math.max(Math.min(chars, NEEDED), 10),
      priority: 3,
      sortable: true,
      render: leaf((cell, row) => shardingCell(cell, rows, row, "requested", () => false)),
    });
  }
  for (const stage of ["lowered", "propagated"]) {
    const under = stage === "lowered" ? partitioners : stages.propagated;
    const text = (row, partitioner, shows = () => true) =>
      shownText(rows, row, `${stage}.${partitioner}`, shows);
    for (const { partitioner, title, over, hint } of stageColumns(rows, stage, under, text)) {
      const name = `${stage}.${partitioner}`;
      const heading = Math.max(title.length + 2, 8);
      const known = new Map();
      // Beside what was requested most is only "=".
      const chars = (shows) => {
        const beside = shows("requested");
        if (!known.has(beside)) {
          const own = longest(rows, (row) => text(row, partitioner, () => beside), LONGEST);
          known.set(beside, Math.max(own, heading));
        }
        return known.get(beside);
      };
      columns.push({
        name,
        title,
        over,
        hint: `${stage === "lowered" ? "As the module says" : "As decided"} under ${hint}`,
        chars,
        whole: true,
        least: (shows) => Math.min(chars(shows), stage === "lowered" ? 16 : NEEDED),
        priority: stage === "lowered" ? 6 : 2,
        below: stage === "propagated" ? (row) => belowItem(rows, row, name, over && title) : null,
        sortable: true,
        render: leaf((cell, row, shows) => shardingCell(cell, rows, row, name, shows)),
      });
    }
  }
  const held = (row, partitioner) => {
    const stored = get[`compiled.${partitioner}`](row);
    return stored ? heldText(stored, rows, row) : "";
  };
  for (const { partitioner, title, over, hint } of stageColumns(
    rows,
    "compiled",
    stages.compiled,
    held,
  )) {
    const name = `compiled.${partitioner}`;
    const chars = Math.max(
      longest(rows, (row) => held(row, partitioner), 18),
      title.length + 1,
      8,
    );
    columns.push({
      name,
      title,
      over,
      hint: `The block of the program that is compiled under ${hint}`,
      chars,
      least: chars,
      priority: 7,
      render: leaf((cell, row) => heldCell(cell, rows, row, name)),
    });
  }
  const ran = (row, partitioner) => executedText(get[`executed.${partitioner}`](row));
  for (const column of stageColumns(rows, "executed", stages.executed, ran)) {
    const name = `executed.${column.partitioner}`;
    const chars = Math.max(
      longest(rows, (row) => ran(row, column.partitioner), 18),
      column.title.length + 1,
      9,
    );
    columns.push({
      name,
      title: column.title,
      over: column.over,
      hint: `What the devices held under ${column.hint}`,
      chars,
      least: chars,
      priority: 7,
      render: leaf((cell, row) => executedCell(cell, get[name](row))),
    });
  }
  if (get.time) {
    columns.push({
      name: "time",
      title: "time",
      hint: "What the instructions named after it took in a step, by the trace",
      chars: 10,
      least: 9,
      end: true,
      priority: 3.2,
      sortable: true,
      render: leaf((cell, row) => timeCell(cell, get.time(row))),
    });
  }
  columns.push(
    {
      name: "block",
      title: "block",
      hint: "Shape of the block that a device holds",
      chars: longest(rows, (row) => rows.block(row) + padded(rows, row), LONGEST),
      whole: true,
      least: 10,
      priority: 4,
      sortable: true,
      render: leaf((cell, row) => {
        cell.append(el("code", {}, rows.block(row)));
        const pad = padded(rows, row);
        if (pad) cell.append(el("span.padded", { title: "with padding" }, pad));
      }),
    },
    {
      name: "bytes",
      title: "bytes",
      hint: "Bytes of the block that a device holds",
      chars: 10,
      least: 9,
      end: true,
      priority: 1,
      sortable: true,
      render: (cell, line) =>
        typeof line === "number"
          ? cell.append(rows.bytesText(line))
          : cell.append(el("span.muted", {}, size(totals[line.number]))),
    },
    {
      name: "replicas",
      title: "replicas",
      hint: "How many devices hold the same block",
      chars: 8,
      least: 6,
      end: true,
      priority: 5,
      sortable: true,
      render: leaf((cell, row) => {
        const replicas = rows.replicas(row);
        cell.append(
          el(
            replicas > 1 ? "span.replicas" : "span.muted",
            {},
            replicas === null ? rows.nowhere(row) : whole(replicas),
          ),
        );
      }),
    },
    {
      name: "verdict",
      title: "verdict",
      chars: longest(rows, (row) => VERDICTS[get.verdict(row)].words, 20) + 2,
      least: 15,
      priority: 2.5,
      sortable: true,
      render: (cell, line) => verdictCell(cell, line, rows, worst),
    },
  );
  return columns;
}

/** A column a partitioner; one for all where they say the same of every tensor. */
function stageColumns(rows, stage, partitioners, text) {
  const [first, ...others] = partitioners;
  if (!first) return [];
  let same = true;
  for (let row = 0; same && row < rows.length; row += 1) {
    const own = text(row, first);
    same = others.every((other) => {
      const said = text(row, other);
      return said === own || said === "=" || said === "" || NOWHERE.has(said);
    });
  }
  if (same) {
    const hint = partitioners.map(partitionerName).join(" and ");
    return [{ partitioner: first, title: stage, over: "", hint }];
  }
  return partitioners.map((partitioner) => ({
    partitioner,
    title: partitionerName(partitioner),
    over: stage,
    hint: partitionerName(partitioner),
  }));
}

function padded(rows, row) {
  return rows.held(row)?.padding ? " pad" : "";
}

function leaf(render) {
  return (cell, line, shows) => typeof line === "number" && render(cell, line, shows);
}

/** The number of characters of the longest of some texts, at most `most`. */
function longest(rows, text, most) {
  const step = Math.max(1, Math.floor(rows.length / 4000));
  let width = 0;
  for (let row = 0; row < rows.length; row += row < 1000 ? 1 : step) {
    width = Math.max(width, text(row).length);
  }
  return Math.min(width, most);
}

function nameCell(cell, line, rows, flat) {
  if (typeof line !== "number") {
    cell.append(
      el("bdi.node", {}, pieceLabel(line.label)),
      el("span.node-count", {}, whole(line.shown)),
    );
    return;
  }
  const { get } = rows;
  const leafName = rows.leaf(line) || get.name(line);
  const full = get.name(line) || get.kind(line);
  cell.title = full;
  const section = get.section(line);
  // Without the tree around it, what stands above a name there is beside it.
  const above = section === "inside" ? get.name(line) : full.slice(0, -leafName.length);
  const source = rows.shared.source(get.source(line));
  cell.append(
    el(
      "span.called",
      {},
      el("bdi.leaf", {}, flat ? leafName : pieceLabel(leafName)),
      section === "inside" ? el("span.ssa", {}, get.ssa(line)) : null,
    ),
  );
  const beside = flat ? above : source.split("/").pop();
  if (beside) cell.append(el("bdi.at", {}, beside));
  if (get.donated(line) && section === "argument") {
    cell.append(el("span.tag", { title: "The caller donates its buffer" }, "donated"));
  }
}

/** The same place as what stands before it in the row: said with "=". */
function reference(rows, row, name, shows) {
  const { get, shared } = rows;
  const requested = shows("requested") ? shared.sharding(get.requested(row)) : null;
  if (requested) return requested;
  const first = `propagated.${rows.stages.propagated[0]}`;
  return name !== first && name.startsWith("propagated.") ? shared.sharding(get[first](row)) : null;
}

function shownText(rows, row, name, shows) {
  const own = rows.shared.sharding(rows.get[name](row));
  const fate = rows.get[`${name}.fate`]?.(row) ?? "";
  if (!own || NOWHERE.has(fate)) return NOWHERE.has(fate) ? fate : "";
  return isSame(rows, row, name, own, shows) ? "=" : own.short;
}

function isSame(rows, row, name, own, shows) {
  const other = reference(rows, row, name, shows);
  return other?.place !== undefined && other.place === own.place;
}

/** What stands below a name where there is no column for it; nothing where all say the same. */
function belowItem(rows, row, name, title) {
  const item = el("span.grid-below-item", {});
  shardingCell(item, rows, row, name, () => false);
  if (!item.textContent || item.querySelector(".same")) return null;
  const first = `propagated.${rows.stages.propagated[0]}`;
  if (title && name !== first) {
    const text = (stage) => shownText(rows, row, stage, () => false);
    if (text(name) === text(first)) return null;
    item.prepend(el("span.muted", {}, `${title} `));
  }
  return item;
}

function shardingCell(cell, rows, row, name, shows) {
  const { get, shared } = rows;
  const own = shared.sharding(get[name](row));
  if (!own) {
    const fate = get[`${name}.fate`]?.(row);
    cell.append(
      el("span.none", {}, name === "requested" ? "–" : fate && fate !== "kept" ? fate : ""),
    );
    return;
  }
  const wrong = get[`${name}.agrees`]?.(row) === false;
  const fate = get[`${name}.fate`]?.(row) ?? "";
  if (wrong || own.problem) cell.dataset.tone = "bad";
  else if (isSame(rows, row, name, own, shows)) {
    cell.append(el("span.same", { title: own.short }, "="));
    return;
  } else if (name.startsWith("propagated.") && get.verdict(row) === "partitioners") {
    cell.dataset.tone = "warning";
  }
  if (NOWHERE.has(fate)) {
    cell.append(el("span.none", {}, fate));
    return;
  }
  if (!own.short || own.short === "-") {
    cell.append(el("span.none", {}, "–"));
    return;
  }
  const words = own.problem ?? own.words;
  cell.title = words ? `${own.short}: ${words}` : own.short;
  cell.append(own.short === "replicated" ? el("span.replicated", {}, own.short) : spec(own.short));
}

function heldText([sharding, block], rows, row) {
  const expected = rows.held(row)?.block;
  if (expected && String(expected) === String(block)) return "=";
  return sharding || `[${block.join(",")}]`;
}

function heldCell(cell, rows, row, name) {
  const held = rows.get[name](row);
  if (!held) return;
  const text = heldText(held, rows, row);
  if (text === "=") cell.append(el("span.same", { title: `[${held[1].join(",")}]` }, "="));
  else {
    cell.dataset.tone = "warning";
    cell.append(spec(text));
  }
}

/** "=" where every shard was the block that was asked for. */
/** Of several values of one name, all of their instructions. */
function timeCell(cell, time) {
  if (!time) return;
  const [, words, values] = time;
  cell.append(values > 1 ? `≤ ${words}` : words);
  if (values > 1) cell.title = `${words} for ${count(values, "value")} of this name`;
}

function executedText(executed) {
  if (!executed) return "";
  const [verdict, short] = executed;
  return { "as placed": "=", chosen: short }[verdict] ?? verdict;
}

function executedCell(cell, executed) {
  const text = executedText(executed);
  if (text === "=") cell.append(el("span.same", { title: executed[1] }, "="));
  else if (text) {
    if (executed[0] === "differs") cell.dataset.tone = "bad";
    cell.append(executed[0] === "chosen" ? spec(text) : text);
  }
}

function verdictCell(cell, line, rows, worst) {
  const isRow = typeof line === "number";
  const name = isRow ? rows.get.verdict(line) : Object.keys(VERDICTS)[worst[line.number]];
  const verdict = VERDICTS[name];
  if (!isRow && (!verdict || !["bad", "warning"].includes(verdict.tone))) return;
  cell.append(
    el(
      "span.verdict",
      { data: { tone: verdict.tone } },
      verdict.mark ? `${verdict.mark} ` : "",
      verdict.words,
    ),
  );
}
