// Why the two partitioners send differently, in a few lines; the view of differences has the rest.

import { part } from "../base/data.js";
import { el } from "../base/dom.js";
import { count, partitionerName, size } from "../base/format.js";
import { coloured, spec } from "../base/spec.js";
import { link } from "./rows.js";

/** Fills the slot with the largest cause, if one is known. */
export async function causeOf(slot, data, { state, shared }) {
  const differences = await part("differences");
  const found = differences?.compiled;
  const cause = found?.causes?.[0];
  if (!cause?.begins || !cause.sent) return;
  const [a, b] = data.programs;
  const difference = b.sent - a.sent;
  const share = difference ? cause.sent / difference : 0;
  const { begins } = cause;
  slot.append(
    el(
      "p.cause-title",
      {},
      share > 0.5
        ? [
            el("strong", {}, size(Math.abs(cause.sent))),
            ` of the difference of ${size(Math.abs(difference))} `,
            cause.differences === 1 ? "begins" : "begin",
            " at ",
          ]
        : ["The largest difference begins at "],
      link(state, "tensors", { tensor: begins.ssa || begins.name }, begins.name),
      el("code.source", {}, el("bdi", {}, shared.source(begins.source))),
    ),
    el(
      "dl.cause-sides",
      {},
      [a, b].map((one, at) => [
        el("dt", { data: { side: String(at) } }, partitionerName(one.partitioner)),
        el(
          "dd",
          {},
          spec(at ? begins.b : begins.a),
          el("span.muted", {}, " ", coloured(at ? begins.wordsB : begins.wordsA)),
        ),
      ]),
    ),
    el(
      "p.muted",
      {},
      `${count(cause.values, "value is", "values are")} sharded differently from there on. `,
      link(state, "differences", {}, "All differences"),
    ),
  );
  slot.hidden = false;
}
