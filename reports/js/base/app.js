// The page around the views: which one is shown, the keys, the colours.

import { module, part, Shared } from "./data.js";
import { el, template } from "./dom.js";
import { Keys } from "./keys.js";
import { link } from "./link.js";
import { colourAxes } from "./spec.js";
import { format, State } from "./state.js";
import { takeAlong } from "./take.js";

const THEMES = ["auto", "light", "dark"];
const THEME_WORDS = { auto: "as the system", light: "light", dark: "dark" };

/** Shows the view that the address names, and every one that it comes to name. */
export async function start() {
  const report = await part("report");
  colourAxes(report.meshes);
  const names = report.views.map((view) => view.name);
  const { sides, side } = globalThis.sdyscope;
  const state = new State(window, names, { sides, side });
  const keys = new Keys();
  const page = new Page(report, state, keys);
  theme();
  keys.set("Everywhere", [
    ...report.views.map((view) => ({
      keys: `g ${view.key}`,
      words: view.title,
      run: () => page.open(view.name),
    })),
    { keys: "x", words: "Take along: tables, pictures, paper", run: () => page.take() },
    { keys: "?", words: "This list", run: () => keys.help() },
  ]);
  keys.listen(document);
  document.getElementById("take").addEventListener("click", () => page.take());
  document.getElementById("help").addEventListener("click", () => keys.help());
  for (const tab of document.querySelectorAll(".tab")) {
    tab.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      page.open(tab.dataset.view);
    });
  }
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  state.subscribe(() => page.update());
  await page.update();
  document.documentElement.dataset.ready = "";
}

/** The views that were opened, of which one is shown. */
class Page {
  constructor(report, state, keys) {
    this.report = report;
    this.state = state;
    this.keys = keys;
    this.main = document.getElementById("main");
    this.views = new Map();
    this.shown = null;
  }

  /** Shows what of this view can be taken along. */
  take() {
    takeAlong(this.main, announce);
  }

  /** Shows a view as it was last seen. */
  open(name) {
    if (this.state.view === name) this.main.querySelector("[tabindex='0'], input")?.focus();
    else this.state.go(name);
  }

  /** Shows what the address says. */
  async update() {
    const { view: name, params } = this.state;
    this.#sides(name, params);
    for (const tab of document.querySelectorAll(".tab")) {
      const here = tab.dataset.view === name;
      if (here) {
        if (this.shown !== name) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
        tab.setAttribute("aria-current", "page");
      } else tab.removeAttribute("aria-current");
      tab.href = this.state.href(tab.dataset.view);
    }
    if (!this.views.has(name)) this.views.set(name, this.#mount(name));
    const view = await this.views.get(name);
    if (this.state.view !== name) return; // Another one was chosen meanwhile.
    if (this.shown !== name) {
      this.shown = name;
      this.main.replaceChildren(view.root);
      this.main.dataset.view = name;
      const { title, account } = this.report.views.find((view) => view.name === name);
      const line = document.getElementById("account");
      line.hidden = !account;
      line.replaceChildren(link(this.state, "overview", { at: "account" }, account));
      document.title = `${title} · ${this.report.name} · sdyscope`;
      this.keys.set(title, view.keys ?? []);
      for (const other of this.report.views) {
        if (other.name !== name) this.keys.set(other.title, []);
      }
      view.shown?.();
    }
    this.#unknown(this.state.unknown);
    view.update?.(params);
    document.documentElement.dataset.view = name;
  }

  /** Of a comparison: which side is shown, and the same view of the other one. */
  #sides(name, params) {
    if (!this.state.sides) return;
    for (const link of document.querySelectorAll(".side")) {
      const { side } = link.dataset;
      if (side === this.state.side) link.setAttribute("aria-current", "true");
      if (side && this.state.side) link.href = format(name, params, side);
    }
    document.querySelector(".tabs").hidden = !this.state.side;
  }

  /** Says that the address names a view that there is not. */
  #unknown(name) {
    this.notice?.remove();
    this.notice = name ? missing(`This page has no view called “${name}”.`) : null;
    if (this.notice) this.main.prepend(this.notice);
  }

  async #mount(name) {
    const root = el("div.view", { data: { view: name } });
    try {
      const [viewModule, data, shared] = await Promise.all([
        module(`${name}/view.js`),
        part(name),
        part("shared"),
      ]);
      if (!viewModule) throw new Error(`The page has no module ${name}.js.`);
      if (data?.unavailable) {
        root.append(missing(data.unavailable));
        return { root };
      }
      const context = {
        report: this.report,
        state: this.state,
        shared: sharedOf(shared),
        data,
        slots: template(`view-${name}`),
        announce,
      };
      root.append(context.slots.root);
      return { root, ...(await viewModule.mount(root, context)) };
    } catch (error) {
      console.error(error);
      root.replaceChildren(missing(`This view could not be shown: ${error.message}`, "bad"));
      return { root };
    }
  }
}

let shared = null;

function sharedOf(data) {
  shared ??= new Shared(data);
  return shared;
}

/** What stands where a view has nothing to show. */
function missing(words, tone = "muted") {
  return el("p.missing", { role: "note", data: { tone } }, words);
}

/** Says something to those who can't see it appear. */
function announce(words) {
  document.getElementById("announce").textContent = words;
}

function theme() {
  const button = document.getElementById("theme");
  let chosen = remembered();
  const apply = () => {
    document.documentElement.dataset.theme = chosen;
    button.setAttribute("aria-label", `Colours: ${THEME_WORDS[chosen]}`);
    button.title = `Colours: ${THEME_WORDS[chosen]}`;
  };
  button.addEventListener("click", () => {
    chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
    try {
      localStorage.setItem("sdyscope-theme", chosen);
    } catch {
      // A page on a disk may not be allowed to keep anything.
    }
    apply();
  });
  apply();
  // Paper is white.
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
  });
  window.addEventListener("afterprint", apply);
}

function remembered() {
  try {
    const kept = localStorage.getItem("sdyscope-theme");
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}
