// The graph: groups that open, Shardy and GSPMD side by side, what is chosen in words beside it.

import { module, part } from "./data.js";
import { el, svg } from "./dom.js";
import { count, partitionerName, whole } from "./format.js";
import { graphDetails } from "./graph_details.js";
import { draw, sizeOf } from "./graph_draw.js";
import { Layout } from "./graph_layout.js";
import { GraphModel, ROOT } from "./graph_model.js";
import { GraphNames } from "./graph_names.js";
import { outline } from "./graph_outline.js";
import { Pan } from "./graph_pan.js";
import { GraphValues } from "./graph_values.js";
import { axisColour, axisName } from "./spec.js";

/** At first groups of a program of at most so many ops are open while there is little to see. */
const SMALL = 150;
const AT_FIRST = 36;

/** "One level more" stops before there are more things than this. */
const AT_MOST = 1500;

/** At first nothing is smaller than this, even where not all of it is seen then. */
const READABLE = 0.6;

/** From this width on the legend is open at first. */
const WIDE = 1500;

/** Milliseconds without a key after which a search is in the address. */
const PAUSE = 250;

/** So much of what a search finds is listed. */
const LISTED = 30;

/** In a tensor's details: the way to it in the graph. */
export function detail(root, tensor, { report, state }) {
  if (!report.views.some((view) => view.name === "graph")) return false;
  const isNamed = tensor.section === "argument" || tensor.section === "result";
  const node = isNamed ? tensor.name : tensor.ssa;
  if (!node) return false;
  const open = (event) => {
    event.preventDefault();
    state.go("graph", { node });
  };
  root.append(
    el("a", { href: state.href("graph", { node }), on: { click: open } }, "Open in the graph"),
  );
  return true;
}

export async function mount(_root, context) {
  const [dagre, tensors] = await Promise.all([module("dagre.js"), part("tensors")]);
  return new GraphView(context, dagre, tensors).view();
}

