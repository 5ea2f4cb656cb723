// A mesh drawn with its axes: columns, rows, and a panel for each index of the axes before them.

import { svg } from "./dom.js";
import { whole } from "./format.js";
import { axisColour } from "./spec.js";

/** More cells than this in a row are drawn on several lines. */
const WIDEST = 32;

/** At most this many panels and rows are drawn; the rest is said. */
const PANELS = 8;
const ROWS = 32;

const GAP = 2;
const BESIDE = 26;
const ABOVE = 24;

/** The device at each position of a mesh, as a function of the position. */
export function deviceOrder(mesh) {
  const { order } = mesh;
  if (!order) return (position) => position;
  const iota = /^\[([\d,]+)\](?:T\(([\d,]+)\))?$/.exec(order);
  if (!iota) {
    const listed = order.split(",").map(Number);
    return (position) => listed[position];
  }
  const dims = iota[1].split(",").map(Number);
  const permutation = iota[2] ? iota[2].split(",").map(Number) : dims.map((_, at) => at);
  const strides = dims.map((_, at) => dims.slice(at + 1).reduce((a, b) => a * b, 1));
  return (position) => {
    let rest = position;
    let device = 0;
    for (const dim of [...permutation].reverse()) {
      device += (rest % dims[dim]) * strides[dim];
      rest = Math.floor(rest / dims[dim]);
    }
    return device;
  };
}

/** The index along each axis of a position in a mesh. */
export function coordinates(mesh, position) {
  const found = {};
  let rest = position;
  for (const [name, length] of Object.entries(mesh.axes).reverse()) {
    found[name] = rest % length;
    rest = Math.floor(rest / length);
  }
  return found;
}

/**
 * The picture of a mesh.
 *
 * @param {object} mesh `{axes, devices, order}`.
 * @param {object} [room] the width and height to keep to, in pixels.
 */
export function meshPicture(mesh, { width = 340, height = 190 } = {}) {
  const axes = Object.entries(mesh.axes);
  const columns = axes.at(-1) ?? ["", 1];
  const rows = axes.at(-2) ?? null;
  const panelAxes = axes.slice(0, -2);
  const wrapped = !rows && columns[1] > WIDEST;
  const across = Math.min(columns[1], WIDEST);
  const deep = wrapped ? Math.ceil(columns[1] / across) : (rows?.[1] ?? 1);
  const down = Math.min(deep, ROWS);
  const panels = panelAxes.reduce((product, [, length]) => product * length, 1);
  const drawn = Math.min(panels, PANELS);
  const perLine = Math.min(drawn, 4);
  const lines = Math.ceil(drawn / perLine);
  const beside = rows ? BESIDE : 4;
  const above = ABOVE + (panels > 1 ? 14 : 0);
  const cell = Math.max(
    4,
    Math.min(
      30,
      Math.floor((width / perLine - beside - 10) / across) - GAP,
      Math.floor((height / lines - above) / down) - GAP,
    ),
  );
  const wide = across * (cell + GAP) - GAP;
  const tall = down * (cell + GAP) - GAP;
  const panelWidth = Math.max(wide + beside + 10, 64);
  const panelHeight = tall + above + 8;
  const cut = across < columns[1] && !wrapped;
  const left = panels > drawn || deep > down || cut;
  const picture = svg("svg.mesh", {
    viewBox: `0 0 ${perLine * panelWidth} ${lines * panelHeight + (left ? 16 : 0)}`,
    width: perLine * panelWidth,
    role: "img",
    "aria-label": `Mesh of ${whole(mesh.devices)} devices: ${axes
      .map(([name, length]) => `${name} ${length}`)
      .join(" by ")}`,
  });
  const deviceAt = deviceOrder(mesh);
  const perPanel = (rows?.[1] ?? 1) * columns[1];
  for (let panel = 0; panel < drawn; panel += 1) {
    const x = (panel % perLine) * panelWidth + beside;
    const y = Math.floor(panel / perLine) * panelHeight + above;
    const group = svg("g", { transform: `translate(${x} ${y})` });
    if (panels > 1) {
      const at = coordinates(mesh, panel * perPanel);
      const words = panelAxes.map(([name]) => `${name} ${at[name]}`).join(", ");
      group.append(label(words, 0, -above + 12, panelAxes.at(-1)[0], "start"));
    }
    if (columns[0]) {
      group.append(
        bracket(0, -6, wide, -6, columns[0]),
        label(`${columns[0]} ${columns[1]}`, wide / 2, -11, columns[0], "middle"),
      );
    }
    if (rows) {
      const words = label(`${rows[0]} ${rows[1]}`, 0, 0, rows[0], "middle");
      words.setAttribute("transform", `translate(-11 ${tall / 2}) rotate(-90)`);
      group.append(bracket(-6, 0, -6, tall, rows[0]), words);
    }
    for (let row = 0; row < down; row += 1) {
      for (let column = 0; column < across; column += 1) {
        const stride = wrapped ? across : columns[1];
        const position = panel * perPanel + row * stride + column;
        if (position >= mesh.devices) continue;
        group.append(...device(mesh, position, deviceAt, row, column, cell));
      }
    }
    picture.append(group);
  }
  if (left) {
    const shown = drawn * down * across;
    const words = `${whole(shown)} of ${whole(mesh.devices)} devices drawn`;
    picture.append(label(words, 0, lines * panelHeight + 10, "", "start"));
  }
  return picture;
}

function device(mesh, position, deviceAt, row, column, cell) {
  const x = column * (cell + GAP);
  const y = row * (cell + GAP);
  const number = deviceAt(position);
  const where = Object.entries(coordinates(mesh, position))
    .map(([name, index]) => `${name} ${index}`)
    .join(", ");
  const square = svg(
    "rect.mesh-device",
    { x, y, width: cell, height: cell, rx: cell > 10 ? 3 : 1 },
    svg("title", {}, `device ${number}: ${where}`),
  );
  if (cell < 18) return [square];
  return [square, svg("text.mesh-number", { x: x + cell / 2, y: y + cell / 2 }, String(number))];
}

function label(words, x, y, axis, anchor) {
  const style = axis ? { fill: axisColour(axis) } : {};
  return svg("text.mesh-axis", { x, y, "text-anchor": anchor, style }, words);
}

function bracket(x1, y1, x2, y2, axis) {
  return svg("line.mesh-bracket", { x1, y1, x2, y2, style: { stroke: axisColour(axis) } });
}
