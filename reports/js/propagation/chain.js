// The data of propagation, unpacked once, and the chain of a value with what stopped other axes.

import { part as partOf, Table } from "../base/data.js";
import { el } from "../base/dom.js";
import { sourceLink } from "../base/link.js";
import { Propagation } from "./data.js";
import { paths } from "./path.js";

let opened = null;

/** The data, unpacked once for the view and the details of tensors. */
export function open(data) {
  opened ??= (async () => {
    return { propagation: new Propagation(data), tensors: await partOf("tensors") };
  })();
  return opened;
}

/** Fills the section of a tensor's details: the chain of each axis, and what stopped others. */
export async function detail(root, tensor, context) {
  const data = await partOf("propagation");
  if (!data || data.unavailable) return false;
  const { propagation, tensors } = await open(data);
  const rows = new Table(tensors);
  const row = rowOf(rows, tensor.key);
  if (row < 0 || propagation.data.values[row] === null) return false;
  if (!chainOf(root, row, { propagation, rows, context })) {
    root.append(el("p.muted", {}, untouched(propagation.data, tensor.shape)));
  }
}

/** What to say of a value that has no axis where none came to it, and none was stopped. */
export function untouched(data, shape) {
  return shape?.length ? data.untouched : data.scalar;
}

const keys = new WeakMap();

/** The row of the tensors' table that has this key; -1 where none has. */
export function rowOf(rows, key) {
  const column = rows.columns.key;
  if (!keys.has(column)) {
    const byKey = new Map();
    for (let row = 0; row < rows.length; row += 1) byKey.set(rows.get("key", row), row);
    keys.set(column, byKey);
  }
  return keys.get(column).get(key) ?? -1;
}

/**
 * Appends the chains of a row, what stopped other axes and why dimensions are whole; false for none. With `step`
 * a step is shown by it, else by going to the view.
 */
export function chainOf(root, row, { propagation, rows, context, step }) {
  const { data } = propagation;
  const { state, shared } = context;
  const value = data.values[row];
  const chains = propagation.chains(row);
  const stops = value === null ? null : data.stops[value];
  const whole = value === null ? null : data.whole[value];
  if (!chains.length && !stops?.length && !whole) return false;
  const follow = (event, go) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go();
  };
  const link = (number) => {
    const params = { step: number, value: rows.get("key", row) };
    return el(
      "a",
      {
        href: state.href("propagation", params),
        on: {
          click: (event) =>
            follow(event, () => (step ? step(number) : state.go("propagation", params))),
        },
      },
      `step ${number}`,
    );
  };
  const toValue = (target, name) => {
    const key = rows.get("key", target);
    const here = state.view === "propagation";
    const params = here ? { ...state.params, value: key } : { ...state.params, tensor: key };
    const view = here ? "propagation" : "tensors";
    return el(
      "a.path-op",
      {
        href: state.href(view, params),
        on: { click: (event) => follow(event, () => state.go(view, params)) },
      },
      el("bdi", {}, name),
    );
  };
  root.append(
    ...paths(chains, {
      stops,
      whole: whole?.map((number) => data.reasons[number]),
      source: (number) => {
        const words = shared.source(number);
        return words ? sourceLink(state, words) : null;
      },
      place: (at) => [propagation.places.get("name", at), propagation.places.get("source", at)],
      link,
      value: toValue,
    }),
  );
  return true;
}
