// Memory over a step: an area for each thing that memory is held for, the peak, what is held there.

import { button, el, svg } from "../base/dom.js";
import { count, partitionerName, size, whole } from "../base/format.js";
import { link, sourceLink, withLine } from "../base/link.js";

/** How many things are listed before the rest is asked for. */
const HELD = 12;

/** The pictures, all on one scale, and what draws a moment in them. */
export function charts(steps, state) {
  const top = Math.max(...steps.map((step) => step.peak), 1);
  const pictures = steps.map((step) => chart(step, top, state));
  return {
    elements: pictures.map((picture) => picture.element),
    update(at) {
      for (const picture of pictures) picture.update(at);
    },
  };
}

function chart(step, top, state) {
  const moments = step.positions.length;
  const at = (moment) => (100 * (step.positions[moment] + 0.5)) / Math.max(step.instructions, 1);
  const cursor = el("span.step-cursor", { "aria-hidden": "true" });
  const readout = el("p.step-readout", { "aria-live": "polite" });
  const range = el("input.step-range", {
    type: "range",
    min: "0",
    max: String(Math.max(moments - 1, 0)),
    "aria-label": "Moment of the step",
    on: { input: (event) => state.set({ at: event.target.value }) },
  });
  const choose = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const position = ((event.clientX - box.left) / box.width) * step.instructions;
    let nearest = 0;
    step.positions.forEach((each, moment) => {
      if (Math.abs(each - position) < Math.abs(step.positions[nearest] - position)) {
        nearest = moment;
      }
    });
    state.set({ at: String(nearest) });
  };
  const side = at(step.moment) > 50 ? "before" : "after";
  const element = el(
    "figure.step",
    {},
    el(
      "figcaption.step-caption",
      {},
      el("strong", {}, step.partitioners.map(partitionerName).join(" and ")),
      " ",
      withLine(state, step.title, step.line),
    ),
    el(
      "div.step-picture",
      {},
      el(
        "div.step-scale",
        { "aria-hidden": "true" },
        [1, 0.5, 0].map((share) => el("span", {}, size(Math.round(share * top)))),
      ),
      el(
        "div.step-area",
        { on: { click: choose } },
        area(step, top),
        el(
          "span.step-peak",
          {
            data: { side },
            style: { left: `${at(step.moment)}%`, bottom: `${(100 * step.peak) / top}%` },
          },
          el("span.step-peak-words", {}, `peak ${size(step.peak)}`),
        ),
        cursor,
      ),
    ),
    range,
    phases(step),
    readout,
    legend(step),
  );
  return {
    element,
    update(chosen) {
      const moment =
        /^\d+$/.test(chosen) && Number(chosen) < moments ? Number(chosen) : step.moment;
      range.value = String(moment);
      cursor.style.setProperty("left", `${at(moment)}%`);
      const held = step.categories.map((category) => [category.name, category.bytes[moment]]);
      const total = held.reduce((sum, [, bytes]) => sum + bytes, 0);
      range.setAttribute("aria-valuetext", size(total));
      const parts = held
        .filter(([, bytes]) => bytes)
        .sort((a, b) => b[1] - a[1])
        .map(([name, bytes]) => `${name} ${size(bytes)}`);
      readout.replaceChildren(
        el("strong", {}, size(total)),
        ` at instruction ${whole(step.positions[moment] + 1)} of ${whole(step.instructions)}: `,
        parts.join(", "),
      );
    },
  };
}

/** The areas, one above the other, from what is held throughout to what is held least long. */
function area(step, top) {
  const { positions, instructions } = step;
  const x = (position) => (1000 * position) / Math.max(instructions, 1);
  const below = positions.map(() => 0);
  const paths = step.categories.map((category) => {
    const upper = positions.map((_, moment) => below[moment] + category.bytes[moment]);
    const path = svg("path", {
      data: { held: category.name },
      d: outline(positions, instructions, x, upper, below, top),
    });
    upper.forEach((bytes, moment) => {
      below[moment] = bytes;
    });
    return path;
  });
  return svg(
    "svg.step-svg",
    { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": step.title },
    paths,
  );
}

function outline(positions, instructions, x, upper, below, top) {
  const y = (bytes) => 100 - (100 * bytes) / top;
  const forth = [];
  const back = [];
  positions.forEach((_, moment) => {
    // Each moment stands for its part of the schedule.
    const from = x((moment * instructions) / positions.length).toFixed(1);
    const to = x(((moment + 1) * instructions) / positions.length).toFixed(1);
    forth.push(`${from} ${y(upper[moment]).toFixed(2)}`, `${to} ${y(upper[moment]).toFixed(2)}`);
    back.push(`${from} ${y(below[moment]).toFixed(2)}`, `${to} ${y(below[moment]).toFixed(2)}`);
  });
  return `M${[...forth, ...back.reverse()].join("L")}Z`;
}

function phases(step) {
  const share = (part) => `${(100 * (part.end - part.start)) / Math.max(step.instructions, 1)}%`;
  return el(
    "div.step-phases",
    {},
    step.phases.map((phase) =>
      el(
        "span.step-phase",
        { title: phase.name, data: { phase: phase.name }, style: { width: share(phase) } },
        el("span", {}, phase.name),
      ),
    ),
  );
}

function legend(step) {
  return el(
    "ul.step-legend",
    {},
    step.categories.map((category) =>
      el("li.step-key", { data: { held: category.name }, title: category.words }, category.name),
    ),
  );
}

/** What is held at the peak, what takes most first. */
export function heldAtPeak(step, { all, several, state }) {
  const under = several ? ` under ${step.partitioners.map(partitionerName).join(" and ")}` : "";
  const most = Math.max(...step.held.map((buffer) => buffer.bytes), 1);
  const shown = all ? step.held : step.held.slice(0, HELD);
  const left = step.held.length - shown.length;
  return [
    el("h3.step-title", {}, `Held at the peak${under}`),
    el(
      "ol.savings",
      {},
      shown.map((buffer) => holding(buffer, most, state)),
    ),
    left ? button(`Show ${whole(left)} more`, () => state.set({ all: "held" })) : null,
    step.more && all ? el("p.muted", {}, `${count(step.more, "more")}, ${size(step.rest)}`) : null,
    ...step.basis.map((words) => el("p.note", { data: { tone: "plain" } }, words)),
  ].filter(Boolean);
}

function holding(buffer, most, state) {
  const name = buffer.tensor
    ? link(state, "tensors", { tensor: buffer.tensor }, buffer.name)
    : el("bdi", {}, buffer.name);
  return el(
    "li.saving.holding",
    {},
    el(
      "span.collective-sent",
      {},
      el("span.collective-size", {}, size(buffer.bytes)),
      el(
        "span.pair-track",
        { "aria-hidden": "true" },
        el("span", {
          data: { held: buffer.category },
          style: { width: `${(100 * buffer.bytes) / most}%` },
        }),
      ),
    ),
    el(
      "span.saving-name",
      {},
      name,
      buffer.count > 1 ? el("span.muted", {}, ` (${whole(buffer.count)})`) : null,
      el("code.muted.saving-type", {}, buffer.array),
    ),
    el(
      "span.saving-change",
      {},
      el("span.step-key", { data: { held: buffer.category } }, buffer.category),
      buffer.line ? [" ", sourceLink(state, buffer.line)] : null,
      buffer.origins.length
        ? el("span.muted.holding-origins", {}, buffer.origins.join(", "))
        : null,
    ),
  );
}
