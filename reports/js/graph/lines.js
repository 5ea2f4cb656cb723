// The lines between the boxes of a group: which are drawn, how long they are, where they end.

/** Room above what is in a group for its title. */
export const HEAD = 30;

/** What enters and goes to more children than this is drawn only for what is chosen. */
const FAN = 6;

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

/** Sideways from one lane to another. */
export function across(from, to) {
  const right = from.x < to.x;
  const start = { x: right ? from.x + from.width : from.x, y: from.y + from.height / 2 };
  const end = { x: right ? to.x : to.x + to.width, y: to.y + to.height / 2 };
  return { points: [start, end], sideways: true };
}

/** Ends of edges at a node stand apart, in the order in which they come; at an open group, at its
 * door. */
export function spread(lines, places, up) {
  const ends = new Map();
  for (const line of lines) {
    for (const [item, at, side] of [
      [line.from, 0, "out"],
      [line.to, line.points.length - 1, "in"],
    ]) {
      if (item === null) continue;
      const place = places.get(item);
      const point = line.points[at];
      point.y = (side === "in") !== up ? place.y : place.y + place.height;
      if (place.laid) {
        const name = `${side} ${line.door ?? (side === "in" ? line.from : line.to)}`;
        const door = place.laid.doors.get(name);
        if (side === "in") line.intoOpen = true;
        if (door !== undefined) {
          point.x = place.x + door;
          if ((side === "in") !== up) point.y = place.y + HEAD - 8;
          continue;
        }
      }
      const key = `${side} ${item}`;
      if (!ends.has(key)) ends.set(key, { place, list: [] });
      const next = line.points[at === 0 ? 1 : at - 1];
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
