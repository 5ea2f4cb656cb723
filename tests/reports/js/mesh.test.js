import assert from "node:assert/strict";
import { test } from "node:test";
import { size } from "../../../reports/js/base/format.js";
import { coordinates, deviceOrder } from "../../../reports/js/placement/mesh.js";

const devices = (order, count) => {
  const at = deviceOrder({ order });
  return Array.from({ length: count }, (_, position) => at(position));
};

test("the device at each position", () => {
  assert.deepEqual(devices("", 4), [0, 1, 2, 3]);
  assert.deepEqual(devices("[4,2]T(1,0)", 8), [0, 2, 4, 6, 1, 3, 5, 7]);
  assert.deepEqual(devices("[2,2,2]T(2,0,1)", 8), [0, 2, 4, 6, 1, 3, 5, 7]);
  assert.deepEqual(devices("3,1,0,2", 4), [3, 1, 0, 2]);
});

test("the index along each axis", () => {
  const mesh = { axes: { a: 2, b: 3, c: 4 } };
  assert.deepEqual(coordinates(mesh, 17), { a: 1, b: 1, c: 1 });
});

test("bytes as the command line writes them", () => {
  assert.equal(size(1023), "1023 B");
  assert.equal(size(1536), "1.5 KiB");
  assert.equal(size(5376), "5.2 KiB");
  assert.equal(size(5888), "5.8 KiB");
  assert.equal(size(1024 * 1023.96), "1.0 MiB");
  assert.equal(size(null), "–");
});
