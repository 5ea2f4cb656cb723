// Links from one view to another, and to lines of the source.

import { el } from "./dom.js";

/** A link to a view that Back returns from. */
export function link(state, view, params, words) {
  if (!state.views.includes(view)) return el("bdi", {}, words);
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
