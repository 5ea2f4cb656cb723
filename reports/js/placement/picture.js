// The two pictures of a placement: the mesh as a grid of devices, the tensor cut into its blocks.
//
// A picture is `{element, cells}`. A cell has its `element`, the `blocks` that it is about as a set
// of their numbers, and `holds(device)`; of devices the first as `device`, how many `count`.

import { svg } from "../base/dom.js";
import { whole } from "../base/format.js";
import { axisColour } from "../base/spec.js";
import { blockColour, css } from "./colours.js";
import { atOnce, bins, meshAxes } from "./layout.js";
import { axisTitle } from "./mesh.js";

const GAP = 2;
const BESIDE = 24;
const ABOVE = 22;
const LARGEST = 40;

/** At most so many blocks of a cell that stands for many are told apart by stripes. */
const STRIPES = 4;

let pictures = 0;

/** Room for a character of a title, and the height of one of its lines. */
const CHARACTER = 6.8;
const LINE = 14;

/** A grid beside others is at least so wide. */
const PANEL = 130;

/** The mesh. `place` has `mesh`, `meshLayout`, `panel`, `blocks`, `deviceAt`, `slices`. */
export function devicePicture(place, width, handlers) {
  const { columns, rows, panels, same } = place.meshLayout;
  const axes = meshAxes(place.mesh);
  const total = panels.reduce((all, axis) => all * axis.length, 1);
  const drawn = Math.min(atOnce(rows.length, columns.length), total);
  const first = place.panel * drawn;
  const shown = Math.min(drawn, total - first);
  const perLine = besideEachOther(shown, width);
  const across = bins(columns.length);
  const down = bins(rows.length);
  const beside = rows.length > 1 && rows.name ? BESIDE : 2;
  const titles = Array.from({ length: total > 1 ? shown : 0 }, (_, number) => {
    const at = panelIndex(panels, first + number);
    const parts = panels.map(({ name }, index) => ({ axis: name, words: `${name} ${at[index]}` }));
    return folded(parts, width / perLine - beside);
  });
  const above = ABOVE + titleHeight(titles);
  const room = width / perLine - beside - (perLine > 1 ? 8 : 2);
  const cell = Math.min(LARGEST, room / across.length - GAP);
  const height = Math.min(cell, Math.max(30, 300 / down.length - GAP));
  const wide = across.length * (cell + GAP) - GAP;
  const tall = down.length * (height + GAP) - GAP;
  const panelWidth = wide + beside + 8;
  const panelHeight = tall + above + 8;
  const lines = Math.ceil(shown / perLine);
  const foot = same.length ? 18 : 0;
  const drawing = picture(
    "devices",
    "Devices of the mesh",
    perLine * panelWidth,
    lines * panelHeight + foot,
    handlers,
  );
  const inSlice = sliceTest(place);
  for (let number = 0; number < shown; number += 1) {
    const at = panelIndex(panels, first + number);
    const base = panels.reduce((sum, axis, index) => sum + at[index] * axis.stride, 0);
    const x = (number % perLine) * panelWidth + beside;
    const y = Math.floor(number / perLine) * panelHeight + above;
    const group = svg("g", { transform: `translate(${x} ${y})`, role: "presentation" });
    group.append(...titleOf(titles[number], above));
    if (columns.name) {
      const broken = columns.part ? axes[0].length : columns.length;
      group.append(
        bracket(0, -6, wide, -6, columns.name),
        label(`${columns.name} ${whole(broken)}`, wide / 2, -10, columns.name, "middle"),
      );
    }
    if (rows.name && rows.length > 1) {
      const words = label(`${rows.name} ${whole(rows.length)}`, 0, 0, rows.name, "middle");
      words.setAttribute("transform", `translate(-10 ${tall / 2}) rotate(-90)`);
      group.append(bracket(-6, 0, -6, tall, rows.name), words);
    }
    down.forEach((row, j) => {
      across.forEach((column, i) => {
        const devices = [];
        for (let a = row[0]; a < row[1]; a += 1) {
          for (let b = column[0]; b < column[1]; b += 1) {
            devices.push(place.deviceAt(base + a * rows.stride + b * columns.stride));
          }
        }
        drawing.add(
          group,
          deviceCell(place, devices, inSlice, {
            x: i * (cell + GAP),
            y: j * (height + GAP),
            width: cell,
            height,
          }),
        );
      });
    });
    drawing.svg.append(group);
  }
  if (same.length) {
    const words = label("the same for each of ", 0, lines * panelHeight + 10, "", "start");
    const parts = same.map(({ name, length }) => ({
      axis: name,
      words: `${name} ${whole(length)}`,
    }));
    words.append(...axisTitle("placement-axis", parts, 0, 0, " × ").childNodes);
    drawing.svg.append(words);
  }
  return drawing;
}

