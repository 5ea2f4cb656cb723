// One picture of the graph in one pane, or the same in several: moved, scaled, pointed at.

import { el, svg } from "../base/dom.js";
import { partitionerName } from "../base/format.js";
import { Drawing } from "./draw.js";
import { Pan } from "./pan.js";

/** From this width on a small picture is drawn larger. */
const WIDE = 1600;

/** At first nothing is smaller than this, even where not all of it is seen then. */
const READABLE = 0.75;

/** In a window like this the passes stand one below the other. */
const NARROW = globalThis.matchMedia("(max-width: 760px)");

export class GraphPanes {
  /**
   * @param {HTMLElement} root what the panes are put in.
   * @param {object} actions `toggle(item)` opens or closes a group, `choose(item)`; `clear()`, which
   *   a click beside everything calls; and `redraw()`, which lays out and draws what is shown.
   */
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    this.pan = new Pan(() => this.#moved());
    this.panes = [];
    this.open = new Set();
    this.fitted = false;
    new ResizeObserver(() => this.#resized()).observe(root);
    NARROW.addEventListener("change", () => {
      this.fitted = false;
      if (this.picture) actions.redraw();
      this.fitOnce();
    });
  }

  /** Shows a pane for each partitioner. */
  setPartitioners(partitioners) {
    this.panes = partitioners.map((partitioner) =>
      this.#pane(partitioner, partitioners.length > 1),
    );
    this.root.replaceChildren(...this.panes.map(({ column }) => column));
    this.root.dataset.count = String(partitioners.length);
    this.fitted = false;
    requestAnimationFrame(() => this.fitOnce());
  }

  #pane(partitioner, titled) {
    const drawn = svg("g");
    const root = el(
      "div.graph-pane",
      {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "graph",
        "aria-label": `Graph${titled ? ` under ${partitionerName(partitioner)}` : ""}. Arrow keys move it, plus and minus scale it; the outline lists what is in it.`,
        data: { partitioner },
      },
      svg("svg.graph-picture", { "aria-hidden": "true" }, drawn),
    );
    const title = el("p.graph-pane-title", {}, partitionerName(partitioner));
    const column = titled ? el("div.graph-titled", {}, title, root) : root;
    this.pan.listen(root);
    root.addEventListener("click", (event) => this.#clicked(event));
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { width, height } = root.getBoundingClientRect();
      const { chosen } = this;
      if (event.key === "Enter" && chosen !== undefined && this.graph.model.isGroup(chosen)) {
        this.actions.toggle(chosen);
      } else if (!this.pan.press(event, width, height)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    root.addEventListener("pointerover", (event) => this.#hover(event.target));
    root.addEventListener("pointerleave", () => this.#hover(null));
    return { column, root, drawn, drawing: new Drawing(drawn), partitioner };
  }

  #clicked(event) {
    if (this.pan.wasDrag) return;
    const at = event.target.closest("[data-item]");
    if (!at) {
      this.actions.clear();
      return;
    }
    const item = Number(at.dataset.item);
    const isFold = event.target.closest(".graph-fold") !== null;
    if (this.graph.model.isGroup(item) && (isFold || item === this.chosen)) {
      this.actions.toggle(item);
    } else this.actions.choose(item);
  }

  #hover(target) {
    const at = target?.closest?.("[data-item]");
    const item = at && !at.classList.contains("graph-open") ? Number(at.dataset.item) : undefined;
    if (item === this.hovered) return;
    this.hovered = item;
    this.#near();
  }

  /** Marks the edges that have a value of what is chosen, or pointed at. */
  #near() {
    const item = this.hovered ?? this.chosen;
    const uses = new Set();
    if (item !== undefined && !this.open.has(item)) {
      const { takes, gives } = this.graph.model.around(item);
      for (const use of takes) uses.add(use);
      for (const use of gives) uses.add(use);
    }
    for (const { root, drawing } of this.panes) {
      if (uses.size) root.dataset.focus = "";
      else delete root.dataset.focus;
      for (const { edge, element } of drawing.lines) {
        if (uses.size && edge.lists.some((list) => list.some((use) => uses.has(use))))
          element.dataset.near = "";
        else delete element.dataset.near;
      }
    }
  }

  /**
   * Lays a graph out.
   *
   * @param {object} graph `{model, values, layout}`.
   * @param {Set<number>} open the groups that are.
   * @param {object | null} hold `{item, x, y}`: what is to stay where it was.
   */
  lay(graph, open, hold = null) {
    this.graph = graph;
    this.open = open;
    this.picture = graph.layout.picture(open, NARROW.matches);
    const box = hold && this.picture.boxes.get(hold.item);
    if (box) this.pan.by((hold.x - box.x) * this.pan.scale, (hold.y - box.y) * this.pan.scale);
  }

  /** Where a group that is about to open or close stands. */
  holding(item, isOpened) {
    const box = this.picture.boxes.get(item);
    return box ? { item, x: box.x, y: box.y, isOpened } : null;
  }

  /** How many boxes there are, without the open groups. */
  get seen() {
    return [...this.picture.boxes.values()].filter((box) => !box.open).length;
  }

  /** Draws what was laid out: what is chosen, and what a search found. */
  draw({ chosen, matches = null }) {
    this.chosen = chosen;
    const { model, values, layout } = this.graph;
    const reaching =
      chosen === undefined || this.open.has(chosen) ? [] : layout.reaching(chosen, this.picture);
    for (const { drawing, partitioner } of this.panes) {
      drawing.draw(this.picture, { model, values, partitioner, chosen, matches, reaching });
    }
    this.#near();
    this.#moved();
  }

  /** Draws again what is said otherwise now. */
  refresh() {
    const { model, values } = this.graph;
    for (const { drawing, partitioner } of this.panes) {
      drawing.refresh({ model, values, partitioner, chosen: this.chosen });
    }
    if (this.chosen !== undefined || this.hovered !== undefined) this.#near();
  }

  #moved() {
    for (const { drawn } of this.panes) drawn.setAttribute("transform", this.pan.transform);
    this.root.dataset.far = this.pan.scale < 0.42 ? "1" : "";
  }

