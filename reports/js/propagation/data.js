// The steps of a propagation, and how every value was sharded after each of them.
//
// A part is the digits of a mesh axis from `start` to `stop`, as in analysis/axis_parts.py: "a" of
// size 8 goes from 1 to 8, "a":(2)4 from 2 to 8. Values are numbers, and so are steps: the position
// in the list, while `number` is Shardy's, which several moves can share.

import { Table } from "../base/data.js";

/** The part that two have in common; null when that is nothing. */
export function common(one, other) {
  if (one.name !== other.name) return null;
  const start = Math.max(one.start, other.start);
  const stop = Math.min(one.stop, other.stop);
  return start < stop && stop % start === 0 ? { name: one.name, start, stop } : null;
}

/** What of a part none of others covers. */
export function without(part, others) {
  let left = [part];
  for (const other of others) {
    const cut = [];
    for (const piece of left) {
      const both = common(piece, other);
      if (!both) {
        cut.push(piece);
        continue;
      }
      if (piece.start < both.start) cut.push({ ...piece, stop: both.start });
      if (both.stop < piece.stop) cut.push({ ...piece, start: both.stop });
    }
    left = cut;
  }
  return left;
}

function sums(differences) {
  let sum = 0;
  return Int32Array.from(differences, (difference) => {
    sum += difference;
    return sum;
  });
}

const NOTHING = [];

/** What `part` of sdyscope/page/propagation.py made, unpacked. */
export class Propagation {
  /**
   * @param {object} data what it made.
   * @param {object} axes the sizes of the mesh's axes by name.
   */
  constructor(data, axes) {
    this.data = data;
    this.axes = axes;
    this.parts = data.parts.map(([name, start, stop, text]) => ({ name, start, stop, text }));
    this.moves = new Table(data.steps);
    this.length = this.moves.length;
    this.numbers = sums(data.steps.columns.number.values);
    this.places = new Table(data.places);
    this.values = data.values;
    const { ref, step, source, how } = data.arrivals;
    this.arrivals = { ref: sums(ref), step: sums(step), source: sums(source), how };
    // The arrivals of a value stand together.
    this.from = new Map();
    this.arrivals.ref.forEach((value, at) => {
      const found = this.from.get(value);
      if (found) found[1] = at + 1;
      else this.from.set(value, [at, at + 1]);
    });
    this.firsts = new Map();
  }

  /** Shardy's number of the last step; -1 where there is none. */
  get last() {
    return this.data.last ?? -1;
  }

  /** The axis that a move moved. */
  part(step) {
    return this.parts[this.data.steps.columns.part.values[step]];
  }

  /** A part as Shardy writes it, without quotes. */
  text({ name, start, stop }) {
    if (start === 1 && (this.axes[name] === undefined || stop === this.axes[name])) return name;
    return `${name}:(${start})${stop / start}`;
  }

  /** What a value is sharded on in the end: a list of [dimension, part]. */
  final(value) {
    this.finals ??= this.data.shardings.map((list) =>
      list.map(([dim, part]) => [dim, this.parts[part]]),
    );
    return this.finals[this.data.final[value]] ?? NOTHING;
  }

  /** The dimension of a value that is sharded on (some of) a part; null when none is. */
  dimension(value, part) {
    return this.final(value).find(([, own]) => common(own, part))?.[0] ?? null;
  }

  /** What came to a value, step by step: `{step, number, part, source, how}`. */
  arriving(value) {
    const range = this.from.get(value);
    if (!range) return NOTHING;
    const found = [];
    for (let at = range[0]; at < range[1]; at += 1) {
      const step = this.arrivals.step[at];
      found.push({
        step,
        number: this.numbers[step],
        part: this.part(step),
        source: this.arrivals.source[at],
        how: this.data.hows[this.arrivals.how[at]],
      });
    }
    return found;
  }

  /** What steps brought to a value that it had not before: `{number, step, part}` in order. */
  brought(value) {
    if (!this.firsts.has(value)) {
      const seen = [];
      const found = [];
      const arriving = [...this.arriving(value)].sort((a, b) => a.number - b.number);
      for (const { number, step, part } of arriving) {
        const fresh = without(part, seen);
        seen.push(...fresh);
        for (const piece of fresh) found.push({ number, step, part: piece });
      }
      this.firsts.set(value, found);
    }
    return this.firsts.get(value);
  }

  /** What a value was sharded on after a step, Shardy only adds: a list of [dimension, part]. */
  at(value, number) {
    const final = this.final(value);
    const later = this.brought(value).filter((one) => one.number > number);
    if (!later.length) return final;
    const parts = later.map((one) => one.part);
    return final.flatMap(([dim, part]) => without(part, parts).map((left) => [dim, left]));
  }

  /** What `at` gives, as a PartitionSpec; with sub-axes in Shardy's form. */
  words(list, rank) {
    if (!list.length) return "replicated";
    const dims = Array.from({ length: rank }, () => []);
    for (const [dim, part] of list) dims[dim]?.push(this.text(part));
    if (dims.flat().some((text) => text.includes(":"))) {
      const quoted = (text) => text.replace(/^[^:]+/, (name) => `"${name}"`);
      return `[${dims.map((texts) => `{${texts.map(quoted).join(", ")}}`).join(", ")}]`;
    }
    const entries = dims.map((texts) => {
      const quoted = texts.map((text) => `'${text}'`);
      if (!quoted.length) return "None";
      return quoted.length === 1 ? quoted[0] : `(${quoted.join(", ")})`;
    });
    return `P(${entries.join(", ")})`;
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
    if (!this.byStep) {
      this.byStep = new Map();
      this.arrivals.step.forEach((step, at) => {
        if (!this.byStep.has(step)) this.byStep.set(step, []);
        this.byStep.get(step).push(at);
      });
    }
    for (let at = this.position(number); this.numbers[at] === number; at += 1) {
      for (const arrival of this.byStep.get(at) ?? []) {
        targets.add(this.arrivals.ref[arrival]);
        sources.add(this.arrivals.source[arrival]);
      }
    }
    return { targets, sources };
  }
}
