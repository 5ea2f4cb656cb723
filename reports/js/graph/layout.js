// Where things stand: each open group is laid out by itself, the deepest first, so that a group that
// opens moves only what is around it. What did not change is not laid out again.

import { Fans } from "./fans.js";
import { across, between, HEAD, shown, spread } from "./lines.js";
import { ROOT } from "./model.js";
import { route } from "./route.js";

/** Room inside a group around what is in it. */
const PAD = 18;

/** Between passes, and between the columns of repeated groups. */
const LANE_GAP = 96;
const STACK_GAP = 28;
const COLUMN_GAP = 56;

/** The height of a lane's title. */
const TITLE = 24;

/** More repeated groups than this stand in columns, one after another. */
const CHAIN = 8;

/** Where dagre takes too long, what is inside stands in columns. */
const MOST = 700;

export class Layout {
  /**
   * @param {GraphModel} model what to lay out.
   * @param {object} dagre the library.
   * @param {(item: number) => {width: number, height: number}} sizeOf of what is not open.
   */
  constructor(model, dagre, sizeOf) {
    this.model = model;
    this.dagre = dagre;
    this.sizeOf = sizeOf;
    this.layouts = new Map();
  }

  /**
   * The whole picture for a set of open groups.
   *
   * @param {Set<number>} open the groups that are.
   * @param {boolean} [stacked] whether passes are one below the other, not side by side.
   * @returns {{width: number, height: number, boxes: Map, edges: object[], crossing: object[]}}
   *   `boxes` has x, y (left and top), width, height and open by item; an edge has `lists` of uses,
   *   `points`, `from`, `to`; `crossing` edges go from lane to lane.
   */
  picture(open, stacked = false) {
    this.open = open;
    const { model } = this;
    const lanes = model.childrenOf.get(ROOT).filter((lane) => model.childrenOf.get(lane).length);
    const boxes = new Map();
    const edges = [];
    const laid = lanes.map((lane) => (open.has(lane) ? this.group(lane) : null));
    const heights = laid.map((picture, at) => picture?.height ?? this.sizeOf(lanes[at]).height);
    const height = Math.max(0, ...heights);
    const sizes = lanes.map((lane, at) => laid[at] ?? this.sizeOf(lane));
    const widest = Math.max(0, ...sizes.map(({ width }) => width));
    let [x, y] = [0, 0];
    lanes.forEach((lane, at) => {
      const size = sizes[at];
      if (stacked) {
        this.#place(lane, (widest - size.width) / 2, y, laid[at], boxes, edges);
        y += size.height + STACK_GAP;
        return;
      }
      // Forward runs down and backward up, so that a layer and its gradient are level.
      y = laid.length > 1 && at < 2 ? height - size.height : 0;
      this.#place(lane, x, y, laid[at], boxes, edges);
      x += size.width + LANE_GAP;
    });
    const crossing = this.#crossing(boxes, open);
    const right = Math.max(0, ...crossing.flatMap(({ points }) => points.map((point) => point.x)));
    return {
      width: Math.max(stacked ? widest : x - LANE_GAP, right),
      height: Math.max(0, stacked ? y - STACK_GAP : height),
      boxes,
      edges,
      crossing,
    };
  }

