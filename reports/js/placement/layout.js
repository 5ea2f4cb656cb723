// What of a mesh and of a tensor is laid out where, in cells of which there are never very many.

/** At most so many cells stand in a row or a column. */
const ACROSS = 32;

/** At most so many grids are drawn at once, and so many cells of all of them. */
const PANELS = 8;
const CELLS = 256;

/** Up to so many devices every one has a cell, those that hold the same as others too. */
const ALL = 64;

/** A line of devices that is longer than this is broken into rows. */
const LINE = 16;

/**
 * How a mesh is laid out: axes as columns and rows, the others as panels or left out.
 *
 * @param {object} mesh `{axes, devices}`.
 * @param {(axis: string) => number} matters how much devices that differ in an axis differ in what
 *   they hold; 0 for not at all.
 * @param {string[]} [wanted] the axes to lay out as rows and columns.
 * @returns {object} `columns`, `rows` and each of `panels` and `same`: `{name, length, stride}`,
 *   of which `same` are those along which everything is repeated, and that are not drawn.
 */
export function meshLayout(mesh, matters, wanted = []) {
  const axes = splitting(meshAxes(mesh));
  if (axes.length === 1 && axes[0].length > LINE) return brokenLine(axes[0]);
  const all = mesh.devices <= ALL;
  const chosen = wanted.filter((name) => axes.some((axis) => axis.name === name)).slice(0, 2);
  const byUse = [...axes].sort((a, b) => matters(b.name) - matters(a.name) || b.at - a.at);
  for (const axis of all ? [...axes].reverse() : byUse) {
    if (chosen.length < 2 && !chosen.includes(axis.name)) chosen.push(axis.name);
  }
  const laid = axes.filter((axis) => chosen.includes(axis.name));
  const columns = laid.at(-1) ?? { name: "", length: 1, stride: 1 };
  const rows = laid.length > 1 ? laid[0] : { name: "", length: 1, stride: mesh.devices };
  const rest = axes.filter((axis) => !laid.includes(axis));
  const panels = rest.filter((axis) => all || matters(axis.name) > 0);
  return { columns, rows, panels, same: rest.filter((axis) => !panels.includes(axis)) };
}

/** Of axes those that split something; the last where none does. */
export function splitting(axes) {
  const several = axes.filter(({ length }) => length > 1);
  return several.length ? several : axes.slice(-1);
}

/** The axes of a mesh with how far apart the devices are that stand beside each other on them. */
export function meshAxes(mesh) {
  const axes = Object.entries(mesh.axes).map(([name, length], at) => ({ name, length, at }));
  let stride = 1;
  for (const axis of [...axes].reverse()) {
    axis.stride = stride;
    stride *= axis.length;
  }
  return axes;
}

function brokenLine(axis) {
  let across = Math.min(LINE, axis.length);
  while (axis.length / across > across * 2) across *= 2;
  while (axis.length % across) across -= 1;
  return {
    columns: { name: axis.name, length: across, stride: 1, part: true },
    rows: { name: "", length: axis.length / across, stride: across },
    panels: [],
    same: [],
  };
}

/** How many neighbours a cell stands for, so that at most `most` cells stand in a line. */
function binSize(length, most = ACROSS) {
  if (length <= most) return 1;
  let size = Math.ceil(length / most);
  while (length % size && size < length) size += 1;
  return size;
}

/** The cells of a line: `[from, to]` of each, the latter not included. */
export function bins(length, most = ACROSS) {
  const size = binSize(length, most);
  return Array.from({ length: Math.ceil(length / size) }, (_, at) => [
    at * size,
    Math.min(length, (at + 1) * size),
  ]);
}

/** How many grids of so many rows and columns are drawn at once. */
export function atOnce(rows, columns) {
  const cells = Math.min(columns, ACROSS) * Math.min(rows, ACROSS);
  return Math.max(1, Math.min(PANELS, Math.floor(CELLS / cells)));
}

/**
 * The slices of a tensor that are drawn: all where they are few, or the chosen one.
 *
 * @param {number[]} shards how many blocks each dimension has.
 * @param {object} layout what `tensorLayout` makes.
 * @param {number[]} chosen the block of each dimension that is sliced.
 */
export function drawnSlices(shards, { rows, columns, sliced }, chosen) {
  const total = sliced.reduce((all, dim) => all * shards[dim], 1);
  if (total > atOnce(shards[rows] ?? 1, shards[columns] ?? 1)) return [chosen];
  return sliced.reduce(
    (slices, dim) =>
      slices.flatMap((slice) => Array.from({ length: shards[dim] }, (_, at) => [...slice, at])),
    [[]],
  );
}

/** Which dimensions to lay out as rows and columns: the wanted, else those that are cut most. */
export function tensorLayout(shards, wanted = []) {
  const rank = shards.length;
  const valid = wanted.filter((dim) => Number.isInteger(dim) && dim >= 0 && dim < rank);
  const chosen = [...new Set(valid)].slice(0, 2);
  const byUse = shards
    .map((count, dim) => ({ count, dim }))
    .sort((a, b) => (b.count > 1) - (a.count > 1) || b.count - a.count || b.dim - a.dim);
  for (const { dim } of byUse) {
    if (chosen.length < 2 && !chosen.includes(dim)) chosen.push(dim);
  }
  const [rows, columns] = chosen.length > 1 ? chosen.sort((a, b) => a - b) : [null, chosen[0]];
  const sliced = shards
    .map((_, dim) => dim)
    .filter((dim) => dim !== rows && dim !== columns && shards[dim] > 1);
  return { rows, columns: columns ?? null, sliced };
}
