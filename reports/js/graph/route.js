// The way of a line: smooth through its points, and around the boxes that would be in its way.

/** Between a line and a box that it goes around, and how far it leaves its own before it turns. */
const GAP = 8;

/** How round its corners are there. */
const ROUND = 9;

/** A line that has to go around more boxes than this goes straight. */
const MOST = 90;

/** Pieces that a curve is cut into where it is compared with boxes. */
const CUTS = 8;

/**
 * The curves of a line: downwards at its ends, `sideways`, or straight with round corners (`bent`).
 *
 * @returns {object[][]} of each curve its control points and its end; it starts where the last ended.
 */
function curves({ points, sideways, bent }) {
  const [first, ...rest] = points;
  const last = rest.at(-1);
  if (rest.length === 1) {
    if (sideways) {
      const half = (first.x + last.x) / 2;
      return [[{ x: half, y: first.y }, { x: half, y: last.y }, last]];
    }
    if (bent || Math.abs(first.x - last.x) < 1) return [[last]];
    const half = (first.y + last.y) / 2;
    return [[{ x: first.x, y: half }, { x: last.x, y: half }, last]];
  }
  const parts = [];
  for (let k = 0; k < rest.length - 1; k += 1) {
    const [before, here, next] = [points[k], rest[k], rest[k + 1]];
    if (bent) {
      const radius = Math.min(ROUND, far(before, here) / 2, far(here, next) / 2);
      parts.push([towards(here, before, radius)], [here, towards(here, next, radius)]);
    } else {
      // Quadratic curves between the middles of the pieces.
      parts.push([here, k === rest.length - 2 ? next : middle(here, next)]);
    }
  }
  if (bent) parts.push([last]);
  return parts;
}

/** A line as SVG says it. */
export function path(line) {
  const at = ({ x, y }) => `${round(x)} ${round(y)}`;
  const letters = ["L", "Q", "C"];
  const drawn = curves(line).map((part) => `${letters[part.length - 1]}${part.map(at).join(" ")}`);
  return `M${at(line.points[0])}${drawn.join("")}`;
}

/** A line as many points, straight between them. */
function flat(line) {
  const points = [line.points[0]];
  for (const part of curves(line)) {
    const all = [points.at(-1), ...part];
    const cuts = part.length > 1 ? CUTS : 1;
    for (let k = 1; k <= cuts; k += 1) points.push(bezier(all, k / cuts));
  }
  return points;
}

function bezier(points, t) {
  let rest = points;
  while (rest.length > 1) {
    rest = rest.slice(1).map((point, at) => mixed(rest[at], point, t));
  }
  return rest[0];
}

/**
 * Leads a line around boxes, where it would go through one.
 *
 * @param {{points: {x: number, y: number}[], sideways?: boolean, bent?: boolean}} line is changed.
 * @param {{x: number, y: number, width: number, height: number}[]} boxes without those at its ends.
 * @param {(object | undefined)[]} ends the boxes that it comes from and goes to, where it has them.
 */
export function route(line, boxes, ends) {
  const { points, sideways } = line;
  const start = stub(points[0], points[1], ends[0], sideways);
  const end = stub(points.at(-1), points.at(-2), ends[1], sideways);
  // What comes back, as in a loop, would begin or end across its own box.
  const isAway = (from, to, next) =>
    (to.x - from.x) * (next.x - from.x) + (to.y - from.y) * (next.y - from.y) >= 0;
  const isClear = isAway(points[0], start, points[1]) && isAway(points.at(-1), end, points.at(-2));
  if (isClear && !crossed(flat(line), boxes, 1).length) return;
  // The boxes that the way goes past: those in its way, then those in the way around them.
  const near = new Set(ends.filter(Boolean));
  let way = shortest(start, end, [...near]);
  while (way) {
    const more = crossed(way, boxes, GAP - 1).filter((box) => !near.has(box));
    if (!more.length) break;
    for (const box of more) near.add(box);
    way = near.size > MOST ? null : shortest(start, end, [...near]);
  }
  if (!way) return;
  line.points = [points[0], ...way, points.at(-1)];
  line.bent = true;
}

