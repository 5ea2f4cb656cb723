// The author's source: in the margin of each line what it sends and holds, below it why.

import { el } from "../base/dom.js";
import { partitionerName, size } from "../base/format.js";
import { link, sourceLink } from "../base/link.js";
import { coloured, spec } from "../base/spec.js";

/** How many kinds of values and of collectives stand beside a line that is not opened. */
const BESIDE = 2;

export function mount(_root, { report, data, slots, state, shared }) {
  const sides = sidesOf(data);
  const rows = new Map();
  const { measured, blocks } = data;
  const context = { report, state, shared, sides, rows, measured, blocks };
  // Files of libraries are folded where there are others.
  const own = data.files.some((file) => !file.library);
  slots.files.append(...data.files.map((file) => fileSection(file, own, context)));
  slots.notes.append(...data.notes.map((words) => el("p.muted", {}, words)));
  let opened = null;

  function update({ line = "" }) {
    if (opened) fold(opened);
    opened = rows.get(line) ?? null;
    slots.gone.hidden = !line || opened !== null;
    slots.gone.textContent = slots.gone.hidden ? "" : `No op of the program is on ${line}.`;
    if (!opened) return;
    unfold(opened, context);
    opened.item.closest("details")?.setAttribute("open", "");
    opened.item.scrollIntoView({ block: "nearest" });
  }
  return { update };
}

/** The partitioners that have a column of bytes sent: one for all where they send the same. */
function sidesOf(data) {
  const lines = data.files.flatMap((file) => file.lines);
  const names = data.compiled;
  if (!lines.some((line) => Object.keys(line.sent).length)) return [];
  const alike = lines.every(({ sent }) => new Set(names.map((name) => sent[name] ?? 0)).size === 1);
  return alike ? [names[0]] : names;
}

function fileSection(file, own, context) {
  const { sides } = context;
  const sent = sides.filter((side) => file.sent[side]);
  const head = [
    el("h2.source-file", {}, el("bdi", {}, file.file)),
    file.unread ? el("span.muted", {}, file.unread) : null,
    file.cut
      ? el("span.verdict", { data: { tone: "warning" } }, "changed since the program was traced")
      : null,
    sent.length
      ? el(
          "span.muted",
          {},
          "sends ",
          sent.map((side) => sideSize(side, file.sent[side], sides)).join(", "),
        )
      : null,
  ];
  const list = el("ol.source-lines", { "aria-label": file.file }, heads(context));
  let before = null;
  for (const line of file.lines) {
    if (before !== null && line.line !== before + 1 && !file.unread) {
      list.append(el("li.source-gap", { "aria-hidden": "true" }, "⋯"));
    }
    before = line.line;
    list.append(lineItem(line, file, context));
  }
  if (!file.library || !own) return el("section.source-section", {}, el("header", {}, head), list);
  return el(
    "details.source-section",
    {},
    el("summary", {}, head, el("span.pill", {}, "library")),
    list,
  );
}

function sideSize(side, bytes, sides) {
  return sides.length > 1 ? `${size(bytes)} under ${partitionerName(side)}` : size(bytes);
}

/** What the columns are; screen readers hear it at each figure instead. */
function heads({ sides, measured, blocks }) {
  return el(
    "li.source-heads",
    { "aria-hidden": "true" },
    measured ? el("span.source-figure", {}, "measured") : null,
    sides.map((side) =>
      el("span.source-figure", {}, sides.length > 1 ? `sent, ${partitionerName(side)}` : "sent"),
    ),
    blocks ? el("span.source-figure", {}, "block") : null,
    el("span.source-number", {}, "line"),
  );
}

function lineItem(line, file, context) {
  const { state, sides, rows, measured, blocks } = context;
  const key = `${file.file}:${line.line}`;
  const facts = line.values.length + line.collectives.length + line.findings.length;
  const code = el(
    "code.source-code",
    { dir: "ltr" },
    line.text ?? (line.function ? `(${line.function})` : ""),
  );
  if (!facts) {
    return el(
      "li.source-line",
      { data: { quiet: "" } },
      measured ? timeFigure(line) : null,
      sides.map(() => el("span.source-figure")),
      blocks ? el("span.source-figure") : null,
      el("span.source-number", {}, String(line.line)),
      el("div.source-body", {}, code),
    );
  }
  const toggle = () => {
    const open = state.params.line === key;
    state.set({ line: open ? "" : key }, { push: true });
  };
  const button = el(
    "button.source-number",
    {
      type: "button",
      "aria-expanded": "false",
      "aria-label": `Line ${line.line}`,
      on: { click: toggle },
    },
    String(line.line),
  );
  const item = el(
    "li.source-line",
    { data: { tone: toneOf(line) } },
    measured ? timeFigure(line) : null,
    sides.map((side) => figure(line.sent[side], side ? `sent, ${partitionerName(side)}` : "sent")),
    blocks ? figure(line.block, "block") : null,
    button,
    el("div.source-body", {}, code, el("span.source-beside", {}, beside(line, context))),
  );
  rows.set(key, { item, button, line, key, file });
  return item;
}