  #place(item, x, y, laid, boxes, edges) {
    const size = laid ?? this.sizeOf(item);
    boxes.set(item, { x, y, width: size.width, height: size.height, open: Boolean(laid) });
    if (!laid) return;
    for (const edge of laid.edges) {
      const points = edge.points.map((point) => ({ x: point.x + x, y: point.y + y }));
      edges.push({ ...edge, lists: [edge.uses], points, group: item });
    }
    for (const [child, at] of laid.places) {
      this.#place(child, x + at.x, y + at.y, at.laid, boxes, edges);
    }
  }

  /** The layout of an open group: its size, and where its children and edges are in it. */
  group(group) {
    const key = this.#key(group);
    const known = this.layouts.get(group);
    if (known?.key === key) return known;
    const { model } = this;
    const children = model.childrenOf.get(group);
    const { edges } = model.level(group);
    const inner = new Map(
      children
        .filter((child) => model.isGroup(child) && this.open.has(child))
        .map((child) => [child, this.group(child)]),
    );
    const chained = model.groupKind(group) === "repeated" && children.length > CHAIN;
    const layout =
      chained || children.length > MOST
        ? this.#columns(group, children, edges, inner)
        : this.#layered(group, children, edges, inner);
    layout.key = key;
    this.layouts.set(group, layout);
    return layout;
  }

  /** Which groups are open inside this one. */
  #key(group) {
    const groups = [];
    const look = (at) => {
      for (const child of this.model.childrenOf.get(at)) {
        if (this.model.isGroup(child) && this.open.has(child)) {
          groups.push(child);
          look(child);
        }
      }
    };
    look(group);
    return groups.join(",");
  }

  #isUpward(group) {
    return this.model.title(this.model.lane(group)) === "Backward";
  }

  #layered(group, children, edges, inner) {
    const graph = new this.dagre.Graph({ multigraph: true });
    const up = this.#isUpward(group);
    graph.setGraph({
      rankdir: up ? "BT" : "TB",
      nodesep: 22,
      ranksep: 26,
      edgesep: 12,
      ranker: children.length > 250 ? "longest-path" : "network-simplex",
    });
    graph.setDefaultEdgeLabel(() => ({}));
    const { doors, drawn } = shown(edges);
    const sizeOf = (child) => inner.get(child) ?? this.sizeOf(child);
    const fans = new Fans(drawn, sizeOf);
    const alone = children.filter((child) => !fans.has(child));
    for (const child of alone) {
      const { width, height } = sizeOf(child);
      graph.setNode(String(child), { width, height });
    }
    for (const { name, hub, fromHub, width, height } of fans.blocks) {
      graph.setNode(name, { width, height });
      graph.setEdge(fromHub ? String(hub) : name, fromHub ? name : String(hub), { weight: 1 });
    }
    for (const [name] of doors) graph.setNode(name, { width: 2, height: 2 });
    const sources = new Set(alone.map(String));
    const sinks = new Set(alone.map(String));
    drawn.forEach((edge, at) => {
      if (fans.of(edge) >= 0) return;
      const from = edge.from === null ? `in ${edge.door}` : String(edge.from);
      const to = edge.to === null ? `out ${edge.door}` : String(edge.to);
      sources.delete(to);
      sinks.delete(from);
      // Inputs stand close to what takes them; the stream of activations stays straight.
      const weight = this.model.form(edge.from ?? edge.to) === "input" ? 1 : 3;
      graph.setEdge(from, to, { weight }, String(at));
    });
    // Doors are at the very top and bottom.
    if (doors.size) {
      graph.setNode("top", { width: 0, height: 0 });
      graph.setNode("bottom", { width: 0, height: 0 });
      for (const [name] of doors) {
        if (name.startsWith("in ")) graph.setEdge("top", name, { weight: 90 }, "door");
        else graph.setEdge(name, "bottom", { weight: 90 }, "door");
      }
      for (const name of sources) {
        if (this.model.form(Number(name)) !== "input") {
          graph.setEdge("top", name, { weight: 0, minlen: 2 }, "rank");
        }
      }
      for (const name of sinks) graph.setEdge(name, "bottom", { weight: 0, minlen: 2 }, "rank");
    }
    this.dagre.layout(graph);
    return this.#read(group, graph, children, drawn, inner, fans);
  }

  #read(group, graph, children, drawn, inner, fans) {
    const up = this.#isUpward(group);
    const nodeOf = (child) =>
      fans.has(child)
        ? fans.place(child, graph.node(fans.members.get(child).block.name))
        : graph.node(String(child));
    let left = Infinity;
    let right = -Infinity;
    let top = Infinity;
    let bottom = -Infinity;
    const places = new Map();
    for (const child of children) {
      const { x, y, width, height } = nodeOf(child);
      left = Math.min(left, x - width / 2);
      right = Math.max(right, x + width / 2);
      top = Math.min(top, y - height / 2);
      bottom = Math.max(bottom, y + height / 2);
    }
    const doors = new Map();
    const lines = drawn.map((edge, at) => {
      const from = edge.from === null ? `in ${edge.door}` : String(edge.from);
      const to = edge.to === null ? `out ${edge.door}` : String(edge.to);
      const member = fans.of(edge);
      const { block } = fans.members.get(member) ?? {};
      const points = block
        ? fans.points(member, graph.node(block.name), nodeOf(block.hub))
        : graph.edge(from, to, String(at)).points;
      for (const point of points) {
        left = Math.min(left, point.x);
        right = Math.max(right, point.x);
      }
      return { ...edge, points: points.map(({ x, y }) => ({ x, y })) };
    });
    const width = Math.max(right - left + 2 * PAD, this.sizeOf(group).width);
    const dx = (width - (right - left)) / 2 - left;
    const dy = PAD + HEAD - top;
    const height = bottom - top + 2 * PAD + HEAD;
    for (const child of children) {
      const node = nodeOf(child);
      places.set(child, {
        x: node.x - node.width / 2 + dx,
        y: node.y - node.height / 2 + dy,
        width: node.width,
        height: node.height,
        laid: inner.get(child) ?? null,
      });
    }
    for (const line of lines) {
      for (const point of line.points) {
        point.x += dx;
        point.y += dy;
      }
    }
    for (const line of lines) {
      const enters = line.from === null;
      const leaves = line.to === null;
      if (!enters && !leaves) continue;
      const end = enters ? line.points[0] : line.points.at(-1);
      const name = `${enters ? "in" : "out"} ${line.door}`;
      const atTop = enters !== up;
      end.y = atTop ? HEAD - 6 : height;
      if (!doors.has(name)) doors.set(name, end.x);
      else end.x = doors.get(name);
    }
    spread(lines, places, up);
    routeAll(lines, places);
    return { width, height, places, edges: lines, doors };
  }

  /** Repeated groups one below the other, in as many columns as make it about square. */
  #columns(group, children, edges, inner) {
    const up = this.#isUpward(group);
    const sizes = children.map((child) => inner.get(child) ?? this.sizeOf(child));
    const total = sizes.reduce((sum, { height }) => sum + height + 26, 0);
    const widest = Math.max(...sizes.map(({ width }) => width));
    const columns = Math.max(1, Math.round(Math.sqrt(total / (widest + COLUMN_GAP) / 0.8)));
    const limit = total / columns;
    const places = new Map();
    let x = PAD;
    let column = [];
    let filled = 0;
    const stacks = [];
    const end = () => {
      const width = Math.max(...column.map(({ size }) => size.width));
      stacks.push({ column, x, width, height: filled - 26 });
      x += width + COLUMN_GAP;
      column = [];
      filled = 0;
    };
    children.forEach((child, at) => {
      if (filled && filled + sizes[at].height / 2 > limit && stacks.length < columns - 1) end();
      column.push({ child, size: sizes[at] });
      filled += sizes[at].height + 26;
    });
    end();
    const tall = Math.max(...stacks.map(({ height }) => height));
    for (const stack of stacks) {
      let y = PAD + HEAD;
      for (const { child, size } of stack.column) {
        places.set(child, {
          x: stack.x + (stack.width - size.width) / 2,
          y: up ? 2 * (PAD + HEAD) + tall - y - size.height : y,
          width: size.width,
          height: size.height,
          laid: inner.get(child) ?? null,
        });
        y += size.height + 26;
      }
    }
    const width = Math.max(x - COLUMN_GAP + PAD, this.sizeOf(group).width);
    const height = tall + 2 * PAD + HEAD;
    const order = new Map(children.map((child, at) => [child, at]));
    const lines = [];
    const doors = new Map();
    for (const edge of shown(edges).drawn) {
      if (edge.from === null || edge.to === null) {
        // Through the edge of the group by the nearest way.
        const child = edge.from ?? edge.to;
        const at = places.get(child);
        const middle = at.x + at.width / 2;
        const name = `${edge.from === null ? "in" : "out"} ${edge.door}`;
        if (!doors.has(name)) doors.set(name, middle);
        if (!isFirst(stacks, child) && !isLast(stacks, child)) continue;
        const outer = { x: doors.get(name), y: (edge.from === null) !== up ? HEAD - 6 : height };
        const own = { x: middle, y: (edge.from === null) !== up ? at.y : at.y + at.height };
        lines.push({ ...edge, points: edge.from === null ? [outer, own] : [own, outer] });
        continue;
      }
      // Only what goes from one to the next: the rest is drawn for what is chosen.
      if (Math.abs(order.get(edge.to) - order.get(edge.from)) !== 1) continue;
      lines.push({ ...edge, points: between(places.get(edge.from), places.get(edge.to), up) });
    }
    spread(lines, places, up);
    routeAll(lines, places);
    return { width, height, places, edges: lines, doors };
  }

  /** What goes from one lane to another, between what is drawn of it. */
  #crossing(boxes, open) {
    const { model } = this;
    const joined = new Map();
    const outer = new Map();
    const outerOf = (item) => {
      if (!outer.has(item)) outer.set(item, this.#outer(item, open));
      return outer.get(item);
    };
    for (const pair of model.crossing()) {
      const from = outerOf(pair.from);
      const to = outerOf(pair.to);
      const key = `${from},${to}`;
      if (!joined.has(key)) joined.set(key, { from, to, lists: [] });
      joined.get(key).lists.push(pair.uses);
    }
    const drawn = [...joined.values()].filter(({ from, to }) => boxes.has(from) && boxes.has(to));
    return this.#across(drawn, boxes);
  }

  /**
   * Edges from lane to lane, around what stands between: boxes, groups that neither end is in, and
   * the titles of lanes and of groups that an end is in.
   */
  #across(edges, boxes) {
    const { model } = this;
    const lines = edges.map((edge) => ({
      ...edge,
      ...across(boxes.get(edge.from), boxes.get(edge.to)),
    }));
    for (const line of lines) {
      const around = new Set([...model.path(line.from), ...model.path(line.to)]);
      const others = [];
      const look = (group) => {
        for (const child of model.childrenOf.get(group)) {
          if (!boxes.has(child)) continue;
          if (!around.has(child)) others.push(boxes.get(child));
          else if (boxes.get(child).open && child !== line.from && child !== line.to) enter(child);
        }
      };
      const enter = (group) => {
        others.push({ ...boxes.get(group), height: TITLE });
        look(group);
      };
      for (const lane of model.childrenOf.get(ROOT)) if (boxes.has(lane)) enter(lane);
      route(line, others, [boxes.get(line.from), boxes.get(line.to)]);
    }
    return lines;
  }

  /** The part of a lane that something is in: a layer, not the op in it that has the edge. */
  #outer(item, open) {
    const { model } = this;
    const path = model.path(item);
    let at = 0;
    while (at < path.length - 1 && open.has(path[at])) {
      // Repeated groups in columns are one: their lines would be all over each other.
      const isChain = model.groupKind(path[at]) === "repeated";
      if (at > 0 && !(isChain && model.childrenOf.get(path[at]).length <= CHAIN)) break;
      at += 1;
    }
    return path[at];
  }

  /** What goes from a thing to other lanes, and comes from there, as it is drawn. */
  reaching(item, picture) {
    const { model } = this;
    const joined = new Map();
    for (const use of model.level(ROOT).across) {
      if (!model.isIn(model.from[use], item) && !model.isIn(model.to[use], item)) continue;
      const from = model.drawn(model.from[use], this.open);
      const to = model.drawn(model.to[use], this.open);
      const key = `${from},${to}`;
      if (!joined.has(key)) joined.set(key, { from, to, lists: [[]] });
      joined.get(key).lists[0].push(use);
    }
    return this.#across([...joined.values()], picture.boxes);
  }
}

/** Leads the lines of a group around the boxes in it. */
function routeAll(lines, places) {
  for (const line of lines) {
    const others = [...places].filter(([item]) => item !== line.from && item !== line.to);
    const ends = [places.get(line.from), places.get(line.to)];
    route(
      line,
      others.map(([, place]) => place),
      ends,
    );
  }
}

function isFirst(stacks, child) {
  return stacks[0].column[0].child === child;
}

function isLast(stacks, child) {
  return stacks.at(-1).column.at(-1).child === child;
}
