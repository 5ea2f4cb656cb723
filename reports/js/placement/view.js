// Where a tensor is: the mesh beside the tensor's blocks, each device in the colour of its block.

import { el } from "../base/dom.js";
import { count, partitionerName, whole } from "../base/format.js";
import { axisName, coloured, spec } from "../base/spec.js";
import { Blocks } from "./blocks.js";
import { atOnce, drawnSlices, meshAxes, meshLayout, tensorLayout } from "./layout.js";
import { deviceOrder } from "./mesh.js";
import { placementPicks } from "./picks.js";
import { devicePicture, tensorPicture } from "./picture.js";
import { PlacementWords } from "./words.js";

/** Below this width the two pictures stand one above the other, in pixels. */
const NARROW = 300;

const WIDEST = 420;

/** Shows where a tensor is: its part of the tensor's details. */
export function detail(root, tensor, context) {
  const places = distinct(tensor);
  if (!places.length) return false;
  if (!meshOf(context.report.meshes)) return false;
  const picture = new Placement(root, tensor, places, context);
  picture.follow();
  return true;
}

/** The shardings that put a tensor at different places, where it is in the end first. */
function distinct(tensor) {
  const places = new Map();
  const add = (name, sharding) => {
    if (!sharding?.digits) return;
    const key = sharding.place;
    if (!places.has(key)) places.set(key, { sharding, names: [], mesh: undefined });
    const place = places.get(key);
    if (!name) return;
    place.names.push(name);
    // As it was written first: later stages may say the same by the axes of another mesh.
    place.mesh ??= sharding.mesh;
  };
  add("", tensor.sharding);
  for (const [name, sharding] of Object.entries(tensor.stages)) add(name, sharding);
  return [...places.values()];
}

/** The mesh that devices are drawn as: the sharding's own, or the one that has the most of them. */
function meshOf(meshes, name) {
  const own = meshes.find((mesh) => mesh.name === name);
  if (own) return own;
  const withAxes = meshes.filter((mesh) => Object.keys(mesh.axes).length);
  return withAxes.sort((a, b) => b.devices - a.devices)[0] ?? null;
}

function stageWords(name) {
  const [stage, partitioner] = name.split(".");
  return partitioner ? `${stage} ${partitionerName(partitioner)}` : stage;
}

class Placement {
  constructor(root, tensor, places, context) {
    Object.assign(this, { root, tensor, places, context });
    this.pointed = null;
    this.width = 0;
    this.said = el("p.placement-said", { "aria-live": "polite" });
    this.figures = el("div.placement-pictures");
    this.head = el("div.placement-head");
    this.picks = el("div.placement-picks");
    root.classList.add("placement");
    root.append(this.head, this.figures, this.said, this.picks);
  }

  /** Draws, and draws again when the address changes or there is more room or less. */
  follow() {
    let connected = false;
    const leave = this.context.state.subscribe(() => {
      connected ||= this.root.isConnected;
      if (this.root.isConnected) this.update();
      else if (connected) {
        leave();
        this.observer.disconnect();
      }
    });
    this.observer = new ResizeObserver(([entry]) => {
      const { width } = entry.contentRect;
      if (width && Math.abs(width - this.width) > 8) {
        this.width = width;
        this.draw();
      }
    });
    this.observer.observe(this.root);
    this.update();
  }

