// The module's text under each partitioner: folded, searched, each name linked to where it is used.

import { part, Table } from "./data.js";
import { el } from "./dom.js";
import { count, partitionerName, whole } from "./format.js";
import { valueDetails } from "./ir_details.js";
import { Module } from "./ir_model.js";
import { Tensors } from "./ir_tensors.js";
import { TextPane } from "./ir_text.js";

/** Milliseconds without a key after which the count is read out. */
const QUIET = 600;

export async function mount(_root, context) {
  const { data, slots, state, shared } = context;
  const tensors = new Tensors(await part("tensors"), shared);
  const texts = data.modules.map((one) => new Text(one, shared, tensors));
  let text = null;
  let wanted = {};
  let matches = [];
  let matchSet = new Set();
  let again = false;

  const buttons = data.modules.map((one, at) =>
    el(
      "button.segment",
      {
        type: "button",
        on: {
          click: () =>
            state.set({ under: at ? one.partitioner : "", line: "", value: "", fold: "" }),
        },
      },
      partitionerName(one.partitioner),
      el("span.segment-count", {}, whole(texts[at].lineCount)),
    ),
  );
  slots.partitioner.append(...buttons);
  slots.partitioner.hidden = buttons.length < 2;

  const pane = new TextPane({
    line: (line) => ({
      number: text.number(line),
      text: text.module.lines[line],
      foldable: text.module.ends[line] > line,
      folded: wanted.folded.has(line),
      hidden: text.module.ends[line] - line - 1,
      current: line === wanted.line,
      match: matchSet.has(line),
      title: text.title(line),
      place: wanted.places ? text.place(line) : null,
    }),
    definition: (line, number) => text.module.definition(line, number),
    chosen: () => wanted.definition,
    choose: (definition) => {
      const address = text.module.address(definition);
      const again = definition === wanted.definition;
      state.set({ value: again ? "" : address }, { push: true });
    },
    toLine: (line) => state.set({ line: String(text.number(line)) }),
    fold: (line) => fold(line),
  });
  slots.text.append(pane.root);

  slots.search.addEventListener("input", () => state.set({ q: slots.search.value }));
  slots.search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      state.set({ q: "" });
      pane.element.focus();
    } else if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  slots.on.addEventListener("click", () => step(1));
  slots.back.addEventListener("click", () => step(-1));
  slots.places.addEventListener("change", () =>
    state.set({ places: slots.places.checked ? "" : "0" }),
  );
  slots.foldAll.addEventListener("click", () => foldAll());
  globalThis.requestIdleCallback?.(() => text?.haystacks());

  function fold(line) {
    const folded = new Set(wanted.folded);
    if (!folded.delete(line)) folded.add(line);
    keepFolded(folded);
  }

  function foldAll() {
    keepFolded(wanted.folded.size ? new Set() : new Set(text.functions));
  }

  function keepFolded(folded) {
    const all = text.functions;
    const whether =
      all.length > 1 && folded.size === all.length && all.every((at) => folded.has(at));
    const numbers = [...folded].sort((a, b) => a - b).map((line) => text.number(line));
    state.set({ fold: whether ? "all" : numbers.join(".") });
  }

  function step(by) {
    if (!matches.length) return;
    const now = wanted.line ?? -1;
    const next =
      by > 0
        ? (matches.find((line) => line > now) ?? matches[0])
        : (matches.findLast((line) => line < now) ?? matches.at(-1));
    state.set({ line: String(text.number(next)) });
  }

  let announcing = 0;
  function say() {
    const lines = count(text.lineCount, "line");
    const at = matches.indexOf(wanted.line);
    const which = at >= 0 ? `${whole(at + 1)} of ` : "";
    slots.count.textContent = wanted.q ? `${which}${count(matches.length, "line")} found` : lines;
    slots.on.disabled = slots.back.disabled = !matches.length;
    clearTimeout(announcing);
    if (wanted.q) announcing = setTimeout(() => context.announce(slots.count.textContent), QUIET);
  }

  function update({ under = "", q = "", line = "", value = "", fold: folds = "", places = "" }) {
    const before = wanted;
    const found = Math.max(
      0,
      data.modules.findIndex((one) => one.partitioner === under),
    );
    const fresh = text !== texts[found];
    text = texts[found];
    buttons.forEach((button, at) => {
      button.setAttribute("aria-pressed", String(at === found));
    });
    if (slots.search.value !== q) slots.search.value = q;
    slots.places.checked = places !== "0";
    slots.foldAll.textContent = folds ? "Unfold all" : "Fold all";
    const definition = value ? text.module.find(value) : -1;
    const number = Number(line);
    wanted = {
      q: q.trim(),
      line: number ? text.at(number) : definition >= 0 ? text.module.definedAt[definition] : null,
      definition,
      value,
      places: places !== "0",
      folds,
      folded: new Set(
        folds === "all"
          ? text.functions
          : folds
              .split(".")
              .filter(Boolean)
              .map((one) => text.foldAt(Number(one))),
      ),
    };
    if (fresh || wanted.q !== before.q) {
      matches = text.search(wanted.q);
      matchSet = new Set(matches);
      const first = matches.find((one) => one >= pane.firstLine()) ?? matches[0];
      if (wanted.q && first !== undefined && wanted.line === null) pane.later(first);
    }
    // What is looked at is not folded away.
    const goal = wanted.line !== before.line || fresh || again ? wanted.line : null;
    again = false;
    if (goal !== null) {
      for (const one of wanted.folded) {
        if (one < goal && goal < text.module.ends[one]) wanted.folded.delete(one);
      }
    }
    pane.show(text.module.visible(wanted.folded), { widest: text.widest, digits: text.digits });
    if (goal !== null) pane.reveal(goal);
    if (fresh || value !== before.value) showDetails();
    say();
  }

  function showDetails() {
    const { definition, value } = wanted;
    slots.details.hidden = !value;
    slots.split.dataset.open = String(Boolean(value));
    if (!value) return;
    const close = () => {
      state.set({ value: "" }, { push: true });
      pane.element.focus();
    };
    slots.details.replaceChildren(
      definition < 0
        ? el("p.missing", { dir: "auto" }, `No value of this module is called ${value}.`)
        : valueDetails(text, definition, { ...context, tensors, close }),
    );
    slots.details.scrollTop = 0;
  }

  return {
    update,
    shown() {
      again = true;
      pane.restore();
    },
    keys: [
      { keys: "/", words: "Search the text", run: () => slots.search.select() },
      { keys: "n", words: "Next match", run: () => step(1) },
      { keys: "N", words: "Last match", run: () => step(-1) },
      { keys: "z", words: "Fold or unfold all", run: foldAll },
      { keys: "Escape", words: "Close the details", run: () => state.set({ value: "" }) },
    ],
  };
}

