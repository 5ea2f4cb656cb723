// Search in the graph: what is found while one types, listed below the field.

import { el } from "../base/dom.js";
import { whole } from "../base/format.js";

/** Milliseconds without a key after which a search is in the address. */
const PAUSE = 250;

/** So much of what a search finds is listed. */
const LISTED = 30;

export class GraphSearch {
  /**
   * @param {object} slots `search`, the field, and `list`, the list.
   * @param {object} owner `graph()` is `{model, values, names}`; `choose(item)`, `settled(text)`
   *   when nothing more is typed, `leave()` and `announce(words)`.
   */
  constructor({ search, list }, owner) {
    Object.assign(this, { search, list, owner });
    search.addEventListener("input", () => this.#typed());
    search.addEventListener("keydown", (event) => this.#key(event));
    search.addEventListener("blur", () => setTimeout(() => this.#close(), 200));
    search.addEventListener("focus", () => search.value && this.#typed());
  }

  /** Whether somebody is typing. */
  get isTyping() {
    return this.search === document.activeElement;
  }

  get text() {
    return this.search.value.trim();
  }

  /** The items that a text finds; null where nothing is looked for. */
  items(text) {
    return text ? this.owner.graph().names.search(text) : null;
  }

  #typed() {
    this.results = this.items(this.text) ?? [];
    this.at = -1;
    this.#list();
    // The address, and with it the picture, follows when nothing more is typed.
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.owner.settled(this.text), PAUSE);
  }

  #list() {
    const { results } = this;
    this.list.hidden = !this.text;
    const rows = results.slice(0, LISTED).map((item, number) => this.#row(item, number));
    const more = (results.total ?? 0) - rows.length;
    if (!results.length) rows.push(el("li.muted", {}, "Nothing in the graph has all of this."));
    else if (more > 0) rows.push(el("li.muted", {}, `and ${whole(more)} more`));
    this.list.replaceChildren(...rows);
  }

  #row(item, number) {
    const { model, values } = this.owner.graph();
    const around = model.path(item).slice(0, -1);
    return el(
      "li",
      { data: number === this.at ? { at: "" } : {} },
      el(
        "button",
        { type: "button", on: { click: () => this.#pick(number) } },
        el("bdi", {}, model.title(item)),
        model.isGroup(item) ? null : el("span.muted", {}, ` ${model.nodes.type(model.node(item))}`),
        values.different[item] ? el("span.graph-differs", {}, " ≠") : null,
        el(
          "span.graph-found-path",
          {},
          el("bdi", {}, around.map((at) => model.title(at)).join(" › ")),
        ),
      ),
    );
  }

  #pick(number) {
    clearTimeout(this.typing);
    const item = this.results?.[number];
    if (item === undefined) return;
    this.at = number;
    this.#list();
    this.owner.choose(item);
    const where = `${number + 1} of ${whole(this.results.total)}`;
    this.owner.announce(`${this.owner.graph().model.title(item)}, ${where}`);
  }

  #key(event) {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      this.#pick(Math.min(this.at + 1, this.results?.length - 1));
    } else if (event.key === "ArrowUp") this.#pick(Math.max(0, this.at - 1));
    else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      // The details are closed first.
      if (this.owner.close()) return;
      if (!this.search.value) this.owner.leave();
      this.search.value = "";
      this.#typed();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #close() {
    if (!this.list.contains(document.activeElement)) this.list.hidden = true;
  }
}
