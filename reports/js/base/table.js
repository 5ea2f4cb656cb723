// A table of any length: only the rows in sight are elements. Rows can be a tree.

import { el, tableHead } from "./dom.js";

/** Rows drawn above and below what is in sight. */
const BEYOND = 6;

/** On paper at most this many rows. */
const PRINTED = 2000;

let tables = 0;

/**
 * What each of some columns gets of what is left over: first those whose contents are `chars` wide get
 * alike, none more than it wishes; then the others a part of what they wish.
 */
export function granted(columns, wishes, room) {
  const grants = wishes.map(() => 0);
  const order = wishes.map((_, at) => at).sort((a, b) => wishes[a] - wishes[b]);
  let left = Math.max(room, 0);
  order
    .filter((at) => columns[at].whole)
    .forEach((at, done, all) => {
      grants[at] = Math.min(wishes[at], left / (all.length - done));
      left -= grants[at];
    });
  const others = order.filter((at) => !columns[at].whole);
  const wished = others.reduce((sum, at) => sum + wishes[at], 0);
  for (const at of others) grants[at] = wishes[at] * Math.min(1, left / (wished || 1));
  return grants;
}

/** The tables by their elements. */
const known = new WeakMap();

/**
 * A column is `{name, title, over, hint, chars, whole, least, grow, end, priority, below, render,
 * sortable}`: `over` stands above titles that belong together, `chars` is the width that its contents
 * like and `least` the width that they need, in characters, or functions of `shows`; `whole` has its
 * `chars` before others, as its contents are cut in less; `grow` takes its part of what is left over;
 * `end` aligns at the right; columns with a high `priority` number are left out first where there
 * is no room; `render(cell, line, shows)` fills a cell, `shows(name)` says whether there is another
 * column. Where there is no room for all that have `below`, `below(line)` of each makes what stands
 * below the first column in their place.
 */
