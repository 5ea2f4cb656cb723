// How long a step takes at least: an estimate, and said to be one.

import { el } from "../base/dom.js";
import { count, partitionerName } from "../base/format.js";
import { axisColour, axisName } from "../base/spec.js";

/** Seconds in words: "1.2 ms". */
export function seconds(value) {
  if (value === null || value === undefined) return "not known";
  for (const [unit, name] of [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
  ]) {
    if (value >= unit) return `${Number((value / unit).toPrecision(3))} ${name}`;
  }
  return value ? `${Number((value * 1e9).toPrecision(3))} ns` : "0 s";
}

/** The estimates of each partitioner's program, or why there are none. */
export function estimates(data) {
  if (data.unavailable) return [el("p.muted", { dir: "auto" }, data.unavailable)];
  const known = data.programs.filter((one) => one.limit);
  if (!known.length) {
    const kinds = [...new Set(data.programs.map((one) => one.deviceKind))].join(", ");
    return [
      el(
        "p.muted",
        {},
        "No times: of ",
        el("bdi", {}, kinds),
        " no peak figures are known. Compile for a TPU or GPU with --on, such as --on tpu:v5e:4x2, which need not be there.",
      ),
    ];
  }
  const most = Math.max(...known.flatMap((one) => one.roofs.map((roof) => roof.seconds ?? 0)));
  return [
    el("p.estimate-words", {}, data.words),
    ...data.programs.map((one) => program(one, most)),
  ];
}

function program(one, most) {
  return el(
    "div.estimate",
    {},
    el(
      "p.estimate-title",
      {},
      el("strong", {}, partitionerName(one.partitioner)),
      one.limit
        ? [
            ": limited by ",
            one.roofs[0].axis ? ["communication over ", axisName(one.limit)] : one.limit,
            one.overlapped === null
              ? null
              : `; at least ${seconds(one.overlapped)} a step with everything overlapped, ${seconds(one.sequential)} with nothing sent while it computes`,
          ]
        : ": no times are known",
    ),
    el(
      "ul.estimate-bars",
      {},
      one.roofs.map((roof) =>
        el(
          "li",
          {},
          el("span.pair-label", {}, roof.axis ? ["axis ", axisName(roof.name)] : roof.name),
          el(
            "span.pair-track",
            { "aria-hidden": "true" },
            el("span", {
              style: {
                width: `${most ? (100 * (roof.seconds ?? 0)) / most : 0}%`,
                background: roof.axis ? axisColour(roof.name) : "var(--bar)",
              },
            }),
          ),
          el("span.pair-value", {}, seconds(roof.seconds)),
        ),
      ),
    ),
    el(
      "p.muted",
      {},
      [
        one.unknown ? `${one.unknown} of ${count(one.tensors, "tensor")} have no known time` : "",
        one.unknownTrips
          ? `${count(one.unknownTrips, "loop")} of unknown trip count, which count once`
          : "",
        one.figures.length ? `figures of ${one.chip}: ${one.figures.join("; ")}` : "",
      ]
        .filter(Boolean)
        .join(". "),
    ),
  );
}
