// The steps of a propagation, how they changed each value, and where its axes come from.
//
// All of it was found in Python (sdyscope/page/propagation.py); here it is looked up. Values are numbers,
// and so are moves: the position in the list, while a step is Shardy's number, which several moves
// can share.

import { Table } from "../base/data.js";

function sums(differences) {
  let sum = 0;
  return Int32Array.from(differences, (difference) => {
    sum += difference;
    return sum;
  });
}

/** What `part` of sdyscope/page/propagation.py made, unpacked. */
export class Propagation {
  /** @param {object} data what it made. */
  constructor(data) {
    this.data = data;
    this.moves = new Table(data.steps);
    this.length = this.moves.length;
    this.numbers = sums(data.steps.columns.number.values);
    this.places = new Table(data.places);
    this.pointers = new Table(data.pointers);
    this.values = data.values;
    this.shardings = data.shardings.map(([words, axes]) => ({ words, axes }));
  }

  /** Shardy's number of the last step; -1 where there is none. */
  get last() {
    return this.data.last ?? -1;
  }

  /** The axis that a move moved. */
  axis(move) {
    return this.data.axes[this.moves.get("axis", move)];
  }

  // Values, step by step.

  /** The step that made a value's sharding what it was after a step; -1 where it was annotated. */
  since(value, step) {
    return this.#change(value, step)[0];
  }

  /** How a value was sharded after a step: `{words, axes}`. */
  at(value, step) {
    return this.shardings[this.#change(value, step)[1]];
  }

  /** How a value is sharded in the end. */
  final(value) {
    return this.at(value, this.last);
  }

  /** The first step after which a value has any axis; -1 where it is annotated with one. */
  first(value) {
    const changes = this.data.changes[value];
    return changes.find(([, sharding]) => this.shardings[sharding].axes.length)?.[0];
  }

  /** The step after which a value is as it is in the end; -1 where it is annotated so. */
  reached(value) {
    return this.data.changes[value].at(-1)[0];
  }

  #change(value, step) {
    const changes = this.data.changes[value];
    let at = changes.length - 1;
    while (at > 0 && changes[at][0] > step) at -= 1;
    return changes[at];
  }

  // Chains.

  /**
   * The chains of a row of the tensors' table: `{dimension, axis, beginning, from, moves}` each;
   * `from` is the value that it begins at.
   */
  chains(row) {
    const value = this.values[row];
    const chains = value === null || value === undefined ? [] : this.data.chains[value];
    return chains.map(([dimension, axis, pointer]) => ({
      dimension,
      axis: this.data.axes[axis],
      ...this.#follow(pointer),
    }));
  }

  #follow(pointer) {
    const moves = [];
    const get = (name) => this.pointers.get(name, at);
    let at = pointer;
    for (; get("back") !== null; at -= get("back")) moves.push(this.#move(at));
    if (get("place") !== null) moves.push(this.#move(at));
    return {
      beginning: this.#annotation(get("annotation")),
      from: get("value"),
      moves: moves.reverse(),
    };
  }

  #move(at) {
    const get = (name) => this.pointers.get(name, at);
    const { places } = this;
    const place = get("place");
    const [direction, way, rule] = this.data.hows[get("how")];
    return {
      step: get("step"),
      axis: this.data.axes[get("axis")],
      name: places.get("name", place),
      source: places.get("source", place),
      row: places.get("row", place),
      direction,
      way,
      rule,
      value: get("value"),
      dimension: get("dimension"),
    };
  }

  #annotation(number) {
    if (number === null) return null;
    const [kind, name, words, priority, source] = this.data.annotations[number];
    return { kind, name, words, priority, source };
  }

  // Steps.

  /** How many steps with a move there are up to a number, that one included. */
  steps(number) {
    let count = 0;
    for (let at = 0; at < this.length && this.numbers[at] <= number; at += 1) {
      if (at === 0 || this.numbers[at] !== this.numbers[at - 1]) count += 1;
    }
    return count;
  }

  /** The position of the first move with a number from `number` on. */
  position(number) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.numbers[middle] < number) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The values that the moves of a number brought an axis to, and those it came from. */
  touched(number) {
    const targets = new Set();
    const sources = new Set();
    for (let at = this.position(number); this.numbers[at] === number; at += 1) {
      const reached = this.moves.get("targets", at);
      for (const value of reached) targets.add(value);
      if (reached.length) sources.add(this.moves.get("source", at));
    }
    return { targets, sources };
  }
}
