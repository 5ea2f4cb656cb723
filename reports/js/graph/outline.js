// The graph as a tree of groups and ops: for the keyboard, for those who can't see it, and to look
// something up.

import { el } from "../base/dom.js";
import { whole } from "../base/format.js";
import { spec } from "../base/spec.js";
import { ROOT } from "./model.js";

/** So many children of a group are listed; a search finds the rest. */
const LISTED = 400;

/** The tree; `actions` are `choose(item)` and `toggle(item)`. */
export function outline(context, open, chosen, actions) {
  const rows = [];
  const list = (group, depth) => {
    const children = context.model.childrenOf.get(group);
    for (const child of children.slice(0, LISTED)) {
      rows.push(row(child, depth, context, open, chosen, actions));
      if (open.has(child)) list(child, depth + 1);
    }
    if (children.length > LISTED) {
      rows.push(
        el(
          "li.graph-row.muted",
          { role: "none", style: { "--depth": String(depth) } },
          `and ${whole(children.length - LISTED)} more`,
        ),
      );
    }
  };
  list(ROOT, 0);
  const tree = el("ul", { role: "tree", "aria-label": "Groups and ops" }, rows);
  const items = [...tree.querySelectorAll("[role=treeitem]")];
  const current =
    items.find((treeItem) => treeItem.getAttribute("aria-selected") === "true") ?? items[0];
  if (current) current.tabIndex = 0;
  tree.addEventListener("keydown", (event) => press(event, actions));
  return tree;
}

function row(item, depth, context, open, chosen, actions) {
  const { model, values, partitioner } = context;
  const isGroup = model.isGroup(item);
  const sharding = isGroup ? null : values.sharding(model.node(item), 0, partitioner);
  return el(
    "li.graph-row",
    {
      role: "treeitem",
      tabindex: "-1",
      "aria-level": depth + 1,
      "aria-selected": item === chosen ? "true" : "false",
      "aria-expanded": isGroup ? String(open.has(item)) : null,
      data: { item: String(item), form: model.form(item) },
      style: { "--depth": String(depth) },
      on: {
        click: () => {
          if (isGroup && item === chosen) actions.toggle(item);
          else actions.choose(item);
        },
      },
    },
    isGroup
      ? el("span.graph-row-fold", { "aria-hidden": "true" }, open.has(item) ? "▾" : "▸")
      : null,
    el("bdi", {}, model.title(item)),
    isGroup ? el("span.muted", {}, ` ${whole(model.ops[item])}`) : null,
    sharding?.short && sharding.short !== "-" ? [" ", spec(sharding.short)] : null,
    values.different[item]
      ? el("span.graph-differs", {}, " ≠", el("span.unseen", {}, " differs"))
      : null,
  );
}

function press(event, actions) {
  const at = event.target.closest("[role=treeitem]");
  if (!at) return;
  const items = [...at.parentElement.querySelectorAll("[role=treeitem]")];
  const number = items.indexOf(at);
  const item = Number(at.dataset.item);
  const expanded = at.getAttribute("aria-expanded");
  const go = (to) => {
    if (!to) return;
    at.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  };
  const keys = {
    ArrowDown: () => go(items[number + 1]),
    ArrowUp: () => go(items[number - 1]),
    Home: () => go(items[0]),
    End: () => go(items.at(-1)),
    ArrowRight: () => (expanded === "false" ? actions.toggle(item) : go(items[number + 1])),
    ArrowLeft: () => {
      if (expanded === "true") actions.toggle(item);
      else {
        const level = Number(at.getAttribute("aria-level"));
        go(
          items
            .slice(0, number)
            .findLast((treeItem) => Number(treeItem.getAttribute("aria-level")) < level),
        );
      }
    },
    Enter: () => actions.choose(item),
    " ": () => actions.choose(item),
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  keys[event.key]();
}
