// Which block of a tensor each device holds: the same as `Placement` of sdyscope/values/placement.py.
//
// A device's number is read as digits, `device / stride % size`. Nothing here grows with the number
// of devices but what lists them.

/** The number that some digits of a number make, the most significant first. */
function digitsOf(digits, number) {
  let value = 0;
  for (const [size, stride] of digits) value = value * size + (Math.floor(number / stride) % size);
  return value;
}

const product = (numbers) => numbers.reduce((all, number) => all * number, 1);

/** A sharding over a number of devices, as the page has it; see reports/README.md. */
export class Blocks {
  /**
   * @param {object} sharding its `digits`, `shards` and `replicas`, and `order`, `device`,
   *   `unreduced`, `manualDigits`.
   * @param {number} devices how many there are.
   * @param {number[] | null} [shape] of the whole tensor.
   */
  constructor(sharding, devices, shape = null) {
    this.dims = sharding.digits;
    this.devices = devices;
    this.shape = shape && shape.length === this.dims.length ? shape : null;
    this.order = sharding.order ?? null;
    this.only = sharding.device ?? null;
    this.unreduced = sharding.unreduced ?? [];
    this.manual = sharding.manualDigits ?? [];
    this.shards = sharding.shards;
    this.replicas = sharding.replicas;
  }

  /** The number whose digits are meant: of a device that stands in no regular order, its place. */
  #position(device) {
    if (!this.order) return device;
    this.places ??= new Map(this.order.map((device, position) => [device, position]));
    return this.places.get(device);
  }

  /** Which block of each dimension a device holds; null when it holds nothing. */
  block(device) {
    if (this.only !== null && device !== this.only) return null;
    const position = this.#position(device);
    return this.dims.map((digits) => digitsOf(digits, position));
  }

  /** Which of the partial results a device holds, that are still to be reduced. */
  partial(device) {
    return digitsOf(this.unreduced, this.#position(device));
  }

  /** The numbers of blocks along each dimension as one, rows first; null for null. */
  linear(block) {
    return block?.reduce((sum, index, dim) => sum * this.shards[dim] + index, 0) ?? null;
  }

  /** How many blocks there are. */
  get count() {
    return product(this.shards);
  }

  /** Elements of a dimension in a block, padding included. */
  extent(dim) {
    return Math.ceil(this.shape[dim] / this.shards[dim]);
  }

  /** From and to which element, the latter not included, a block goes in a dimension. */
  range(dim, index) {
    const extent = this.extent(dim);
    const size = this.shape[dim];
    return [Math.min(index * extent, size), Math.min((index + 1) * extent, size)];
  }

  /** The slice of each dimension that a device holds; null when it holds nothing. */
  index(device) {
    const block = this.block(device);
    return block?.map((index, dim) => this.range(dim, index)) ?? null;
  }

  /** Devices that hold a block, in order, at most so many of them. */
  holders(block, most = Number.POSITIVE_INFINITY) {
    if (this.only !== null) return [this.only];
    let base = 0;
    const fixed = this.dims.flatMap((digits, dim) => {
      let rest = block[dim];
      for (const [size, stride] of [...digits].reverse()) {
        base += (rest % size) * stride;
        rest = Math.floor(rest / size);
      }
      return digits;
    });
    const free = gaps(fixed, this.devices);
    const count = product(free.map(([size]) => size));
    const holders = [];
    for (let number = 0; number < count && (this.order || holders.length < most); number += 1) {
      let rest = number;
      let position = base;
      for (const [size, stride] of free) {
        position += (rest % size) * stride;
        rest = Math.floor(rest / size);
      }
      holders.push(this.order ? this.order[position] : position);
    }
    return holders.sort((a, b) => a - b).slice(0, most);
  }
}

/** The digits of numbers below `count` that are not among some, the least significant first. */
function gaps(digits, count) {
  const missing = [];
  let top = 1;
  for (const [size, stride] of [...digits].sort((a, b) => a[1] - b[1])) {
    if (stride > top) missing.push([stride / top, top]);
    top = size * stride;
  }
  if (count > top) missing.push([count / top, top]);
  return missing;
}

/** What a device holds of each dimension, in words: "rows 64..95 of 128 and all 256 columns". */
export function heldWords(blocks, block) {
  if (!blocks.shape) return `block (${block.join(", ")})`;
  if (!block.length) return "the scalar";
  const { shape } = blocks;
  const names = { 1: ["elements"], 2: ["rows", "columns"] }[shape.length];
  const parts = shape.map((size, dim) => {
    const name = names?.[dim] ?? `dim ${dim}`;
    const [from, to] = blocks.range(dim, block[dim]);
    if (blocks.shards[dim] === 1) return names ? `all ${size} ${name}` : `all ${size} of ${name}`;
    const range = to === from + 1 ? `${from}` : `${from}..${to - 1}`;
    const padding = blocks.extent(dim) - (to - from);
    const padded = padding ? ` and ${padding} of padding` : "";
    const label = names && to === from + 1 ? name.slice(0, -1) : name;
    if (to === from) return `nothing but padding of ${name}`;
    return `${label} ${range} of ${size}${padded}`;
  });
  return parts.length < 3
    ? parts.join(" and ")
    : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** "1, 3, 5 and 29 more". */
export function listed(numbers, count = numbers.length) {
  const more = count - numbers.length;
  if (more > 0) return `${numbers.join(", ")} and ${more.toLocaleString("en-US")} more`;
  if (numbers.length < 2) return numbers.join("");
  return `${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}`;
}
