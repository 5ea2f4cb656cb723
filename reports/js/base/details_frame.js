// What the details of a thing begin with, beside whatever they are of: its name, a button, facts.

import { el } from "./dom.js";

/**
 * The heading of details.
 *
 * @param {any} name what they are of.
 * @param {() => void} close is called by the button.
 * @param {...any} below what stands below the name.
 */
export function detailsHead(name, close, ...below) {
  return el(
    "header.details-head",
    {},
    el("h2.details-name", {}, name),
    closeButton("Close the details", close),
    ...below,
  );
}

/** The button that closes something at its side. */
function closeButton(words, close) {
  return el(
    "button.icon-button",
    { type: "button", "aria-label": words, title: "Close (Esc)", on: { click: close } },
    "×",
  );
}

/** Facts by name, texts isolated from what is around them; what is null or empty is left out. */
export function factList(facts) {
  return el(
    "dl.pairs",
    {},
    facts
      .filter(([, value]) => value)
      .map(([name, value]) => [
        el("dt", {}, name),
        el("dd", {}, typeof value === "string" ? el("bdi", {}, value) : value),
      ]),
  );
}
