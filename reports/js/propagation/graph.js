// Propagation on the graph: how far everything is at a step, what the step moves, a chain as a path.

import { svg } from "../base/dom.js";
import { axisColour } from "../base/spec.js";
import { edgeRows, legend, signLine } from "../graph/legend.js";
import { oneLevelMore, openAtFirst, readOpen, writeOpen } from "../graph/open.js";
import { GraphPanes } from "../graph/panes.js";
import { path } from "../graph/route.js";
import { StepValues } from "./values.js";

/** What is around a chain is opened where it makes no more boxes than this. */
const MOST = 260;

export class StepGraph {
  /**
   * @param {object} slots `picture` and the buttons beside it.
   * @param {Graphs} graphs what `openGraphs` gives.
   * @param {object} owner `propagation`, `report`; `open(text)` puts what is open in the address,
   *   `choose(row)` a row of the tensors' table or null.
   */
  constructor(slots, graphs, owner) {
    const { model, values, names } = graphs.of(false);
    Object.assign(this, { slots, owner, propagation: owner.propagation });
    this.values = new StepValues(values, owner.propagation);
    this.graph = { model, values: this.values, names, layout: graphs.layout(model, this.values) };
    this.panes = new GraphPanes(slots.picture, {
      toggle: (item) => this.#toggle(item),
      choose: (item) => this.#choose(item),
      clear: () => owner.choose(null),
      redraw: () => this.#redraw(),
    });
    this.panes.setPartitioners(["shardy"]);
    this.marked = [];
    this.#readNodes();
    slots.in.addEventListener("click", () => this.panes.zoom(1.3));
    slots.out.addEventListener("click", () => this.panes.zoom(1 / 1.3));
    slots.fit.addEventListener("click", () => this.panes.fit());
    slots.more.addEventListener("click", () => this.more());
    slots.less.addEventListener("click", () => this.#setOpen(readOpen(model, "")));
    legend(slots.legend, [
      ...edgeRows(owner.report.meshes),
      [signLine("undecided"), ["will be sharded, and is not yet"]],
      [signLine("step"), ["what the step moves, and which way"]],
      [signLine("chain"), ["the chain of the chosen value"]],
    ]);
  }

  /** The nodes of each row of the tensors' table, and of each value. */
  #readNodes() {
    const { model } = this.graph;
    this.nodesOf = new Map();
    this.nodesOfValue = new Map();
    const add = (map, key, node) => {
      if (key === undefined || key === null) return;
      if (!map.has(key)) map.set(key, []);
      map.get(key).push(node);
    };
    for (let node = 0; node < model.nodeCount; node += 1) {
      if (model.hidden[node] === 1) continue;
      for (let result = 0; result < Math.max(1, model.nodes.results(node)); result += 1) {
        add(this.nodesOf, this.values.ofEnd.row(node, result), node);
        add(this.nodesOfValue, this.values.value(node, result), node);
      }
    }
    // An argument is drawn where it is used.
    this.places = new Map();
    for (let item = model.firstChip; item < model.count; item += 1) {
      add(this.places, model.node(item), item);
    }
  }

