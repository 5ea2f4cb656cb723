// Many boxes that have one edge each, to the same box, such as the parameters of a loop: they would
// all stand beside each other, so they stand in rows, as one block.

/** More than this of one box are a fan. */
const MOST = 8;

/** Between the columns and the rows of a fan. */
const BESIDE = 22;
const BELOW = 20;

/** A block is about so much wider than it is high. */
const SHAPE = 1.6;

/** The fans of a group. */
export class Fans {
  /**
   * @param {object[]} drawn the edges, `{from, to}`.
   * @param {(item: number) => {width: number, height: number}} sizeOf of a box.
   */
  constructor(drawn, sizeOf) {
    this.blocks = [];
    /** For each member its block, and where it is in it. */
    this.members = new Map();
    for (const { hub, fromHub, items } of fansOf(drawn)) this.#add(hub, fromHub, items, sizeOf);
  }

  #add(hub, fromHub, items, sizeOf) {
    const sizes = items.map(sizeOf);
    const wide = Math.max(...sizes.map(({ width }) => width)) + BESIDE;
    const high = Math.max(...sizes.map(({ height }) => height)) + BELOW;
    const columns = Math.max(1, Math.round(Math.sqrt((items.length * high * SHAPE) / wide)));
    const rows = Math.ceil(items.length / columns);
    const block = {
      name: `fan ${this.blocks.length}`,
      hub,
      fromHub,
      width: columns * wide - BESIDE,
      height: rows * high - BELOW,
    };
    this.blocks.push(block);
    items.forEach((item, at) => {
      const { width, height } = sizes[at];
      this.members.set(item, {
        block,
        width,
        height,
        x: (at % columns) * wide + (wide - BESIDE) / 2 - block.width / 2,
        y: Math.floor(at / columns) * high + (high - BELOW) / 2 - block.height / 2,
        gutter: ((at % columns) + 1) * wide - BESIDE / 2 - block.width / 2,
      });
    });
  }

  has(item) {
    return this.members.has(item);
  }

  /** The member at an end of an edge; -1 for none. */
  of({ from, to }) {
    return this.has(from) ? from : this.has(to) ? to : -1;
  }

  /** Where a member is, given where its block is: as dagre says it, by the middle. */
  place(item, { x, y }) {
    const { width, height, x: dx, y: dy } = this.members.get(item);
    return { x: x + dx, y: y + dy, width, height };
  }

  /** The line of a member: past those between it and its hub, beside its column. */
  points(item, block, hub) {
    const { fromHub } = this.members.get(item).block;
    const { gutter } = this.members.get(item);
    const own = this.place(item, block);
    const down = hub.y > block.y ? 1 : -1;
    const start = { x: own.x, y: own.y + (down * own.height) / 2 };
    const end = { x: hub.x, y: hub.y - (down * hub.height) / 2 };
    const edge = block.y + (down * block.height) / 2;
    const points = [start];
    if (Math.abs(edge - start.y) > 1) {
      points.push({ x: block.x + gutter, y: start.y + (down * BELOW) / 2 });
      points.push({ x: block.x + gutter, y: edge });
    }
    points.push(end);
    return fromHub ? points.reverse() : points;
  }
}

/** The items that have one edge only, where many have it to or from the same one. */
function fansOf(drawn) {
  const uses = new Map();
  for (const { from, to } of drawn) {
    for (const item of [from, to]) uses.set(item, (uses.get(item) ?? 0) + 1);
  }
  const fans = new Map();
  for (const { from, to } of drawn) {
    if (from === null || to === null) continue;
    for (const [item, hub, fromHub] of [
      [from, to, false],
      [to, from, true],
    ]) {
      if (uses.get(item) !== 1 || uses.get(hub) === 1) continue;
      const key = `${fromHub} ${hub}`;
      if (!fans.has(key)) fans.set(key, { hub, fromHub, items: [] });
      fans.get(key).items.push(item);
    }
  }
  return [...fans.values()].filter(({ items }) => items.length > MOST);
}
