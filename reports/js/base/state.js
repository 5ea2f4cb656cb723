// What is shown is what the address says: #VIEW?NAME=VALUE&NAME=VALUE.

/** The view and the parameters of an address's part after the #. */
export function parse(hash) {
  const text = hash.replace(/^#\/?/, "");
  const [view, query = ""] = split(text, "?");
  const params = {};
  for (const pair of query.split("&")) {
    const [name, value = ""] = split(pair, "=");
    if (name) params[decoded(name)] = decoded(value);
  }
  return { view: decoded(view), params };
}

/** The side of a comparison whose view an address names: "a", "b", or "" for the comparison. */
function sideOf(hash) {
  return /^#([ab])\//.exec(hash)?.[1] ?? "";
}

/**
 * The part of an address after the #, of a view of a side of a comparison or of a page alone;
 * parameters that are empty, null or false are left out.
 */
export function format(view, params = {}, side = "") {
  const pairs = Object.entries(params)
    .filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
    .map(([name, value]) => `${encodeURIComponent(name)}=${encoded(String(value))}`);
  return `#${side ? `${side}/` : ""}${encoded(view)}${pairs.length ? `?${pairs.join("&")}` : ""}`;
}

function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

// Names of tensors stay readable: brackets, quotes and slashes need no escape after the #.
function encoded(text) {
  return encodeURIComponent(text.toWellFormed?.() ?? text)
    .replace(/%(?:5B|5D|2F|3A|2C|40|24|3D)/g, decodeURIComponent)
    .replace(/%20/g, "+");
}

function decoded(text) {
  const spaced = text.replace(/\+/g, " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced; // Somebody cut it short.
  }
}

/** The state of the page. Listeners are called with it after each change. */
export class State {
  /**
   * @param {Window} window whose address it is.
   * @param {string[]} views the names of the views; the first is shown where none is named.
   * @param {object} [compared] of a comparison: `sides`, and of which `side` the views are.
   */
  constructor(window, views, { sides = false, side = "" } = {}) {
    this.window = window;
    this.views = views;
    this.sides = sides;
    this.side = side;
    this.listeners = new Set();
    this.last = new Map();
    this.#read();
    window.addEventListener("hashchange", () => this.#changed());
    window.addEventListener("popstate", () => this.#changed());
  }

  #read() {
    const { view, params } = this.#parsed(this.window.location.hash);
    const known = this.views.includes(view);
    this.view = known ? view : this.views[0];
    this.params = known ? params : {};
    this.unknown = known ? "" : view;
    this.shown = this.window.location.hash;
  }

  #parsed(hash) {
    return parse(this.side ? hash.replace(/^#[ab]\//, "#") : hash);
  }

  #changed() {
    if (this.window.location.hash === this.shown) return;
    // Another side is other data: the page begins anew.
    if (this.sides && sideOf(this.window.location.hash) !== this.side) {
      this.window.location.reload();
      return;
    }
    this.last.set(this.view, this.params);
    this.#read();
    this.#tell();
  }

  #tell() {
    for (const listener of this.listeners) listener(this);
  }

  /** Calls `listener(state)` after each change. */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** The address of a view, as it was last seen, or with these parameters. */
  href(view, params) {
    const own = view === this.view ? this.params : this.last.get(view);
    return format(view, params ?? own ?? {}, this.side);
  }

  /** Shows a view; Back returns from there. */
  go(view, params) {
    this.#move(this.href(view, params), "pushState");
  }

  /** Changes parameters of this view; with `push`, Back undoes it. */
  set(patch, { push = false } = {}) {
    const next = format(this.view, { ...this.params, ...patch }, this.side);
    this.#move(next, push ? "pushState" : "replaceState");
  }

  #move(hash, method) {
    if (hash === this.shown) return;
    try {
      this.window.history[method](null, "", hash);
    } catch {
      this.window.location.hash = hash; // A sandboxed frame, or too many changes a second.
    }
    this.last.set(this.view, this.params);
    const { view, params } = this.#parsed(hash);
    this.view = view;
    this.params = params;
    this.unknown = "";
    this.shown = this.window.location.hash;
    this.#tell();
  }
}