  #room() {
    const { width, height } = this.panes[0].root.getBoundingClientRect();
    return [width, height];
  }

  zoom(factor) {
    const [width, height] = this.#room();
    this.pan.zoom(factor, width / 2, height / 2);
  }

  /** Shows all of it; nothing smaller than `least`. */
  fit(least) {
    const [width, height] = this.#room();
    if (!width) return;
    const margin = width < 500 ? 12 : 24;
    const extent = { width: this.picture.width, height: this.picture.height };
    const most = width >= WIDE ? 1.5 : 1;
    const boxes = [...this.picture.boxes.values()];
    this.pan.fit({ x: 0, y: 0, ...extent }, width, height, { margin, least, most, boxes });
    this.#isFitted();
  }

  #isFitted() {
    this.fitted = true;
    this.fittedAt = this.pan.transform;
  }

  /** Shows all of it where nothing was shown before. */
  fitOnce() {
    if (this.fitted || !this.picture || !this.panes.length) return;
    if (this.wanted) this.fitTo(this.wanted);
    else this.fit(READABLE);
    if (this.chosen !== undefined) this.reveal(this.chosen);
  }

  #resized() {
    const [width, height] = this.panes.length ? this.#room() : [0, 0];
    if (!width || (this.width === width && this.height === height)) return;
    // What nobody has moved yet is fitted again where the legend takes room, or gives it back.
    const isFirst = !this.width;
    const isTaller = this.width === width && this.pan.transform === this.fittedAt;
    [this.width, this.height] = [width, height];
    if (isFirst || isTaller) this.fitted = false;
    this.fitOnce();
  }

  /** Moves as little as it takes for an item to be seen, or the group that it is in. */
  reveal(item) {
    const box = this.picture.boxes.get(this.graph.model.drawn(item, this.open));
    const [width, height] = this.#room();
    if (!box || !width) return;
    if (!this.fitted) this.fit();
    if (this.pan.scale < READABLE) {
      const middle = { x: box.x + box.width / 2, y: box.y + Math.min(box.height, 200) / 2 };
      const factor = 0.9 / this.pan.scale;
      this.pan.zoom(
        factor,
        middle.x * this.pan.scale + this.pan.x,
        middle.y * this.pan.scale + this.pan.y,
      );
    }
    this.pan.reveal(box.open ? { ...box, height: Math.min(box.height, 60) } : box, width, height);
  }

  /** Moves to an item that is out of sight, or to the group that it is in. */
  follow(item) {
    const box = this.picture.boxes.get(item);
    const [width, height] = this.#room();
    if (!box || !width) return;
    this.pan.reveal(box.open ? { ...box, height: Math.min(box.height, 60) } : box, width, height);
  }

  /** Shows what some items take, as large as it can be read, or its beginning; null for all. */
  fitTo(items) {
    this.wanted = items;
    if (!items) return;
    const boxes = items.map((item) => this.picture.boxes.get(item)).filter(Boolean);
    const [width, height] = this.#room();
    if (!boxes.length || !width) return;
    const x = Math.min(...boxes.map((box) => box.x));
    const y = Math.min(...boxes.map((box) => box.y));
    const right = Math.max(...boxes.map((box) => box.x + box.width));
    const bottom = Math.max(...boxes.map((box) => box.y + box.height));
    const box = { x, y, width: right - x, height: bottom - y };
    this.pan.fit(box, width, height, { margin: 40, least: READABLE });
    this.#isFitted();
  }

  /** Shows what was opened: all of it, or its top in its whole width. */
  focus(item) {
    const box = this.picture.boxes.get(item);
    const [width, height] = this.#room();
    if (!box || !width) return;
    const { pan } = this;
    const scale = Math.min(pan.scale, Math.max(READABLE, (width - 48) / box.width));
    if (scale < pan.scale) pan.zoom(scale / pan.scale, width / 2, height / 2);
    const tall = box.height * pan.scale > height - 48;
    const seen = tall ? { ...box, height: (height - 48) / pan.scale } : box;
    pan.reveal(seen, width, height, 24);
    if (box.width * pan.scale > width - 48) {
      pan.by((width - box.width * pan.scale) / 2 - (box.x * pan.scale + pan.x), 0);
    }
  }
}
