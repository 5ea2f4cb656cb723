// A mesh drawn with its axes: columns, rows, and a panel for each index of the axes before them.
// What has too many devices for that is drawn as a stack of panels, to scale.

import { svg } from "../base/dom.js";
import { whole } from "../base/format.js";
import { axisColour } from "../base/spec.js";

/** More cells than this in a row are drawn on several lines. */
const WIDEST = 32;

/** At most this many panels and devices are drawn one by one. */
const PANELS = 8;
const DEVICES = 256;

/** At most this many panels of a stack are drawn, each so far behind the one before. */
const STACKED = 6;
const BEHIND = 6;

const GAP = 2;
const BESIDE = 26;
const ABOVE = 24;

/** Room for a character of a name, and between two names. */
const CHARACTER = 7;
const BETWEEN = 12;

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
  const indices = {};
  let rest = position;
  for (const [name, length] of Object.entries(mesh.axes).reverse()) {
    indices[name] = rest % length;
    rest = Math.floor(rest / length);
  }
  return indices;
}

/**
 * The picture of a mesh. An axis of size one splits nothing, and is not drawn.
 *
 * @param {object} mesh `{axes, devices, order}`.
 * @param {object} [room] the width and height to keep to, in pixels.
 */
export function meshPicture(mesh, { width = 340, height = 190 } = {}) {
  const all = Object.entries(mesh.axes);
  const several = all.filter(([, length]) => length > 1);
  const axes = several.length ? several : all.slice(-1);
  const columns = axes.at(-1) ?? ["", 1];
  const rows = axes.at(-2) ?? ["", 1];
  const before = axes.slice(0, -2);
  const panels = before.reduce((product, [, length]) => product * length, 1);
  const wrapped = !rows[0] && columns[1] > WIDEST;
  const plan = { mesh, columns, rows, before, panels, wrapped, width, height };
  plan.across = wrapped ? WIDEST : columns[1];
  plan.down = wrapped ? Math.ceil(columns[1] / WIDEST) : rows[1];
  const each = mesh.devices <= DEVICES && panels <= PANELS && plan.across <= WIDEST;
  const { content, wide, tall } = each ? panelsPicture(plan) : stackPicture(plan);
  return svg(
    "svg.mesh",
    {
      viewBox: `0 0 ${wide} ${tall}`,
      width: wide,
      role: "img",
      "aria-label": `Mesh of ${whole(mesh.devices)} devices: ${all
        .map(([name, length]) => `${name} ${length}`)
        .join(" by ")}`,
    },
    content,
  );
}

/** Every device, in a panel for each index of the axes before the last two. */
function panelsPicture(plan) {
  const { mesh, columns, rows, before, panels, wrapped, across, down, width, height } = plan;
  const perPanel = rows[1] * columns[1];
  const titles = Array.from({ length: panels > 1 ? panels : 0 }, (_, panel) => {
    const at = coordinates(mesh, panel * perPanel);
    return before.map(([name]) => ({ axis: name, words: `${name} ${at[name]}` }));
  });
  const words = [...titles.map(joined), `${columns[0]} ${columns[1]}`].map((title) => title.length);
  const named = Math.max(64, Math.max(...words) * CHARACTER + BETWEEN);
  const perLine = Math.min(panels, Math.max(1, Math.min(4, Math.floor(width / named))));
  const lines = Math.ceil(panels / perLine);
  const beside = rows[0] ? BESIDE : 4;
  const above = ABOVE + (panels > 1 ? 14 : 0);
  const cell = Math.max(
    5,
    Math.min(
      30,
      Math.floor((width / perLine - beside - 10) / across) - GAP,
      Math.floor((height / lines - above) / down) - GAP,
    ),
  );
  const wide = across * (cell + GAP) - GAP;
  const tall = down * (cell + GAP) - GAP;
  const panelWidth = Math.max(wide + beside + 10, panels > 1 ? named : 64);
  const panelHeight = Math.max(tall, sideLength(rows)) + above + 8;
  const deviceAt = deviceOrder(mesh);
  const content = [];
  for (let panel = 0; panel < panels; panel += 1) {
    const x = (panel % perLine) * panelWidth + beside;
    const y = Math.floor(panel / perLine) * panelHeight + above;
    const group = svg("g", { transform: `translate(${x} ${y})` }, brackets(plan, wide, tall));
    if (panels > 1) group.append(axisTitle("mesh-axis", titles[panel], 0, -above + 12));
    for (let row = 0; row < down; row += 1) {
      for (let column = 0; column < across; column += 1) {
        const position = panel * perPanel + row * (wrapped ? across : columns[1]) + column;
        if (position >= mesh.devices) continue;
        group.append(...device(mesh, position, deviceAt, row, column, cell));
      }
    }
    content.push(group);
  }
  return { content, wide: perLine * panelWidth, tall: lines * panelHeight };
}

