// What is chosen in the graph, in words: what it takes and gives, what has to move and why.

import { detailsHead, factList } from "../base/details_frame.js";
import { el } from "../base/dom.js";
import { count, partitionerName, size, whole } from "../base/format.js";
import { coloured, spec } from "../base/spec.js";

/** So many are listed of each. */
const LISTED = 24;

const FORMS = { input: "argument", output: "result" };

/**
 * The details of an item. `actions` are `choose(item)`, `toggle(item)`, `close()`, `tensors(key)` and
 * `source(words)`.
 */
export function graphDetails(item, context, actions, isOpen) {
  const { model } = context;
  const isGroup = model.isGroup(item);
  const path = model.path(item).slice(0, -1);
  return el(
    "article.graph-details",
    {},
    detailsHead(el("bdi", {}, model.title(item)), actions.close),
    path.length
      ? el(
          "p.graph-path",
          {},
          path.flatMap((at, number) => [number ? " › " : "", link(at, context, actions)]),
        )
      : null,
    isGroup ? groupFacts(item, context, actions, isOpen) : nodeFacts(item, context, actions),
    shardings(item, context),
    collectives(item, context),
    flows(item, context, actions),
  );
}

function groupFacts(item, { model, values }, actions, isOpen) {
  const kinds = {
    lane: "a pass of the program",
    scope: "a scope",
    repeated: `${whole(model.childrenOf.get(item).length)} scopes with the same name`,
    tensor: "what is done for one leaf of the parameters",
    call: "a function that is called here",
    region: "an op with a program of its own inside",
    arguments: "arguments that one call or region takes",
  };
  const inside = model.groupKind(item) === "arguments" ? [] : [count(model.ops[item], "op")];
  const differing = values.different[item];
  return [
    el("p", {}, [kinds[model.groupKind(item)], ...inside].join(", ")),
    differing
      ? el(
          "p.graph-differs",
          {},
          `≠ ${count(differing, "value")} in it: ${model.data.words.differs}`,
        )
      : null,
    el(
      "p.graph-actions",
      {},
      el(
        "button.graph-button",
        { type: "button", on: { click: () => actions.toggle(item) } },
        isOpen ? "Close the group" : "Open the group",
      ),
    ),
  ];
}

function nodeFacts(item, { model, values, shared }, actions) {
  const node = model.node(item);
  const row = values.row(node);
  const bytes = values.bytes(node);
  const source = row === undefined ? "" : shared.source(values.tensors.get("source", row));
  const facts = [
    ["kind", FORMS[model.form(item)] ?? model.nodes.kind(node)],
    [
      "einsum",
      model.form(item) === "op" || model.form(item) === "small" ? model.nodes.name(node) : "",
    ],
    ["type", model.nodes.type(node)],
    ["bytes", bytes ? size(bytes) : ""],
    ["SSA name", model.nodes.ssa(node)],
    ["source", source && actions.source(source)],
  ];
  const key = row === undefined ? null : values.key(row);
  return [
    factList(facts),
    key ? el("p.graph-actions", {}, actions.tensorLink(key, "Open in Tensors")) : null,
  ];
}

function shardings(item, { model, values }) {
  if (model.isGroup(item)) return null;
  const node = model.node(item);
  const said = values.partitioners
    .map((partitioner) => [partitioner, values.sharding(node, 0, partitioner)])
    .filter(([, sharding]) => sharding?.short && sharding.short !== "-");
  if (!said.length) return null;
  const differs = values.different[item];
  const same = said.length > 1 && !differs;
  return [
    el("h3", {}, "Sharding"),
    el(
      "dl.graph-shardings",
      {},
      (same ? said.slice(0, 1) : said).map(([partitioner, sharding]) => [
        el("dt", {}, same ? "both" : partitionerName(partitioner)),
        el(
          "dd",
          {},
          spec(sharding.short),
          sharding.words ? el("p.muted", {}, sharding.words) : null,
        ),
      ]),
    ),
    differs ? el("p.graph-differs", {}, `≠ ${model.data.words.differs}`) : null,
  ];
}

