// Plays the steps: a slider, buttons, keys, and how many values were sharded by when.

import { el } from "../base/dom.js";
import { whole } from "../base/format.js";

/** How the address catches up with a slider that is dragged, or a film, in milliseconds. */
const SETTLED = 250;

/** Steps a second; null plays everything in `FILM` seconds. */
const SPEEDS = [
  ["1", "1 step/s"],
  ["5", "5 steps/s"],
  ["25", "25 steps/s"],
  ["film", "all in 20 s"],
];

const FILM = 20;

const ICONS = {
  first: "M4 3v10M13 3 6 8l7 5z",
  back: "M11 3 4 8l7 5z",
  play: "M5 2.5 13 8l-8 5.5z",
  pause: "M5 3h2.2v10H5zM9 3h2.2v10H9z",
  forward: "m5 3 7 5-7 5z",
  last: "M12 3v10M3 3l7 5-7 5z",
};

export class Player {
  /**
   * @param {object} options
   * @param {object} options.slots `buttons`, `slider`, `count`, `speed`, `spark`, `priorities`.
   * @param {object} options.propagation the steps.
   * @param {object} options.state the address.
   * @param {(step) => void} options.show draws a step; -1 is before the first.
   * @param {(step) => void} options.rest is told at which step it came to rest.
   */
  constructor({ slots, propagation, state, show, rest }) {
    Object.assign(this, { slots, propagation, state, show, rest });
    this.last = propagation.last;
    this.step = null;
    this.dragging = false;
    const { slider, speed } = slots;
    slider.min = "-1";
    slider.max = String(this.last);
    slider.addEventListener("input", () => {
      this.dragging = true;
      this.stop();
      this.#show(Number(slider.value));
    });
    slider.addEventListener("change", () => {
      this.dragging = false;
      this.go(Number(slider.value));
    });
    speed.append(...SPEEDS.map(([value, words]) => el("option", { value }, words)));
    speed.value = this.last > 60 ? "film" : "1";
    this.buttons = {
      first: this.#button("first", "Before the first step", () => this.go(-1)),
      back: this.#button("back", "A step back (←)", () => this.go(this.step - 1)),
      play: this.#button("play", "Play (space)", () => this.toggle()),
      forward: this.#button("forward", "A step on (→)", () => this.go(this.step + 1)),
      last: this.#button("last", "The end", () => this.go(this.last)),
    };
    slots.buttons.append(...Object.values(this.buttons));
    this.#priorities();
    new ResizeObserver(() => this.drawSpark()).observe(slots.spark);
  }

  /** The shortcuts. */
  keys() {
    const by = (steps) => () => this.go(this.step + steps);
    const page = Math.max(10, Math.round(this.last / 50));
    return [
      { keys: " ", words: "Play or pause", run: () => this.toggle() },
      { keys: "ArrowRight", words: "A step on", run: by(1) },
      { keys: "ArrowLeft", words: "A step back", run: by(-1) },
      { keys: ".", words: `${page} steps on`, run: by(page) },
      { keys: ",", words: `${page} steps back`, run: by(-page) },
      { keys: "Home", words: "Before the first step", run: () => this.go(-1) },
      { keys: "End", words: "The end", run: () => this.go(this.last) },
    ];
  }

  /** Shows what the address says; where it names no step, `otherwise`. */
  update(text, otherwise) {
    this.otherwise = otherwise;
    const wanted = /^-?\d+$/.test(text) ? Number(text) : otherwise;
    const step = Math.min(Math.max(wanted, -1), this.last);
    if (this.settling) return; // The address is behind what is shown.
    if (step !== this.step) this.#draw(step);
  }

  /** Shows a step, stops playing, and says it in the address. */
  go(step) {
    this.stop();
    this.#show(Math.min(Math.max(step, -1), this.last));
    this.#settle();
  }

  /** Plays, from the beginning where it was at the end; or stops. */
  toggle() {
    if (this.playing) {
      this.stop();
      this.#settle();
      return;
    }
    if (this.step >= this.last) this.#show(-1);
    this.#icon("pause", "Pause (space)");
    let before = performance.now();
    let due = 0;
    const frame = (time) => {
      if (!this.slots.slider.isConnected) {
        this.stop();
        return;
      }
      const speed = this.slots.speed.value;
      const rate = speed === "film" ? Math.max(1, this.last / FILM) : Number(speed);
      due += ((time - before) / 1000) * rate;
      before = time;
      const steps = Math.floor(due);
      due -= steps;
      if (steps) this.#show(Math.min(this.step + steps, this.last));
      if (this.step >= this.last) {
        this.stop();
        this.#settle();
      } else this.playing = requestAnimationFrame(frame);
    };
    this.playing = requestAnimationFrame(frame);
  }