/** One panel as a grid, to scale, and behind it the others. */
function stackPicture(plan) {
  const { rows, before, panels, across, down, width, height } = plan;
  const behind = Math.min(panels - 1, STACKED);
  const beside = rows[0] ? BESIDE : 4;
  const room = { wide: width - beside - behind * BEHIND - 70, tall: height - ABOVE - 20 };
  const cell = Math.min(18, room.wide / across, room.tall / down);
  // Of a long thin mesh the short side is drawn thicker than it is.
  const wide = Math.max(across * cell, 24);
  const tall = Math.max(down * cell, 24);
  const top = ABOVE + behind * BEHIND + 4;
  const content = [];
  for (let panel = behind; panel > 0; panel -= 1) {
    const shift = panel * BEHIND;
    const place = { x: beside + shift, y: top - shift, width: wide, height: tall, rx: 2 };
    content.push(svg("rect.mesh-device", place));
  }
  const step = (length, size) => length / Math.min(size, Math.floor(length / 5) || 1);
  content.push(
    svg(
      "g",
      { transform: `translate(${beside} ${top})` },
      svg("rect.mesh-device", { width: wide, height: tall, rx: 2 }),
      svg("path.mesh-grid", { d: grid(wide, tall, step(wide, across), step(tall, down)) }),
      brackets(plan, wide, tall, behind ? tall + 14 : -11, behind ? tall + 6 : -6),
    ),
  );
  let least = 0;
  if (behind) {
    const parts = before.map(([axis, length]) => ({ axis, words: `${axis} ${length}` }));
    const x = beside + wide + behind * BEHIND + 8;
    least = x + joined(parts, " × ").length * CHARACTER;
    content.push(axisTitle("mesh-axis", parts, x, top - behind * BEHIND + 10, " × "));
  }
  return {
    content,
    wide: Math.max(width, least),
    tall: top + Math.max(tall, sideLength(rows)) + 26,
  };
}

function grid(wide, tall, stepX, stepY) {
  const parts = [];
  for (let x = stepX; x < wide - 0.5; x += stepX) parts.push(`M${x.toFixed(2)} 0V${tall}`);
  for (let y = stepY; y < tall - 0.5; y += stepY) parts.push(`M0 ${y.toFixed(2)}H${wide}`);
  return parts.join("");
}

/** How long the name of the axis beside a panel is. */
function sideLength([name, length]) {
  return name ? `${name} ${length}`.length * CHARACTER : 0;
}

/** The names of the axes of a panel, along it. */
function brackets({ columns, rows }, wide, tall, wordsAt = -11, lineAt = -6) {
  const elements = [];
  if (columns[0]) {
    const words = `${columns[0]} ${columns[1]}`;
    elements.push(
      bracket(0, lineAt, wide, lineAt, columns[0]),
      label(words, wide / 2, wordsAt + (wordsAt > 0 ? 6 : 0), columns[0], "middle"),
    );
  }
  if (rows[0]) {
    const words = label(`${rows[0]} ${rows[1]}`, 0, 0, rows[0], "middle");
    const middle = Math.max(tall, sideLength(rows)) / 2;
    words.setAttribute("transform", `translate(-11 ${middle}) rotate(-90)`);
    elements.push(bracket(-6, 0, -6, tall, rows[0]), words);
  }
  return elements;
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

function joined(parts, between = ", ") {
  return parts.map(({ words }) => words).join(between);
}

/** A title that names several axes, `{axis, words}`, each in its own colour. */
export function axisTitle(name, parts, x, y, between = ", ") {
  return svg(
    `text.${name}`,
    { x, y },
    parts.map(({ axis, words }, at) => [
      at ? between : "",
      svg("tspan", { style: axis ? { fill: axisColour(axis) } : {} }, words),
    ]),
  );
}

function label(words, x, y, axis, anchor) {
  const style = axis ? { fill: axisColour(axis) } : {};
  return svg("text.mesh-axis", { x, y, "text-anchor": anchor, style }, words);
}

function bracket(x1, y1, x2, y2, axis) {
  return svg("line.mesh-bracket", { x1, y1, x2, y2, style: { stroke: axisColour(axis) } });
}
