// The module's text under each partitioner, as lowered and after propagation: folded, searched, each
// name linked to where it is used.

import { part } from "../base/data.js";
import { el, whileIdle } from "../base/dom.js";
import { count, partitionerName, whole } from "../base/format.js";
import { escapeSearch } from "../base/keys.js";
import { press, segments } from "../base/segments.js";
import { valueDetails } from "./details.js";
import { Text } from "./lines.js";
import { Tensors } from "./tensors.js";
import { TextPane } from "./text.js";

/** Milliseconds without a key after which the count is read out. */
const QUIET = 600;

/** The texts of a module, in order; the first is what the address says without a word. */
const STAGES = ["lowered", "propagated"];

export async function mount(_root, context) {
  const { data, slots, state, shared } = context;
  const tensors = new Tensors(await part("tensors"), shared);
  const known = new Map();
  let text = null;
  let wanted = {};
  let matches = [];
  let matchSet = new Set();
  let again = false;

  const partitioners = data.modules.map((lowered) => lowered.partitioner);
  segments(
    slots.stage,
    STAGES.map((stage) => [stage, stage[0].toUpperCase() + stage.slice(1)]),
    (at) => other({ at }),
  );
  segments(
    slots.partitioner,
    partitioners.map((name) => [name, partitionerName(name)]),
    (under) => other({ under }),
  );
  slots.partitioner.hidden = partitioners.length < 2;

  /** Shows another text at the same value, or at the one that is in sight. */
  function other({ under = wanted.under, at = wanted.at }) {
    if (under === wanted.under && at === wanted.at) return;
    const patch = { under: under === partitioners[0] ? "" : under, at: at === STAGES[0] ? "" : at };
    state.set({ ...patch, ...carried(), fold: "" });
  }

  /** What is looked at, by the name that it has in every text. */
  function carried() {
    const none = { value: "", line: "", of: "", near: "" };
    if (!text) return { ...none, of: wanted.of };
    const { definition, of } = wanted;
    const chosen = definition >= 0 ? text.tensorNames(definition)[0] : of;
    if (chosen) return { ...none, of: chosen };
    if (definition >= 0) return none;
    const from = wanted.line ?? pane.firstLine();
    for (let line = from; line < Math.min(from + 80, text.lines.length); line += 1) {
      const [name] = text.tensorNames(text.defined(line));
      if (name) return { ...none, near: name };
    }
    return none;
  }

  /** The text that is wanted; a promise of it where it is not unpacked yet. */
  function textOf(under, at) {
    const key = `${at} ${under}`;
    if (!known.has(key)) {
      const about = {
        partitioner: under,
        stage: at,
        isFirst: at === STAGES[0] && under === partitioners[0],
      };
      const read = (content) => {
        const result =
          content?.text === undefined
            ? missing(content)
            : new Text(content, about, shared, tensors);
        known.set(key, result);
        return result;
      };
      if (at === STAGES[0]) read(data.modules.find((lowered) => lowered.partitioner === under));
      else known.set(key, part(`ir-propagated-${under}`).then(read));
    }
    return known.get(key);
  }

  /** Why there is no text. */
  function missing(content) {
    const said = context.report.unavailable.find((stage) => stage.stage === "propagated");
    return { unavailable: content?.unavailable ?? said?.reason ?? "It was not propagated." };
  }

  const pane = new TextPane({
    line: (line) => ({
      number: text.number(line),
      isMore: text.isMore(line),
      text: text.module.lines[line],
      foldable: text.module.ends[line] > line,
      folded: wanted.folded.has(line),
      hidden: text.module.ends[line] - line - 1,
      current: line === wanted.line,
      match: matchSet.has(line),
      title: text.title(line),
      marks: text.marks(line),
      place: wanted.places ? text.place(line) : null,
    }),
    definition: (line, number) => text.module.definition(line, number),
    chosen: () => wanted.definition,
    choose: (definition) => {
      const address = text.module.address(definition);
      const again = definition === wanted.definition;
      state.set({ value: again ? "" : address, of: "", near: "" }, { push: true });
    },
    toLine: (line) => state.set({ line: String(text.number(line)), near: "" }),
    fold: (line) => fold(line),
  });
  slots.text.append(pane.root);

  slots.search.addEventListener("input", () => state.set({ q: slots.search.value }));
  slots.search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      escapeSearch(state, ["value", "of"], slots.search, () => pane.element.focus());
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

  function fold(line) {
    const folded = new Set(wanted.folded);
    if (!folded.delete(line)) folded.add(line);
    keepFolded(folded);
  }

  function foldAll() {
    if (!text) return;
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
    state.set({ line: String(text.number(next)), near: "" });
  }

  let announcing = 0;
  function say() {
    const lines = [count(text.lineCount, "line"), ...text.changes].join(" · ");
    const at = matches.indexOf(wanted.line);
    const which = at >= 0 ? `${whole(at + 1)} of ` : "";
    slots.count.textContent = wanted.q ? `${which}${count(matches.length, "line")} found` : lines;
    slots.on.disabled = slots.back.disabled = !matches.length;
    clearTimeout(announcing);
    if (wanted.q) announcing = setTimeout(() => context.announce(slots.count.textContent), QUIET);
  }

  function update(params) {
    const under = partitioners.includes(params.under) ? params.under : partitioners[0];
    const at = STAGES.includes(params.at) ? params.at : STAGES[0];
    press(slots.partitioner, under);
    press(slots.stage, at);
    const answer = textOf(under, at);
    if (answer instanceof Promise) {
      slots.count.textContent = "Reading …";
      answer.then(() => context.state.view === "ir" && update(context.state.params));
      return;
    }
    const why = answer.unavailable ? el("p.missing", { dir: "auto" }, answer.unavailable) : null;
    if (slots.text.firstChild !== pane.root || why) slots.text.replaceChildren(why ?? pane.root);
    if (why) {
      text = null;
      matches = [];
      wanted = { under, at, of: params.of ?? "", folded: new Set() };
      slots.count.textContent = "";
      showDetails();
    } else show(answer, under, at, params);
  }

  function show(answer, under, stage, params) {
    const { q = "", line = "", value = "", of = "", near = "", places = "" } = params;
    const { fold: folds = "" } = params;
    const before = wanted;
    const fresh = text !== answer;
    text = answer;
    if (fresh) whileIdle((more) => answer.prepare(more));
    if (slots.search.value !== q) slots.search.value = q;
    slots.places.checked = places !== "0";
    slots.foldAll.textContent = folds ? "Unfold all" : "Fold all";
    const definition = value ? text.module.find(value) : of ? text.definitionOf(of) : -1;
    const shown = definition < 0 && near ? text.definitionOf(near) : definition;
    const number = Number(line);
    wanted = {
      under,
      at: stage,
      q: q.trim(),
      line: number ? text.at(number) : shown >= 0 ? text.module.definedAt[shown] : null,
      definition,
      value: value || of,
      of,
      places: places !== "0",
      folds,
      folded: new Set(
        folds === "all"
          ? text.functions
          : folds
              .split(".")
              .filter(Boolean)
              .map((number) => text.foldAt(Number(number))),
      ),
    };
    if (fresh || wanted.q !== before.q) {
      matches = text.search(wanted.q);
      matchSet = new Set(matches);
      const first = matches.find((match) => match >= pane.firstLine()) ?? matches[0];
      if (wanted.q && first !== undefined && wanted.line === null) pane.later(first);
    }
    // What is looked at is not folded away.
    const goal = wanted.line !== before.line || fresh || again ? wanted.line : null;
    again = false;
    if (goal !== null) {
      for (const fold of wanted.folded) {
        if (fold < goal && goal < text.module.ends[fold]) wanted.folded.delete(fold);
      }
    }
    pane.show(text.module.visible(wanted.folded), { widest: text.widest, digits: text.digits });
    if (goal !== null) pane.reveal(goal);
    if (fresh || wanted.value !== before.value) showDetails();
    say();
  }

  /** What is said of a value that is not in the text. */
  function nothing(value) {
    return wanted.at === STAGES[0]
      ? `No value of this module is called ${value}.`
      : `${value} is not in the module any more: it was folded away, or never had a sharding.`;
  }

  function showDetails() {
    const { definition, value = "" } = wanted;
    slots.details.hidden = !value;
    slots.split.dataset.open = String(Boolean(value));
    if (!value) return;
    const close = () => {
      state.set({ value: "", of: "" }, { push: true });
      pane.element.focus();
    };
    slots.details.replaceChildren(
      definition < 0
        ? el("p.missing", { dir: "auto" }, nothing(value))
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
      { keys: "N", words: "Previous match", run: () => step(-1) },
      { keys: "z", words: "Fold or unfold all", run: foldAll },
      {
        keys: "p",
        words: "As lowered, or after propagation",
        run: () => other({ at: STAGES[1 - STAGES.indexOf(wanted.at)] }),
      },
      { keys: "Escape", words: "Close the details", run: () => state.set({ value: "", of: "" }) },
    ],
  };
}
