// Moves and scales what is drawn: by mouse, trackpad, touch and keys; several panes as one.

import { start } from "./start.js";

const LEAST = 0.04;
const MOST = 2.5;
const STEP = 60;

export class Pan {
  /** @param {() => void} changed is called when it moved. */
  constructor(changed) {
    this.changed = changed;
    this.x = 0;
    this.y = 0;
    this.scale = 1;
    this.pointers = new Map();
    this.moved = 0;
  }

  /** The transform of the drawing. */
  get transform() {
    return `translate(${this.x.toFixed(2)} ${this.y.toFixed(2)}) scale(${this.scale.toFixed(4)})`;
  }

  /** Listens to a pane. */
  listen(pane) {
    pane.addEventListener("wheel", (event) => this.#wheel(event, pane), { passive: false });
    pane.addEventListener("pointerdown", (event) => this.#down(event, pane));
    pane.addEventListener("pointermove", (event) => this.#move(event, pane));
    for (const name of ["pointerup", "pointercancel"]) {
      pane.addEventListener(name, (event) => this.#up(event, pane));
    }
  }

  /** Moves by pixels. */
  by(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.changed();
  }

  /** Scales around a point of the pane. */
  zoom(factor, x, y) {
    const scale = Math.min(MOST, Math.max(LEAST, this.scale * factor));
    const by = scale / this.scale;
    this.x = x - (x - this.x) * by;
    this.y = y - (y - this.y) * by;
    this.scale = scale;
    this.changed();
  }

  /**
   * Shows a box whole, in a pane of this size; `most` is how large it may become. One that is too
   * large for that begins where `boxes`, those in it, are, from its top on if it can.
   */
  fit(box, width, height, { margin = 24, most = 1, least = LEAST, boxes = [] } = {}) {
    const scale = Math.min(
      most,
      (width - 2 * margin) / Math.max(1, box.width),
      (height - 2 * margin) / Math.max(1, box.height),
    );
    this.scale = Math.max(least, scale);
    this.x = (width - box.width * this.scale) / 2 - box.x * this.scale;
    this.y = (height - box.height * this.scale) / 2 - box.y * this.scale;
    const wide = box.width * this.scale > width - 2 * margin + 1;
    const tall = box.height * this.scale > height - 2 * margin + 1;
    if (wide || tall) {
      const room = { width: width / this.scale, height: height / this.scale };
      const gap = margin / this.scale;
      // Forward and backward stand at the bottom: a later lane may begin above them.
      const tops = boxes.map(({ y }) => y);
      const top = tall ? (tops[0] ?? box.y) : Math.min(...tops, box.y + box.height);
      const shown = (first) => {
        const middle = first.x + (first.width - room.width) / 2;
        const right = box.x + box.width + gap - room.width;
        const x = wide ? Math.max(box.x - gap, Math.min(right, middle)) : -this.x / this.scale;
        const below = first.y + first.height + gap > top - gap + room.height;
        return { x, y: (below ? first.y : top) - gap, ...room };
      };
      const at = shown(start(boxes, shown) ?? { ...box, width: 0, height: 0 });
      this.x = -at.x * this.scale;
      this.y = -at.y * this.scale;
    }
    this.changed();
  }

  /** Moves as little as it takes for a box to be seen. */
  reveal(box, width, height, margin = 40) {
    const left = box.x * this.scale + this.x;
    const top = box.y * this.scale + this.y;
    const wide = box.width * this.scale;
    const tall = box.height * this.scale;
    this.x += nudge(left, wide, width, margin);
    this.y += nudge(top, tall, height, margin);
    this.changed();
  }

  /** Keys that move; whether this was one. */
  press(event, width, height) {
    const by = event.shiftKey ? STEP * 4 : STEP;
    const moves = {
      ArrowLeft: () => this.by(by, 0),
      ArrowRight: () => this.by(-by, 0),
      ArrowUp: () => this.by(0, by),
      ArrowDown: () => this.by(0, -by),
      "+": () => this.zoom(1.25, width / 2, height / 2),
      "=": () => this.zoom(1.25, width / 2, height / 2),
      "-": () => this.zoom(0.8, width / 2, height / 2),
    };
    if (!moves[event.key]) return false;
    moves[event.key]();
    return true;
  }

  // A pinch of a trackpad comes as a wheel with ctrl; a wheel that turns in steps scales, too.
  #wheel(event, pane) {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const { left, top } = pane.getBoundingClientRect();
    const notched = event.deltaX === 0 && Math.abs(event.deltaY * unit) >= 90 && !event.shiftKey;
    if (event.ctrlKey || event.metaKey || notched) {
      const strength = event.ctrlKey && !notched ? 0.01 : 0.0016;
      const factor = Math.exp(-event.deltaY * unit * strength);
      this.zoom(factor, event.clientX - left, event.clientY - top);
    } else if (event.shiftKey && !event.deltaX) this.by(-event.deltaY * unit, 0);
    else this.by(-event.deltaX * unit, -event.deltaY * unit);
  }

  #down(event, pane) {
    if (event.button) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (this.pointers.size === 1) this.moved = 0;
    pane.dataset.held = "";
  }

  #move(event, pane) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    this.pointers.set(event.pointerId, now);
    this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (this.moved > 4 && !pane.hasPointerCapture(event.pointerId)) {
      pane.setPointerCapture(event.pointerId);
    }
    if (!others.length) {
      if (this.moved > 4) this.by(now.x - before.x, now.y - before.y);
      return;
    }
    const other = others[0][1];
    const { left, top } = pane.getBoundingClientRect();
    const far = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) || 1;
    this.by((now.x - before.x) / 2, (now.y - before.y) / 2);
    this.zoom(
      far(now, other) / far(before, other),
      (now.x + other.x) / 2 - left,
      (now.y + other.y) / 2 - top,
    );
  }

  #up(event, pane) {
    this.pointers.delete(event.pointerId);
    if (!this.pointers.size) delete pane.dataset.held;
  }

  /** Whether a click that follows was the end of a movement. */
  get wasDrag() {
    return this.moved > 4;
  }
}

function nudge(start, length, room, margin) {
  if (length > room - 2 * margin) return margin - start;
  if (start < margin) return margin - start;
  const over = start + length - (room - margin);
  return over > 0 ? -over : 0;
}
