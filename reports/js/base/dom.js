// Elements made of plain values. Text only ever becomes text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element.
 *
 * @param {string} tag its name, with classes after dots: "span.muted".
 * @param {object} [properties] attributes; of `on` an object of event listeners, of `data` data
 *   attributes; what is null, undefined or false is left out.
 * @param {...any} children nodes and texts; arrays of them too.
 */
export function el(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElement(name), classes, properties, children);
}

/** The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElementNS(SVG, name), classes, properties, children);
}

/** A button that stands in a text as a word of it. */
export function button(words, run) {
  return el("button.more", { type: "button", on: { click: run } }, words);
}

/** The head of a table: one row of cells. */
export function tableHead(...cells) {
  return el("thead", {}, el("tr", {}, cells));
}

/** What stands below a view: a text and its tone each. */
export function remarks(notes) {
  return notes.map(([words, tone]) => el("p.note", { dir: "auto", data: { tone } }, words));
}

function filled(element, classes, properties, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "style") {
      for (const [property, text] of Object.entries(value)) {
        element.style.setProperty(property, text);
      }
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

/** Appends nodes and texts, arrays of them too; what is null, undefined or false is left out. */
export function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

/** The elements of a template that have a data-slot, by its value, and the whole as `root`. */
export function template(id) {
  const element = document.getElementById(id);
  const root = element ? element.content.cloneNode(true) : document.createDocumentFragment();
  const slots = { root };
  for (const slot of root.querySelectorAll("[data-slot]")) slots[slot.dataset.slot] = slot;
  return slots;
}

/** Text whose direction is its own, so that a name can't turn what stands around it. */
export function isolated(text, tag = "bdi") {
  return el(tag, {}, text);
}

/** Calls `work(more)` while nothing else is to do, until it says that it is done. */
export function whileIdle(work) {
  globalThis.requestIdleCallback?.((idle) => {
    if (!work(() => idle.timeRemaining() > 1)) whileIdle(work);
  });
}
