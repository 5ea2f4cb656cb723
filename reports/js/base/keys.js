// Keyboard shortcuts, and the overlay that lists them.

import { openDialog } from "./dialog.js";
import { el } from "./dom.js";

/** How long the second key of a sequence may take, in milliseconds. */
const PAUSE = 1200;

/** Shortcuts in groups. A shortcut is `{keys, words, run}`; `keys` is "/" or a sequence "g t". */
export class Keys {
  constructor() {
    this.groups = new Map();
    this.pending = "";
    this.since = 0;
  }

  /** Adds the shortcuts of a group; those that it had are gone. */
  set(group, shortcuts) {
    if (shortcuts.length) this.groups.set(group, shortcuts);
    else this.groups.delete(group);
  }

  /** Listens to the keys of a document. */
  listen(document) {
    document.addEventListener("keydown", (event) => this.press(event));
  }

  /** Runs the shortcut that a key press ends, if any. */
  press(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target) && event.key !== "Escape") return;
    if (event.target.closest?.("dialog")) return;
    const now = event.timeStamp;
    const before = now - this.since < PAUSE ? this.pending : "";
    const sequence = before ? `${before} ${event.key}` : event.key;
    this.pending = "";
    for (const wanted of [sequence, event.key]) {
      const shortcut = this.all().find((entry) => entry.keys === wanted);
      if (shortcut) {
        event.preventDefault();
        shortcut.run(event);
        return;
      }
      if (this.all().some((entry) => entry.keys.startsWith(`${wanted} `))) {
        this.pending = wanted;
        this.since = now;
        return;
      }
    }
  }

  all() {
    return [...this.groups.values()].flat();
  }

  /** Shows all of them. */
  help() {
    const groups = [...this.groups].map(([group, shortcuts]) =>
      el(
        "section",
        {},
        el("h3", {}, group),
        el(
          "dl",
          {},
          ...shortcuts.map(({ keys, words }) => [
            el("dt", {}, ...keys.split(" ").map((key) => el("kbd", {}, name(key)))),
            el("dd", {}, words),
          ]),
        ),
      ),
    );
    openDialog("help", "Keyboard shortcuts", el("div.help-groups", {}, ...groups));
  }
}

/**
 * What Escape does in a search: it closes the details, then clears the search, then leaves it.
 *
 * @param {State} state the address.
 * @param {string[]} opened the parameters that open details.
 * @param {HTMLInputElement} input the search, which the parameter `q` holds.
 * @param {() => void} leave gives the focus to what was searched.
 */
export function escapeSearch(state, opened, input, leave) {
  if (opened.some((name) => state.params[name])) {
    state.set(Object.fromEntries(opened.map((name) => [name, ""])), { push: true });
  } else if (input.value) state.set({ q: "" });
  else leave();
}

function isTyping(target) {
  const tag = target?.tagName;
  if (tag === "INPUT") return !["checkbox", "radio", "range", "button"].includes(target.type);
  return tag === "TEXTAREA" || tag === "SELECT" || Boolean(target?.isContentEditable);
}

const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

function name(key) {
  return NAMES[key] ?? key;
}
