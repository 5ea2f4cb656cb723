// Why the two partitioners send differently, in the words of the comparison, which has the rest.

import { part } from "../base/data.js";
import { el } from "../base/dom.js";
import { partitionerName } from "../base/format.js";
import { link, sourceLink } from "../base/link.js";
import { coloured, spec } from "../base/spec.js";

/** Fills the slot with the largest cause, if one is known. */
export async function causeOf(slot, data, { state, shared }) {
  const differences = await part("differences");
  const compiled = differences?.compiled;
  const cause = compiled?.causes?.[0];
  if (!cause?.begins || !cause.sent) return;
  const { begins } = cause;
  slot.append(
    el(
      "p.cause-title",
      {},
      "The largest difference begins at ",
      link(state, "tensors", { tensor: begins.ssa || begins.name }, begins.name),
      sourceLink(state, shared.source(begins.source)),
    ),
    el(
      "dl.cause-sides",
      {},
      data.programs
        .slice(0, 2)
        .map((program, at) => [
          el("dt", { data: { side: String(at) } }, partitionerName(program.partitioner)),
          el(
            "dd",
            {},
            spec(at ? begins.b : begins.a),
            el("span.muted", {}, " ", coloured(at ? begins.wordsB : begins.wordsA)),
          ),
        ]),
    ),
    el("p.muted", {}, cause.words, ". ", link(state, "differences", {}, "All differences")),
  );
  slot.hidden = false;
}