export class GridTable {
  /**
   * @param {object} options
   * @param {string} options.label what the table is, for those who can't see it.
   * @param {object[]} options.columns the columns.
   * @param {(line) => object} options.line what to know of a line: `{id, depth, open, selected,
   *   tone}`; `open` is null for what has nothing in it.
   * @param {(line, event) => void} options.activate a row was clicked, or Enter pressed.
   * @param {(line, open) => void} [options.toggle] a row is to be opened or closed.
   * @param {(name) => void} [options.sort] a title was clicked.
   */
  constructor(options) {
    this.options = options;
    this.columns = options.columns;
    this.lines = [];
    this.active = -1;
    this.sorted = null;
    tables += 1;
    this.prefix = `table-${tables}`;
    this.drawn = new Map();
    this.head = el("div.grid-head", { role: "rowgroup" });
    this.body = el("div.grid-body", { role: "rowgroup" });
    this.empty = el("p.grid-empty", { hidden: true });
    this.element = el(
      "div.grid",
      {
        role: "treegrid",
        tabindex: "0",
        "aria-label": options.label,
        on: {
          keydown: (event) => this.#key(event),
          scroll: () => this.#schedule(),
        },
      },
      this.head,
      this.body,
    );
    known.set(this.element, this);
    this.root = el("div.grid-frame", {}, this.element, this.empty);
    this.observer = new ResizeObserver(() => this.#resized());
    this.observer.observe(this.element);
    this.body.addEventListener("click", (event) => this.#clicked(event));
    this.print = () => this.#print();
    this.printed = () => this.#resized();
    window.addEventListener("beforeprint", this.print);
    window.addEventListener("afterprint", this.printed);
  }

  /** The table that an element is. */
  static of(element) {
    return known.get(element);
  }

  /** The line that is selected; undefined for none. */
  chosen() {
    return this.lines.find((line) => this.options.line(line).selected);
  }

  /** Lines as texts, the titles first: every column, whether there is room for it or not. */
  texts(lines) {
    const text = (column, line) => {
      const cell = el("div");
      column.render(cell, line, () => true);
      return [...cell.childNodes]
        .map((node) => node.textContent.trim())
        .filter(Boolean)
        .join(" ");
    };
    const title = ({ over, title: own }) => (over ? `${over} ${own}` : own);
    return [
      this.columns.map(title),
      ...lines.map((line) => this.columns.map((column) => text(column, line))),
    ];
  }

  /** Takes the table away. */
  destroy() {
    this.observer.disconnect();
    window.removeEventListener("beforeprint", this.print);
    window.removeEventListener("afterprint", this.printed);
  }

  /** Shows these lines. */
  show(lines, { sorted = null, empty = "Nothing to show." } = {}) {
    const before = this.lines[this.active];
    this.lines = lines;
    this.sorted = sorted;
    this.empty.textContent = empty;
    this.empty.hidden = lines.length > 0;
    this.active = before === undefined ? -1 : lines.indexOf(before);
    const heading = JSON.stringify(sorted);
    if (!this.kept || heading !== this.heading) this.#layout();
    this.heading = heading;
    this.body.style.height = `${lines.length * (this.rowHeight ?? 0)}px`;
    this.element.setAttribute("aria-rowcount", String(lines.length + 1));
    this.refresh();
  }

  /** Draws what is in sight again. */
  refresh() {
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.#draw();
  }

  /** Makes a line the active one, and brings it into sight. */
  reveal(index, { centre = false } = {}) {
    if (index < 0 || index >= this.lines.length) return;
    this.active = index;
    const top = index * this.rowHeight;
    const room = this.element.clientHeight - this.headHeight;
    const from = this.element.scrollTop;
    if (top < from || top + this.rowHeight > from + room) {
      const above = centre ? room / 3 : top < from ? 0 : room - this.rowHeight;
      this.element.scrollTop = Math.max(0, top - above);
    }
    this.refresh();
  }

  /** Moves the active line, and activates it if `follow`. */
  move(by, { follow = false } = {}) {
    const next = Math.min(Math.max(this.active + by, 0), this.lines.length - 1);
    this.reveal(next);
    if (follow && this.lines.length) this.options.activate(this.lines[next]);
  }

  #schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.#draw();
    });
  }

  #resized() {
    if (!this.element.isConnected) return;
    this.#layout();
    this.refresh();
  }

  /** Decides which columns there is room for, and how wide they are. */
  #layout() {
    const style = getComputedStyle(this.element);
    const character = characterWidth(this.element);
    const padding = 2 * (Number.parseFloat(style.getPropertyValue("--cell-padding")) || 10);
    const room = this.element.clientWidth;
    if (!room) return;
    const width = (chars) => chars * character + padding;
    let kept = this.columns;
    const shows = (name) => kept.some((column) => column.name === name);
    const chars = (wish) => (typeof wish === "function" ? wish(shows) : wish);
    kept = kept.filter((column) => chars(column.chars) > 0);
    const least = (column) => width(chars(column.least));
    const needs = () => kept.reduce((sum, column) => sum + least(column), 0);
    while (kept.length > 1 && needs() > room) {
      const worst = Math.max(...kept.map((column) => column.priority));
      const last = kept.findLastIndex((column) => column.priority === worst);
      const { below } = kept[last];
      kept = kept.filter((column, at) => (below ? !column.below : at !== last));
    }
    this.below = this.columns.filter((column) => column.below && !kept.includes(column));
    this.element.toggleAttribute("data-below", this.below.length > 0);
    this.rowHeight = Number.parseFloat(style.getPropertyValue("--row-height")) || 28;
    let spare = room - needs();
    const widths = kept.map(least);
    // First what the contents like; then the rest, for those that grow.
    const wishes = kept.map((column, at) => Math.max(width(chars(column.chars)) - widths[at], 0));
    granted(kept, wishes, spare).forEach((more, at) => {
      widths[at] += more;
      spare -= more;
    });
    const grow = kept.reduce((sum, column) => sum + (column.grow ?? 0), 0);
    kept.forEach((column, at) => {
      if (grow) widths[at] += (Math.max(spare, 0) * (column.grow ?? 0)) / grow;
    });
    this.kept = kept;
    this.shows = shows;
    this.template = widths.map((pixels) => `${Math.floor(pixels)}px`).join(" ");
    this.element.style.setProperty("--grid-columns", this.template);
    this.element.setAttribute("aria-colcount", String(kept.length));
    this.#drawHead();
    this.headHeight = this.head.offsetHeight;
    this.body.style.height = `${this.lines.length * this.rowHeight}px`;
  }

  #drawHead() {
    const cells = this.kept.map((column) => {
      const sorted = this.sorted?.name === column.name ? this.sorted.direction : null;
      const over = column.over ? el("span.grid-over", {}, column.over) : null;
      const text = el("span.grid-title", {}, over, column.title);
      const sortable = column.sortable && this.options.sort;
      return el(
        `div.grid-cell.grid-headcell${column.end ? ".end" : ""}`,
        {
          role: "columnheader",
          title: column.hint,
          "aria-sort": sorted ? (sorted === "desc" ? "descending" : "ascending") : null,
        },
        sortable
          ? el(
              "button.grid-sort",
              {
                type: "button",
                data: { sorted: sorted ?? "" },
                on: { click: () => this.options.sort(column.name) },
              },
              text,
            )
          : text,
      );
    });
    this.head.replaceChildren(el("div.grid-row", { role: "row", "aria-rowindex": "1" }, cells));
  }

  #draw(from, to) {
    if (!this.kept) return;
    const room = this.element.clientHeight;
    const top = this.element.scrollTop;
    const first = from ?? Math.max(0, Math.floor(top / this.rowHeight) - BEYOND);
    const last = Math.min(
      this.lines.length,
      to ?? Math.ceil((top + room) / this.rowHeight) + BEYOND,
    );
    for (const [index, row] of this.drawn) {
      if (index < first || index >= last) {
        row.remove();
        this.drawn.delete(index);
      }
    }
    const fragment = document.createDocumentFragment();
    for (let index = first; index < last; index += 1) {
      if (!this.drawn.has(index)) {
        const row = this.#row(index);
        this.drawn.set(index, row);
        fragment.append(row);
      }
    }
    this.body.append(fragment);
    this.element.setAttribute(
      "aria-activedescendant",
      this.drawn.has(this.active) ? `${this.prefix}-${this.active}` : "",
    );
    if (!this.drawn.has(this.active)) this.element.removeAttribute("aria-activedescendant");
  }

  #row(index) {
    const line = this.lines[index];
    const known = this.options.line(line);
    const row = el("div.grid-row", {
      role: "row",
      id: `${this.prefix}-${index}`,
      "aria-rowindex": String(index + 2),
      "aria-level": String(known.depth + 1),
      "aria-expanded": known.open === null ? null : String(known.open),
      "aria-selected": String(Boolean(known.selected)),
      data: {
        index: String(index),
        kind: known.open === null ? "leaf" : "group",
        ...(known.tone ? { tone: known.tone } : {}),
        ...(index === this.active ? { active: "" } : {}),
      },
      style: { transform: `translateY(${index * this.rowHeight}px)` },
    });
    this.kept.forEach((column, at) => {
      const cell = el(`div.grid-cell${column.end ? ".end" : ""}`, {
        role: "gridcell",
        "aria-colindex": String(at + 1),
      });
      if (at === 0) {
        cell.style.setProperty("--depth", String(known.depth));
        if (known.open !== null) cell.append(el("span.twist", { "aria-hidden": "true" }));
      }
      column.render(cell, line, this.shows);
      if (at === 0 && this.below.length && known.open === null) {
        const said = this.below.map((part) => part.below(line));
        cell.append(el("span.grid-below", {}, said));
      }
      row.append(cell);
    });
    return row;
  }

  #clicked(event) {
    const row = event.target.closest(".grid-row");
    if (!row || event.target.closest("a")) return;
    const index = Number(row.dataset.index);
    this.active = index;
    const line = this.lines[index];
    const { open } = this.options.line(line);
    if (open !== null) this.options.toggle?.(line, !open);
    else this.options.activate(line, event);
  }

  #key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 2);
    const line = this.lines[this.active];
    const open = line === undefined ? null : this.options.line(line).open;
    const moves = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      PageDown: () => this.move(page),
      PageUp: () => this.move(-page),
      Home: () => this.reveal(0),
      End: () => this.reveal(this.lines.length - 1),
      ArrowRight: () => open === false && this.options.toggle?.(line, true),
      ArrowLeft: () => (open ? this.options.toggle?.(line, false) : this.#toParent()),
      Enter: () => line !== undefined && this.#enter(line, open),
      " ": () => line !== undefined && this.#enter(line, open),
    };
    const run = moves[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  }

  #enter(line, open) {
    if (open === null) this.options.activate(line);
    else this.options.toggle?.(line, !open);
  }

  #toParent() {
    if (this.active < 0) return;
    const { depth } = this.options.line(this.lines[this.active]);
    for (let index = this.active - 1; index >= 0; index -= 1) {
      if (this.options.line(this.lines[index]).depth < depth) {
        this.reveal(index);
        return;
      }
    }
  }

  #print() {
    if (!this.element.isConnected) return;
    this.#draw(0, PRINTED);
    this.element.dataset.more =
      this.lines.length > PRINTED ? `and ${this.lines.length - PRINTED} more rows` : "";
  }
}

const widths = new Map();

/** The width of a character in an element's fonts, in pixels. */
function characterWidth(element) {
  const style = getComputedStyle(element);
  const size = Number.parseFloat(style.fontSize);
  const mono = style.getPropertyValue("--mono");
  const key = `${size} ${style.fontFamily}`;
  if (!widths.has(key)) {
    const context = document.createElement("canvas").getContext("2d");
    const measured = [`${size}px ${style.fontFamily}`, `${size * 0.92}px ${mono}`].map((font) => {
      context.font = font;
      return context.measureText("0123456789 KiB params").width / 21;
    });
    widths.set(key, Math.max(...measured) || 7);
  }
  return widths.get(key);
}

/** A small table: what its rows are, for those who do not see it, its columns, its rows. */
export function miniTable(what, columns, rows, name = "table.mini") {
  return el(
    name,
    {},
    tableHead(
      el("th", { scope: "col" }, el("span.unseen", {}, what)),
      columns.map((words) => el("th", { scope: "col" }, words)),
    ),
    el(
      "tbody",
      {},
      rows.map(([title, ...cells]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, title),
          cells.map((cell) => el("td", {}, cell)),
        ),
      ),
    ),
  );
}
