// A row of buttons of which one is pressed.

import { el } from "./dom.js";
import { whole } from "./format.js";

/**
 * Fills an element with the buttons of a choice.
 *
 * @param {Array} entries of each its value, its words, and the number beside them, if there is one.
 * @param {function} choose what happens when one is pressed, given its value.
 */
export function segments(slot, entries, choose) {
  slot.append(
    ...entries.map(([value, words, number]) =>
      el(
        "button.segment",
        { type: "button", data: { value }, on: { click: () => choose(value) } },
        words,
        number === undefined ? null : el("span.segment-count", {}, whole(number)),
      ),
    ),
  );
}

/** Presses the button of a value, and only it. */
export function press(slot, value) {
  for (const button of slot.children) {
    button.setAttribute("aria-pressed", String(button.dataset.value === value));
  }
}
