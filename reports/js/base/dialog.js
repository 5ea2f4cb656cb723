// A dialog over the page: a title, a button that closes it, and what it shows.

import { el } from "./dom.js";

/**
 * Opens a dialog, which is gone when it is closed.
 *
 * @param {string} name its class beside that of all, and what its title is found by.
 * @param {string} title what stands above it.
 * @param {...Node} content what it shows.
 * @returns {HTMLDialogElement}
 */
export function openDialog(name, title, ...content) {
  const dialog = el(
    `dialog.dialog.${name}`,
    { "aria-labelledby": `${name}-title` },
    el(
      "div.dialog-head",
      {},
      el("h2", { id: `${name}-title` }, title),
      el(
        "button.icon-button",
        { type: "button", "aria-label": "Close", on: { click: () => dialog.close() } },
        "×",
      ),
    ),
    ...content,
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