/** Where a line is clear of the box at its end. */
function stub(end, next, box, sideways) {
  const axis = sideways ? "x" : "y";
  const size = sideways ? "width" : "height";
  const way = box ? end[axis] - box[axis] - box[size] / 2 : next[axis] - end[axis];
  const edge = box ? box[axis] + (way > 0 ? box[size] : 0) : end[axis];
  return { ...end, [axis]: edge + (way > 0 ? GAP : -GAP) };
}

/** The boxes, larger by `gap` on each side, that a line of straight pieces goes through. */
function crossed(points, boxes, gap) {
  const [left, right] = extent(points, "x");
  const [top, bottom] = extent(points, "y");
  return boxes.filter(
    (box) =>
      box.x - gap < right &&
      box.x + box.width + gap > left &&
      box.y - gap < bottom &&
      box.y + box.height + gap > top &&
      points.some((point, at) => at && isThrough(points[at - 1], point, box, gap)),
  );
}

function extent(points, axis) {
  let least = Infinity;
  let most = -Infinity;
  for (const point of points) {
    least = Math.min(least, point[axis]);
    most = Math.max(most, point[axis]);
  }
  return [least, most];
}

/** Whether a straight line goes through the inside of a box that is larger by `gap`. */
function isThrough(a, b, box, gap) {
  let from = 0;
  let to = 1;
  for (const [axis, size] of [
    ["x", "width"],
    ["y", "height"],
  ]) {
    const least = box[axis] - gap;
    const most = box[axis] + box[size] + gap;
    const by = b[axis] - a[axis];
    if (Math.abs(by) < 1e-9) {
      if (a[axis] <= least || a[axis] >= most) return false;
      continue;
    }
    const [first, second] = [(least - a[axis]) / by, (most - a[axis]) / by];
    from = Math.max(from, Math.min(first, second));
    to = Math.min(to, Math.max(first, second));
    if (from >= to) return false;
  }
  return true;
}

/** The shortest way past the corners of boxes; null where there is none. */
function shortest(start, end, boxes) {
  const isFree = (point) => !boxes.some((box) => isThrough(point, point, box, GAP - 1));
  const corners = boxes.flatMap(({ x, y, width, height }) =>
    [x - GAP, x + width + GAP].flatMap((cx) =>
      [y - GAP, y + height + GAP].map((cy) => ({ x: cx, y: cy })),
    ),
  );
  const nodes = [start, end, ...corners.filter(isFree)];
  const costs = nodes.map(() => Infinity);
  const before = nodes.map(() => -1);
  const left = new Set(nodes.keys());
  costs[0] = 0;
  while (left.size) {
    let at = -1;
    for (const node of left) if (at < 0 || costs[node] < costs[at]) at = node;
    if (costs[at] === Infinity) return null;
    if (at === 1) break;
    left.delete(at);
    for (const node of left) {
      const cost = costs[at] + far(nodes[at], nodes[node]);
      if (cost >= costs[node]) continue;
      if (boxes.some((box) => isThrough(nodes[at], nodes[node], box, GAP - 1))) continue;
      costs[node] = cost;
      before[node] = at;
    }
  }
  const way = [];
  for (let at = 1; at >= 0; at = before[at]) way.unshift(nodes[at]);
  return way;
}

function far(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}

function mixed(a, b, t) {
  return { x: a.x + (b.x - a.x) * t, y: a.y + (b.y - a.y) * t };
}

function middle(a, b) {
  return mixed(a, b, 0.5);
}

/** A point on the way from one to another, so far from the first. */
function towards(a, b, distance) {
  return mixed(a, b, distance / (far(a, b) || 1));
}

function round(number) {
  return Math.round(number * 10) / 10;
}
