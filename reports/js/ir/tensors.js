// What the module's text knows of the tensors: each name's row, and where it is in the end.

import { Table } from "../base/data.js";
import { el } from "../base/dom.js";

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
      const sharding = this.shared.sharding(this.table.get(`${stage}.${partitioner}`, row));
      if (sharding?.short && sharding.short !== "-") return sharding;
    }
    return null;
  }
}

/** In the details of a tensor: the way to the line that defines it. */
export function detail(root, tensor, { state, report }) {
  if (!tensor.ssa || !report.views.some((view) => view.name === "ir")) return false;
  const params = { of: tensor.ssa };
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.go("ir", params);
  };
  const words = `${tensor.ssa} in the module`;
  root.append(
    el("a", { href: state.href("ir", params), on: { click: open } }, el("bdi", {}, words)),
  );
  return true;
}
