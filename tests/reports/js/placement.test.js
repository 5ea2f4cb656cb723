import assert from "node:assert/strict";
import { test } from "node:test";
import { Blocks, heldWords, listed } from "../../../reports/js/placement/blocks.js";
import { blockColour } from "../../../reports/js/placement/colours.js";
import {
  bins,
  drawnSlices,
  meshLayout,
  tensorLayout,
} from "../../../reports/js/placement/layout.js";

const mesh = (axes) => ({
  axes,
  devices: Object.values(axes).reduce((all, length) => all * length, 1),
});
const names = (axes) => axes.map((axis) => axis.name);

test("a device's slice in words", () => {
  const blocks = new Blocks({ digits: [[[4, 2]], []], shards: [4, 1] }, 8, [10, 6]);
  assert.equal(heldWords(blocks, [0, 0]), "rows 0..2 of 10 and all 6 columns");
  assert.equal(heldWords(blocks, [3, 0]), "row 9 of 10 and 2 of padding and all 6 columns");
  assert.equal(heldWords(new Blocks({ digits: [], shards: [] }, 8, []), []), "the scalar");
  const deep = new Blocks({ digits: [[[2, 1]], [], []], shards: [2, 1, 1] }, 2, [4, 5, 6]);
  assert.equal(heldWords(deep, [1, 0, 0]), "dim 0 2..3 of 4, all 5 of dim 1 and all 6 of dim 2");
});

test("blocks that are nothing but padding", () => {
  const blocks = new Blocks({ digits: [[[4, 1]]], shards: [4] }, 4, [5]);
  assert.deepEqual(blocks.index(3), [[5, 5]]);
  assert.equal(heldWords(blocks, [3]), "nothing but padding of elements");
});

test("lists that are cut short", () => {
  assert.equal(listed([1]), "1");
  assert.equal(listed([1, 2, 3]), "1, 2 and 3");
  assert.equal(listed([1, 2], 30_002), "1, 2 and 30,000 more");
});

test("holders of a block among very many devices are not found one by one", () => {
  const blocks = new Blocks({ digits: [[[16, 1]]], shards: [16] }, 2 ** 40, null);
  assert.deepEqual(blocks.holders([3], 3), [3, 19, 35]);
});

test("a small mesh is drawn whole, of a large one what differs", () => {
  const small = meshLayout(mesh({ a: 2, b: 2, c: 2 }), () => 0);
  assert.deepEqual([small.rows.name, small.columns.name], ["b", "c"]);
  assert.deepEqual(names(small.panels), ["a"]);
  const large = meshLayout(mesh({ a: 128, b: 16, c: 16 }), (axis) => (axis === "a" ? 2 : 0));
  assert.deepEqual([large.rows.name, large.columns.name], ["a", "c"]);
  assert.deepEqual([names(large.panels), names(large.same)], [[], ["b"]]);
  const wanted = meshLayout(mesh({ a: 128, b: 16, c: 16 }), () => 1, ["a", "b"]);
  assert.deepEqual([wanted.rows.name, wanted.columns.name], ["a", "b"]);
  assert.deepEqual(names(wanted.panels), ["c"]);
});

test("axes of size one are not drawn", () => {
  const layout = meshLayout(mesh({ a: 1, b: 2, c: 1, d: 4, e: 1 }), () => 0);
  assert.deepEqual([layout.rows.name, layout.columns.name], ["b", "d"]);
  assert.deepEqual([layout.rows.stride, layout.columns.stride], [4, 1]);
  assert.deepEqual([names(layout.panels), names(layout.same)], [[], []]);
  assert.equal(meshLayout(mesh({ a: 1, b: 1 }), () => 0).columns.name, "b");
});

test("all slices of a tensor are drawn where they are few, or the chosen one", () => {
  const layout = (shards) => tensorLayout(shards);
  const five = [2, 1, 2, 2, 4];
  assert.deepEqual(layout(five).sliced, [0, 2]);
  assert.deepEqual(drawnSlices(five, layout(five), [1, 0]), [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ]);
  const many = [16, 32, 32];
  assert.deepEqual(drawnSlices(many, layout(many), [3]), [[3]]);
  assert.deepEqual(drawnSlices([4, 2], layout([4, 2]), []), [[]]);
});

test("a long line of devices is broken into rows that have all of them", () => {
  for (const length of [17, 30, 64, 4096, 32768]) {
    const { rows, columns } = meshLayout(mesh({ x: length }), () => 2);
    assert.equal(rows.length * columns.length, length);
    assert.equal(rows.stride, columns.length);
  }
});

test("cells cover a line, and are never many", () => {
  for (const length of [1, 7, 32, 33, 100, 128, 1024, 32767]) {
    const cells = bins(length);
    assert.ok(cells.length <= 32);
    assert.equal(cells[0][0], 0);
    assert.equal(cells.at(-1)[1], length);
    cells.slice(1).forEach(([from], at) => {
      assert.equal(from, cells[at][1]);
    });
  }
});

test("which dimensions are laid out", () => {
  assert.deepEqual(tensorLayout([4, 1, 2]), { rows: 0, columns: 2, sliced: [] });
  assert.deepEqual(tensorLayout([2, 4, 8]), { rows: 1, columns: 2, sliced: [0] });
  assert.deepEqual(tensorLayout([2, 4, 8], [0, 1]), { rows: 0, columns: 1, sliced: [2] });
  assert.deepEqual(tensorLayout([4]), { rows: null, columns: 0, sliced: [] });
  assert.deepEqual(tensorLayout([]), { rows: null, columns: null, sliced: [] });
});

test("no two blocks have one colour, and neighbours differ in lightness", () => {
  for (const shards of [[2], [8], [32], [4, 2], [8, 8], [3, 1, 5]]) {
    const seen = new Set();
    const total = shards.reduce((all, count) => all * count, 1);
    for (let number = 0; number < total; number += 1) {
      let rest = number;
      const block = [...shards].reverse().map((count) => {
        const index = rest % count;
        rest = Math.floor(rest / count);
        return index;
      });
      seen.add(String(blockColour(block.reverse(), shards)));
    }
    assert.equal(seen.size, total, String(shards));
  }
  const [first, other] = [0, 1].map((at) => blockColour([at], [2])[0]);
  assert.ok(Math.abs(first[0] - other[0]) > 0.05);
});
