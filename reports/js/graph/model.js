// The program as items in groups, and what flows between them at each level. Nothing is drawn here.
//
// An item is a number: first the nodes (ops, arguments, results), then the groups, then the places
// where arguments of the program are drawn. ROOT is around all of them.

import { Table } from "../base/data.js";

export const ROOT = -1;

/** Ops that change a value's form only; they are drawn small. */
const SMALL = new Set([
  "bitcast_convert",
  "broadcast_in_dim",
  "concatenate",
  "convert",
  "iota",
  "optimization_barrier",
  "pad",
  "reshape",
  "reverse",
  "slice",
  "transpose",
]);

/** (node, result) of an operand as it is written: how far back, or that and which result. */
function written(node, said) {
  return Array.isArray(said) ? [node - said[0], said[1]] : [node - said, 0];
}

export class GraphModel {
  /**
   * @param {object} data what `sdyscope/page/graph.py` makes.
   * @param {boolean} [all] whether ops are drawn that only change a value's form, too. Otherwise
   *   those are left out that have one operand and nothing to mark.
   */
  constructor(data, all = false) {
    this.data = data;
    this.all = all;
    const nodes = new Table(data.nodes);
    const groups = new Table(data.groups);
    this.nodes = Object.fromEntries(
      ["kind", "name", "ssa", "type", "results", "splat"].map((name) => [name, nodes.getter(name)]),
    );
    this.groups = Object.fromEntries(
      ["name", "kind", "ssa"].map((name) => [name, groups.getter(name)]),
    );
    this.nodeCount = nodes.length;
    this.groupCount = groups.length;
    const chips = data.inputs.node.length;
    this.firstGroup = nodes.length;
    this.firstChip = nodes.length + groups.length;
    this.count = this.firstChip + chips;
    this.parent = new Int32Array(this.count).fill(ROOT);
    const groupOf = nodes.getter("group");
    const parentOf = groups.getter("parent");
    for (let node = 0; node < nodes.length; node += 1) {
      this.parent[node] = this.firstGroup + groupOf(node);
    }
    for (let group = 0; group < groups.length; group += 1) {
      const parent = parentOf(group);
      this.parent[this.firstGroup + group] = parent === null ? ROOT : this.firstGroup + parent;
    }
    for (let chip = 0; chip < chips; chip += 1) {
      this.parent[this.firstChip + chip] = this.firstGroup + data.inputs.group[chip];
    }
    this.depth = new Int32Array(this.count);
    for (let item = 0; item < this.count; item += 1) {
      let depth = 0;
      for (let at = this.parent[item]; at !== ROOT; at = this.parent[at]) depth += 1;
      this.depth[item] = depth;
    }
    this.#readUses(nodes.getter("operands"));
    this.#readChildren();
    this.#countInside();
    this.levels = new Map();
  }

  isGroup(item) {
    return item >= this.firstGroup && item < this.firstChip;
  }

  isChip(item) {
    return item >= this.firstChip;
  }

  /** The node that an item shows; of a group null. */
  node(item) {
    if (this.isChip(item)) return this.data.inputs.node[item - this.firstChip];
    return this.isGroup(item) ? null : item;
  }

  /** "group", "input", "output", "small" or "op". */
  form(item) {
    if (this.isGroup(item)) return "group";
    if (this.isChip(item)) return "input";
    const kind = this.nodes.kind(item);
    if (kind === "result") return "output";
    if (kind === "argument") return "input";
    return SMALL.has(kind) ? "small" : "op";
  }

  /** What a group stands for: "lane", "scope", "repeated", "tensor", "call", "region" or "arguments". */
  groupKind(item) {
    return this.groups.kind(item - this.firstGroup);
  }

  /** What an item is called. */
  title(item) {
    if (this.isGroup(item)) return this.groups.name(item - this.firstGroup);
    const node = this.node(item);
    const kind = this.nodes.kind(node);
    return kind === "argument" || kind === "result"
      ? this.nodes.name(node) || this.nodes.ssa(node)
      : kind;
  }

  /** The items from a lane down to this one. */
  path(item) {
    const items = [];
    for (let at = item; at !== ROOT; at = this.parent[at]) items.push(at);
    return items.reverse();
  }

  /** Whether an item is another one, or in it. */
  isIn(item, group) {
    let at = item;
    while (at !== ROOT && at !== group) at = this.parent[at];
    return at === group;
  }

  /** The lane that an item is in. */
  lane(item) {
    let at = item;
    while (this.parent[at] !== ROOT) at = this.parent[at];
    return at;
  }

  /** The item in `group`, directly, that `item` is or is in. */
  childOf(group, item) {
    let at = item;
    while (this.parent[at] !== group) at = this.parent[at];
    return at;
  }