class GraphView {
  constructor(context, dagre, tensors) {
    const { data, report, shared, slots, state, announce } = context;
    Object.assign(this, { data, shared, slots, state, announce });
    this.read = (all) => {
      const model = new GraphModel(data, all);
      const values = new GraphValues(model, tensors, shared, report.meshes);
      const sizes = new Map();
      const size = (item) => {
        if (!sizes.has(item)) sizes.set(item, sizeOf(model, values, item));
        return sizes.get(item);
      };
      const names = new GraphNames(model, values);
      return { model, values, names, layout: new Layout(model, dagre, size) };
    };
    this.graphs = new Map();
    this.#show(false);
    // What a search looks at is put together before the first key, when nothing else is to do.
    globalThis.requestIdleCallback?.(() => this.names.search("\u0000"));
    this.pan = new Pan(() => this.#moved());
    this.panes = [];
    this.fitted = false;
    this.partitioners = this.values.partitioners;
    this.#controls(report);
  }

  view() {
    return {
      update: (params) => this.#update(params),
      shown: () => this.#fitOnce(),
      keys: [
        { keys: "/", words: "Search", run: () => this.slots.search.focus() },
        { keys: "e", words: "Open one level more", run: () => this.#more() },
        { keys: "c", words: "Close all groups", run: () => this.#setOpen(new Set(this.#lanes())) },
        { keys: "0", words: "Show all of it", run: () => this.#fit() },
        { keys: "o", words: "Outline", run: () => this.#toggleOutline() },
        ...["shardy", "gspmd", "both"]
          .slice(0, this.partitioners.length > 1 ? 3 : 0)
          .map((mode, at) => ({
            keys: String(at + 1),
            words: mode === "both" ? "Both, side by side" : partitionerName(mode),
            run: () => this.state.set({ show: mode }),
          })),
        { keys: "n", words: "The next value that differs", run: () => this.#nextDifference(1) },
        { keys: "Escape", words: "Close the details", run: () => this.state.set({ node: "" }) },
      ],
    };
  }

  /** Draws all ops from now on, or leaves out those that only change a value's form. */
  #show(all) {
    if (!this.graphs.has(all)) this.graphs.set(all, this.read(all));
    Object.assign(this, this.graphs.get(all));
  }

  #lanes() {
    return this.model.childrenOf.get(ROOT).filter((lane) => this.model.childrenOf.get(lane).length);
  }

  // What the page around the picture does.

  #controls(report) {
    const { slots, state } = this;
    const modes = this.partitioners.length > 1 ? [...this.partitioners, "both"] : [];
    this.modes = modes;
    slots.modes.hidden = !modes.length;
    slots.modes.append(
      ...modes.map((mode) =>
        el(
          "button.segment",
          { type: "button", data: { mode }, on: { click: () => this.state.set({ show: mode }) } },
          mode === "both" ? "Both" : partitionerName(mode),
        ),
      ),
    );
    slots.outline.addEventListener("change", () => this.#toggleOutline());
    slots.all.addEventListener("change", () => state.set({ all: slots.all.checked ? "1" : "" }));
    slots.in.addEventListener("click", () => this.#zoom(1.3));
    slots.out.addEventListener("click", () => this.#zoom(1 / 1.3));
    slots.fit.addEventListener("click", () => this.#fit());
    slots.more.addEventListener("click", () => this.#more());
    slots.less.addEventListener("click", () => this.#setOpen(new Set(this.#lanes())));
    slots.search.addEventListener("input", () => this.#searched());
    slots.search.addEventListener("keydown", (event) => this.#searchKey(event));
    slots.search.addEventListener("blur", () => setTimeout(() => this.#closeFound(), 200));
    slots.search.addEventListener("focus", () => slots.search.value && this.#searched());
    this.#legend(report);
    new ResizeObserver(() => this.#resized()).observe(slots.panes);
  }

  #legend(report) {
    const axes = [...new Set(report.meshes.flatMap((mesh) => Object.keys(mesh.axes)))];
    const stroke = (colour, dash) =>
      svg(
        "svg.graph-legend-line",
        { viewBox: "0 0 28 8", "aria-hidden": "true" },
        svg("path", {
          d: "M0 4H28",
          "stroke-width": 2.4,
          style: { stroke: colour },
          "stroke-dasharray": dash,
        }),
      );
    const rows = [
      ...axes.map((axis) => [stroke(axisColour(axis)), ["sharded on ", axisName(axis)]]),
      axes.length > 1
        ? [
            svg(
              "svg.graph-legend-line",
              { viewBox: "0 0 28 8", "aria-hidden": "true" },
              svg("path", {
                d: "M0 4H28",
                "stroke-width": 2.4,
                style: { stroke: axisColour(axes[0]) },
              }),
              svg("path", {
                d: "M0 4H28",
                "stroke-width": 2.4,
                "stroke-dasharray": "5 5",
                style: { stroke: axisColour(axes[1]) },
              }),
            ),
            ["sharded on both"],
          ]
        : null,
      [stroke("var(--graph-plain)"), ["replicated"]],
      [stroke("var(--muted)", "1 4"), ["not known, or folded away"]],
      [
        el("span.graph-legend-sign", { data: { kind: "moves" } }, "⇄"),
        ["has to move, as the op's sharding rule has it (predicted)"],
      ],
      Object.keys(this.data.sent).length
        ? [
            el("span.graph-legend-sign", { data: { kind: "sent" } }, "all-reduce"),
            ["a collective of the compiled program"],
          ]
        : [
            el("span.graph-legend-sign", { data: { kind: "sums" } }, "Σ"),
            ["sums of parts to be added up (predicted)"],
          ],
      this.partitioners.length > 1
        ? [
            el("span.graph-legend-sign", { data: { kind: "differs" } }, "≠"),
            ["Shardy and GSPMD put it in different places"],
          ]
        : null,
    ].filter(Boolean);
    this.slots.legend.open = globalThis.innerWidth >= WIDE;
    this.slots.legend.append(
      el(
        "ul",
        {},
        rows.map(([sign, words]) => el("li", {}, sign, el("span", {}, words))),
      ),
      ...(this.data.notes ?? []).map((note) => el("p.muted", {}, note)),
    );
  }

  #toggleOutline() {
    this.state.set({ outline: this.params.outline ? "" : "1" });
  }

  // What the address says.

  #update(params) {
    const before = this.params ?? {};
    this.params = params;
    const mode = this.modes.includes(params.show)
      ? params.show
      : (this.modes[0] ?? this.partitioners[0]);
    const all = Boolean(params.all);
    if (all !== this.model.all) {
      this.#show(all);
      this.open = null;
    }
    this.slots.all.checked = all;
    const item = params.node ? this.names.item(params.node) : undefined;
    if (params.node && item === undefined && !all) {
      if (!this.graphs.has(true)) this.graphs.set(true, this.read(true));
      if (this.graphs.get(true).names.item(params.node) !== undefined) {
        this.state.set({ all: "1" });
        return;
      }
    }
    let open = this.#read(params.open);
    // A link to something opens what is around it.
    if (item !== undefined && params.node !== before.node) {
      const around = this.model.path(item).slice(0, -1);
      if (around.some((group) => !open.has(group))) {
        open = new Set([...open, ...around]);
        this.state.set({ open: this.#written(open) });
        return;
      }
    }
    const changed = this.openText !== params.open || !this.open || mode !== this.mode;
    this.open = open;
    this.openText = params.open;
    this.chosen = item;
    if (mode !== this.mode) this.#setMode(mode);
    const hold = this.hold;
    this.hold = null;
    // What a shared address searches for is found again.
    if ((params.q ?? "") !== (before.q ?? "") && this.slots.search !== document.activeElement) {
      this.found = params.q
        ? new Set(this.names.search(params.q).map((one) => this.model.drawn(one, this.open)))
        : null;
    }
    if (changed) this.#lay(hold);
    if (changed || this.drawn !== this.#drawing()) this.#draw();
    if (hold?.isOpened) this.#focus(hold.item);
    else this.#fitOnce();
    this.#side(params.node, item);
    this.#outline(params.outline);
    if (item !== undefined && params.node !== before.node) this.#reveal(item);
    if (this.slots.search !== document.activeElement) this.slots.search.value = params.q ?? "";
  }

  /** The open groups; without a word of it, as many as are well seen at once. */
  #read(text) {
    const { model } = this;
    if (text === undefined) {
      this.first ??= this.#atFirst();
      return this.first;
    }
    const open = new Set(this.#lanes());
    for (const one of text.split(",")) {
      const group = model.firstGroup + Number(one);
      if (/^\d+$/.test(one) && model.isGroup(group)) open.add(group);
    }
    return open;
  }

  #written(open) {
    const lanes = new Set(this.#lanes());
    const { firstGroup } = this.model;
    const numbers = [...open]
      .filter((group) => !lanes.has(group))
      .map((group) => group - firstGroup);
    return numbers.sort((a, b) => a - b).join(",") || "none";
  }

  #atFirst() {
    const { model } = this;
    const open = new Set(this.#lanes());
    let seen = [...open].reduce((sum, lane) => sum + model.childrenOf.get(lane).length, 0);
    const waiting = [...open].flatMap((lane) => model.childrenOf.get(lane));
    const ops = [...open].reduce((sum, lane) => sum + model.ops[lane], 0);
    if (ops > SMALL) return open;
    while (waiting.length) {
      // What is called alike is open or closed together, the smallest first.
      const alike = new Map();
      for (const item of waiting.splice(0)) {
        if (!model.isGroup(item) || model.groupKind(item) === "call") continue;
        const name = model.title(item).replace(/\d+/g, "#");
        const known = alike.get(name) ?? { items: [], more: 0 };
        known.items.push(item);
        known.more += model.childrenOf.get(item).length - 1;
        alike.set(name, known);
      }
      for (const { items, more } of [...alike.values()].sort((a, b) => a.more - b.more)) {
        if (seen + more > AT_FIRST) break;
        seen += more;
        for (const item of items) {
          open.add(item);
          waiting.push(...model.childrenOf.get(item));
        }
      }
    }
    return open;
  }

  #setOpen(open, hold = null) {
    this.hold = hold;
    if (!hold) this.fitted = false;
    this.state.set({ open: this.#written(open) });
  }

  #toggle(item) {
    const open = new Set(this.open);
    if (open.has(item)) open.delete(item);
    else open.add(item);
    const box = this.picture.boxes.get(item);
    this.#setOpen(open, box ? { item, x: box.x, y: box.y, isOpened: open.has(item) } : null);
    this.announce(`${this.model.title(item)} is ${open.has(item) ? "open" : "closed"}`);
  }

  #more() {
    const { model } = this;
    const closed = [...this.picture.boxes].filter(
      ([item, box]) => model.isGroup(item) && !box.open,
    );
    const open = new Set(this.open);
    let seen = this.picture.boxes.size;
    for (const [item] of closed.sort(([a], [b]) => model.ops[a] - model.ops[b])) {
      seen += model.childrenOf.get(item).length;
      if (seen > AT_MOST) break;
      open.add(item);
    }
    this.#setOpen(open);
  }

  #choose(item) {
    this.state.set({ node: this.names.name(item), q: this.slots.search.value.trim() });
  }

  #nextDifference(step) {
    const { model, values } = this;
    const all = [];
    for (let node = 0; node < model.nodeCount; node += 1) {
      if (values.different[node] && !model.hidden[node]) all.push(node);
    }
    if (!all.length) {
      this.announce("No value is sharded differently.");
      return;
    }
    const now = this.chosen === undefined || model.isGroup(this.chosen) ? -1 : this.chosen;
    const next = all.find((node) => node > now) ?? all[0];
    this.#choose(step > 0 ? next : all.at(-1));
  }

  // The picture.

  #setMode(mode) {
    this.mode = mode;
    for (const button of this.slots.modes.children) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    }
    const shown = mode === "both" ? this.partitioners : [mode];
    this.panes = shown.map((partitioner) => this.#pane(partitioner, shown.length > 1));
    this.slots.panes.replaceChildren(...this.panes.map(({ root }) => root));
    this.slots.panes.dataset.count = String(shown.length);
    this.fitted = false;
    requestAnimationFrame(() => this.#fitOnce());
  }

  #pane(partitioner, titled) {
    const drawing = svg("g");
    const root = el(
      "div.graph-pane",
      {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "graph",
        "aria-label": `Graph${titled ? ` under ${partitionerName(partitioner)}` : ""}. Arrow keys move it, plus and minus scale it; the outline lists what is in it.`,
        data: { partitioner },
      },
      svg("svg.graph-picture", { "aria-hidden": "true" }, drawing),
      titled ? el("p.graph-pane-title", {}, partitionerName(partitioner)) : null,
    );
    this.pan.listen(root);
    root.addEventListener("click", (event) => this.#clicked(event));
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { width, height } = root.getBoundingClientRect();
      if (event.key === "Enter" && this.chosen !== undefined && this.model.isGroup(this.chosen)) {
        this.#toggle(this.chosen);
      } else if (!this.pan.press(event, width, height)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    root.addEventListener("pointerover", (event) => this.#hover(event.target));
    root.addEventListener("pointerleave", () => this.#hover(null));
    return { root, drawing, partitioner, lines: [] };
  }

  #clicked(event) {
    if (this.pan.wasDrag) return;
    const at = event.target.closest("[data-item]");
    if (!at) {
      if (this.params.node) this.state.set({ node: "" });
      return;
    }
    const item = Number(at.dataset.item);
    const isFold = event.target.closest(".graph-fold") !== null;
    if (this.model.isGroup(item) && (isFold || item === this.chosen)) this.#toggle(item);
    else this.#choose(item);
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
      const { takes, gives } = this.model.around(item);
      for (const use of takes) uses.add(use);
      for (const use of gives) uses.add(use);
    }
    for (const { root, lines } of this.panes) {
      if (uses.size) root.dataset.focus = "";
      else delete root.dataset.focus;
      for (const { edge, element } of lines) {
        if (uses.size && edge.lists.some((list) => list.some((use) => uses.has(use))))
          element.dataset.near = "";
        else delete element.dataset.near;
      }
    }
  }

  #lay(hold) {
    this.picture = this.layout.picture(this.open);
    const box = hold && this.picture.boxes.get(hold.item);
    if (box) {
      // What was opened stays where it was.
      this.pan.by((hold.x - box.x) * this.pan.scale, (hold.y - box.y) * this.pan.scale);
    }
    const seen = [...this.picture.boxes.values()].filter((one) => !one.open).length;
    const ops = this.model.childrenOf
      .get(ROOT)
      .reduce((sum, lane) => sum + this.model.ops[lane], 0);
    this.slots.count.textContent = `${count(ops, "op")}, ${whole(seen)} boxes`;
  }

  /** What the drawing depends on, beside what is open. */
  #drawing() {
    return `${this.chosen} ${[...(this.found ?? [])]}`;
  }

  #draw() {
    this.drawn = this.#drawing();
    for (const pane of this.panes) {
      pane.lines = draw(pane.drawing, this.picture, {
        model: this.model,
        values: this.values,
        partitioner: pane.partitioner,
        chosen: this.chosen,
        found: this.found,
        reaching:
          this.chosen === undefined || this.open.has(this.chosen)
            ? []
            : this.layout.reaching(this.chosen, this.picture),
      });
    }
    this.#near();
    this.#moved();
  }

  #moved() {
    for (const { drawing } of this.panes) drawing.setAttribute("transform", this.pan.transform);
    this.slots.panes.dataset.far = this.pan.scale < 0.42 ? "1" : "";
  }

  #room() {
    const { width, height } = this.panes[0].root.getBoundingClientRect();
    return [width, height];
  }

  #zoom(factor) {
    const [width, height] = this.#room();
    this.pan.zoom(factor, width / 2, height / 2);
  }

  #fit(least) {
    const [width, height] = this.#room();
    if (!width) return;
    const margin = width < 500 ? 12 : 24;
    this.pan.fit({ x: 0, y: 0, ...this.#extent() }, width, height, { margin, least });
    this.fitted = true;
  }

  #extent() {
    return { width: this.picture.width, height: this.picture.height };
  }

  #fitOnce() {
    if (this.fitted || !this.picture || !this.panes.length) return;
    this.#fit(READABLE);
    const item = this.chosen;
    if (item !== undefined) this.#reveal(item);
  }

  #resized() {
    const [width, height] = this.panes.length ? this.#room() : [0, 0];
    if (!width || (this.width === width && this.height === height)) return;
    const first = !this.width;
    [this.width, this.height] = [width, height];
    if (first) this.fitted = false;
    this.#fitOnce();
  }

  #reveal(item) {
    const box = this.picture.boxes.get(this.model.drawn(item, this.open));
    const [width, height] = this.#room();
    if (!box || !width) return;
    if (!this.fitted) this.#fit();
    if (this.pan.scale < 0.6) {
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

  /** Shows what was opened: all of it, or its top in its whole width. */
  #focus(item) {
    const box = this.picture.boxes.get(item);
    const [width, height] = this.#room();
    if (!box || !width) return;
    const { pan } = this;
    const scale = Math.min(pan.scale, Math.max(0.5, (width - 48) / box.width));
    if (scale < pan.scale) pan.zoom(scale / pan.scale, width / 2, height / 2);
    const tall = box.height * pan.scale > height - 48;
    const seen = tall ? { ...box, height: (height - 48) / pan.scale } : box;
    pan.reveal(seen, width, height, 24);
    if (box.width * pan.scale > width - 48) {
      pan.by((width - box.width * pan.scale) / 2 - (box.x * pan.scale + pan.x), 0);
    }
  }

  // Beside it.

  #side(name, item) {
    const { side, body } = this.slots;
    side.hidden = !name;
    body.dataset.side = name ? "1" : "";
    if (!name) {
      side.replaceChildren();
      return;
    }
    if (item === undefined) {
      side.replaceChildren(
        el("p.missing", {}, "Nothing in this graph is called ", el("bdi", {}, name), "."),
      );
      return;
    }
    const actions = {
      choose: (other) => this.#choose(other),
      toggle: (other) => this.#toggle(other),
      close: () => this.state.set({ node: "" }),
      tensorLink: (key, words) =>
        el(
          "a.graph-button",
          {
            href: this.state.href("tensors", { tensor: key }),
            on: {
              click: (event) => {
                event.preventDefault();
                this.state.go("tensors", { tensor: key });
              },
            },
          },
          words,
        ),
    };
    const context = {
      model: this.model,
      values: this.values,
      shared: this.shared,
      partitioner: this.panes[0].partitioner,
    };
    side.replaceChildren(graphDetails(item, context, actions, this.open.has(item)));
    side.scrollTop = 0;
  }

  #outline(wanted) {
    const { tree, body, outline: tick } = this.slots;
    tick.checked = Boolean(wanted);
    tree.hidden = !wanted;
    body.dataset.outline = wanted ? "1" : "";
    if (!wanted) {
      tree.replaceChildren();
      return;
    }
    const hadFocus = tree.contains(document.activeElement);
    const focused = hadFocus ? document.activeElement.dataset.item : null;
    const { scrollTop } = tree;
    const made = outline(
      { model: this.model, values: this.values, partitioner: this.panes[0].partitioner },
      this.open,
      this.chosen,
      { choose: (item) => this.#choose(item), toggle: (item) => this.#toggle(item) },
    );
    tree.replaceChildren(made);
    tree.scrollTop = scrollTop;
    const again = hadFocus && made.querySelector(`[data-item="${focused}"]`);
    if (again) again.focus();
    else made.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }

  // Search.

  #searched() {
    const text = this.slots.search.value;
    this.results = this.names.search(text);
    this.at = -1;
    this.found = text.trim()
      ? new Set(this.results.map((item) => this.model.drawn(item, this.open)))
      : null;
    this.#listFound(text);
    // The address, and with it the picture, follows when nothing more is typed.
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.state.set({ q: text.trim() }), PAUSE);
  }

  #listFound(text) {
    const { found } = this.slots;
    found.hidden = !text.trim();
    const { results, model, values } = this;
    const rows = results.slice(0, LISTED).map((item, number) => {
      const around = model
        .path(item)
        .slice(0, -1)
        .map((at) => model.title(at))
        .join(" › ");
      return el(
        "li",
        { data: number === this.at ? { at: "" } : {} },
        el(
          "button",
          { type: "button", on: { click: () => this.#pick(number) } },
          el("bdi", {}, model.title(item)),
          model.isGroup(item)
            ? null
            : el("span.muted", {}, ` ${model.nodes.type(model.node(item))}`),
          values.different[item] ? el("span.graph-differs", {}, " ≠") : null,
          el("span.graph-found-path", {}, el("bdi", {}, around)),
        ),
      );
    });
    const more = results.total - rows.length;
    if (!results.length) rows.push(el("li.muted", {}, "Nothing in the graph has all of this."));
    else if (more > 0) rows.push(el("li.muted", {}, `and ${whole(more)} more`));
    found.replaceChildren(...rows);
  }

  #pick(number) {
    clearTimeout(this.typing);
    const item = this.results?.[number];
    if (item === undefined) return;
    this.at = number;
    this.#listFound(this.slots.search.value);
    this.#choose(item);
    const where = `${number + 1} of ${whole(this.results.total)}`;
    this.announce(`${this.model.title(item)}, ${where}`);
  }

  #searchKey(event) {
    const { search } = this.slots;
    if (event.key === "Enter" || event.key === "ArrowDown")
      this.#pick(Math.min(this.at + 1, this.results?.length - 1));
    else if (event.key === "ArrowUp") this.#pick(Math.max(0, this.at - 1));
    else if (event.key === "Escape") {
      search.value = "";
      this.#searched();
      this.panes[0].root.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #closeFound() {
    if (!this.slots.found.contains(document.activeElement)) this.slots.found.hidden = true;
  }
}
