// The data that is embedded in the page, unpacked when it is first asked for.

const parts = new Map();

/** The data of this name, or null. */
export function part(name) {
  if (!parts.has(name)) parts.set(name, globalThis.sdyscope.part(name));
  return parts.get(name);
}

/** A module of the page, loaded when it is first needed; null where there is none. */
export function module(name) {
  return globalThis.sdyscope.has(name) ? globalThis.sdyscope.load(name) : Promise.resolve(null);
}

/** A table that came column by column. */
export class Table {
  constructor(data) {
    this.length = data.rows;
    this.columns = data.columns;
  }

  /** Whether there is a column of this name. */
  has(name) {
    return name in this.columns;
  }

  /** The values of a column, or the numbers of its distinct values. */
  codes(name) {
    const column = this.columns[name];
    return column.codes ?? column.values;
  }

  /** A function that gives the value in a row. */
  getter(name) {
    const column = this.columns[name];
    if (!column) return () => null;
    const { values, distinct, codes } = column;
    return codes ? (row) => distinct[codes[row]] : (row) => values[row];
  }

  /** The value of a column in a row. */
  get(name, row) {
    const column = this.columns[name];
    if (!column) return null;
    return column.codes ? column.distinct[column.codes[row]] : column.values[row];
  }
}

/** What rows share: shardings and source lines, by number. */
export class Shared {
  constructor(data) {
    this.shardings = data.shardings;
    this.sources = new Table(data.sources);
  }

  /** A sharding; null for null. */
  sharding(number) {
    return number === null || number === undefined ? null : this.shardings[number];
  }

  /** "models/mlp.py:98"; empty for null. */
  source(number) {
    if (number === null || number === undefined) return "";
    const file = this.sources.get("file", number);
    const line = this.sources.get("line", number);
    return file === "-" ? `line ${line}` : `${file}:${line}`;
  }

  /** The function that the source line is in. */
  sourceFunction(number) {
    if (number === null || number === undefined) return "";
    return this.sources.get("function", number);
  }
}