  /** Reads the address. */
  update() {
    const {
      at = "",
      dims = "",
      slice = "",
      axes = "",
      panel = "",
      device = "",
    } = this.context.state.params;
    const key = JSON.stringify([at, dims, slice, axes, panel]);
    const place = this.places.find((place) => place.names.includes(at)) ?? this.places[0];
    this.mesh = meshOf(this.context.report.meshes, place.mesh ?? place.sharding.mesh);
    const number = /^\d+$/.test(device) ? Number(device) : null;
    this.chosen = number !== null && number < this.mesh.devices ? number : null;
    if (key === this.key) {
      this.point(null);
      return;
    }
    this.key = key;
    this.deviceAt = deviceOrder(this.mesh);
    this.place = place;
    this.sharding = place.sharding;
    this.blocks = new Blocks(this.sharding, this.mesh.devices, this.tensor.shape);
    this.words = new PlacementWords(this.blocks, this.mesh);
    const numbers = (text) => text.split(".").filter(Boolean).map(Number);
    this.tensorLayout = tensorLayout(this.blocks.shards, numbers(dims));
    const sliced = numbers(slice);
    this.slice = this.tensorLayout.sliced.map((dim, position) => {
      const wanted = sliced[position] ?? 0;
      return wanted < this.blocks.shards[dim] ? wanted : 0;
    });
    this.slices = drawnSlices(this.blocks.shards, this.tensorLayout, this.slice);
    this.meshLayout = meshLayout(
      this.mesh,
      (axis) => this.#matters(axis),
      axes.split(",").filter(Boolean),
    );
    const pages = Math.ceil(this.#panels() / this.#shownPanels());
    const page = /^\d+$/.test(panel) ? Number(panel) : this.#panelOfSlice();
    this.panel = Math.min(page, pages - 1);
    this.#drawHead();
    this.#drawPicks();
    if (this.width) this.draw();
  }

  /** 2 where an axis of the mesh cuts a dimension that is laid out, 1 where another, else 0. */
  #matters(name) {
    const axes = Object.keys(this.mesh.axes);
    const at = axes.indexOf(name);
    const stride = axes.slice(at + 1).reduce((all, axis) => all * this.mesh.axes[axis], 1);
    const { rows, columns } = this.tensorLayout;
    const first = this.deviceAt(0);
    const before = this.blocks.block(first);
    let change = 0;
    for (let index = 1; change < 2 && index < this.mesh.axes[name]; index += 1) {
      const device = this.deviceAt(index * stride);
      const block = this.blocks.block(device);
      const laid = (dim) => dim !== null && block?.[dim] !== before?.[dim];
      if (laid(rows) || laid(columns)) change = 2;
      else if (
        String(block) !== String(before) ||
        this.blocks.partial(device) !== this.blocks.partial(first)
      ) {
        change = 1;
      }
    }
    return change;
  }

  /** The panels among which is the first device that holds a block of the slice. */
  #panelOfSlice() {
    const { sliced } = this.tensorLayout;
    const block = this.blocks.shards.map((_, dim) => this.slice[sliced.indexOf(dim)] ?? 0);
    const position = this.words.positionOf(this.blocks.holders(block, 1)[0]);
    const number = meshAxes(this.mesh)
      .filter((axis) => this.meshLayout.panels.some((panel) => panel.name === axis.name))
      .reduce((sum, { length, stride }) => {
        return sum * length + (Math.floor(position / stride) % length);
      }, 0);
    return Math.floor(number / this.#shownPanels());
  }

