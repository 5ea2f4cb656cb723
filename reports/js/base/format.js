// Numbers and names in few words, as the command line writes them.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** A number of bytes in binary units: "512 B", "1.5 MiB"; a dash for null. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let value = bytes;
  let unit = -1;
  // 1023.95 would be shown as 1024.0
  do {
    value /= 1024;
    unit += 1;
  } while (Math.abs(value) >= 1023.95 && unit < UNITS.length - 1);
  // toFixed rounds a quarter up, the command line to the even digit.
  const tie = Math.abs(value) % 1 === 0.25 ? Math.sign(value) * 0.05 : 0;
  return `${(value - tie).toFixed(1)} ${UNITS[unit]}`;
}

/** "1 tensor", "2,000 tensors". */
export function count(number, singular, plural = `${singular}s`) {
  return `${whole(number)} ${number === 1 ? singular : plural}`;
}

const apart = new Intl.NumberFormat("en-US");

/** A whole number with its thousands apart; a dash for null. */
export function whole(number) {
  if (number === null || number === undefined) return "–";
  return number < 1000 && number > -1000 ? String(number) : apart.format(number);
}

/** "f32[128,256]"; "f32[?]" where the shape is not known. */
export function type(dtype, shape) {
  return `${dtype}${dims(shape)}`;
}

/** "[128,256]"; "[?]" where it is not known. */
export function dims(shape) {
  return shape ? `[${shape.join(",")}]` : "[?]";
}

/** What people call a partitioner. */
export function partitionerName(partitioner) {
  return { shardy: "Shardy", gspmd: "GSPMD" }[partitioner] ?? partitioner;
}