  /** The deepest group that both are in. */
  common(a, b) {
    let first = this.parent[a];
    let second = this.parent[b];
    while (first !== second) {
      if (first === ROOT || second === ROOT) return ROOT;
      if (this.depth[first] >= this.depth[second]) first = this.parent[first];
      else second = this.parent[second];
    }
    return first;
  }

  /** The outermost item around this one, itself included, that is drawn: its groups are open. */
  drawn(item, open) {
    for (const at of this.path(item)) {
      if (!this.isGroup(at) || !open.has(at)) return at;
    }
    return item;
  }

  // Uses: `from[use]` is an item, `result[use]` which of its results, `to[use]` the item that takes
  // it as operand `operand[use]`; `passed.get(use)` are the ops between that are left out, and
  // `passing.get(node)` the uses that pass one of them.
  #readUses(operandsOf) {
    const from = [];
    const result = [];
    const to = [];
    const operand = [];
    const chips = new Map();
    const lanes = this.parent.map((_, item) => this.lane(item));
    this.data.inputs.node.forEach((node, chip) => {
      const lane = lanes[this.firstChip + chip];
      if (!chips.has(node)) chips.set(node, new Map());
      chips.get(node).set(lane, this.firstChip + chip);
    });
    this.hidden = new Uint8Array(this.count);
    for (let node = 0; node < this.nodeCount; node += 1) {
      if (this.nodes.splat(node)) this.hidden[node] = 1;
      if (chips.has(node)) this.hidden[node] = 2;
    }
    const through = this.#left(operandsOf, lanes);
    this.passed = new Map();
    this.passing = new Map();
    for (let node = 0; node < this.nodeCount; node += 1) {
      if (this.hidden[node]) continue;
      operandsOf(node).forEach((said, at) => {
        let [producer, which] = written(node, said);
        const passed = [];
        while (through.has(producer)) {
          passed.push(producer);
          [producer, which] = through.get(producer);
        }
        if (this.hidden[producer] === 1) return;
        if (passed.length) this.#pass(from.length, passed);
        from.push(chips.get(producer)?.get(lanes[node]) ?? producer);
        result.push(which);
        to.push(node);
        operand.push(at);
      });
    }
    this.from = Int32Array.from(from);
    this.result = Int32Array.from(result);
    this.to = Int32Array.from(to);
    this.operand = Int32Array.from(operand);
    // An argument that nothing uses has no place of its own.
    for (let node = 0; node < this.nodeCount; node += 1) {
      if (this.nodes.kind(node) === "argument" && this.parent[this.parent[node]] === ROOT) {
        this.hidden[node] = 2;
      }
    }
  }

  /** Notes the ops that are left out on the way of a use, the last of them first. */
  #pass(use, nodes) {
    this.passed.set(use, nodes);
    for (const node of nodes) {
      if (!this.passing.has(node)) this.passing.set(node, []);
      this.passing.get(node).push(use);
    }
  }

  /** The ops that are left out: for each of them (node, result) of its operand. */
  #left(operandsOf, lanes) {
    const through = new Map();
    if (this.all) return through;
    const marked = new Set();
    for (const list of [this.data.marks, this.data.sent]) {
      for (const columns of Object.values(list)) {
        const node = new Table(columns).getter("node");
        for (let row = 0; row < columns.rows; row += 1) marked.add(node(row));
      }
    }
    for (let node = 0; node < this.nodeCount; node += 1) {
      if (this.hidden[node] || !SMALL.has(this.nodes.kind(node)) || marked.has(node)) continue;
      const operands = operandsOf(node)
        .map((said) => written(node, said))
        .filter(([producer]) => this.hidden[producer] !== 1);
      if (operands.length !== 1 || lanes[operands[0][0]] !== lanes[node]) continue;
      through.set(node, operands[0]);
      this.hidden[node] = 3;
    }
    return through;
  }

  #readChildren() {
    this.childrenOf = new Map([[ROOT, []]]);
    for (let item = this.firstGroup; item < this.firstChip; item += 1) {
      this.childrenOf.set(item, []);
    }
    // Inputs first, then in program order: a group stands where its first node does.
    const first = new Float64Array(this.count).fill(Infinity);
    for (let item = 0; item < this.count; item += 1) {
      if (this.isGroup(item) || this.hidden[item]) continue;
      const order = this.isChip(item) ? this.node(item) : item;
      first[item] = order;
      if (this.isChip(item) && this.groupKind(this.parent[item]) !== "arguments") continue;
      for (let at = this.parent[item]; at !== ROOT; at = this.parent[at]) {
        first[at] = Math.min(first[at], order);
      }
    }
    for (let item = 0; item < this.count; item += 1) {
      if (!this.hidden[item]) this.childrenOf.get(this.parent[item]).push(item);
    }
    for (const [group, items] of this.childrenOf) {
      if (group !== ROOT) items.sort((a, b) => first[a] - first[b] || a - b);
    }
  }

  #countInside() {
    this.ops = new Int32Array(this.count);
    for (let node = 0; node < this.nodeCount; node += 1) {
      if (this.hidden[node] === 1 || this.hidden[node] === 2) continue;
      const form = this.form(node);
      if (form === "input" || form === "output") continue;
      for (let at = node; at !== ROOT; at = this.parent[at]) this.ops[at] += 1;
    }
  }

  /** For each group the uses inside it, by where they are: across its children, in, and out. */
  #levels() {
    if (this.levels.size) return;
    for (const group of this.childrenOf.keys()) {
      this.levels.set(group, { across: [], entering: [], leaving: [] });
    }
    for (let use = 0; use < this.from.length; use += 1) {
      const { from, to } = this;
      const common = this.common(from[use], to[use]);
      this.levels.get(common).across.push(use);
      if (common === ROOT) continue; // Lanes have no doors: what goes across is drawn straight.
      for (let at = this.parent[from[use]]; at !== common; at = this.parent[at]) {
        this.levels.get(at).leaving.push(use);
      }
      for (let at = this.parent[to[use]]; at !== common; at = this.parent[at]) {
        this.levels.get(at).entering.push(use);
      }
    }
  }

  /**
   * What flows inside a group: between its children, and through its doors.
   *
   * A door is named by the neighbour that it leads to: the item beside the group, or beside a group
   * around it, that the value comes from or goes to.
   *
   * @returns {{edges: {from: number|null, to: number|null, door: number|null, uses: number[]}[]}}
   *   `from` is null of what enters, `to` of what leaves.
   */
  level(group) {
    this.#levels();
    const level = this.levels.get(group);
    if (level.edges) return level;
    const edges = new Map();
    const add = (from, to, door, use) => {
      const key = `${from},${to},${door}`;
      if (!edges.has(key)) edges.set(key, { from, to, door, uses: [] });
      edges.get(key).uses.push(use);
    };
    for (const use of level.across) {
      const from = this.childOf(group, this.from[use]);
      const to = this.childOf(group, this.to[use]);
      if (from !== to) add(from, to, null, use);
    }
    for (const use of level.entering) {
      const common = this.common(this.from[use], this.to[use]);
      const door = this.childOf(common, this.from[use]);
      add(null, this.childOf(group, this.to[use]), door, use);
    }
    for (const use of level.leaving) {
      const common = this.common(this.from[use], this.to[use]);
      const door = this.childOf(common, this.to[use]);
      add(this.childOf(group, this.from[use]), null, door, use);
    }
    level.edges = [...edges.values()];
    return level;
  }

  /** What goes from lane to lane: by the groups that it leaves and enters, and the lanes' own ops. */
  crossing() {
    if (!this.pairs) {
      const pairs = new Map();
      for (const use of this.level(ROOT).across) {
        const [from, to] = [this.#place(this.from[use]), this.#place(this.to[use])];
        const key = from * this.count + to;
        if (!pairs.has(key)) pairs.set(key, { from, to, uses: [] });
        pairs.get(key).uses.push(use);
      }
      this.pairs = [...pairs.values()];
    }
    return this.pairs;
  }

  /** The group that an item is in; of what is in none below its lane the item itself. */
  #place(item) {
    const parent = this.parent[item];
    const kind = parent === ROOT ? "lane" : this.groupKind(parent);
    return kind === "lane" || kind === "repeated" ? item : parent;
  }

  /** The uses of an item's values, and those that it makes of others'; of a group across its edge. */
  around(item) {
    if (this.isGroup(item)) {
      const { entering, leaving } = this.level(item);
      const lanes = this.levels.get(ROOT).across;
      const within = (node) => this.isIn(node, item);
      return {
        takes: [...entering, ...lanes.filter((use) => within(this.to[use]))],
        gives: [...leaving, ...lanes.filter((use) => within(this.from[use]))],
      };
    }
    this.#readNear();
    return { takes: this.takes.get(item) ?? [], gives: this.gives.get(item) ?? [] };
  }

  #readNear() {
    if (this.takes) return;
    this.takes = new Map();
    this.gives = new Map();
    for (let use = 0; use < this.from.length; use += 1) {
      for (const [map, item] of [
        [this.takes, this.to[use]],
        [this.gives, this.from[use]],
      ]) {
        if (!map.has(item)) map.set(item, []);
        map.get(item).push(use);
      }
    }
  }

  /** The use of an operand of a node; undefined where it is not drawn. */
  useOf(node, operand) {
    this.#readNear();
    return this.takes.get(node)?.find((use) => this.operand[use] === operand);
  }
}
