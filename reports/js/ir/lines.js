// A module's text as the page has it: its lines with their sources, scopes and tensors.

import { Table } from "../base/data.js";
import { count, whole } from "../base/format.js";
import { Module } from "./model.js";

/** Lines between two looks at the clock. */
const SLICE = 200;

/** A module's text, read when it is first shown. */
export class Text {
  /**
   * @param {object} data its columns.
   * @param {object} about `{partitioner, stage, isFirst}`: under which, lowered or propagated, and
   *   whether it is the module by whose names tensors are called.
   */
  constructor(data, about, shared, tensors) {
    this.data = data;
    this.shared = shared;
    this.tensors = tensors;
    Object.assign(this, about);
    this.lines = data.text.split("\n");
    const wrapped = new Uint8Array(this.lines.length);
    let at = 0;
    for (const step of data.wrapped) {
      at += step;
      wrapped[at] = 1;
    }
    this.numbers = new Int32Array(this.lines.length);
    this.starts = [];
    for (let line = 0; line < this.lines.length; line += 1) {
      if (!wrapped[line]) this.starts.push(line);
      this.numbers[line] = wrapped[line] ? -this.starts.length : this.starts.length;
    }
    this.table = new Table({
      rows: this.lines.length,
      columns: {
        source: data.sources,
        scope: data.scopes,
        tensor: data.tensors,
        ...(data.marks ? { marks: data.marks } : {}),
      },
    });
    this.read = null;
  }

  /** How many lines the module has as the compiler writes it. */
  get lineCount() {
    return this.starts.length;
  }

  get module() {
    this.read ??= new Module(this.lines);
    return this.read;
  }

  /** What propagation did to the shardings of the module, in words; empty as it was lowered. */
  get changes() {
    const { counts, exactness } = this.data;
    return [
      counts.added ? `+ ${count(counts.added, "sharding")} added` : "",
      counts.changed ? `≠ ${whole(counts.changed)} changed` : "",
      exactness === "approximate" ? "approximate" : "",
    ].filter(Boolean);
  }

  get widest() {
    this.most ??= this.lines.reduce((most, line) => Math.max(most, line.length), 0);
    return this.most;
  }

  get digits() {
    return String(this.starts.length).length;
  }

  /** The lines that functions begin at, where they can be folded. */
  get functions() {
    const starts = [];
    const { ends, functions } = this.module;
    for (let line = 0; line < ends.length; line += 1) {
      if (ends[line] <= line || functions[line] < 0) continue;
      starts.push(line);
      line = ends[line];
    }
    return starts;
  }

  /** The number of a line in the module as it is written. */
  number(line) {
    return Math.abs(this.numbers[line] ?? 0);
  }

  /** Whether a line goes on with what is above it. */
  isMore(line) {
    return this.numbers[line] < 0;
  }

  /** The line with a number. */
  at(number) {
    return this.starts[Math.min(Math.max(number, 1), this.starts.length) - 1];
  }

  /** Where a line comes from, and its scope. */
  title(line) {
    const source = this.shared.source(this.table.get("source", line));
    return [this.table.get("scope", line), source].filter(Boolean).join("\n");
  }

  /** What propagation did in a line: `[from, to, "added" or "changed", from, ...]`. */
  marks(line) {
    return this.table.get("marks", line) ?? [];
  }

  /** The names of the tensors that a definition is. */
  tensorNames(definition) {
    if (definition < 0) return [];
    const written = this.module.written(definition);
    if (this.#isArgument(definition)) {
      const own = this.data.arguments[written];
      return own ? [own] : [];
    }
    const named = this.table.get("tensor", this.module.definedAt[definition]);
    return named === "=" ? [written] : named.split("\n").filter(Boolean);
  }

  /** The definition that is a tensor, by its name in the first module; -1 for none. */
  definitionOf(tensor) {
    this.byTensor ??= this.#byTensor();
    const definition = this.byTensor.get(tensor.replace(/#\d+$/, ""));
    return definition ?? (this.isFirst ? this.module.find(tensor) : -1);
  }

  #byTensor() {
    const definitions = new Map();
    for (let definition = 0; definition < this.module.names.length; definition += 1) {
      for (const name of this.tensorNames(definition)) {
        const own = name.replace(/#\d+$/, "");
        if (!definitions.has(own)) definitions.set(own, definition);
      }
    }
    return definitions;
  }

  /** Whether a definition is an argument of a region or function. */
  #isArgument(definition) {
    const line = this.lines[this.module.definedAt[definition]];
    return !line.trimStart().startsWith(this.module.names[definition]);
  }

  /** What a line defines, -1 for nothing. */
  defined(line) {
    const { firstToken, tokens, definedAt } = this.module;
    const definition = tokens[firstToken[line]] ?? -1;
    return definition >= 0 && definedAt[definition] === line ? definition : -1;
  }

  /** The row of the tensors that a definition is; -1 for none. */
  row(definition) {
    for (const name of this.tensorNames(definition)) {
      const row = this.tensors.row(name);
      if (row >= 0) return row;
    }
    return -1;
  }

  /** Where the value that a line defines is in the end, in few words. */
  place(line) {
    const definition = this.defined(line);
    if (definition < 0 || this.#isArgument(definition)) return null;
    // Of several that a value became the table has one.
    if (this.table.get("tensor", line).startsWith("\n")) return null;
    return this.tensors.place(this.row(definition), this.partitioner);
  }

  /** The line with a number at which its region opens: the last piece of a long one. */
  foldAt(number) {
    let line = this.at(number);
    while (this.module.ends[line] <= line && this.number(line + 1) === this.number(line)) line += 1;
    return line;
  }

  /** What a search looks at, of each line as it is written. */
  haystacks() {
    this.prepare(() => true);
    return this.hay;
  }

  /** Puts some of it together, as long as `more()`; whether all of it is there. */
  prepare(more) {
    this.hay ??= [];
    const { hay, starts } = this;
    while (hay.length < starts.length) {
      const until = Math.min(hay.length + SLICE, starts.length);
      for (let at = hay.length; at < until; at += 1) {
        const text = this.lines.slice(starts[at], starts[at + 1]).join("\n");
        hay.push(`${text}\n${this.title(starts[at])}`.toLowerCase());
      }
      if (!more()) break;
    }
    return hay.length === starts.length;
  }

  /** The lines that have all words of a query. */
  search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const matches = [];
    this.haystacks().forEach((text, at) => {
      if (words.every((word) => text.includes(word))) matches.push(this.starts[at]);
    });
    return matches;
  }
}
