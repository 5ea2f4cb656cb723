// The chain of an axis: from the user's annotation, step by step, to the value that it is on.
//
// The same search as in sdyscope/analysis/propagation/chains.py, over what analysis/chain_index.py lists; a test
// compares them for every value. It goes backwards. At each value: the step that brought the axis
// there; else what the value itself was annotated with; else what is sharded alike without a step.

import { common, without } from "./data.js";

const same = (one, other) =>
  one.name === other.name && one.start === other.start && one.stop === other.stop;

const order = (one, other) =>
  (one.name < other.name ? -1 : Number(one.name > other.name)) ||
  one.start - other.start ||
  one.stop - other.stop;

export class Chains {
  /** @param {import("./data.js").Propagation} propagation */
  constructor(propagation) {
    this.propagation = propagation;
    this.data = propagation.data;
  }

  /**
   * The chains of a row of the tensors' table: `{dimension, axis, beginning, from, moves}` each;
   * `from` is the value that it begins at.
   */
  ofRow(row) {
    const value = this.data.values[row];
    const own = this.data.results[row];
    if (!own) return value === null || value === undefined ? [] : this.of(value);
    return own.flatMap(([dimension, number, annotation, onward]) => {
      const part = this.propagation.parts[number];
      if (onward === null) {
        const beginning = this.#annotation(annotation);
        return [{ dimension, axis: this.propagation.text(part), beginning, from: null, moves: [] }];
      }
      const carried = this.propagation.dimension(onward, part);
      return this.#pieces(onward, part).map((piece) => ({
        ...this.#chain(onward, carried, piece),
        dimension,
      }));
    });
  }

  /** The chains of everything that a value is sharded on. */
  of(value) {
    return this.propagation
      .final(value)
      .flatMap(([dimension, part]) =>
        this.#pieces(value, part).map((piece) => this.#chain(value, dimension, piece)),
      );
  }

  #own(value) {
    return (this.data.own[value] ?? []).map((number) => this.propagation.parts[number]);
  }

  /** A part, cut where different steps brought different pieces of it. */
  #pieces(value, part) {
    const shared = (parts) => parts.map((one) => common(one, part)).filter(Boolean);
    const brought = shared(this.propagation.arriving(value).map((one) => one.part));
    brought.sort((a, b) => b.stop / b.start - a.stop / a.start);
    const pieces = [];
    for (const piece of [...shared(this.#own(value)), ...brought]) {
      pieces.push(...without(piece, pieces));
    }
    return [...pieces, ...without(part, pieces)].sort(order);
  }

  #chain(value, dimension, part) {
    const moves = [];
    let at = value;
    let before = Number.POSITIVE_INFINITY;
    let beginning = null;
    for (let left = 2 * this.propagation.length + 2; left > 0; left -= 1) {
      const found = this.#before(at, part, before);
      for (const [other, place, how] of found.links) {
        moves.push(this.#move(null, part, place, this.data.hows[how], at, part));
        at = other;
      }
      beginning = found.beginning;
      if (!found.arrival) break;
      const { arrival } = found;
      const place = this.data.steps.columns.place.values[arrival.step];
      const moved = common(arrival.part, part) ?? part;
      moves.push(this.#move(arrival.number, moved, place, arrival.how, at, part));
      at = arrival.source;
      // An axis that enters a loop goes to what its body yields in the same step.
      before = arrival.number + (this.propagation.moves.get("edge", arrival.step) ? 1 : 0);
    }
    return {
      dimension,
      axis: this.propagation.text(part),
      beginning,
      from: at,
      moves: moves.reverse(),
    };
  }

  #move(step, moved, place, [direction, rule], value, part) {
    const { places } = this.propagation;
    return {
      step,
      axis: this.propagation.text(moved),
      name: places.get("name", place),
      source: places.get("source", place),
      row: places.get("row", place),
      direction,
      rule,
      value,
      dimension: this.propagation.dimension(value, part),
    };
  }

  /** The nearest step or annotation that explains a part of a value, and the way there. */
  #before(at, part, before) {
    const came = new Map([[at, null]]);
    const queue = [at];
    for (let next = 0; next < queue.length; next += 1) {
      const here = queue[next];
      const own = this.#own(here).some((one) => {
        const both = common(part, one);
        return both !== null && same(both, part);
      });
      const arrival = own ? null : this.#arrival(here, part, before);
      const beginning = arrival ? null : this.#beginning(here, part);
      if (arrival || beginning) {
        const links = [];
        for (let back = came.get(here); back; back = came.get(back.from)) links.unshift(back.link);
        return { arrival, beginning, links };
      }
      for (const link of this.data.links[here] ?? []) {
        if (!came.has(link[0]) && this.propagation.dimension(link[0], part) !== null) {
          came.set(link[0], { from: here, link });
          queue.push(link[0]);
        }
      }
    }
    return { arrival: null, beginning: null, links: [] };
  }

  #arrival(value, part, before) {
    let found = null;
    let largest = 0;
    for (const arrival of this.propagation.arriving(value)) {
      const both = common(arrival.part, part);
      if (!both || arrival.number >= before) continue;
      if (both.stop / both.start > largest) {
        found = arrival;
        largest = both.stop / both.start;
      }
    }
    return found;
  }

  #beginning(value, part) {
    const found = this.data.beginnings[value]?.find(([number]) =>
      common(this.propagation.parts[number], part),
    );
    return found ? this.#annotation(found[1]) : null;
  }

  #annotation(number) {
    if (number === null) return null;
    const [kind, name, words, priority, source] = this.data.annotations[number];
    return { kind, name, words, priority, source };
  }
}
