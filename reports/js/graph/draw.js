// The picture of the graph: boxes, edges in the colours of mesh axes, marks. Text becomes text.

import { svg } from "../base/dom.js";
import { whole } from "../base/format.js";
import { axisColour, coloured } from "../base/spec.js";
import { labels, pillWidth, textWidth } from "./labels.js";
import { path } from "./route.js";

const DASH = 9;

/** Ops in which most of the work is. */
const HEAVY = new Set(["dot_general", "dot", "convolution", "custom_call", "gather", "scatter"]);

/** What is drawn in one pane: `items` by item and `lines`, each with its `element`. */
export class Drawing {
  /** @param {SVGElement} into is emptied whenever another picture is drawn. */
  constructor(into) {
    this.into = into;
    this.items = new Map();
    this.lines = [];
  }

  /**
   * Draws a picture.
   *
   * @param {object} picture what `Layout` made.
   * @param {object} context `{model, values, partitioner, chosen, matches, reaching}`.
   */
  draw(picture, context) {
    const layers = ["groups", "crossing", "edges", "reaching", "items"].map((name) =>
      svg(`g.graph-${name}`),
    );
    const [under, crossing, lines, far, over] = layers;
    this.items = new Map();
    this.lines = [];
    for (const [item, box] of picture.boxes) {
      const element = (box.open ? openGroup : closed)(item, box, context);
      this.items.set(item, { box, element, key: context.values.itemKey?.(item) });
      (box.open ? under : over).append(element);
    }
    const add = (edges, to) => {
      for (const edge of edges) {
        const element = line(edge, context);
        this.lines.push({ edge, element, key: context.values.edgeKey?.(edge.lists) });
        to.append(element);
      }
    };
    add(picture.crossing, crossing);
    add(context.reaching, far);
    add(picture.edges, lines);
    this.into.replaceChildren(...layers);
  }

  /** Draws again what is said otherwise now: whose `itemKey` or `edgeKey` is another. */
  refresh(context) {
    const { values } = context;
    for (const [item, known] of this.items) {
      const key = values.itemKey(item);
      if (key === known.key) continue;
      known.key = key;
      const element = (known.box.open ? openGroup : closed)(item, known.box, context);
      known.element.replaceWith(element);
      known.element = element;
    }
    for (const known of this.lines) {
      const key = values.edgeKey(known.edge.lists);
      if (key === known.key) continue;
      known.key = key;
      const element = line(known.edge, context);
      known.element.replaceWith(element);
      known.element = element;
    }
  }
}

