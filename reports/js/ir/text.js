// The pane of text: only the lines in sight are elements.

import { el } from "../base/dom.js";
import { whole } from "../base/format.js";
import { spec } from "../base/spec.js";
import { marked, tokens } from "./model.js";

/** Lines drawn above and below what is in sight. */
const BEYOND = 12;

/** On paper at most this many lines. */
const PRINTED = 2000;

/** Room for where a value ends, in characters. */
const PLACE = 48;

/** What is said where one points at a sharding. */
const CHANGES = {
  added: "Propagation added this sharding.",
  changed: "Something else was written here before propagation.",
};

export class TextPane {
  /**
   * @param {object} options `line(line)` is what to know of a line; `definition(line, number)` of
   *   its names; `chosen()` the chosen definition; `choose`, `toLine` and `fold` are told of clicks.
   */
  constructor(options) {
    this.options = options;
    this.lines = [];
    this.drawn = new Map();
    this.body = el("div.ir-body", {});
    this.element = el(
      "div.ir-pane",
      {
        role: "region",
        tabindex: "0",
        "aria-label": "Text of the module",
        on: {
          scroll: () => this.#schedule(),
          keydown: (event) => this.#key(event),
          click: (event) => this.#clicked(event),
        },
      },
      this.body,
    );
    this.root = this.element;
    this.observer = new ResizeObserver(() => this.refresh());
    this.observer.observe(this.element);
    window.addEventListener("beforeprint", () => {
      if (this.element.isConnected) this.#draw(0, PRINTED);
    });
    window.addEventListener("afterprint", () => this.refresh());
  }

  /** Shows these lines; `widest` is how many characters the longest has. */
  show(lines, { widest, digits }) {
    this.lines = lines;
    this.element.style.setProperty("--digits", String(digits));
    this.body.style.minWidth = `calc(${widest + PLACE}ch + var(--gutter))`;
    this.#measure();
    this.refresh();
  }

  #measure() {
    const height = Number.parseFloat(getComputedStyle(this.element).lineHeight);
    this.height = Number.isFinite(height) && height > 0 ? height : 20;
    this.body.style.height = `${this.lines.length * this.height}px`;
  }

  /** Draws what is in sight again. */
  refresh() {
    if (this.element.isConnected) this.#measure();
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.#draw();
    if (this.goal !== undefined && this.element.clientHeight) {
      const { goal } = this;
      this.goal = undefined;
      this.reveal(goal);
    }
  }

  /** Scrolls to where it was before it was taken out of the page. */
  restore() {
    this.element.scrollTop = this.kept ?? 0;
    this.refresh();
  }

  /** The first line in sight. */
  firstLine() {
    return this.lines[Math.ceil(this.element.scrollTop / (this.height ?? 20))] ?? 0;
  }

  /** Brings a line into sight when the lines are next shown. */
  later(line) {
    this.goal = line;
  }

  /** Brings a line into sight, or the one that it is folded into. */
  reveal(line) {
    if (!this.element.clientHeight) {
      this.goal = line;
      return;
    }
    let at = this.lines.findIndex((start) => start >= line);
    if (at < 0) at = this.lines.length - 1;
    else if (this.lines[at] > line) at -= 1;
    const top = at * this.height;
    const room = this.element.clientHeight;
    const from = this.element.scrollTop;
    if (top < from + this.height || top > from + room - 2 * this.height) {
      this.element.scrollTop = Math.max(0, top - room / 3);
    }
    this.refresh();
  }

  #schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.element.isConnected) this.kept = this.element.scrollTop;
      this.#draw();
    });
  }

  #draw(from, to) {
    const top = this.element.scrollTop;
    const room = this.element.clientHeight;
    const first = from ?? Math.max(0, Math.floor(top / this.height) - BEYOND);
    const last = Math.min(this.lines.length, to ?? Math.ceil((top + room) / this.height) + BEYOND);
    for (const [at, row] of this.drawn) {
      if (at >= first && at < last) continue;
      row.remove();
      this.drawn.delete(at);
    }
    const fragment = document.createDocumentFragment();
    for (let at = first; at < last; at += 1) {
      if (this.drawn.has(at)) continue;
      const row = this.#row(at);
      this.drawn.set(at, row);
      fragment.append(row);
    }
    this.body.append(fragment);
  }

  #row(at) {
    const line = this.lines[at];
    const known = this.options.line(line);
    const data = { line: String(line) };
    if (known.current) data.current = "";
    if (known.match) data.match = "";
    return el(
      "div.ir-line",
      { data, title: known.title, style: { transform: `translateY(${at * this.height}px)` } },
      el("span.ir-gutter", { "aria-hidden": "true" }, known.isMore ? "" : whole(known.number)),
      known.foldable
        ? el(
            "button.ir-fold",
            {
              type: "button",
              tabindex: "-1",
              "aria-expanded": String(!known.folded),
              "aria-label": known.folded ? "Unfold" : "Fold",
            },
            "",
          )
        : el("span.ir-fold", { "aria-hidden": "true" }),
      el("code", { dir: "ltr" }, this.#code(known.text, line, known.marks)),
      known.folded ? el("span.ir-folded", {}, `… ${whole(known.hidden)} lines }`) : null,
      known.place
        ? el("span.ir-place", { "aria-hidden": "true" }, "→ ", spec(known.place.short, "span"))
        : null,
    );
  }

  #code(text, line, marks = []) {
    const chosen = this.options.chosen();
    let number = 0;
    const piece = ([kind, words]) => {
      if (kind !== "value") return kind ? el(`span.ir-${kind}`, {}, words) : words;
      const definition = this.options.definition(line, number);
      number += 1;
      if (definition < 0) return el("span.ir-value", {}, words);
      const data = { value: String(definition) };
      if (definition === chosen) data.chosen = "";
      return el("span.ir-value", { data }, words);
    };
    return marked(tokens(text), marks).map(({ change, pieces }) =>
      change
        ? el("mark.ir-change", { data: { change }, title: CHANGES[change] }, pieces.map(piece))
        : pieces.map(piece),
    );
  }

  #clicked(event) {
    if (String(document.getSelection())) return; // Text is being copied.
    const row = event.target.closest(".ir-line");
    if (!row) return;
    const line = Number(row.dataset.line);
    const value = event.target.closest("[data-value]");
    if (event.target.closest("button.ir-fold")) this.options.fold(line);
    else if (value) this.options.choose(Number(value.dataset.value));
    else this.options.toLine(line);
  }

  /** Up and down go from line to line; Enter chooses the first name of the line. */
  #key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const current = this.lines.findIndex((line) => this.options.line(line).current);
    const go = (at) => {
      const line = this.lines[Math.min(Math.max(at, 0), this.lines.length - 1)];
      this.options.toLine(line);
    };
    const next = (by) => {
      const number = current < 0 ? -1 : this.options.line(this.lines[current]).number;
      let at = current < 0 ? this.lines.indexOf(this.firstLine()) : current + by;
      while (this.lines[at] !== undefined && this.options.line(this.lines[at]).number === number)
        at += by;
      go(at);
    };
    const line = this.lines[current];
    const moves = {
      ArrowDown: () => next(1),
      ArrowUp: () => next(-1),
      Home: () => go(0),
      End: () => go(this.lines.length - 1),
      Enter: () => {
        const definition = line === undefined ? -1 : this.options.definition(line, 0);
        if (definition >= 0) this.options.choose(definition);
      },
      " ": () => line !== undefined && this.options.line(line).foldable && this.options.fold(line),
    };
    const run = moves[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  }
}
