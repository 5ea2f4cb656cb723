// What can be chosen of a placement's pictures: which dimensions and mesh axes, and which slice.

import { el } from "../base/dom.js";
import { whole } from "../base/format.js";
import { meshAxes, splitting } from "./layout.js";

/**
 * The fields, each of which changes the address.
 *
 * @param {object} shown `blocks`, `tensorLayout`, `meshLayout`, `mesh`, `slice`, whether that is `chosen` among
 *   more than are drawn, `panel` of `pages`, and `state`, the address.
 */
export function placementPicks(shown) {
  const { blocks, tensorLayout: laid, meshLayout: grid, mesh, slice, state } = shown;
  const picks = [];
  const rank = blocks.shards.length;
  if (rank > 2) {
    const dims = blocks.shards.map((shards, dim) => [
      String(dim),
      `dim ${dim}${shards > 1 ? ` (in ${shards})` : ""}`,
    ]);
    const set = (rows, columns) =>
      state.set({ dims: rows === columns ? `${rows}` : `${rows}.${columns}`, slice: "" });
    picks.push(
      pick("down", dims, String(laid.rows), (value) => set(value, laid.columns)),
      pick("across", dims, String(laid.columns), (value) => set(laid.rows, value)),
    );
  }
  (shown.chosen ? laid.sliced : []).forEach((dim, position) => {
    const set = (value) => {
      const next = slice.map((number, at) => (at === position ? Number(value) : number));
      state.set({ slice: next.some(Boolean) ? next.join(".") : "" });
    };
    picks.push(slider(`block of dim ${dim}`, slice[position], blocks.shards[dim], set));
  });
  const axes = splitting(meshAxes(mesh));
  if (axes.length > 2) {
    const names = axes.map(({ name, length }) => [name, `${name} ${length}`]);
    const rows = grid.rows.name;
    const columns = grid.columns.name;
    const set = (a, b) => state.set({ axes: a === b ? a : `${a},${b}`, panel: "" });
    picks.push(
      pick("mesh down", names, rows, (value) => set(value, columns)),
      pick("mesh across", names, columns, (value) => set(rows, value)),
    );
  }
  if (shown.pages > 1) {
    picks.push(
      slider("panels", shown.panel, shown.pages, (value) =>
        state.set({ panel: Number(value) ? String(value) : "" }),
      ),
    );
  }
  return picks;
}

function pick(label, options, value, change) {
  return el(
    "label.placement-pick",
    {},
    el("span.muted", {}, label),
    el(
      "select",
      { on: { change: (event) => change(event.target.value) } },
      options.map(([name, words]) =>
        el("option", { value: name, selected: name === value }, words),
      ),
    ),
  );
}

function slider(label, value, length, change) {
  return el(
    "label.placement-pick",
    {},
    el("span.muted", {}, label),
    el("input", {
      type: "range",
      min: "0",
      max: String(length - 1),
      value: String(value),
      "aria-valuetext": `${value} of ${length}`,
      on: { input: (event) => change(event.target.value) },
    }),
    el("output", {}, `${value} of ${whole(length)}`),
  );
}
