// The overview: the mesh, the stages, the numbers, and what is most worth knowing.

import { el } from "../base/dom.js";
import { count, partitionerName, size, whole } from "../base/format.js";
import { link, sourceLink, withLine } from "../base/link.js";
import { coloured } from "../base/spec.js";
import { parse } from "../base/state.js";
import { miniTable } from "../base/table.js";
import { meshPicture } from "../placement/mesh.js";

const STATES = { good: "✓", warning: "!", bad: "✗", unknown: "–" };
const STATE_WORDS = {
  good: "well",
  warning: "worth a look",
  bad: "not well",
  unknown: "not known",
};

/** How many headlines are shown before the rest is asked for. */
const HEADLINES = 5;

export function mount(_root, { report, data, slots, state }) {
  slots.facts.append(...facts(report));
  slots.headlines.append(...headlines(report.headlines, state));
  const meshes = report.meshes.filter((mesh) => Object.keys(mesh.axes).length);
  for (const mesh of meshes.slice(0, 2)) {
    slots.mesh.append(meshPicture(mesh), meshCaption(mesh));
  }
  slots.mesh.hidden = meshes.length === 0;
  slots.edits.hidden = !data.edits;
  if (data.edits) slots.edits.append(...edits(data.edits, state));
  slots.notTried.hidden = !data.notTried;
  slots.notTried.append(...withCode(data.notTried));
  slots.stages.append(...report.stages.map((stage) => stageItem(stage, report)));
  slots.cards.append(...cards(data, state).filter(Boolean));
  slots.program.append(
    ...data.program.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
  slots.notes.append(...notes(data));
  slots.notes.hidden = !slots.notes.childElementCount;
  return {
    update({ at }) {
      const part = { account: slots.notes, edits: slots.edits }[at];
      part?.scrollIntoView();
    },
  };
}

function facts(report) {
  const parts = report.loweredBy ? [report.loweredBy] : [];
  const by = report.compiledBy ? ` by ${report.compiledBy}` : "";
  if (report.compiledFor) parts.push(`compiled for ${report.compiledFor}${by}`);
  if (report.file) parts.push(report.file);
  return parts.map((words) => el("span", {}, el("bdi", {}, words)));
}

function headlines(list, state) {
  const items = list.map((headline) => {
    const { params } = parse(`#${headline.view}?${headline.query}`);
    const words = link(state, headline.view, params, headline.words);
    return el(
      "li.headline",
      { data: { tone: headline.tone } },
      el("span.headline-mark", { "aria-hidden": "true" }, STATES[headline.tone] ?? "•"),
      el(
        "div",
        {},
        el("p.headline-words", {}, words),
        headline.detail
          ? el(
              "p.headline-detail",
              { dir: "auto" },
              withLine(state, headline.detail, headline.line),
            )
          : null,
      ),
    );
  });
  return items.slice(0, HEADLINES);
}

/** What `fix` proved: each edit with what a device sends, holds and takes, now and then. */
function edits({ words, remedies }, state) {
  return [
    el("p.muted", {}, words),
    ...remedies.map((remedy, at) =>
      el(
        "article.edit",
        {},
        el("h3.edit-title", {}, remedy.title),
        el(
          "ul.edit-changes",
          {},
          remedy.changes.map(([change, line]) =>
            el("li", {}, el("bdi", {}, change), line ? [" ", sourceLink(state, line)] : null),
          ),
        ),
        miniTable(
          "figure",
          ["now", "then"],
          remedy.figures.map(([name, now, then]) => [name, now, el("strong", {}, then)]),
        ),
        el("p.note", { data: { tone: remedy.tone } }, remedy.proof),
        el(
          "details.edit-patch",
          { open: at === 0 },
          el("summary", {}, "Patch"),
          el("pre", { dir: "ltr", tabindex: "0" }, el("code", {}, remedy.patch)),
        ),
      ),
    ),
  ];
}

/** Words in which what stands in backticks is code. */
function withCode(words) {
  return words.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

function meshCaption(mesh) {
  return el("figcaption", {}, coloured(mesh.words));
}

function stageItem(stage, report) {
  const where = {
    requested: "by the author",
    lowered: "by JAX",
    propagated: `by ${report.partitioners.map(partitionerName).join(" and ") || "XLA"}`,
    compiled: report.compiledFor ? `for ${report.compiledFor}` : "by XLA",
    executed: "on devices",
  };
  return el(
    "li.stage",
    { data: { state: stage.state } },
    el(
      "p.stage-name",
      {},
      el(
        "span.stage-mark",
        { role: "img", "aria-label": STATE_WORDS[stage.state] },
        STATES[stage.state],
      ),
      stage.name,
      el("span.stage-by", {}, where[stage.name]),
    ),
    el("p.stage-verdict", {}, stage.verdict),
    el("p.stage-words", { dir: "auto" }, stage.words),
  );
}

function cards(data, state) {
  return [
    data.arguments ? argumentsCard(data) : null,
    data.memory.length ? memoryCard(data) : null,
    data.comms.length ? commsCard(data) : null,
    findingsCard(data, state),
  ];
}

function card(title, number, unit, ...content) {
  return el(
    "article.card",
    {},
    el("h3.card-title", {}, title),
    number === null
      ? null
      : el("p.card-number", {}, number, unit ? el("span.card-unit", {}, unit) : null),
    ...content,
  );
}

function argumentsCard({ arguments: total, apart, groups }) {
  const rows = groups.map((group) => ({
    label: el("bdi", {}, group.name),
    value: size(group.device),
    part: group.device,
    hint: `${count(group.tensors, "tensor")}, ${size(group.bytes)} whole`,
  }));
  return card(
    "Arguments",
    size(total.bytes_per_device),
    "per device",
    el("p.card-words", {}, `${count(total.tensors, "tensor")}, ${size(total.bytes)} whole`),
    apart ? el("p.card-words", {}, apart) : null,
    bars(rows),
  );
}

function memoryCard({ memory }) {
  const most = Math.max(...memory.map((program) => program.total), 1);
  const same = (at) => memory.every(({ parts }) => parts[at][2] === memory[0].parts[at][2]);
  return card(
    "Memory per device",
    size(memory[0].total),
    memory.length > 1 ? `under ${partitionerName(memory[0].partitioner)}` : "",
    el("p.card-words", {}, "as the compiler counts it"),
    ...memory.map((program) =>
      el(
        "div.stack-row",
        {},
        el("span.stack-name", {}, partitionerName(program.partitioner)),
        el(
          "span.stack",
          {},
          program.parts.map(([name, words, part]) =>
            el("span.stack-part", {
              data: { part: name },
              title: `${words}: ${size(part)}`,
              style: { width: `${(100 * part) / most}%` },
            }),
          ),
        ),
        el("span.stack-value", {}, size(program.total)),
      ),
    ),
    el(
      "p.legend",
      {},
      memory[0].parts.map(([name, words, bytes], at) =>
        el(
          "span.legend-item",
          { data: { part: name } },
          same(at) ? `${words} ${size(bytes)}` : words,
        ),
      ),
    ),
  );
}

function commsCard({ comms }) {
  const kinds = [...new Set(comms.flatMap((program) => program.kinds.map(([kind]) => kind)))];
  const number = (program, kind) => program.kinds.find(([name]) => name === kind)?.[1] ?? 0;
  return card(
    "Collectives per step",
    whole(comms[0].count),
    `${size(comms[0].sent)} sent by a device`,
    miniTable(
      "kind",
      comms.map((program) => partitionerName(program.partitioner)),
      [
        ...kinds.map((kind) => [kind, ...comms.map((program) => whole(number(program, kind)))]),
        ["sent", ...comms.map((program) => size(program.sent))],
      ],
    ),
  );
}

const SEVERITIES = [
  ["error", "errors"],
  ["warning", "warnings"],
  ["note", "notes"],
];

function findingsCard({ findings, rules }, state) {
  const total = SEVERITIES.reduce((sum, [name]) => sum + findings[name], 0);
  const rows = SEVERITIES.map(([name, words]) => {
    const open = (event) => {
      event.preventDefault();
      state.go("findings", { severity: name });
    };
    const href = `#findings?severity=${name}`;
    const label = findings[name] === 1 ? name : words;
    return el(
      "li",
      { data: { severity: name, none: findings[name] ? null : "" } },
      findings[name]
        ? el("a", { href, on: { click: open } }, `${whole(findings[name])} ${label}`)
        : `no ${words}`,
    );
  });
  return card("Findings", whole(total), rules, el("ul.severities", {}, rows));
}

/** Rows with a bar each: what part of the largest they are. */
export function bars(rows) {
  const most = Math.max(...rows.map((row) => row.part), 1);
  return el(
    "ul.bars",
    {},
    rows.map((row) =>
      el(
        "li",
        { title: row.hint },
        el("span.bars-label", {}, row.label),
        el("span.bars-value", {}, row.value),
        el(
          "span.bars-track",
          { "aria-hidden": "true" },
          el("span", { style: { width: `${(100 * row.part) / most}%` } }),
        ),
      ),
    ),
  );
}

function notes(data) {
  const elements = [];
  for (const { words, tone } of data.missing) {
    elements.push(el("p.note", { dir: "auto", data: { tone } }, words));
  }
  for (const words of data.account) {
    elements.push(el("p.note", { dir: "auto", data: { tone: "warning" } }, words));
  }
  elements.push(...data.notes.map((words) => el("p.note", { dir: "auto" }, words)));
  return elements;
}
