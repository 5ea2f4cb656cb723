// What the module's text knows of the tensors: each name's row, and where it is in the end.

import { Table } from "./data.js";
import { el } from "./dom.js";

/** The rows of the tensors by their SSA names in the first module. */
export class Tensors {
  constructor(data, shared) {
    this.shared = shared;
    this.table = data?.columns ? new Table(data) : null;
    this.rows = new Map();
    for (let row = (this.table?.length ?? 0) - 1; row >= 0; row -= 1) {
      const ssa = this.table.get("ssa", row);
      if (ssa) this.rows.set(ssa, row);
    }
  }

  /** The row with an SSA name, of several results the first's; -1 for none. */
  row(ssa) {
    if (!ssa) return -1;
    return this.rows.get(ssa) ?? this.rows.get(`${ssa}#0`) ?? -1;
  }

  get(name, row) {
    return this.table.get(name, row);
  }

  /** Where propagation puts it, or what is written on it: "P('fsdp', None)"; null where nobody says. */
  place(row, partitioner) {
    if (row < 0) return null;
    for (const stage of ["propagated", "lowered"]) {
      const found = this.shared.sharding(this.table.get(`${stage}.${partitioner}`, row));
      if (found?.short && found.short !== "-") return found;
    }
    return null;
  }
}

/** A link to a value in the module's text. */
export function irLink(state, value, words, params = {}) {
  const to = { ...params, value };
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.go("ir", to);
  };
  return el("a", { href: state.href("ir", to), on: { click: open } }, el("bdi", {}, words));
}
