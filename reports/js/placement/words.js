// What is said of what is pointed at in a placement: a device, several in one cell, or a block.

import { el } from "../base/dom.js";
import { count, whole } from "../base/format.js";
import { axisName } from "../base/spec.js";
import { heldWords, listed } from "./blocks.js";
import { coordinates, deviceOrder } from "./mesh.js";

/** At most so many devices are named. */
const NAMED = 12;

export class PlacementWords {
  /**
   * @param {Blocks} blocks which device holds what.
   * @param {object} mesh the mesh of the devices.
   */
  constructor(blocks, mesh) {
    this.blocks = blocks;
    this.mesh = mesh;
  }

  /** What a cell of either picture shows. */
  cell(shown) {
    if (shown.device !== undefined && shown.to === 1) return this.device(shown.device);
    if (shown.device !== undefined) return this.#bin(shown);
    const { blocks } = this;
    const all = blocks.only !== null ? 1 : blocks.replicas * partialsOf(blocks);
    if (shown.blocks.size > 1) {
      const where = all === 1 ? "one device" : `${whole(all)} devices`;
      return [`${count(shown.blocks.size, "block")}, each on ${where}.`];
    }
    const holders = blocks.holders(shown.block, NAMED);
    const words = `${sentence(heldWords(blocks, shown.block))}: on ${all === 1 ? "device" : "devices"} `;
    return [words, el("strong", {}, listed(holders, all)), "."];
  }

  #bin(cell) {
    const last = cell.devices.at(-1);
    return [
      `${count(cell.count, "device")} (${cell.device} to ${last}) hold ${count(cell.blocks.size, "block")}.`,
    ];
  }

  /** What a device holds, and which others do. */
  device(device) {
    const { blocks, mesh } = this;
    const block = blocks.block(device);
    const position = this.positionOf(device);
    const indices = coordinates(mesh, position);
    const at = Object.keys(mesh.axes).map((name, number) => [
      number ? ", " : "",
      axisName(name),
      ` ${indices[name]}`,
    ]);
    const words = [el("strong", {}, `Device ${device}`), " (", ...at.flat(), ") "];
    if (!block) return [...words, "holds nothing."];
    words.push(`holds ${heldWords(blocks, block)}`);
    const all = blocks.only !== null ? 1 : blocks.replicas * partialsOf(blocks);
    if (blocks.unreduced.length) words.push(`, partial result ${blocks.partial(device)}`);
    if (all > 1) {
      const others = blocks.holders(block, NAMED + 1).filter((holder) => holder !== device);
      const rest = listed(others.slice(0, NAMED), all - 1);
      const alike = partialsOf(blocks) === 1;
      const held = alike ? count(all, "replica") : `${whole(all)} devices have this block`;
      words.push(`; ${held}, also on ${rest}`);
    } else words.push("; no other device does");
    return [...words, "."];
  }

  /** The position of a device in the mesh. */
  positionOf(device) {
    if (!this.mesh.order) return device;
    const deviceAt = deviceOrder(this.mesh);
    this.positions ??= new Map(
      Array.from({ length: this.mesh.devices }, (_, at) => [deviceAt(at), at]),
    );
    return this.positions.get(device) ?? device;
  }
}

/** How many devices share a block as parts that are still to be put together. */
function partialsOf(blocks) {
  return [...blocks.unreduced, ...blocks.manual].reduce((all, [size]) => all * size, 1);
}

function sentence(words) {
  return words[0].toUpperCase() + words.slice(1);
}
