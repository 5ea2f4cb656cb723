// A chain drawn as a path: from the user's annotation, through each op, to the value.

import { el } from "../base/dom.js";
import { count } from "../base/format.js";
import { axisName, coloured } from "../base/spec.js";

/** How many moves are shown at either end of a long chain, as `sdyscope explain` does. */
const ENDS = 6;

const SIGNS = { forward: "↓", backward: "↑", sideways: "↔", "data flow": "⇢", group: "≡" };

/** The name of an axis in its colour; "model:(1)2" is one of model. */
export function axisText(axis) {
  return axisName(axis.split(":")[0], axis);
}

/**
 * The paths of some chains, and what stopped other axes.
 *
 * @param {object[]} chains of a row, as `Propagation` has them.
 * @param {object} options
 * @param {object[] | null} options.stops what stopped axes; null where nothing did.
 * @param {string[] | undefined} options.whole why dimensions are whole, where no axis was stopped.
 * @param {(number) => Node | null} options.source a link to a source line.
 * @param {(name) => Node} options.link a link to the step of a number.
 * @param {(row) => Node | null} options.value a link to the row of a value.
 */
export function paths(chains, options) {
  return [...chains.map((chain) => path(chain, options)), ...stopped(options)];
}

function path(chain, options) {
  const { beginning, moves } = chain;
  const items = moves.map((move) => moveItem(move, options));
  const shown = items;
  const between = items.length - 2 * ENDS;
  if (between > 1) {
    const hidden = items.slice(ENDS, ENDS + between);
    const more = el(
      "li.path-more",
      {},
      el(
        "button.path-button",
        {
          type: "button",
          on: {
            click: () => {
              more.replaceWith(...hidden);
              hidden[0].querySelector("a")?.focus();
            },
          },
        },
        `${count(between, "more move")}`,
      ),
    );
    shown.splice(ENDS, between, more);
  }
  return el(
    "section.path",
    {},
    el("h4.path-title", {}, `dim ${chain.dimension} on `, axisText(chain.axis)),
    el(
      "ol.path-line",
      {},
      beginning
        ? el(
            "li.path-stop.path-start",
            {},
            el("p", {}, "from ", el("bdi", {}, coloured(beginning.words))),
            beginning.priority === null
              ? null
              : el("span.pill", {}, `priority ${beginning.priority}`),
            options.source(beginning.source),
          )
        : el("li.path-stop.path-start", { data: { tone: "warning" } }, "no annotation was found"),
      shown,
    ),
    moves.length ? null : el("p.muted", {}, "It is annotated here: nothing moved it."),
  );
}

function moveItem(move, { source, link, value }) {
  const led = move.row === null ? null : value(move.row, move.name);
  return el(
    "li.path-stop",
    { data: { way: move.direction } },
    el("span.path-sign", { "aria-hidden": "true" }, SIGNS[move.direction]),
    el(
      "p",
      {},
      move.step === null ? null : [link(move.step), ", "],
      `${move.way} `,
      led ?? el("bdi.path-op", {}, move.name),
    ),
    el("p.path-rule", {}, move.rule),
    source(move.source),
  );
}

function stopped({ stops, whole, source, place }) {
  const reasons = (whole ?? []).map((words) => el("p", {}, coloured(words)));
  if (!stops?.length) return reasons;
  return [
    ...reasons,
    el("h4.path-title", {}, "What stopped other axes"),
    el(
      "ul.stops",
      {},
      stops.map(([axis, dimension, words, at, reason]) => {
        const [name, line] = place(at);
        return el(
          "li.stop",
          {},
          el(
            "p",
            {},
            dimension === null ? "" : `dim ${dimension} `,
            "not on ",
            axisText(axis),
            ": ",
            el("bdi", {}, coloured(words)),
          ),
          el(
            "p.muted",
            {},
            el("span.pill", {}, reason),
            " at ",
            el("bdi", {}, name),
            line === null ? null : [" ", source(line)],
          ),
        );
      }),
    ),
  ];
}