function openGroup(item, box, context) {
  const { model, values, partitioner } = context;
  const { title, marks, lines } = labels(model, values, item, partitioner);
  const depth = model.depth[item];
  const group = svg(
    "g.graph-open",
    { data: { item: String(item), kind: model.groupKind(item), depth: String(depth % 2) } },
    svg("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 10 }),
    svg("path.graph-fold", { d: `M${box.x + 12} ${box.y + 13}l4 4l4 -4`, fill: "none" }),
    text("graph-title", box.x + 27, box.y + 19, title),
  );
  const room = box.width - 56 - textWidth(title, "title");
  const words = [lines[0], ...marks.map(([, caption]) => caption)].join(" · ");
  if (room > textWidth(words, "note")) {
    group.append(text("graph-note", box.x + box.width - 12, box.y + 19, words, "end"));
  }
  mark(group, item, context);
  return group;
}

function closed(item, box, context) {
  const { model, values, partitioner } = context;
  const said = labels(model, values, item, partitioner);
  const { form } = said;
  const sharding = form === "group" ? null : values.sharding(model.node(item), 0, partitioner);
  const group = svg("g.graph-item", {
    data: {
      item: String(item),
      form,
      ...(HEAVY.has(said.title) ? { heavy: "" } : {}),
      ...(form === "group" ? { kind: model.groupKind(item) } : {}),
    },
    transform: `translate(${box.x} ${box.y})`,
  });
  if (form === "group" && model.groupKind(item) === "repeated") {
    group.append(
      svg("rect.graph-behind", { x: 6, y: 6, width: box.width, height: box.height, rx: 8 }),
      svg("rect.graph-behind", { x: 3, y: 3, width: box.width, height: box.height, rx: 8 }),
    );
  }
  const round = { group: 8, op: 6, small: 11, input: 14, output: 14 }[form];
  group.append(svg("rect.graph-box", { width: box.width, height: box.height, rx: round }));
  const axes = values.axes(sharding);
  if (axes?.length && (form === "op" || form === "input" || form === "output")) {
    group.append(stripe(axes, box, round));
  }
  const middle = box.width / 2;
  if (form === "group") {
    group.append(svg("path.graph-fold", { d: "M13 10l4 4l-4 4", fill: "none" }));
    group.append(text("graph-name", 26, 19, said.title), text("graph-note", 13, 35, said.lines[0]));
    let x = 13;
    for (const [kind, words] of said.marks) {
      group.append(pill(kind, words, x, 42));
      x += pillWidth(words) + 4;
    }
  } else if (form === "small") {
    group.append(text("graph-name", middle, 15, said.title, "middle"));
  } else {
    group.append(text("graph-name", middle, 17, said.title, "middle"));
    let y = 32;
    for (const words of said.lines) {
      group.append(text("graph-note", middle, y, words, "middle"));
      y += 15;
    }
    if (said.spec) {
      const words = svg("text.graph-spec", { x: middle, y, "text-anchor": "middle" });
      words.append(...tspans(said.spec));
      group.append(words);
      y += 15;
    }
    for (const [kind, words] of said.marks) {
      if (kind === "differs") continue;
      group.append(pill(kind, words, middle - pillWidth(words) / 2, y - 10));
      y += 16;
    }
  }
  const progress = form === "group" ? values.progress?.(item) : null;
  if (progress) group.append(meter(progress, box));
  if (form === "small") {
    let y = 22;
    for (const [kind, words] of said.marks) {
      if (kind === "differs") continue;
      group.append(pill(kind, words, middle - pillWidth(words) / 2, y - 2));
      y += 16;
    }
  }
  if (form !== "group" && values.different[item]) {
    group.append(
      svg("circle.graph-unequal", { cx: box.width - 2, cy: 2, r: 8 }),
      text("graph-unequal-sign", box.width - 2, 6, "≠", "middle"),
    );
  }
  mark(group, item, context);
  return group;
}

function mark(group, item, { values, chosen, matches }) {
  if (item === chosen) group.dataset.chosen = "";
  if (values.different[item]) group.dataset.differs = "";
  if (matches?.has(item)) group.dataset.match = "";
  const standing = values.standing?.(item);
  if (standing) group.dataset.decided = standing;
}

/** How much of a group is done, at its foot. */
function meter({ done, of }, { width, height }) {
  const room = width - 20;
  const bar = (name, length) =>
    svg(`rect.${name}`, { x: 10, y: height - 7, width: length, height: 3, rx: 1.5 });
  return svg(
    "g.graph-meter",
    {},
    bar("graph-meter-all", room),
    bar("graph-meter-done", (room * done) / of),
  );
}

/** A strip at the left edge of a box with a piece for each axis that its value is sharded on. */
function stripe(axes, box, round) {
  const inset = Math.min(round, 8);
  const each = (box.height - 2 * inset) / axes.length;
  return svg(
    "g.graph-stripe",
    {},
    axes.map((axis, at) =>
      svg("rect", {
        x: 3,
        y: inset + at * each,
        width: 3,
        height: each,
        rx: 1.5,
        style: { fill: axisColour(axis) },
      }),
    ),
  );
}

function pill(kind, words, x, y) {
  return svg(
    "g.graph-pill",
    { data: { kind } },
    svg("rect", { x, y, width: pillWidth(words), height: 14, rx: 7 }),
    text("graph-pill-text", x + 6, y + 10.5, words),
  );
}

function text(name, x, y, words, anchor = "start") {
  return svg(`text.${name}`, { x, y, "text-anchor": anchor, direction: "ltr" }, words);
}

/** A sharding's text as SVG, its axes coloured. */
function tspans(words) {
  return coloured(words).map((part) =>
    typeof part === "string"
      ? part
      : svg(
          "tspan.axis",
          { data: part.dataset.axis ? { axis: part.dataset.axis } : {} },
          part.textContent,
        ),
  );
}

/** An edge: solid in the first axis's colour, the other axes as dashes on it; dotted where unknown. */
function line(edge, context) {
  const { model, values, partitioner } = context;
  let largest = edge.lists[0][0];
  let most = -1;
  let moves = 0;
  let differs = false;
  for (const list of edge.lists) {
    const summary = values.summary(list, partitioner);
    if (summary.most > most) [largest, most] = [summary.largest, summary.most];
    moves += summary.moves;
    differs ||= summary.differs;
  }
  const sharding = values.sharding(
    model.node(model.from[largest]),
    model.result[largest],
    partitioner,
  );
  const axes = values.axes(sharding);
  const d = path(edge);
  const width = 1.1 + Math.min(2.6, Math.log2(1 + most / 4096) * 0.16);
  const group = svg("g.graph-edge", {
    data: {
      from: String(edge.from ?? ""),
      to: String(edge.to ?? ""),
      ...(differs ? { differs: "" } : {}),
      ...(axes === null ? { unknown: "" } : {}),
      ...(values.isUndecided?.(edge.lists) ? { undecided: "" } : {}),
    },
  });
  if (differs) group.append(svg("path.graph-halo", { d, "stroke-width": width + 5 }));
  const colours = axes?.length ? axes.map(axisColour) : ["var(--graph-plain)"];
  colours.forEach((stroke, at) => {
    const dash = at ? `${DASH} ${DASH * colours.length - DASH}` : null;
    group.append(
      svg("path", {
        d,
        fill: "none",
        "stroke-width": width,
        "stroke-dasharray": dash,
        "stroke-dashoffset": at ? String(-DASH * at) : null,
        style: { stroke },
      }),
    );
  });
  const head = arrow(edge, colours[0]);
  if (head) group.append(head);
  if (moves) group.append(badge(edge.points, moves));
  group.append(svg("path.graph-reach", { d }));
  return group;
}

function arrow(edge, colour) {
  const end = edge.points.at(-1);
  if (edge.intoOpen) return null;
  if (edge.to === null)
    return svg("circle", { cx: end.x, cy: end.y, r: 2.2, style: { fill: colour } });
  const before = edge.points.at(-2);
  const [dx, dy] = edge.sideways
    ? [Math.sign(end.x - before.x), 0]
    : [0, Math.sign(end.y - before.y) || 1];
  const d = dx ? `M${end.x} ${end.y}l${-6 * dx} -3.5v7z` : `M${end.x} ${end.y}l-3.5 ${-6 * dy}h7z`;
  return svg("path", { d, style: { fill: colour } });
}

/** The sign of what has to move, in the middle of an edge. */
function badge(points, moves) {
  const { x, y } = middleOf(points);
  const words = moves > 1 ? `⇄ ${whole(moves)}` : "⇄";
  const width = words.length * 6.4 + 9;
  return svg(
    "g.graph-moves",
    {},
    svg("rect", { x: x - width / 2, y: y - 8, width, height: 16, rx: 8 }),
    text("graph-moves-sign", x, y + 4, words, "middle"),
  );
}

function middleOf(points) {
  if (points.length % 2) return points[(points.length - 1) / 2];
  const [a, b] = [points[points.length / 2 - 1], points[points.length / 2]];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}
