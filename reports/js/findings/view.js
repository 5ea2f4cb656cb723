// The findings: what is wrong or worth a look, and what to do.

import { el } from "../base/dom.js";
import { count, partitionerName } from "../base/format.js";
import { sourceLink } from "../base/link.js";
import { press, segments } from "../base/segments.js";
import { coloured } from "../base/spec.js";

const SEVERITIES = ["error", "warning", "note"];
const TITLES = { error: "Errors", warning: "Warnings", note: "Notes" };

export function mount(_root, { data, slots, state, shared }) {
  segments(
    slots.severity,
    ["", ...SEVERITIES].map((severity) => {
      const ofSeverity = data.findings.filter(
        (finding) => !severity || finding.severity === severity,
      );
      return [severity, severity ? TITLES[severity] : "All", ofSeverity.length];
    }),
    (severity) => state.set({ severity }),
  );
  slots.toolbar.hidden = !data.findings.length;

  function update({ severity = "", rule = "" }) {
    press(slots.severity, severity);
    const shown = data.findings.filter(
      (finding) => (!severity || finding.severity === severity) && (!rule || finding.rule === rule),
    );
    slots.count.textContent = `${shown.length} of ${count(data.findings.length, "finding")}`;
    slots.list.replaceChildren(...groups(shown, shared, state));
    if (!slots.list.childElementCount) {
      slots.list.append(nothing(data));
    }
    slots.list.append(...notRun(data));
  }
  return { update };
}

/** What stands where nothing was found. */
function nothing(data) {
  if (data.findings.length) return el("p.missing", {}, "No finding is of this kind.");
  const looked = count(data.rules - new Set(data.notRun.map((entry) => entry.rule)).size, "rule");
  return el(
    "div.findings-none",
    {},
    el("p", {}, el("span.verdict", { data: { tone: "good" } }, "✓ "), "Nothing was found."),
    el("p.muted", {}, `${looked} looked for what is wrong or worth a look.`),
  );
}

/** The rules that could not be run, and why. */
function notRun(data) {
  if (!data.notRun.length) return [];
  const reasons = new Map();
  for (const { rule, reason } of data.notRun) {
    if (!reasons.has(reason)) reasons.set(reason, new Set());
    reasons.get(reason).add(rule);
  }
  return [...reasons].map(([reason, rules]) =>
    el(
      "p.findings-not-run",
      { dir: "auto" },
      `Not run: `,
      el("code", {}, [...rules].join(", ")),
      `. ${reason}`,
    ),
  );
}

function groups(findings, shared, state) {
  const byRule = new Map();
  for (const finding of findings) {
    const key = `${finding.severity}\n${finding.rule}`;
    if (!byRule.has(key)) byRule.set(key, []);
    byRule.get(key).push(finding);
  }
  return [...byRule.values()].map((group) => {
    const [first] = group;
    const shares = group.every((finding) => finding.hint === first.hint);
    return el(
      "section.finding-group",
      { data: { severity: first.severity } },
      el(
        "h2.finding-rule",
        {},
        el("span.pill", { data: { severity: first.severity } }, first.severity),
        el("code", {}, first.rule),
        el("span.muted", {}, count(group.length, "finding")),
      ),
      shares ? hintOf(first) : null,
      el(
        "ul.finding-list",
        {},
        group.map((finding) => item(finding, shared, state, shares ? null : hintOf(finding))),
      ),
    );
  });
}

function hintOf({ hint }) {
  return hint ? el("p.finding-hint", { dir: "auto" }, hint) : null;
}

function item(finding, shared, state, hint) {
  const where = [
    finding.kind,
    finding.partitioner && `under ${partitionerName(finding.partitioner)}`,
  ];
  const source = shared.source(finding.source);
  return el(
    "li.finding",
    {},
    el(
      "p.finding-subject",
      {},
      finding.tensor ? tensorLink(finding.tensor, state) : "The module",
      el("span.muted", {}, ` ${where.filter(Boolean).join(" ")}`),
      source ? sourceLink(state, source) : null,
    ),
    el("p.finding-message", { dir: "auto" }, finding.message),
    finding.expected || finding.found
      ? el("dl.pairs", {}, pair("expected", finding.expected), pair("found", finding.found))
      : null,
    hint,
  );
}

function pair(name, words) {
  return words ? [el("dt", {}, name), el("dd", {}, coloured(words))] : null;
}

/** A tensor's name, which shows it among the tensors. */
function tensorLink(name, state) {
  const open = (event) => {
    event.preventDefault();
    state.go("tensors", { tensor: name });
  };
  return el(
    "a.tensor-link",
    { href: state.href("tensors", { tensor: name }), on: { click: open } },
    el("bdi", {}, name),
  );
}
