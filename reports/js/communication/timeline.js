// A step over time: what a device computes and sends when, and what of it nothing hides.

import { el, svg } from "../base/dom.js";
import { count, whole } from "../base/format.js";
import { sourceLink } from "../base/link.js";

/** The lanes of a step on one scale, and the collectives that are exposed most. */
export function timeline(step, state) {
  return el(
    "div.timeline",
    {},
    el("p.timeline-title", { dir: "auto" }, step.title),
    el(
      "div.timeline-lanes",
      { role: "img", "aria-label": step.title },
      step.lanes.map((lane, number) => row(lane, step.columns, number === 0)),
    ),
    scale(step.length),
    legend(),
    step.pipelines.map((words) => el("p", { dir: "auto" }, words)),
    step.exposed.length
      ? [
          el("h3.timeline-subtitle", {}, "Communication that nothing hides"),
          el(
            "ol.exposed-list",
            {},
            step.exposed.map((collective) => exposed(collective, state)),
          ),
          step.more ? el("p.muted", {}, `${count(step.more, "more")}`) : null,
        ]
      : null,
    step.notes.map((words) => el("p.muted", { dir: "auto" }, words)),
  );
}

function row(lane, columns, computes) {
  return el(
    "div.timeline-lane",
    {},
    el("span.timeline-name", {}, lane.name),
    bars(lane.columns, columns, computes),
    el("span.timeline-time", {}, lane.time),
  );
}

/** What goes on in a lane when: runs of columns, of so many. */
export function bars(runs, columns, computes) {
  return svg(
    "svg.timeline-bars",
    { viewBox: `0 0 ${columns} 10`, preserveAspectRatio: "none", "aria-hidden": "true" },
    runs
      .flatMap(([from, to, dark, light]) => [
        bar(from, to, 0, dark, computes ? "compute" : "exposed"),
        bar(from, to, dark, light, "hidden"),
      ])
      .filter(Boolean),
  );
}

/** How long the lanes are. */
export function scale(length) {
  return el(
    "p.timeline-scale",
    { "aria-hidden": "true" },
    el("span", {}, "0"),
    el("span", {}, length),
  );
}

/** What the colours are. */
export function legend() {
  return el(
    "ul.timeline-legend",
    { "aria-hidden": "true" },
    el("li", { data: { time: "compute" } }, "compute"),
    el("li", { data: { time: "exposed" } }, "exposed"),
    el("li", { data: { time: "hidden" } }, "hidden"),
  );
}

function bar(from, to, below, share, time) {
  if (!share) return null;
  return svg("rect", {
    data: { time },
    x: String(from),
    width: String(to - from),
    y: String(10 * (1 - below - share)),
    height: String(10 * share),
  });
}

function exposed(collective, state) {
  return el(
    "li.exposed",
    {},
    el(
      "span.collective-sent",
      {},
      el("span.collective-size", {}, collective.exposed),
      el(
        "span.pair-track",
        { "aria-hidden": "true" },
        el("span", { data: { time: "exposed" }, style: { width: `${100 * collective.share}%` } }),
      ),
    ),
    el(
      "span.exposed-what",
      {},
      el("strong", {}, collective.kind),
      collective.over ? ` over ${collective.over}` : null,
      el("span.muted", {}, ` ${whole(collective.count)} ×, ${collective.time} in all`),
      collective.why ? el("span.muted.exposed-why", { dir: "auto" }, collective.why) : null,
    ),
    el(
      "span.exposed-way",
      {},
      el("span", { title: collective.words }, collective.way),
      el(
        "span.muted.exposed-why",
        { dir: "auto" },
        collective.scope,
        collective.line ? [" ", sourceLink(state, collective.line)] : null,
      ),
    ),
  );
}
