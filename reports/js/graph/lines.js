// The lines between the boxes of a group: which are drawn, how long they are, where they end.

/** Room above what is in a group for its title. */
export const HEAD = 30;

/** What enters and goes to more children than this is drawn only for what is chosen. */
const FAN = 6;

/** How far a line from one lane to another below it runs beside them. */
const ASIDE = 24;

/** The edges that are drawn, and their doors; what enters and goes nearly everywhere is left out. */
export function shown(edges) {
  const doors = new Map();
  const name = (edge) => (edge.from === null ? `in ${edge.door}` : `out ${edge.door}`);
  for (const edge of edges) {
    if (edge.door !== null) doors.set(name(edge), (doors.get(name(edge)) ?? 0) + 1);
  }
  for (const [door, count] of doors) if (count > FAN) doors.delete(door);
  return { doors, drawn: edges.filter((edge) => edge.door === null || doors.has(name(edge))) };
}

/** From one box to another below it, or above it, or at the foot of the column beside it. */
export function between(from, to, up) {
  const start = { x: from.x + from.width / 2, y: up ? from.y : from.y + from.height };
  const end = { x: to.x + to.width / 2, y: up ? to.y + to.height : to.y };
  if (Math.abs(start.x - end.x) < 2 || (up ? end.y < start.y : end.y > start.y)) {
    return [start, end];
  }
  const lane = (from.x + from.width + to.x) / 2;
  const off = up ? -14 : 14;
  return [
    start,
    { x: start.x, y: start.y + off },
    { x: lane, y: start.y + off },
    { x: lane, y: end.y - off },
    { x: end.x, y: end.y - off },
    end,
  ];
}

/** Sideways from one lane to another; where one is below the other, past their right sides. */
export function across(from, to) {
  const y = from.y + from.height / 2;
  const endY = to.y + to.height / 2;
  const [fromRight, toRight] = [from.x + from.width, to.x + to.width];
  if (from.x < toRight && to.x < fromRight) {
    const x = Math.max(fromRight, toRight) + ASIDE;
    const points = [
      { x: fromRight, y },
      { x, y },
      { x, y: endY },
      { x: toRight, y: endY },
    ];
    return { points, sideways: true, bent: true };
  }
  const right = from.x < to.x;
  const start = { x: right ? fromRight : from.x, y };
  const end = { x: right ? to.x : toRight, y: endY };
  return { points: [start, end], sideways: true };
}

/** Ends of edges at a node stand apart, in the order in which they come; at an open group, at its
 * door. */
export function spread(lines, places, up) {
  const ends = new Map();
  for (const line of lines) {
    const { points } = line;
    for (const [item, point, next, side] of [
      [line.from, points[0], points[1], "out"],
      [line.to, points.at(-1), points.at(-2), "in"],
    ]) {
      if (item === null) continue;
      const place = places.get(item);
      point.y = (side === "in") !== up ? place.y : place.y + place.height;
      if (place.laid) {
        const name = `${side} ${line.door ?? (side === "in" ? line.from : line.to)}`;
        const door = place.laid.doors.get(name);
        if (side === "in") line.intoOpen = true;
        if (door !== undefined) {
          point.x = place.x + door;
          if ((side === "in") !== up) {
            // Straight to the edge: it goes on below the title.
            const above = { x: point.x, y: place.y - 12 };
            if (side === "in") points.splice(-1, 0, above);
            else points.splice(1, 0, above);
          }
          continue;
        }
      }
      const key = `${side} ${item}`;
      if (!ends.has(key)) ends.set(key, { place, list: [] });
      ends.get(key).list.push({ point, next });
    }
  }
  for (const { place, list } of ends.values()) {
    list.sort((a, b) => a.next.x - b.next.x);
    const room = Math.min(place.width * 0.6, (list.length - 1) * 26);
    list.forEach(({ point }, at) => {
      const part = list.length > 1 ? at / (list.length - 1) - 0.5 : 0;
      point.x = place.x + place.width / 2 + part * room;
    });
  }
}