function panelIndex(panels, number) {
  let rest = number;
  const indices = [];
  for (const axis of [...panels].reverse()) {
    indices.unshift(rest % axis.length);
    rest = Math.floor(rest / axis.length);
  }
  return indices;
}

/** How many grids stand beside each other. */
function besideEachOther(count, width) {
  return Math.max(1, Math.min(count, Math.floor(width / PANEL)));
}

/** The parts of a title, on as many lines as they need. */
function folded(parts, room) {
  const lines = [[]];
  let filled = 0;
  for (const part of parts) {
    const width = (part.words.length + 2) * CHARACTER;
    if (filled && filled + width > room) {
      lines.push([]);
      filled = 0;
    }
    lines.at(-1).push(part);
    filled += width;
  }
  return lines;
}

function titleHeight(titles) {
  return LINE * Math.max(0, ...titles.map((lines) => lines.length));
}

/** The lines of a title, from the top of what is above a grid. */
function titleOf(lines, above) {
  return (lines ?? []).map((parts, at) =>
    axisTitle("placement-axis", parts, 0, -above + 12 + at * LINE),
  );
}

/** Whether a block is in a slice of the tensor that is drawn. */
function sliceTest(place) {
  const { sliced } = place.tensorLayout;
  return (block) =>
    place.slices.some((slice) => sliced.every((dim, at) => block[dim] === slice[at]));
}

function deviceCell(place, devices, inSlice, box) {
  const { blocks } = place;
  const byBlock = new Map();
  for (const device of devices) {
    const block = blocks.block(device);
    if (block) byBlock.set(blocks.linear(block), block);
  }
  const several = devices.length > 1;
  const group = svg("g.placement-cell", { data: several ? { many: "" } : {} });
  const shown = [...byBlock.values()].slice(0, STRIPES);
  const visible = shown.some(inSlice);
  if (!shown.length) group.append(rect(box, null));
  shown.forEach((block, at) => {
    const part = box.width / shown.length;
    group.append(rect({ ...box, x: box.x + at * part, width: part }, block, blocks));
  });
  if (!visible && shown.length) group.dataset.elsewhere = "";
  const room = Math.min(box.width, box.height * 1.4);
  if (several ? room >= 26 : room >= 15) {
    const partial = blocks.unreduced.length ? `+${blocks.partial(devices[0])}` : "";
    const words = several ? `×${whole(devices.length)}` : `${devices[0]}`;
    group.append(text(words, box, partial && room >= 24 ? -5 : 0));
    if (partial && room >= 24) group.append(text(partial, box, 7, "placement-partial"));
  }
  const members = new Set(devices);
  return {
    element: group,
    blocks: new Set(byBlock.keys()),
    device: devices[0],
    devices,
    count: devices.length,
    to: devices.length,
    holds: (device) => members.has(device),
    name: several ? `${devices.length} devices from ${devices[0]}` : `device ${devices[0]}`,
    row: box.y,
  };
}

/** The tensor: rows and columns of blocks, a grid for each slice that is drawn; padding is hatched. */
export function tensorPicture(place, width, handlers) {
  const { blocks, tensorLayout: laid, slices } = place;
  const { shards, shape } = blocks;
  const across = bins(laid.columns === null ? 1 : shards[laid.columns]);
  const down = bins(laid.rows === null ? 1 : shards[laid.rows]);
  const beside = laid.rows === null ? 2 : BESIDE + 2;
  const perLine = besideEachOther(slices.length, width);
  const wide = Math.min(width / perLine - beside - 10, LARGEST * 6);
  const ratio = shape && laid.rows !== null ? shape[laid.rows] / shape[laid.columns] : 0.25;
  const clamped = Math.min(1.25, Math.max(laid.rows === null ? 0.2 : 0.5, ratio));
  const tall = Math.max(Math.min(wide * clamped, 300), Math.min(down.length * 9, 300));
  const titles = slices.map((slice) => {
    const parts = laid.sliced.map((dim, at) => ({ words: `dim ${dim}: block ${slice[at]}` }));
    return folded(slices.length > 1 ? parts : [], width / perLine - beside);
  });
  const above = ABOVE + (slices.length > 1 ? titleHeight(titles) : 0);
  const [panelWidth, panelHeight] = [wide + beside + 10, tall + above + 16];
  const drawing = picture(
    "blocks",
    "Blocks of the tensor",
    perLine * panelWidth,
    Math.ceil(slices.length / perLine) * panelHeight,
    handlers,
  );
  slices.forEach((slice, number) => {
    const x = (number % perLine) * panelWidth + beside;
    const y = Math.floor(number / perLine) * panelHeight + above;
    const group = svg("g", { transform: `translate(${x} ${y})`, role: "presentation" });
    if (slices.length > 1) group.append(...titleOf(titles[number], above));
    group.append(...dimAxes(blocks, laid, wide, tall));
    const gap = across.length > 16 || down.length > 16 ? 1 : GAP;
    const cellWidth = wide / across.length;
    const cellHeight = tall / down.length;
    down.forEach((row, j) => {
      across.forEach((column, i) => {
        const box = {
          x: i * cellWidth,
          y: j * cellHeight,
          width: Math.max(cellWidth - (i < across.length - 1 ? gap : 0), 1),
          height: Math.max(cellHeight - (j < down.length - 1 ? gap : 0), 1),
        };
        drawing.add(group, blockCell(place, slice, row, column, box));
      });
    });
    group.append(...paddings(blocks, laid, wide, tall));
    drawing.svg.append(group);
  });
  return drawing;
}

