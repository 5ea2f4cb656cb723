// The rows of the tensors' table: what each cell holds, what a search looks at, how they sort.

import { Table } from "../base/data.js";
import { dims, size, type } from "../base/format.js";
import { pytreePieces, scopePieces, Tree } from "./tree.js";

export const SECTIONS = {
  argument: "arguments",
  result: "results",
  constraint: "constraints",
  inside: "values inside",
};

/** What is said of a row, from the worst to the best; the mark stands in the table. */
export const VERDICTS = {
  differs: { words: "lowered otherwise", mark: "✗", tone: "bad" },
  missing: { words: "missing", mark: "✗", tone: "bad" },
  impossible: { words: "not known", mark: "!", tone: "bad" },
  moved: { words: "moved", mark: "✗", tone: "bad" },
  partitioners: { words: "Shardy ≠ GSPMD", mark: "", tone: "warning" },
  agrees: { words: "as requested", mark: "✓", tone: "good" },
  decided: { words: "decided", mark: "", tone: "muted" },
  gone: { words: "folded away", mark: "", tone: "muted" },
  none: { words: "not placed", mark: "", tone: "muted" },
  dropped: { words: "dropped", mark: "", tone: "muted" },
};

const WORST = Object.keys(VERDICTS);

/** Rows between two looks at the clock. */
const SLICE = 200;

/** Whether a sharding leaves a dimension to the compiler, which may make its block smaller. */
export function isBound(sharding) {
  return Boolean(sharding?.block && sharding.open);
}

/** The program's tensors. */
export class Rows {
  constructor(data, shared) {
    this.table = new Table(data);
    this.shared = shared;
    this.length = this.table.length;
    this.partitioners = data.partitioners;
    this.stages = data.stages;
    /** What is said of a block that leaves dimensions open. */
    this.atMost = data.atMost;
    this.get = {};
    for (const name of Object.keys(this.table.columns)) this.get[name] = this.table.getter(name);
    this.severity = new Uint8Array(this.length);
    for (let row = 0; row < this.length; row += 1) {
      this.severity[row] = WORST.indexOf(this.get.verdict(row));
    }
    this.texts = [];
    this.searched = Object.keys(this.get)
      .filter((name) => /^(?:requested|(?:lowered|propagated)\.\w+)$/.test(name))
      .map((name) => this.get[name]);
    this.keys = new Map();
    for (let row = this.length - 1; row >= 0; row -= 1) this.keys.set(this.get.key(row), row);
  }

