// How long a step takes at least: an estimate, and said to be one.

import { el } from "../base/dom.js";
import { partitionerName } from "../base/format.js";
import { axisColour, axisName } from "../base/spec.js";
import { timeline } from "./timeline.js";

/** The estimates of each partitioner's program, or why there are none. */
export function estimates(data, state) {
  if (data.unavailable) return [el("p.muted", { dir: "auto" }, data.unavailable)];
  const most = Math.max(
    ...data.programs.flatMap((estimate) => estimate.roofs.map((roof) => roof.seconds ?? 0)),
  );
  return [
    el("p.estimate-words", {}, data.words),
    ...data.programs.map((estimate) => program(estimate, most, state)),
  ];
}

function program(estimate, most, state) {
  return el(
    "div.estimate",
    {},
    el(
      "p.estimate-title",
      { dir: "auto" },
      el("strong", {}, partitionerName(estimate.partitioner)),
      `: ${estimate.words.join("; ")}`,
    ),
    most
      ? el(
          "ul.estimate-bars",
          {},
          estimate.roofs.map((roof) => bar(roof, most)),
        )
      : null,
    estimate.step ? timeline(estimate.step, state) : null,
    estimate.notes.map((words) => el("p.muted", { dir: "auto" }, words)),
  );
}

function bar(roof, most) {
  return el(
    "li",
    {},
    el("span.pair-label", {}, roof.axis ? ["axis ", axisName(roof.name)] : roof.name),
    el(
      "span.pair-track",
      { "aria-hidden": "true" },
      el("span", {
        style: {
          width: `${(100 * (roof.seconds ?? 0)) / most}%`,
          background: roof.axis ? axisColour(roof.name) : "var(--bar)",
        },
      }),
    ),
    el("span.pair-value", {}, roof.time),
  );
}
