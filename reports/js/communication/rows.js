// A collective, or several that look the same, as a row that opens.

import { factList } from "../base/details_frame.js";
import { button, el } from "../base/dom.js";
import { count, size, whole } from "../base/format.js";
import { link, sourceLink } from "../base/link.js";
import { coloured, spec } from "../base/spec.js";

/** How many members of a row are shown. */
const MEMBERS = 12;

/** The row; `open` shows what there is to know of each of its collectives. */
export function collectiveRow(row, { most, open, context }) {
  const { state, shared } = context;
  const source = shared.source(row.source);
  const times = `×${whole(row.count)}${row.unknownTrips ? "+" : row.conditional ? "?" : ""}`;
  const toggle = () => state.set({ open: open ? "" : row.key }, { push: true });
  return el(
    "li.collective",
    { data: open ? { open: "" } : {} },
    el(
      "button.collective-line",
      { type: "button", "aria-expanded": String(open), on: { click: toggle } },
      el(
        "span.collective-sent",
        {},
        el("span.collective-size", {}, `${row.atMost ? "≤ " : ""}${size(row.sent)}`),
        el(
          "span.pair-track",
          { "aria-hidden": "true", data: { side: String(row.program) } },
          el("span", { style: { width: `${(100 * row.sent) / most}%` } }),
        ),
      ),
      el(
        "span.collective-what",
        {},
        el("strong", {}, row.kind),
        row.asynchronous ? el("span.tag", {}, "async") : null,
        " over ",
        coloured(row.over),
        el("span.muted", {}, ` ${times}`),
        el("code.collective-shape", {}, row.tensor),
      ),
      el(
        "span.collective-where",
        {},
        el("bdi", {}, row.scope || "no scope"),
        source ? el("code.source", {}, el("bdi", {}, source)) : null,
      ),
    ),
    row.why ? el("p.collective-why", { dir: "auto" }, coloured(row.why)) : null,
    open ? members(row, context) : null,
  );
}

function members(row, context) {
  const { state } = context;
  const shown = row.members.slice(0, MEMBERS);
  const left = row.of - shown.length;
  const all = state.params.members === "1" ? row.members : shown;
  return el(
    "div.collective-open",
    {},
    all.map((collective) => member(collective, row, context)),
    row.of > all.length && row.members.length > all.length
      ? button(`Show ${count(left, "more collective")} like these`, () =>
          state.set({ members: "1" }),
        )
      : row.of > all.length
        ? el("p.muted", {}, `and ${count(row.of - all.length, "more")} like these`)
        : null,
  );
}

function member(collective, row, context) {
  const facts = [
    [
      "HLO name",
      el(
        "code",
        {},
        el("bdi", {}, `%${collective.name}`),
        collective.line ? el("span.muted", {}, ` line ${whole(collective.line)}`) : null,
      ),
    ],
    ["sent per step", `${size(collective.sent)}, ×${whole(collective.count)}`],
    ["measured per step", collective.measured],
    [
      "replica groups",
      collective.groups ? el("code.groups", {}, el("bdi", {}, collective.groups)) : "all devices",
    ],
    ["group size", row.groupSize === null ? null : count(row.groupSize, "device")],
    ["runs", row.asynchronous ? "asynchronously: the device does other work meanwhile" : null],
    ["channel", collective.channel === null ? null : whole(collective.channel)],
  ];
  return el(
    "section.member",
    {},
    factList(facts),
    el(
      "ol.member-parts",
      {},
      collective.parts.map((part) => partItem(part, context)),
    ),
  );
}

function partItem(part, context) {
  const { shared, state } = context;
  const source = shared.source(part.source);
  return el(
    "li.member-part",
    {},
    el(
      "p",
      {},
      el("code", {}, part.type),
      el("span.muted", {}, ` ${size(part.bytes)} on a device, for `),
      valueLink(part, state),
      source ? sourceLink(state, source) : null,
    ),
    part.words ? el("p.member-why", { dir: "auto" }, coloured(part.words)) : null,
    part.annotations.length
      ? el(
          "ul.member-annotations",
          {},
          part.annotations.map((origin) =>
            el(
              "li",
              {},
              origin.axes.length ? [coloured(origin.axes.join(", ")), " "] : null,
              `${origin.role}: `,
              annotation(origin, context),
              origin.followed ? el("span.muted", {}, ` (${origin.followed})`) : null,
            ),
          ),
        )
      : null,
  );
}

function annotation(origin, { shared, state }) {
  const source = shared.source(origin.source);
  const isPath = origin.kind === "argument" || origin.kind === "result";
  return [
    isPath ? null : `${origin.on} `,
    isPath
      ? link(state, "tensors", { tensor: origin.name }, origin.name)
      : link(state, "tensors", { q: origin.name }, origin.name || source),
    " ",
    origin.spec ? spec(origin.spec) : null,
    source ? sourceLink(state, source) : null,
  ];
}

/** The value in the view of tensors: itself where it is the only one of its name. */
function valueLink(part, state) {
  if (!part.name) return el("span", {}, "an op without a name");
  if (!part.values) return el("bdi", {}, part.name);
  const params = part.tensor ? { tensor: part.tensor } : { q: part.query };
  return link(state, "tensors", params, part.name);
}
