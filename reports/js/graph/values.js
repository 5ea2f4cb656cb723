// What is known of the values in the graph: their types and shardings, and what has to move.

import { Table } from "../base/data.js";

export class GraphValues {
  /**
   * @param {GraphModel} model the graph.
   * @param {object|null} tensors the part of the tensors' table.
   * @param {Shared} shared shardings and source lines.
   */
  constructor(model, tensors, shared) {
    this.model = model;
    this.shared = shared;
    this.partitioners = model.data.partitioners;
    this.tensors = tensors?.columns ? new Table(tensors) : null;
    this.rows = new Map();
    this.results = new Map();
    if (this.tensors) this.#readRows();
    this.#readMarks();
    this.#readDifferences();
  }

  #readRows() {
    const { tensors, rows } = this;
    const ssa = tensors.getter("ssa");
    const section = tensors.getter("section");
    const kind = tensors.getter("kind");
    const name = tensors.getter("name");
    for (let row = 0; row < tensors.length; row += 1) {
      if (section(row) === "result") this.results.set(name(row), row);
      // A boundary of a shard_map is not the value itself.
      else if (ssa(row) && kind(row) !== "shard_map input" && !rows.has(ssa(row))) {
        rows.set(ssa(row), row);
      }
    }
    this.key = tensors.getter("key");
    this.bytesOf = tensors.getter("bytes");
    this.decided = Object.fromEntries(
      this.partitioners.map((p) => [p, tensors.getter(this.#column(p))]),
    );
  }

  #column(partitioner) {
    const name = `propagated.${partitioner}`;
    return this.tensors.has(name) ? name : `lowered.${partitioner}`;
  }

  /** The row of the tensors' table that a node's value is in; undefined without one. */
  row(node, result = 0) {
    const { nodes } = this.model;
    if (nodes.kind(node) === "result") return this.results.get(nodes.name(node));
    const ssa = nodes.ssa(node);
    return this.rows.get(nodes.results(node) > 1 ? `${ssa}#${result}` : ssa);
  }

  /** Where a value is under a partitioner; null where nothing says so. */
  sharding(node, result, partitioner) {
    const row = this.row(node, result);
    return row === undefined ? null : this.shared.sharding(this.decided[partitioner]?.(row));
  }

  /** Bytes of a whole value; 0 where they are not known. */
  bytes(node, result = 0) {
    const row = this.row(node, result);
    return row === undefined ? 0 : (this.bytesOf(row) ?? 0);
  }

  /** The mesh axes of a sharding, in its order; null where it has none because nothing is known. */
  axes(sharding) {
    if (!sharding?.short || sharding.short === "-") return null;
    return sharding.axes ?? [];
  }

  /** Whether two partitioners put a value elsewhere. */
  differs(node, result = 0) {
    if (this.partitioners.length < 2) return false;
    const [first, second] = this.partitioners.map((p) => this.sharding(node, result, p));
    return (
      first?.place !== undefined && second?.place !== undefined && first.place !== second.place
    );
  }

  #readDifferences() {
    const { model } = this;
    this.different = new Int32Array(model.count);
    if (this.partitioners.length < 2 || !this.tensors) return;
    for (let node = 0; node < model.nodeCount; node += 1) {
      if (model.hidden[node] === 1 || model.nodes.kind(node) === "result") continue;
      let any = false;
      for (let result = 0; result < Math.max(1, model.nodes.results(node)); result += 1) {
        any ||= this.differs(node, result);
      }
      if (!any) continue;
      this.different[node] = 1;
      if (model.hidden[node] === 2) continue;
      for (let at = model.parent[node]; at !== -1; at = model.parent[at]) this.different[at] += 1;
    }
    for (let item = model.firstChip; item < model.count; item += 1) {
      this.different[item] = this.different[model.node(item)];
    }
  }

  /** Marks by use and by node; how many are inside each group; collectives by node and group. */
  #readMarks() {
    const { model } = this;
    this.moves = {};
    this.sums = {};
    this.collectives = {};
    this.inside = {};
    for (const partitioner of this.partitioners) {
      const moves = new Map();
      const sums = new Set();
      const inside = { moves: new Int32Array(model.count), sums: new Int32Array(model.count) };
      const marks = model.data.marks[partitioner];
      const table = marks && new Table(marks);
      const count = (array, node) => {
        for (let at = node; at !== -1; at = model.parent[at]) array[at] += 1;
      };
      for (let row = 0; row < (table?.length ?? 0); row += 1) {
        const node = table.get("node", row);
        if (model.hidden[node]) continue;
        if (table.get("kind", row) === "sums") {
          sums.add(node);
          count(inside.sums, node);
          continue;
        }
        const use = model.useOf(node, table.get("operand", row));
        if (use === undefined) continue;
        moves.set(use, table.get("dims", row));
        count(inside.moves, node);
      }
      this.moves[partitioner] = moves;
      this.sums[partitioner] = sums;
      this.inside[partitioner] = inside;
      this.collectives[partitioner] = this.#readSent(partitioner);
    }
  }

  #readSent(partitioner) {
    const { model } = this;
    const sent = model.data.sent[partitioner];
    if (!sent) return null;
    const table = new Table(sent);
    const byItem = new Map();
    for (let row = 0; row < table.length; row += 1) {
      const collective = Object.fromEntries(
        Object.keys(table.columns).map((name) => [name, table.get(name, row)]),
      );
      for (let at = collective.node; at !== -1; at = model.parent[at]) {
        if (!byItem.has(at)) byItem.set(at, []);
        byItem.get(at).push(collective);
      }
    }
    return byItem;
  }

  /** Of some uses the one with the largest value, how many move, and whether any differs. */
  summary(uses, partitioner) {
    this.summaries ??= new Map();
    if (!this.summaries.has(partitioner)) this.summaries.set(partitioner, new WeakMap());
    const known = this.summaries.get(partitioner);
    if (!known.has(uses)) {
      const { model } = this;
      const summary = { largest: uses[0], most: -1, moves: 0, differs: false };
      for (const use of uses) {
        const node = model.node(model.from[use]);
        const bytes = this.bytes(node, model.result[use]);
        if (bytes > summary.most) [summary.largest, summary.most] = [use, bytes];
        if (this.moves[partitioner]?.has(use)) summary.moves += 1;
        summary.differs ||= this.differs(node, model.result[use]);
      }
      known.set(uses, summary);
    }
    return known.get(uses);
  }

  /** The collectives of an item, or in a group, most bytes first; null where none are known. */
  sent(item, partitioner) {
    const byItem = this.collectives[partitioner];
    return byItem && (byItem.get(item) ?? []).slice().sort((a, b) => b.sent - a.sent);
  }
}
