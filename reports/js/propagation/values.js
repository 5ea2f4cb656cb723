// What the graph says of values as of a step: the same questions as graph_values.js answers of the end.

import { whole } from "../base/format.js";

/** How far something is: nothing of what it will be sharded on, some of it, or all. */
const [NOTHING, SOME, ALL] = ["nothing", "some", "all"];

export class StepValues {
  /**
   * @param {GraphValues} values of the end.
   * @param {Propagation} propagation the steps.
   */
  constructor(values, propagation) {
    this.ofEnd = values;
    this.model = values.model;
    this.propagation = propagation;
    this.partitioners = ["shardy"];
    this.different = new Int32Array(this.model.count);
    this.inside = {};
    this.sums = {};
    this.go(propagation.last);
  }

  /** Says everything as of the step of this number from now on. */
  go(step) {
    this.step = step;
    this.known = new Map();
  }

  /** The number of a value in the propagation; null where it has none. */
  value(node, result = 0) {
    const row = this.ofEnd.row(node, result);
    return row === undefined ? null : (this.propagation.data.values[row] ?? null);
  }

  /** The value of a use where it is made, and where it is taken: between them it may pass ops. */
  ofUse(use) {
    const produced = this.value(this.model.node(this.model.from[use]), this.model.result[use]);
    const [last] = this.model.passed.get(use) ?? [];
    return { produced, taken: last === undefined ? produced : this.value(last) };
  }

  sharding(node, result) {
    const value = this.value(node, result);
    if (value === null) return null;
    if (!this.known.has(value)) {
      const { words, axes } = this.propagation.at(value, this.step);
      this.known.set(value, { short: words, axes, standing: this.#standing(value, axes) });
    }
    return this.known.get(value);
  }

  #standing(value, axes) {
    const { propagation } = this;
    if (!propagation.final(value).axes.length) return "";
    if (!axes.length) return NOTHING;
    return propagation.since(value, propagation.last) > this.step ? SOME : ALL;
  }

  axes(sharding) {
    return sharding?.axes ?? null;
  }

  summary(uses) {
    return { ...this.ofEnd.summary(uses, "shardy"), moves: 0, differs: false };
  }

  sent() {
    return [];
  }

  // How far the things in the picture are.

  /** By group, the steps after which each value in it that becomes sharded is so, in order. */
  #ends() {
    if (this.ends) return this.ends;
    const { model, propagation } = this;
    this.ends = new Map();
    for (let node = 0; node < model.nodeCount; node += 1) {
      if (model.hidden[node] === 1 || model.hidden[node] === 2) continue;
      const value = this.value(node);
      if (value === null || !propagation.final(value).axes.length) continue;
      const end = propagation.since(value, propagation.last);
      for (let at = model.parent[node]; at !== -1; at = model.parent[at]) {
        if (!this.ends.has(at)) this.ends.set(at, []);
        this.ends.get(at).push(end);
      }
    }
    for (const list of this.ends.values()) list.sort((a, b) => a - b);
    return this.ends;
  }

  /** Of a group `{done, of}`: how many values in it are sharded as in the end; null where none is. */
  progress(group) {
    const ends = this.#ends().get(group);
    if (!ends) return null;
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] <= this.step) low = middle + 1;
      else high = middle;
    }
    return { done: low, of: ends.length };
  }

  /** What is said of a group below its name. */
  words(group) {
    const progress = this.progress(group);
    return progress
      ? `${whole(progress.done)} of ${whole(progress.of)} sharded`
      : "nothing is sharded";
  }

  standing(item) {
    if (!this.model.isGroup(item)) return this.sharding(this.model.node(item), 0)?.standing;
    const progress = this.progress(item);
    if (!progress) return "";
    if (!progress.done) return NOTHING;
    return progress.done < progress.of ? SOME : ALL;
  }

  isUndecided(lists) {
    return this.#ofEdge(lists)?.standing === NOTHING;
  }

  /** The sharding of the largest value of an edge. */
  #ofEdge(lists) {
    let [largest, most] = [lists[0][0], -1];
    for (const list of lists) {
      const summary = this.ofEnd.summary(list, "shardy");
      if (summary.most > most) [largest, most] = [summary.largest, summary.most];
    }
    return this.sharding(this.model.node(this.model.from[largest]), this.model.result[largest]);
  }

  // What is drawn again when it changes.

  itemKey(item) {
    if (this.model.isGroup(item)) return this.progress(item)?.done;
    return this.sharding(this.model.node(item), 0)?.short;
  }

  edgeKey(lists) {
    return this.#ofEdge(lists)?.short;
  }
}