function collectives(item, { model, values }) {
  const parts = values.partitioners.map((partitioner) => {
    const sent = values.sent(item, partitioner);
    if (!sent?.length) return null;
    return [
      el("h4", {}, partitionerName(partitioner)),
      el(
        "ul.graph-sent",
        {},
        sent
          .slice(0, LISTED)
          .map((collective) =>
            el(
              "li",
              {},
              el("strong", {}, collective.kind),
              " ",
              coloured(collective.axes),
              ` ${collective.shape}, ${size(collective.sent)} sent`,
              collective.count > 1 ? ` in ${whole(collective.count)} runs` : "",
              collective.why ? el("p.muted", { dir: "auto" }, collective.why) : null,
            ),
          ),
      ),
      sent.length > LISTED ? el("p.muted", {}, `and ${whole(sent.length - LISTED)} more`) : null,
    ];
  });
  if (parts.some(Boolean)) return [el("h3", {}, "Collectives, compiled"), parts];
  const sums = values.partitioners.filter(
    (partitioner) => values.sums[partitioner]?.has(item) && values.sent(item, partitioner) === null,
  );
  if (!sums.length) return null;
  return el(
    "p.graph-mark-words",
    {},
    `Σ ${sums.map(partitionerName).join(", ")}: ${model.data.words.sums}`,
  );
}

function flows(item, context, actions) {
  const { takes, gives } = context.model.around(item);
  return [
    flow("Takes", takes, "from", context, actions),
    flow("Goes to", gives, "to", context, actions),
  ];
}

function flow(title, uses, end, context, actions) {
  const { model, values } = context;
  if (!uses.length) return null;
  const seen = new Map();
  for (const use of uses) {
    const key = `${model.from[use]},${model.result[use]},${end === "to" ? model.to[use] : ""}`;
    if (!seen.has(key)) seen.set(key, []);
    seen.get(key).push(use);
  }
  const rows = [...seen.values()].sort(
    ([a], [b]) => valueBytes(b, context) - valueBytes(a, context) || a - b,
  );
  return [
    el("h3", {}, title, el("span.muted", {}, ` ${whole(rows.length)}`)),
    el(
      "ul.graph-flow",
      {},
      rows.slice(0, LISTED).map((list) => {
        const [use] = list;
        const node = model.node(model.from[use]);
        const moving = values.partitioners.filter((partitioner) =>
          list.some((use) => values.moves[partitioner]?.has(use)),
        );
        const sharding = values.sharding(node, model.result[use], context.partitioner);
        return el(
          "li",
          {},
          link(end === "from" ? model.from[use] : model.to[use], context, actions),
          el("span.muted", {}, ` ${model.nodes.type(node)}`),
          sharding?.short && sharding.short !== "-" ? [" ", spec(sharding.short)] : null,
          moving.length ? movesWords(list, moving, context) : null,
        );
      }),
    ),
    rows.length > LISTED ? el("p.muted", {}, `and ${whole(rows.length - LISTED)} more`) : null,
  ];
}

function valueBytes(use, { model, values }) {
  return values.bytes(model.node(model.from[use]), model.result[use]);
}

function movesWords(list, moving, { model, values }) {
  const use = list.find((use) => values.moves[moving[0]].has(use));
  const dims = values.moves[moving[0]].get(use);
  return el(
    "p.graph-mark-words",
    {},
    `⇄ ${moving.map(partitionerName).join(", ")}: dimension ${dims.join(", ")} ${model.data.words.moves}`,
  );
}

function link(item, { model }, actions) {
  const title = model.title(item);
  const node = model.node(item);
  const ssa = node === null || model.nodes.ssa(node) === title ? "" : model.nodes.ssa(node);
  return el(
    "button.graph-link",
    { type: "button", on: { click: () => actions.choose(item) } },
    el("bdi", {}, title),
    ssa && model.form(item) !== "output" && model.form(item) !== "input"
      ? el("span.muted", {}, ` ${ssa}`)
      : null,
  );
}