  #panels() {
    return this.meshLayout.panels.reduce((all, axis) => all * axis.length, 1);
  }

  /** How many panels are drawn at once: as many as there are cells for. */
  #shownPanels() {
    const { columns, rows } = this.meshLayout;
    return Math.min(atOnce(rows.length, columns.length), this.#panels());
  }

  #drawHead() {
    const { sharding, blocks } = this;
    const several = this.places.length > 1;
    const facts = [
      el("p.placement-words", {}, coloured(this.#summary())),
      blocks.unreduced.length
        ? el(
            "p.placement-note",
            { data: { tone: "warning" } },
            `Unreduced: the replicas of a block are partial results, still to be reduced; “+” numbers them.`,
          )
        : null,
      blocks.manual.length
        ? el(
            "p.placement-note",
            {},
            "Manual: ",
            (sharding.manual ?? []).length
              ? [
                  sharding.manual.map((axis, at) => [at ? ", " : "", axisName(axis)]),
                  " is split by the program itself (shard_map). ",
                ]
              : "the program itself (shard_map) splits it along some axes. ",
            "What is drawn is the block of one such part.",
          )
        : null,
      sharding.open?.length
        ? el(
            "p.placement-note",
            {},
            `Open: propagation may cut dim ${sharding.open.join(", ")} further.`,
          )
        : null,
    ];
    this.head.replaceChildren(
      ...[
        several
          ? el(
              "div.segments.placement-stages",
              { role: "group", "aria-label": "Stage" },
              this.places.map((place) => this.#stage(place)),
            )
          : null,
        several ? el("p", {}, spec(sharding.short || "replicated")) : null,
        ...facts,
      ].filter(Boolean),
    );
  }

  #stage(place) {
    const words = place.names.length ? stageWords(place.names.at(-1)) : "in the end";
    return el(
      "button.segment",
      {
        type: "button",
        "aria-pressed": String(place === this.place),
        title: place.names.map(stageWords).join(", "),
        on: { click: () => this.context.state.set({ at: place.names[0] ?? "" }) },
      },
      words,
    );
  }

  #summary() {
    const { blocks, sharding } = this;
    if (blocks.only !== null) return `Device ${blocks.only} alone holds all of it.`;
    const parts = [];
    const held = blocks.count;
    if (held === 1)
      parts.push(`Every device holds all of it: ${count(blocks.replicas, "replica")}.`);
    else {
      const each =
        blocks.replicas === 1
          ? "each on one device"
          : `each on ${count(blocks.replicas, "device")} (${whole(blocks.replicas)} replicas)`;
      parts.push(`${count(held, "block")}, ${each}.`);
    }
    if (sharding.padding?.some(Boolean)) {
      const padded = sharding.padding
        .map((size, dim) => (size ? `dim ${dim} by ${size}` : ""))
        .filter(Boolean);
      parts.push(`Uneven: padded in ${padded.join(", ")} (hatched).`);
    }
    return parts.join(" ");
  }

  #drawPicks() {
    const { state } = this.context;
    const pages = Math.ceil(this.#panels() / this.#shownPanels());
    const { blocks, tensorLayout, meshLayout, mesh, slice, panel } = this;
    const chosen = this.slices.length === 1;
    const shown = { blocks, tensorLayout, meshLayout, mesh, slice, chosen, panel, pages, state };
    const picks = placementPicks(shown);
    this.picks.replaceChildren(...picks);
    this.picks.hidden = !picks.length;
  }

  /** Draws both pictures for the room that there is. */
  draw() {
    const focused = this.figures.contains(document.activeElement)
      ? document.activeElement.dataset.picture
      : "";
    const room = Math.min(this.width, WIDEST * 2 + 24);
    const beside = room >= NARROW;
    const each = beside ? Math.min(WIDEST, Math.floor((room - 24) / 2)) : room;
    const handlers = {
      point: (cell) => this.point(cell),
      choose: (cell) => this.choose(cell),
    };
    this.devices = devicePicture(this, each, handlers);
    this.tensorCells = tensorPicture(this, each, handlers);
    this.figures.replaceChildren(
      figure(`Mesh, ${count(this.mesh.devices, "device")}`, this.devices.element),
      figure(this.#tensorTitle(), this.tensorCells.element),
    );
    if (focused) this.figures.querySelector(`[data-picture="${focused}"]`)?.focus();
    this.point(null);
  }

  #tensorTitle() {
    const { shape } = this.tensor;
    return shape ? `Tensor ${this.tensor.dtype}[${shape.join(",")}]` : "Tensor";
  }

  /** A device was clicked: it stays marked, the address says it, and its block is drawn. */
  choose(cell) {
    const device = cell.device ?? this.blocks.holders(cell.block, 1)[0];
    const again = this.chosen === device;
    const block = this.blocks.block(device);
    const slice = block && this.tensorLayout.sliced.map((dim) => block[dim]);
    const isDrawn = !slice || this.slices.some((other) => String(other) === String(slice));
    this.context.state.set({
      device: again ? "" : String(device),
      ...(again || isDrawn ? {} : { slice: slice.join("."), panel: String(this.panel) }),
    });
  }

  /** Marks what belongs to a cell of either picture; with null, to what is chosen. */
  point(cell) {
    if (!this.devices) return;
    const shown = cell ?? this.devices.cells.find((cell) => cell.holds(this.chosen)) ?? null;
    const wanted = shown?.blocks ?? null;
    for (const picture of [this.devices, this.tensorCells]) {
      for (const cell of picture.cells) {
        const same = wanted !== null && overlaps(cell.blocks, wanted);
        const itself = cell === shown;
        const state = wanted === null ? "" : itself ? "itself" : same ? "same" : "other";
        if (cell.state !== state) {
          cell.state = state;
          cell.element.dataset.state = state;
        }
      }
    }
    if (cell === null && this.chosen !== null) {
      this.said.replaceChildren(...this.words.device(this.chosen));
    } else if (shown) this.said.replaceChildren(...this.words.cell(shown));
    else {
      const words = "Point at a device or a block: the other picture shows what belongs to it.";
      this.said.replaceChildren(el("span.muted", {}, words));
    }
  }
}

function overlaps(blocks, other) {
  const [small, large] = blocks.size < other.size ? [blocks, other] : [other, blocks];
  for (const block of small) if (large.has(block)) return true;
  return false;
}

function figure(title, picture) {
  return el("figure.placement-figure", {}, el("figcaption", {}, title), picture);
}