/** A module's text, read when it is first shown. */
class Text {
  constructor(data, shared, tensors) {
    this.data = data;
    this.shared = shared;
    this.tensors = tensors;
    this.partitioner = data.partitioner;
    this.lines = data.text.split("\n");
    const wrapped = new Uint8Array(this.lines.length);
    let at = 0;
    for (const step of data.wrapped) {
      at += step;
      wrapped[at] = 1;
    }
    this.numbers = new Int32Array(this.lines.length);
    this.starts = [];
    for (let line = 0; line < this.lines.length; line += 1) {
      if (!wrapped[line]) this.starts.push(line);
      this.numbers[line] = wrapped[line] ? -this.starts.length : this.starts.length;
    }
    this.table = new Table({
      rows: this.lines.length,
      columns: { source: data.sources, scope: data.scopes, tensor: data.tensors },
    });
    this.read = null;
  }

  /** How many lines the module has as the compiler writes it. */
  get lineCount() {
    return this.starts.length;
  }

  get module() {
    this.read ??= new Module(this.lines);
    return this.read;
  }

  get widest() {
    this.most ??= this.lines.reduce((most, line) => Math.max(most, line.length), 0);
    return this.most;
  }

  get digits() {
    return String(this.starts.length).length;
  }

  /** The lines that functions begin at, where they can be folded. */
  get functions() {
    const found = [];
    const { ends, functions } = this.module;
    for (let line = 0; line < ends.length; line += 1) {
      if (ends[line] <= line || functions[line] < 0) continue;
      found.push(line);
      line = ends[line];
    }
    return found;
  }

  /** The number of a line in the module as it is written. */
  number(line) {
    return Math.abs(this.numbers[line] ?? 0);
  }

  /** The line with a number. */
  at(number) {
    return this.starts[Math.min(Math.max(number, 1), this.starts.length) - 1];
  }

  /** Where a line comes from, and its scope. */
  title(line) {
    const source = this.shared.source(this.table.get("source", line));
    return [this.table.get("scope", line), source].filter(Boolean).join("\n");
  }

  /** The row of the tensors that a definition is; -1 for none. */
  row(definition) {
    const line = this.module.definedAt[definition];
    const named = this.table.get("tensor", line);
    const own = this.module.names[definition];
    const isArgument = !this.lines[line].trimStart().startsWith(own);
    if (isArgument || named === "=") return this.tensors.row(this.module.address(definition));
    return this.tensors.row(named);
  }

  /** Where the value that a line defines is in the end, in few words. */
  place(line) {
    const { firstToken, tokens, definedAt, names } = this.module;
    const definition = tokens[firstToken[line]];
    if (definition === undefined || definition < 0 || definedAt[definition] !== line) return null;
    if (!this.lines[line].trimStart().startsWith(names[definition])) return null;
    return this.tensors.place(this.row(definition), this.partitioner);
  }

  /** The line with a number at which its region opens: the last piece of a long one. */
  foldAt(number) {
    let line = this.at(number);
    while (this.module.ends[line] <= line && this.number(line + 1) === this.number(line)) line += 1;
    return line;
  }

  /** What a search looks at, of each line as it is written. */
  haystacks() {
    this.hay ??= this.starts.map((line, at) => {
      const text = this.lines.slice(line, this.starts[at + 1]).join("\n");
      return `${text}\n${this.title(line)}`.toLowerCase();
    });
    return this.hay;
  }

  /** The lines that have all words of a query. */
  search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const found = [];
    this.haystacks().forEach((text, at) => {
      if (words.every((word) => text.includes(word))) found.push(this.starts[at]);
    });
    return found;
  }
}