function figure(bytes, title) {
  return el("span.source-figure", bytes ? { title } : {}, bytes ? size(bytes) : "");
}

function timeFigure(line) {
  return el(
    "span.source-figure",
    line.time ? { title: `measured: ${line.timeWords}` } : {},
    line.time ?? "",
  );
}

function toneOf(line) {
  if (line.findings.some((item) => item.severity === "error")) return "bad";
  const warns = line.findings.some((item) => item.severity === "warning");
  return warns || line.values.some((tensor) => tensor.same === false) ? "warning" : "plain";
}

/** What stands in a line's margin: its largest shardings, collectives, differences, findings. */
function beside(line, { shared }) {
  const differ = line.values.some((tensor) => tensor.same === false);
  const begins = line.values.some((tensor) => tensor.begins);
  const texts = new Set(
    line.values.map((tensor) => shared.sharding(Object.values(tensor.shardings)[0])?.short ?? "-"),
  );
  const more = texts.size - BESIDE;
  const kinds = new Set(line.collectives.map((group) => group.kind));
  return [
    [...texts].slice(0, BESIDE).map((text) => spec(text)),
    more > 0 ? el("span.muted", {}, `+${more}`) : null,
    [...kinds].map((kind) => el("span.pill", {}, kind)),
    differ
      ? el(
          "span.pill",
          { data: { severity: "warning" } },
          begins ? "difference begins" : "partitioners differ",
        )
      : null,
    [...new Set(line.findings.map((item) => item.rule))].map((rule) => {
      const { severity } = line.findings.find((item) => item.rule === rule);
      return el("span.pill", { data: { severity } }, rule);
    }),
  ];
}

function fold({ item, button }) {
  item.querySelector(".source-details")?.remove();
  button.setAttribute("aria-expanded", "false");
  delete item.dataset.open;
}

function unfold({ item, button, line, key, file }, context) {
  button.setAttribute("aria-expanded", "true");
  item.dataset.open = "";
  item.append(lineDetails(line, key, file, context));
}

/** Everything about a line. */
function lineDetails(line, key, file, context) {
  const { report, state } = context;
  const editor = editorHref(report, file, line.line);
  return el(
    "div.source-details",
    {},
    section(
      "Findings",
      line.findings.map((item) => finding(item, state)),
    ),
    section(
      "Collectives",
      line.collectives.map((group) => collective(group)),
    ),
    section(
      "Values",
      line.values.map(({ same, words }) =>
        el("li", { data: same === false ? { tone: "warning" } : {} }, coloured(words)),
      ),
    ),
    section(
      "Through",
      line.through.map((way) => el("li", {}, el("bdi", {}, way))),
    ),
    section(
      "Called from",
      line.callers.map((way) =>
        el(
          "li",
          {},
          way.map((frame, at) => [at ? " ← " : null, sourceLink(state, frame)]),
        ),
      ),
    ),
    el(
      "p.source-ways",
      {},
      line.values.length ? link(state, "tensors", { q: key }, "In Tensors") : null,
      line.collectives.length ? link(state, "communication", { q: key }, "In Communication") : null,
      line.findings.length
        ? link(state, "findings", { rule: line.findings[0].rule }, "In Findings")
        : null,
      editor ? el("a", { href: editor }, "Open in the editor") : null,
    ),
  );
}

/**
 * The address that opens a line in an editor. The page knows no absolute path but of where it was
 * opened from, so there is none for a page from the net, for files of installed packages, and for
 * files and folders that are not named from there (`…/`).
 */
function editorHref({ editor, folder }, file, line) {
  const { protocol, href } = globalThis.location;
  const whole = file.file.startsWith("/");
  const unknown = file.file.startsWith("…/") || (folder === null && !whole);
  if (file.installed || unknown || protocol !== "file:") return null;
  const path = file.file.split("/").map(encodeURIComponent).join("/");
  const { pathname } = new URL(whole ? path : `${folder}/${path}`, href);
  return editor.replace("{file}", () => pathname).replace("{line}", String(line));
}

function section(title, items) {
  return items.length ? [el("h3", {}, title), el("ul", {}, items)] : null;
}

function finding(item, state) {
  return el(
    "li",
    { dir: "auto" },
    el("span.pill", { data: { severity: item.severity } }, item.severity),
    " ",
    el("code", {}, item.rule),
    item.tensor ? [" ", link(state, "tensors", { tensor: item.tensor }, item.tensor)] : null,
    ` ${item.message}`,
  );
}

function collective(group) {
  const under = group.both ? "" : `${group.partitioners.map(partitionerName).join(", ")}: `;
  return el(
    "li",
    { dir: "auto" },
    el("strong", {}, under, coloured(group.words)),
    group.cause ? [", ", coloured(group.cause)] : null,
  );
}
