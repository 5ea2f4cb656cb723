// Links from one view to another, and to lines of the source.

import { el } from "./dom.js";
import { format } from "./state.js";

/** A link to a view that Back returns from; from a comparison to that of its first program. */
export function link(state, view, params, words, side = "a") {
  if (!state.views.includes(view)) {
    const href = state.sides ? format(view, params, side) : null;
    return href ? el("a", { href }, el("bdi", {}, words)) : el("bdi", {}, words);
  }
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.go(view, params);
  };
  return el("a", { href: state.href(view, params), on: { click: open } }, el("bdi", {}, words));
}

/** A source line, as `models/mlp.py:98`, which leads to the line in the view of the source. */
export function sourceLink(state, source) {
  return el("code.source", {}, link(state, "source", { line: source }, source));
}

/** A text in which a source line is named, with a link there. */
export function withLine(state, words, source) {
  const at = source ? words.indexOf(source) : -1;
  if (at < 0) return [words];
  return [words.slice(0, at), sourceLink(state, source), words.slice(at + source.length)];
}
