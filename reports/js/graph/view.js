// The graph: groups that open, Shardy and GSPMD side by side, what is chosen in words beside it.

import { el, whileIdle } from "../base/dom.js";
import { count, partitionerName, whole } from "../base/format.js";
import { sourceLink } from "../base/link.js";
import { press, segments } from "../base/segments.js";
import { graphDetails } from "./details.js";
import { edgeRows, legend, signRows } from "./legend.js";
import { ROOT } from "./model.js";
import { lanes, oneLevelMore, openAtFirst, readOpen, writeOpen } from "./open.js";
import { outline } from "./outline.js";
import { GraphPanes } from "./panes.js";
import { openGraphs } from "./read.js";
import { GraphSearch } from "./search.js";

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
  return new GraphView(context, await openGraphs(context)).view();
}

class GraphView {
  constructor(context, graphs) {
    const { data, report, shared, slots, state, announce } = context;
    Object.assign(this, { data, shared, slots, state, announce, graphs });
    this.#show(false);
    // What a search looks at is put together before the first key, while nothing else is to do.
    whileIdle((more) => this.graph.names.prepare(more));
    this.panes = new GraphPanes(slots.panes, {
      toggle: (item) => this.#toggle(item),
      choose: (item) => this.#choose(item),
      clear: () => this.params.node && state.set({ node: "" }),
      redraw: () => this.#redraw(),
    });
    this.search = new GraphSearch(slots, {
      graph: () => this.graph,
      choose: (item) => this.#choose(item),
      settled: (q) => state.set({ q }),
      close: () => this.#closeDetails(),
      leave: () => this.panes.panes[0].root.focus(),
      announce,
    });
    this.partitioners = this.graph.values.partitioners;
    this.#controls(report);
  }

