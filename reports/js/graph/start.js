// Where a graph that is too large for its pane begins: at the first box of its first lane, unless
// little stands there.

/** How many places are looked at. */
const PLACES = 200;

/** A first box with less than this part of the boxes that another place shows is no beginning. */
const SPARSE = 0.5;

/** A place with this part of what the fullest one shows is as good, and an earlier one better. */
const FULL = 0.75;

/**
 * The box in the middle of what is shown first, or at its top.
 *
 * @param {{x: number, y: number, width: number, height: number, open: boolean}[]} boxes the first
 *   of them is the first lane, if it is open.
 * @param {(box: object) => {x: number, y: number, width: number, height: number}} shown what is
 *   shown of the picture where a box is the first.
 */
export function start(boxes, shown) {
  const closed = boxes.filter((box) => !box.open).sort((a, b) => a.y - b.y || a.x - b.x);
  // Forward stands at the bottom: a later lane that is taller has its top above it.
  const own = boxes[0]?.open ? closed.filter((box) => holds(boxes[0], box)) : [];
  const from = own.length ? own : closed;
  const every = Math.ceil(from.length / PLACES);
  const places = from.filter((_, at) => at % every === 0);
  const filled = places.map((box) => fill(closed, shown(box)));
  const most = Math.max(...filled);
  if (!places.length || filled[0] >= SPARSE * most) return places[0];
  return places[filled.findIndex((part) => part >= FULL * most)];
}

/** Whether a box is drawn within another one, by its middle. */
function holds(outer, { x, y, width, height }) {
  const [right, down] = [x + width / 2 - outer.x, y + height / 2 - outer.y];
  return right >= 0 && right <= outer.width && down >= 0 && down <= outer.height;
}

/** How much of a part of the picture boxes take; they are sorted from the top. */
function fill(boxes, { x, y, width, height }) {
  let area = 0;
  for (const box of boxes) {
    if (box.y >= y + height) break;
    const wide = Math.min(box.x + box.width, x + width) - Math.max(box.x, x);
    const tall = Math.min(box.y + box.height, y + height) - Math.max(box.y, y);
    if (wide > 0 && tall > 0) area += wide * tall;
  }
  return area;
}