/** The names of the dimensions that a grid of blocks has, along it. */
function dimAxes(blocks, laid, wide, tall) {
  const elements = [];
  if (laid.columns !== null) {
    elements.push(
      bracket(0, -6, wide, -6, ""),
      label(dimWords(blocks, laid.columns), wide / 2, -10, "", "middle"),
      ...ticks(blocks, laid.columns, wide, (at, words) =>
        label(words, at, tall + 12, "", "middle"),
      ),
    );
  }
  if (laid.rows !== null) {
    const words = label(dimWords(blocks, laid.rows), 0, 0, "", "middle");
    words.setAttribute("transform", `translate(-10 ${tall / 2}) rotate(-90)`);
    elements.push(bracket(-6, 0, -6, tall, ""), words);
  }
  return elements;
}

function blockCell(place, slice, row, column, box) {
  const { blocks, tensorLayout: laid } = place;
  const at = (r, c) =>
    blocks.shards.map((_, dim) => {
      if (dim === laid.rows) return r;
      if (dim === laid.columns) return c;
      const position = laid.sliced.indexOf(dim);
      return position < 0 ? 0 : slice[position];
    });
  const numbers = new Set();
  for (let r = row[0]; r < row[1]; r += 1) {
    for (let c = column[0]; c < column[1]; c += 1) numbers.add(blocks.linear(at(r, c)));
  }
  const block = at(row[0], column[0]);
  const group = svg("g.placement-cell");
  const stripes = Math.min(STRIPES, column[1] - column[0]);
  const step = (column[1] - column[0]) / stripes;
  for (let s = 0; s < stripes; s += 1) {
    const part = box.width / stripes;
    const stripe = at(row[0], column[0] + Math.floor(s * step));
    group.append(rect({ ...box, x: box.x + s * part, width: part }, stripe, blocks));
  }
  const many = numbers.size > 1;
  const words = many ? `×${numbers.size}` : holderWords(blocks, block, box.width);
  if (words && box.height >= 13 && box.width >= 14) group.append(text(words, box, 0));
  const holds = (device) => {
    const own = device === null ? null : blocks.block(device);
    return own !== null && numbers.has(blocks.linear(own));
  };
  const name = many ? `${numbers.size} blocks` : `block ${block.join(", ") || "0"}`;
  return {
    element: group,
    blocks: numbers,
    block,
    count: numbers.size,
    to: 0,
    holds,
    name,
    row: box.y,
  };
}

/** The devices that hold a block, as far as there is room: "0 2 4", or "8 devices". */
function holderWords(blocks, block, width) {
  const unlike = [...blocks.unreduced, ...blocks.manual].reduce((all, [size]) => all * size, 1);
  const count = blocks.only !== null ? 1 : blocks.replicas * unlike;
  const room = Math.floor(width / 6.4);
  if (count <= 16) {
    const words = blocks.holders(block, 16).join(" ");
    if (words.length <= room) return words;
  }
  const words = `${whole(count)} devices`;
  if (words.length <= room) return words;
  return `×${whole(count)}`.length <= room ? `×${whole(count)}` : "";
}

function dimWords(blocks, dim) {
  const size = blocks.shape ? ` ${whole(blocks.shape[dim])}` : "";
  const cut = blocks.shards[dim] > 1 ? ` in ${whole(blocks.shards[dim])}` : "";
  return `dim ${dim}:${size}${cut}`;
}

/** Where blocks begin, where there is room for the numbers. */
function ticks(blocks, dim, length, make) {
  const shards = blocks.shards[dim];
  if (!blocks.shape || shards > 8 || length / shards < 34) return [];
  const extent = blocks.extent(dim);
  return Array.from({ length: shards - 1 }, (_, at) =>
    make(((at + 1) * length) / shards, String((at + 1) * extent)),
  );
}