  /** The row that an address names: by its key, else by its name; -1 for none. */
  find(name) {
    if (!name) return -1;
    const known = this.keys.get(name);
    if (known !== undefined) return known;
    const own = name.replace(/^jit\([^/]*\)\//, "");
    for (let row = 0; row < this.length; row += 1) {
      if (this.get.name(row) === name || this.get.name(row) === own) return row;
    }
    return -1;
  }

  /** The first sharding that says where a tensor is: as requested, else as it was decided. */
  sharding(row) {
    const { propagated } = this.stages;
    const names = [
      "requested",
      ...propagated.map((partitioner) => `propagated.${partitioner}`),
      ...this.partitioners.map((partitioner) => `lowered.${partitioner}`),
    ];
    for (const name of names) {
      const sharding = this.shared.sharding(this.get[name]?.(row));
      if (sharding?.shards) return sharding;
    }
    return null;
  }

  /** Where propagation put it, else as it was requested: what a device holds in the end. */
  held(row) {
    for (const partitioner of this.stages.propagated) {
      const sharding = this.shared.sharding(this.get[`propagated.${partitioner}`](row));
      if (sharding?.shards) return sharding;
    }
    return this.sharding(row);
  }

  /** Whether a device holds at most that block: nothing that propagation decided. */
  isBound(row) {
    return isBound(this.held(row));
  }

  bytesPerDevice(row) {
    return this.held(row)?.bytes ?? null;
  }

  replicas(row) {
    return this.held(row)?.replicas ?? null;
  }

  /** "f32[128,256]". */
  type(row) {
    return type(this.get.dtype(row), this.get.shape(row));
  }

  /** The name without what stands above it in the tree. */
  leaf(row) {
    const section = this.get.section(row);
    const name = this.get.name(row);
    if (section === "argument" || section === "result") return pytreePieces(name).at(-1);
    const op = this.get.op(row) || this.get.kind(row).replace(/^\w+\./, "");
    return section === "inside" ? op : scopePieces(name).at(-1);
  }

  /** Everything that a search looks at, in lower case. */
  haystacks() {
    this.prepare(() => true);
    return this.texts;
  }

  /** Puts some of it together, as long as `more()`; whether all of it is there. */
  prepare(more) {
    const { texts, searched } = this;
    while (texts.length < this.length) {
      const until = Math.min(texts.length + SLICE, this.length);
      for (let row = texts.length; row < until; row += 1) texts.push(this.#text(row, searched));
      if (!more()) break;
    }
    return texts.length === this.length;
  }

  #text(row, searched) {
    const { get, shared } = this;
    const texts = [
      get.name(row),
      get.op(row),
      get.kind(row),
      get.ssa(row),
      this.type(row),
      shared.source(get.source(row)),
    ];
    let last = null;
    for (const number of searched) {
      const sharding = number(row);
      if (sharding === last || sharding === null) continue;
      last = sharding;
      texts.push(shared.sharding(sharding)?.short ?? "");
    }
    return texts.join("\n").toLowerCase();
  }

  /** Which rows have all the words of a query, are of a section, and have a verdict. */
  matches({ query = "", section = "", verdict = "" }) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length && !section && !verdict) return null;
    const texts = words.length ? this.haystacks() : null;
    const mask = new Uint8Array(this.length);
    const wanted = verdict ? WORST.indexOf(verdict) : -1;
    for (let row = 0; row < this.length; row += 1) {
      if (wanted >= 0 && this.severity[row] !== wanted) continue;
      if (section && this.get.section(row) !== section) continue;
      if (words.some((word) => !texts[row].includes(word))) continue;
      mask[row] = 1;
    }
    return mask;
  }

  /** Numbers or texts to sort by. */
  sortKeys(name) {
    const keys = {
      name: (row) => this.get.name(row),
      type: (row) => this.get.bytes(row) ?? -1,
      bytes: (row) => this.bytesPerDevice(row) ?? -1,
      block: (row) => this.bytesPerDevice(row) ?? -1,
      replicas: (row) => this.replicas(row) ?? -1,
      verdict: (row) => -this.severity[row],
      time: (row) => this.get.time?.(row)?.[0] ?? -1,
    }[name];
    if (keys) return Array.from({ length: this.length }, (_, row) => keys(row));
    const get = this.get[name];
    if (!get) return null;
    return Array.from(
      { length: this.length },
      (_, row) => this.shared.sharding(get(row))?.short ?? "",
    );
  }

  /** The tree by section and path. */
  tree() {
    const pieces = (row) => {
      const section = this.get.section(row);
      const name = this.get.name(row);
      const isPath = section === "argument" || section === "result";
      const own = isPath ? pytreePieces(name).slice(0, -1) : scopePieces(name);
      return [
        SECTIONS[section],
        ...(section === "constraint" ? own.slice(0, -1) : own).filter(Boolean),
      ];
    };
    const join = (labels) =>
      labels.reduce((text, label) =>
        /^[.[]/.test(label) || text.endsWith("/") ? text + label : `${text}/${label}`,
      );
    return new Tree(this.length, pieces, join);
  }

  /** The block that a device holds, in words: "[64,128]". */
  /** What stands for a figure of a tensor that nothing places: whether something should. */
  nowhere(row) {
    return this.get.verdict(row) === "impossible" ? "!" : "–";
  }

  block(row) {
    const held = this.held(row);
    return held?.block ? dims(held.block) : this.nowhere(row);
  }

  bytesText(row) {
    const bytes = this.bytesPerDevice(row);
    return bytes === null ? this.nowhere(row) : size(bytes);
  }
}