  view() {
    return {
      update: (params) => this.#update(params),
      shown: () => this.panes.fitOnce(),
      keys: [
        { keys: "/", words: "Search", run: () => this.slots.search.focus() },
        { keys: "e", words: "Open one level more", run: () => this.#more() },
        { keys: "c", words: "Close all groups", run: () => this.#setOpen(lanes(this.graph.model)) },
        { keys: "0", words: "Show all of it", run: () => this.panes.fit() },
        { keys: "o", words: "Outline", run: () => this.#toggleOutline() },
        ...["shardy", "gspmd", "both"]
          .slice(0, this.partitioners.length > 1 ? 3 : 0)
          .map((mode, at) => ({
            keys: String(at + 1),
            words: mode === "both" ? "Both, side by side" : partitionerName(mode),
            run: () => this.state.set({ show: mode }),
          })),
        { keys: "n", words: "The next value that differs", run: () => this.#nextDifference(1) },
        { keys: "Escape", words: "Close the details", run: () => this.#closeDetails() },
      ],
    };
  }

  /** Closes the details; whether there were any. */
  #closeDetails() {
    if (!this.state.params.node) return false;
    this.state.set({ node: "" });
    return true;
  }

  /** Draws all ops from now on, or leaves out those that only change a value's form. */
  #show(all) {
    this.graph = this.graphs.of(all);
  }

  // What the page around the picture does.

  #controls(report) {
    const { slots, state } = this;
    const modes = this.partitioners.length > 1 ? [...this.partitioners, "both"] : [];
    this.modes = modes;
    slots.modes.hidden = !modes.length;
    segments(
      slots.modes,
      modes.map((mode) => [mode, mode === "both" ? "Both" : partitionerName(mode)]),
      (show) => state.set({ show }),
    );
    slots.outline.addEventListener("change", () => this.#toggleOutline());
    slots.all.addEventListener("change", () => state.set({ all: slots.all.checked ? "1" : "" }));
    slots.in.addEventListener("click", () => this.panes.zoom(1.3));
    slots.out.addEventListener("click", () => this.panes.zoom(1 / 1.3));
    slots.fit.addEventListener("click", () => this.panes.fit());
    slots.more.addEventListener("click", () => this.#more());
    slots.less.addEventListener("click", () => this.#setOpen(lanes(this.graph.model)));
    const rows = [...edgeRows(report.meshes), ...signRows(this.data, this.partitioners)];
    legend(slots.legend, rows, this.data.notes);
  }

  #toggleOutline() {
    this.state.set({ outline: this.params.outline ? "" : "1" });
  }

  // What the address says.

  #update(params) {
    const before = this.params ?? {};
    this.params = params;
    const all = Boolean(params.all);
    if (all !== this.graph.model.all) {
      this.#show(all);
      this.open = null;
    }
    this.slots.all.checked = all;
    const item = params.node ? this.graph.names.item(params.node) : undefined;
    if (params.node && item === undefined && !all) {
      if (this.graphs.of(true).names.item(params.node) !== undefined) {
        this.state.set({ all: "1" });
        return;
      }
    }
    const open = this.#read(params.open);
    // A link to something opens what is around it.
    const isOther = item !== undefined && params.node !== before.node;
    if (isOther) {
      const around = this.graph.model.path(item).slice(0, -1);
      if (around.some((group) => !open.has(group))) {
        this.state.set({ open: writeOpen(this.graph.model, [...open, ...around]) });
        return;
      }
    }
    const hold = this.hold;
    this.hold = null;
    this.#draw(params, open, item, hold);
    if (hold?.isOpened) this.panes.focus(hold.item);
    else this.panes.fitOnce();
    this.#side(params.node, item);
    this.#outline(params.outline);
    if (isOther) this.panes.reveal(item);
    if (!this.search.isTyping) this.slots.search.value = params.q ?? "";
  }

  /** Lays out and draws what is not as it was. */
  #draw(params, open, item, hold) {
    const { model } = this.graph;
    const isOpened = this.openText !== params.open || !this.open;
    const mode = this.modes.includes(params.show)
      ? params.show
      : (this.modes[0] ?? this.partitioners[0]);
    const isSame = mode === this.mode && !isOpened;
    const { q = "" } = params;
    if (q !== this.sought || isOpened) {
      const items = this.search.items(q);
      this.matches = items && new Set(items.map((match) => model.drawn(match, open)));
    }
    const wasChosen = this.chosen;
    const wasSought = this.sought;
    Object.assign(this, { open, openText: params.open, chosen: item, sought: q });
    if (mode !== this.mode) this.#setMode(mode);
    if (!isSame) {
      const ops = model.childrenOf.get(ROOT).reduce((sum, lane) => sum + model.ops[lane], 0);
      this.#redraw(hold);
      this.slots.count.textContent = `${count(ops, "op")}, ${whole(this.panes.seen)} boxes`;
    } else if (item !== wasChosen || q !== wasSought) {
      this.panes.draw({ chosen: item, matches: this.matches });
    }
  }

  /** Lays out and draws what is shown. */
  #redraw(hold = null) {
    this.panes.lay(this.graph, this.open, hold);
    this.panes.draw({ chosen: this.chosen, matches: this.matches });
  }

  /** The open groups; without a word of it, as many as are well seen at once. */
  #read(text) {
    if (text !== undefined) return readOpen(this.graph.model, text);
    this.first ??= openAtFirst(this.graph.model);
    return this.first;
  }

  #setOpen(open, hold = null) {
    this.hold = hold;
    if (!hold) this.panes.fitted = false;
    this.state.set({ open: writeOpen(this.graph.model, [...open]) });
  }

  #toggle(item) {
    const open = new Set(this.open);
    if (open.has(item)) open.delete(item);
    else open.add(item);
    this.#setOpen(open, this.panes.holding(item, open.has(item)));
    this.announce(`${this.graph.model.title(item)} is ${open.has(item) ? "open" : "closed"}`);
  }

  #more() {
    this.#setOpen(oneLevelMore(this.graph.model, this.panes.picture, this.open));
  }

  #choose(item) {
    this.state.set({ node: this.graph.names.name(item), q: this.search.text });
  }

  #nextDifference(step) {
    const { model, values } = this.graph;
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
    press(this.slots.modes, mode);
    this.panes.setPartitioners(mode === "both" ? this.partitioners : [mode]);
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
      source: (words) => sourceLink(this.state, words),
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
      model: this.graph.model,
      values: this.graph.values,
      shared: this.shared,
      partitioner: this.panes.panes[0].partitioner,
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
    const list = outline(
      { ...this.graph, partitioner: this.panes.panes[0].partitioner },
      this.open,
      this.chosen,
      { choose: (item) => this.#choose(item), toggle: (item) => this.#toggle(item) },
    );
    tree.replaceChildren(list);
    tree.scrollTop = scrollTop;
    const again = hadFocus && list.querySelector(`[data-item="${focused}"]`);
    if (again) again.focus();
    else list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }
}