/** What of the blocks is padding, from where the tensor ends. */
function paddings(blocks, laid, wide, tall) {
  if (!blocks.shape) return [];
  const part = (dim) => {
    if (dim === null) return 1;
    const padded = blocks.extent(dim) * blocks.shards[dim];
    return padded ? blocks.shape[dim] / padded : 1;
  };
  const [right, below] = [part(laid.columns), part(laid.rows)];
  const elements = [];
  const hatched = (x, y, width, height) =>
    elements.push(
      svg("rect.placement-padding", { x, y, width, height, fill: "url(#placement-hatch)" }),
    );
  if (right < 1) hatched(wide * right, 0, wide * (1 - right), tall);
  if (below < 1) hatched(0, tall * below, wide * right, tall * (1 - below));
  return elements;
}

// --- what both are made of -------------------------------------------------------------------------

/** An empty picture. It is one stop of the keyboard; the arrow keys go from cell to cell. */
function picture(name, title, width, height, handlers) {
  pictures += 1;
  const prefix = `placement-${pictures}`;
  const cells = [];
  let active = -1;
  const element = svg("svg.placement-picture", {
    viewBox: `0 0 ${round(width)} ${round(height)}`,
    width: round(width),
    tabindex: "0",
    role: "listbox",
    "aria-label": title,
    data: { picture: name },
  });
  element.append(hatch());
  const go = (to) => {
    active = Math.min(Math.max(to, 0), cells.length - 1);
    element.setAttribute("aria-activedescendant", `${prefix}-${active}`);
    handlers.point(cells[active]);
  };
  const cellOf = (event) =>
    cells[Number(event.target.closest?.("[data-cell]")?.dataset.cell ?? -1)];
  element.addEventListener("pointerover", (event) => {
    const cell = cellOf(event);
    if (cell) handlers.point(cell);
  });
  element.addEventListener("pointerleave", () => handlers.point(null));
  element.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (cell) handlers.choose(cell);
  });
  element.addEventListener("blur", () => handlers.point(null));
  element.addEventListener("focus", () => {
    if (element.matches(":focus-visible")) go(Math.max(active, 0));
  });
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const across = cells.findIndex((cell) => cell.row !== cells[0].row);
    const line = across < 0 ? cells.length : across;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: line, ArrowUp: -line };
    if (event.key in moves) go(active + moves[event.key]);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(cells.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && active >= 0) {
      handlers.choose(cells[active]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    element,
    svg: element,
    cells,
    add(group, cell) {
      const number = cells.push(cell) - 1;
      cell.element.id = `${prefix}-${number}`;
      cell.element.dataset.cell = String(number);
      cell.element.setAttribute("role", "option");
      cell.element.setAttribute("aria-selected", "false");
      const words = cell.element.textContent;
      const name = cell.name.includes(words) ? cell.name : `${cell.name}: ${words}`;
      cell.element.setAttribute("aria-label", name);
      group.append(cell.element);
    },
  };
}

function hatch() {
  return svg(
    "defs",
    {},
    svg(
      "pattern",
      {
        id: "placement-hatch",
        width: 5,
        height: 5,
        patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      },
      svg("rect.placement-hatch-ground", { width: 5, height: 5 }),
      svg("line.placement-hatch-line", { x1: 0, y1: 0, x2: 0, y2: 5 }),
    ),
  );
}

function rect(box, block, blocks) {
  const { x, y, width, height } = box;
  return svg("rect.placement-rect", {
    x: round(x),
    y: round(y),
    width: round(width),
    height: round(height),
    rx: Math.min(width, height) > 12 ? 3 : 0,
    style: block ? { fill: css(blockColour(block, blocks.shards)) } : {},
    data: block ? {} : { empty: "" },
  });
}

function text(words, box, shift, more = "") {
  const at = svg(
    "text.placement-number",
    {
      x: round(box.x + box.width / 2),
      y: round(box.y + box.height / 2 + shift),
    },
    words,
  );
  if (more) at.classList.add(more);
  return at;
}

function label(words, x, y, axis, anchor) {
  const style = axis ? { fill: axisColour(axis) } : {};
  return svg(
    "text.placement-axis",
    { x: round(x), y: round(y), "text-anchor": anchor, style },
    words,
  );
}

function bracket(x1, y1, x2, y2, axis) {
  const style = { stroke: axis ? axisColour(axis) : "var(--line-strong)" };
  return svg("line.placement-bracket", { x1, y1, x2: round(x2), y2: round(y2), style });
}

function round(number) {
  return Math.round(number * 100) / 100;
}
