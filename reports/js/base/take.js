// Taking things along: rows and tables as CSV or Markdown, pictures as SVG or PNG, paper.

import { openDialog } from "./dialog.js";
import { button, el } from "./dom.js";
import { GridTable } from "./table.js";

/** A picture is wider and higher than this, in pixels; what is smaller is a sign. */
const PICTURE = 80;

/** Around a picture, in its units. */
const MARGIN = 8;

/** Pixels of a PNG for each of the screen. */
const SHARP = 2;

/** What of its style a picture takes along. */
const STYLE = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-style",
  "text-anchor",
  "dominant-baseline",
  "display",
  "visibility",
];

/** Shows what of a view can be taken along. */
export function takeAlong(main, announce) {
  const status = el("p.take-said", { role: "status" });
  const say = (words) => {
    status.textContent = words;
    announce(words);
  };
  openDialog("take", "Take along", el("ul.take-list", {}, items(main, say)), status);
}

function items(main, say) {
  const copied = (rows, form) =>
    copy(form(rows)).then(() => say(`${rows.length - 1} rows copied.`));
  return [
    ...tables(main).map(({ name, rows, chosen }) =>
      item(
        name,
        chosen ? button("Copy the row", () => copied(chosen(), markdown)) : null,
        button("Copy as CSV", () => copied(rows(), csv)),
        button("Copy as Markdown", () => copied(rows(), markdown)),
      ),
    ),
    ...pictures(main).map(({ name, element }) =>
      item(
        name,
        button("Save as SVG", () => save(picture(element).text, `${name}.svg`, "image/svg+xml")),
        button("Save as PNG", async () => save(await png(element), `${name}.png`, "image/png")),
      ),
    ),
    item(
      "This view",
      button("Print", () => {
        document.querySelector("dialog.take").close();
        window.print();
      }),
    ),
  ];
}

function item(name, ...buttons) {
  return el("li.take-item", {}, el("bdi.take-name", {}, name), el("span", {}, buttons));
}

// --- tables --------------------------------------------------------------------------------------

/** The tables of a view that are seen: a name, `rows()` with the heads first, `chosen()`. */
function tables(main) {
  const grids = [...main.querySelectorAll(".grid")].filter(isSeen).map((element) => {
    const grid = GridTable.of(element);
    const chosen = grid.chosen();
    return {
      name: element.getAttribute("aria-label"),
      rows: () => grid.texts(grid.lines),
      chosen: chosen === undefined ? null : () => grid.texts([chosen]),
    };
  });
  const plain = [...main.querySelectorAll("table")].filter(isSeen).map((element) => ({
    name: nameOf(element) || "Table",
    rows: () =>
      [...element.rows].map((row) => [...row.cells].map((cell) => clean(cell.textContent))),
    chosen: null,
  }));
  return [...grids, ...plain];
}

function isSeen(element) {
  return element.checkVisibility?.() ?? element.offsetParent !== null;
}

/** What stands above something: its own name, or the title of its part of the page. */
function nameOf(element) {
  const titled = element.closest("figure, article, section, details");
  const above = element.parentElement.closest("[aria-label]")?.getAttribute("aria-label") ?? "";
  const name =
    element.getAttribute("aria-label") ||
    clean(titled?.querySelector("figcaption, h2, h3, summary")?.textContent ?? "") ||
    above.split(".")[0];
  return name.slice(0, 80);
}

function clean(text) {
  return text.replace(/\s+/g, " ").trim();
}

/** Comma-separated values; a cell that a spreadsheet would take for a formula stays a text. */
export function csv(rows) {
  const cell = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) && !/^-?[\d.,]+$/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** A table in Markdown, whatever is in its cells. */
export function markdown(rows) {
  const cell = (text) => text.replace(/[\\`*_{}[\]<>#|~$]/g, "\\$&");
  const line = (row) => `| ${row.map(cell).join(" | ")} |`;
  const [head, ...body] = rows;
  return `${[line(head), `|${" --- |".repeat(head.length)}`, ...body.map(line)].join("\n")}\n`;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page on a disk may have no clipboard of its own.
    const area = el("textarea.unseen", { "aria-hidden": "true" });
    area.value = text;
    document.querySelector("dialog.take").append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// --- pictures ------------------------------------------------------------------------------------

function pictures(main) {
  return [...main.querySelectorAll("svg")]
    .filter((element) => {
      const { width, height } = element.getBoundingClientRect();
      return width > PICTURE && height > PICTURE && !element.parentElement.closest("svg");
    })
    .map((element, at) => ({ element, name: nameOf(element) || `Picture ${at + 1}` }));
}

/** A picture as a file of its own: all that is drawn, not only what is in sight. */
export function picture(element) {
  const copyOf = element.cloneNode(true);
  styles(element, copyOf);
  const shown = element.getBoundingClientRect();
  let size = { width: shown.width, height: shown.height };
  if (!element.hasAttribute("viewBox")) {
    const group = element.querySelector("g");
    const { x, y, width, height } = (group ?? element).getBBox();
    if (group) copyOf.querySelector("g").removeAttribute("transform");
    copyOf.querySelector("g")?.style.removeProperty("transform");
    size = { width: width + 2 * MARGIN, height: height + 2 * MARGIN };
    copyOf.setAttribute("viewBox", `${x - MARGIN} ${y - MARGIN} ${size.width} ${size.height}`);
  }
  copyOf.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copyOf.setAttribute("width", size.width);
  copyOf.setAttribute("height", size.height);
  copyOf.style.background = getComputedStyle(document.body).backgroundColor;
  return { text: new XMLSerializer().serializeToString(copyOf), ...size };
}

/** Styles are the page's, and are written into the elements. */
function styles(from, to) {
  const style = getComputedStyle(from);
  for (const name of STYLE) to.style.setProperty(name, style.getPropertyValue(name));
  to.removeAttribute("class");
  for (let at = 0; at < from.children.length; at += 1) styles(from.children[at], to.children[at]);
}

async function png(element) {
  const { text, width, height } = picture(element);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = el("canvas", { width: width * SHARP, height: height * SHARP });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function save(content, name, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = el("a", { href: address, download: name.replace(/[^\w.() -]+/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