  /** Whether it plays faster than eyes can follow from place to place. */
  get isFast() {
    return Boolean(this.playing) && !["1", "5"].includes(this.slots.speed.value);
  }

  /** Stops playing. */
  stop() {
    if (!this.playing) return;
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.#icon("play", "Play (space)");
  }

  /** Draws a step; the address follows. */
  #show(step) {
    this.#draw(step);
    if (!this.settling) this.#settle();
  }

  #draw(step) {
    this.step = step;
    const { slider, count } = this.slots;
    slider.value = String(step);
    const { propagation } = this;
    const done = `${whole(propagation.steps(step))} of ${whole(propagation.steps(this.last))} steps`;
    slider.setAttribute("aria-valuetext", done);
    count.textContent = `${done} · ${whole(this.#shardedBy(step))} values sharded`;
    count.title = step < 0 ? "before the first step" : `Shardy's number: step-${step}`;
    this.buttons.back.disabled = step < 0;
    this.buttons.first.disabled = step < 0;
    this.buttons.forward.disabled = step >= this.last;
    this.buttons.last.disabled = step >= this.last;
    this.show(step);
  }

  #settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.settling = 0;
      if (!this.slots.slider.isConnected) return;
      const isDefault = this.step === -1 && this.otherwise === -1;
      this.state.set({ step: isDefault ? "" : String(this.step) });
      if (!this.playing) this.rest(this.step);
    }, SETTLED);
  }

  #button(name, words, run) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", ICONS[name]);
    const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    icon.setAttribute("viewBox", "0 0 16 16");
    icon.setAttribute("aria-hidden", "true");
    icon.append(path);
    return el(
      `button.player-button${name === "play" ? ".player-play" : ""}`,
      { type: "button", "aria-label": words, title: words, on: { click: run } },
      icon,
    );
  }

  #icon(name, words) {
    const { play } = this.buttons;
    play.querySelector("path").setAttribute("d", ICONS[name]);
    play.setAttribute("aria-label", words);
    play.title = words;
  }

  /** By step, how many values had become sharded. */
  #sharded() {
    if (!this.sums) {
      const { propagation } = this;
      const { values } = propagation.data;
      this.sums = new Int32Array(this.last + 2);
      for (const value of new Set(values)) {
        if (value === null || !propagation.final(value).axes.length) continue;
        this.sums[propagation.first(value) + 1] += 1;
      }
      for (let at = 1; at < this.sums.length; at += 1) this.sums[at] += this.sums[at - 1];
    }
    return this.sums;
  }

  #shardedBy(step) {
    return this.#sharded()[step + 1];
  }

  /** Draws how many values are sharded by when. */
  drawSpark() {
    const { spark } = this.slots;
    const width = spark.clientWidth;
    if (!width) return;
    const scale = globalThis.devicePixelRatio || 1;
    const height = 22;
    spark.width = width * scale;
    spark.height = height * scale;
    const context = spark.getContext("2d");
    context.scale(scale, scale);
    const sums = this.#sharded();
    const most = sums.at(-1) || 1;
    context.fillStyle = getComputedStyle(spark).color;
    context.beginPath();
    context.moveTo(0, height);
    for (let x = 0; x <= width; x += 1) {
      const at = Math.min(sums.length - 1, Math.floor((x / width) * sums.length));
      context.lineTo(x, height - (sums[at] / most) * (height - 2));
    }
    context.lineTo(width, height);
    context.fill();
  }

  /** Where the user's priorities begin, above the slider. */
  #priorities() {
    const { propagation, slots } = this;
    slots.priorities.hidden = !propagation.data.priorities;
    if (!propagation.data.priorities) return;
    let before = null;
    for (let move = 0; move < propagation.length; move += 1) {
      const priority = propagation.moves.get("priority", move);
      if (priority === before) continue;
      before = priority;
      const left = `${(100 * (propagation.numbers[move] + 1)) / (this.last + 2)}%`;
      slots.priorities.append(
        el("span.player-priority", { style: { left } }, `priority ${priority}`),
      );
    }
  }
}