  /** The items that show a node: of one that is left out, what it takes; of an argument its places. */
  #items(node) {
    const { model } = this.graph;
    if (this.places.has(node)) return this.places.get(node);
    if (model.hidden[node] !== 3) return model.hidden[node] ? [] : [node];
    const [use] = model.passing.get(node) ?? [];
    return use === undefined ? [] : [model.from[use]];
  }

  #drawn(item) {
    return this.graph.model.drawn(item, this.panes.open);
  }

  // What is open, and chosen.

  /** Shows what the address says of open groups, and the step and chain in them. */
  update(text) {
    if (text === this.openText && this.panes.picture) return;
    this.openText = text;
    const { model } = this.graph;
    this.first ??= openAtFirst(model);
    const open = text === undefined ? this.first : readOpen(model, text);
    const { hold } = this;
    this.hold = null;
    this.#redraw(open, hold);
    if (hold?.isOpened) this.panes.focus(hold.item);
    else this.panes.fitOnce();
  }

  /** Lays out and draws what is shown. */
  #redraw(open = this.panes.open, hold = null) {
    this.panes.lay(this.graph, open, hold);
    this.panes.draw({});
    this.#readLines();
    this.#mark();
    this.#drawChain();
  }

  #setOpen(open, hold = null) {
    this.hold = hold;
    if (!hold) this.panes.fitted = false;
    this.panes.fitTo(null);
    this.owner.open(writeOpen(this.graph.model, open));
  }

  #toggle(item) {
    const open = new Set(this.panes.open);
    if (!open.delete(item)) open.add(item);
    this.#setOpen(open, this.panes.holding(item, open.has(item)));
  }

  /** Opens one level more. */
  more() {
    this.#setOpen(oneLevelMore(this.graph.model, this.panes.picture, this.panes.open));
  }

  #choose(item) {
    const { model } = this.graph;
    if (model.isGroup(item)) this.#toggle(item);
    else this.owner.choose(this.values.ofEnd.row(model.node(item)) ?? null);
  }

  // Steps.

  /**
   * Shows a step.
   *
   * @param {number} step Shardy's number; -1 before the first.
   * @param {boolean} follows whether what moves is brought into sight.
   */
  show(step, follows) {
    this.values.go(step);
    if (!this.panes.picture) return;
    this.panes.refresh();
    this.#mark();
    if (this.chains?.length) this.#drawChain();
    if (follows) this.#follow();
  }

  /** Opens the scope of a step's op, and closes the one that the step before had opened. */
  openStep(step) {
    if (!this.panes.picture) return;
    const { model } = this.graph;
    const [node] = this.#ops(step);
    const [item] = node === undefined ? [] : this.#items(node);
    const around = item === undefined ? [] : model.path(item).slice(0, -1);
    const open = new Set(this.panes.open);
    for (const group of this.byStep ?? []) if (!around.includes(group)) open.delete(group);
    const added = around.filter((group) => !open.has(group));
    const boxes = added.reduce((sum, group) => sum + model.childrenOf.get(group).length, 0);
    if (this.panes.seen + boxes > MOST) return;
    this.byStep = [...(this.byStep ?? []).filter((group) => open.has(group)), ...added];
    for (const group of added) open.add(group);
    if (added.length || open.size !== this.panes.open.size) this.#setOpen(open);
  }

  #readLines() {
    this.lineOf = new Map();
    const [{ drawing }] = this.panes.panes;
    for (const known of drawing.lines) {
      for (const list of known.edge.lists) {
        for (const use of list) {
          if (!this.lineOf.has(use)) this.lineOf.set(use, []);
          this.lineOf.get(use).push(known);
        }
      }
    }
  }

  /** Marks what the step moves: the op, the values that an axis comes to, and the way there. */
  #mark() {
    for (const element of this.marked) {
      delete element.dataset.step;
      delete element.dataset.way;
    }
    this.marked = [];
    this.moving = [];
    const { propagation } = this;
    const { targets, sources } = propagation.touched(this.values.step);
    const set = (element, kind, way) => {
      if (!element || element.dataset.step === "op") return;
      element.dataset.step = kind;
      if (way) element.dataset.way = way;
      this.marked.push(element);
    };
    const [{ drawing }] = this.panes.panes;
    const items = (node) => this.#items(node).map((item) => this.#drawn(item));
    for (const node of this.#ops(this.values.step)) {
      for (const item of items(node)) {
        set(drawing.items.get(item)?.element, "op");
        this.moving.push(item);
      }
      for (const [use, kind, way] of this.#moves(node, targets, sources)) {
        for (const { element } of this.lineOf.get(use) ?? []) set(element, kind, way);
      }
    }
    for (const value of targets) {
      for (const node of this.nodesOfValue.get(value) ?? []) {
        for (const item of items(node)) set(drawing.items.get(item)?.element, "to");
      }
    }
  }

  /** The nodes of the ops that a step goes through. */
  #ops(step) {
    const { propagation } = this;
    const nodes = new Set();
    for (let at = propagation.position(step); propagation.numbers[at] === step; at += 1) {
      const row = propagation.places.get("row", propagation.moves.get("place", at));
      for (const node of this.nodesOf.get(row) ?? []) nodes.add(node);
    }
    return nodes;
  }

  /** The uses beside an op that an axis moves along: which, from or to the op, and which way. */
  *#moves(node, targets, sources) {
    const { model } = this.graph;
    const { takes, gives } = model.around(node);
    for (const use of takes) {
      const { taken } = this.values.ofUse(use);
      if (targets.has(taken)) yield [use, "to", "backward"];
      else if (sources.has(taken)) yield [use, "from", "forward"];
    }
    for (const use of gives) {
      const { produced } = this.values.ofUse(use);
      if (targets.has(produced)) yield [use, "to", "forward"];
      else if (sources.has(produced)) yield [use, "from", "backward"];
    }
    for (const use of model.passing.get(node) ?? []) {
      const { produced } = this.values.ofUse(use);
      yield [use, "to", targets.has(produced) ? "backward" : "forward"];
    }
  }

  #follow() {
    const [item] = this.moving;
    if (item !== undefined) this.panes.follow(item);
  }

  // Chains.

  /**
   * Draws chains as paths.
   *
   * @param {object[]} chains those of a row.
   * @param {number | null} row the row.
   * @param {boolean} opens whether what is around them is opened, as for another value.
   */
  showChains(chains, row, opens) {
    this.chains = chains
      .map((chain) => this.#stations(chain, row))
      .filter(({ nodes }) => nodes.length);
    if (!this.panes.picture) return;
    if (opens && this.#openAround()) return;
    this.#drawChain();
    if (opens) this.#fitChain();
  }

  /** The nodes that a chain comes through, first to last, and its values. */
  #stations(chain, row) {
    const first = (list) => list?.[0];
    const ops = chain.moves.map((move) => first(this.nodesOf.get(move.row)));
    const nodes = [first(this.nodesOfValue.get(chain.from)), ...ops, first(this.nodesOf.get(row))];
    const listed = nodes.filter((node, at) => node !== undefined && node !== nodes[at - 1]);
    const values = new Set([chain.from, ...chain.moves.map((move) => move.value)]);
    return { axis: chain.axis.split(":")[0], nodes: listed, values };
  }

  /** Opens the groups around the chains, where that is not too much; whether it did. */
  #openAround() {
    const { model } = this.graph;
    const open = new Set(this.panes.open);
    let seen = this.panes.seen;
    for (const { nodes } of this.chains) {
      for (const node of nodes) {
        const [item] = this.#items(node);
        for (const group of item === undefined ? [] : model.path(item).slice(0, -1)) {
          if (open.has(group)) continue;
          seen += model.childrenOf.get(group).length;
          open.add(group);
        }
      }
    }
    if (open.size === this.panes.open.size || seen > MOST) return false;
    this.fitsChain = true;
    this.#setOpen(open);
    return true;
  }

  #drawChain() {
    const [{ drawing, root }] = this.panes.panes;
    for (const { element } of drawing.lines) delete element.dataset.chain;
    this.overlay?.remove();
    this.overlay = null;
    this.stations = [];
    const { chains = [] } = this;
    if (chains.length) root.dataset.path = "";
    else delete root.dataset.path;
    if (!chains.length) return;
    this.overlay = svg("g.graph-path-over");
    const badges = new Map();
    for (const chain of chains) this.#drawOne(chain, badges);
    for (const [item, list] of badges) this.#badges(item, list);
    drawing.into.append(this.overlay);
    if (this.fitsChain) this.#fitChain();
  }

  #drawOne({ axis, nodes, values }, badges) {
    const { model } = this.graph;
    const { boxes } = this.panes.picture;
    const isOn = new Set(nodes);
    const lit = new Set();
    const light = (use, node) => {
      for (const { element } of this.lineOf.get(use) ?? []) {
        element.dataset.chain = "";
        lit.add(node);
        lit.add(model.node(model.from[use]));
        lit.add(model.to[use]);
      }
    };
    for (const node of nodes) {
      for (const use of model.around(node).takes) {
        if (
          values.has(this.values.ofUse(use).produced) ||
          values.has(this.values.ofUse(use).taken)
        ) {
          light(use, node);
        }
      }
      for (const use of model.passing.get(node) ?? []) {
        if (isOn.has(model.to[use]) || isOn.has(model.from[use])) light(use, node);
      }
    }
    let before = null;
    nodes.forEach((node, number) => {
      const item = this.#items(node)
        .map((item) => this.#drawn(item))
        .find((item) => boxes.has(item));
      if (item === undefined) return;
      if (!badges.has(item)) badges.set(item, []);
      badges.get(item).push({ axis, number: number + 1 });
      this.stations.push(item);
      // Where no edge is drawn between two, a line says that the chain goes on there.
      if (before && before.item !== item && !(lit.has(node) && lit.has(before.node))) {
        this.overlay.append(this.#connector(boxes.get(before.item), boxes.get(item), axis));
      }
      before = { item, node };
    });
  }

  #connector(from, to, axis) {
    const middle = (box) => ({ x: box.x + box.width / 2, y: box.y + Math.min(box.height, 40) / 2 });
    return svg("path.graph-path-link", {
      d: path({ points: [middle(from), middle(to)] }),
      style: { stroke: axisColour(axis) },
    });
  }

  /** The numbers of a chain's stations, at the left of a box. */
  #badges(item, list) {
    const box = this.panes.picture.boxes.get(item);
    const byAxis = Map.groupBy
      ? Map.groupBy(list, ({ axis }) => axis)
      : new Map([[list[0].axis, list]]);
    let { x } = box;
    for (const [axis, stations] of byAxis) {
      const numbers = stations.map(({ number }) => number);
      const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
      const words = least === most ? `${least}` : `${least}–${most}`;
      const width = words.length * 6.4 + 10;
      this.overlay.append(
        svg(
          "g.graph-station",
          { transform: `translate(${x - 6} ${box.y - 9})` },
          svg("rect", { width, height: 17, rx: 8.5, style: { fill: axisColour(axis) } }),
          svg("text", { x: width / 2, y: 12.5, "text-anchor": "middle" }, words),
        ),
      );
      x += width + 3;
    }
  }

  #fitChain() {
    this.fitsChain = false;
    this.panes.fitTo(this.stations?.length ? this.stations : null);
  }
}
