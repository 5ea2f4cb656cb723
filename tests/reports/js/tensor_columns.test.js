import assert from "node:assert/strict";
import { test } from "node:test";
import { Shared } from "../../../reports/js/base/data.js";
import { granted } from "../../../reports/js/base/table.js";
import { columns } from "../../../reports/js/tensors/columns.js";
import { Rows } from "../../../reports/js/tensors/rows.js";

const SPEC = "P(('data', 'model'), None, None)";
const BLOCK = [262144, 1024, 1024, 32, 32, 64];
const shared = new Shared({
  shardings: [{ text: "", short: SPEC, shards: [8], block: BLOCK, padding: [1, 0, 0, 0, 0, 0] }],
  sources: { rows: 0, columns: { file: { values: [] }, line: { values: [] } } },
});
const only = (value) => ({ values: [value] });
const rows = new Rows(
  {
    rows: 1,
    partitioners: ["shardy"],
    stages: { propagated: [], compiled: [], executed: [] },
    columns: {
      key: only("x"),
      section: only("argument"),
      name: only("x"),
      kind: only("argument"),
      dtype: only("bf16"),
      shape: only([2097152, 1024, 1024, 32, 32, 64]),
      requested: only(null),
      verdict: only("decided"),
      "lowered.shardy": only(0),
    },
  },
  shared,
);

test("a column has room for all that is in it, where there is some", () => {
  const texts = {
    type: "bf16[2097152,1024,1024,32,32,64]",
    "lowered.shardy": SPEC,
    block: `[${BLOCK}] pad`,
  };
  for (const { name, chars } of columns(rows, [], [], () => true)) {
    const room = typeof chars === "function" ? chars(() => false) : chars;
    if (texts[name]) assert.ok(room >= texts[name].length, `${name}: ${room}`);
  }
});

test("of what is left over contents that would be cut have theirs first, short ones whole", () => {
  const [text, other] = [{ whole: true }, {}];
  assert.deepEqual(granted([text, text, other, text], [3, 40, 10, 5], 28), [3, 20, 0, 5]);
  assert.deepEqual(granted([other, text, other], [20, 4, 40], 34), [10, 4, 20]);
  assert.deepEqual(granted([text, other], [3, 4], 28), [3, 4]);
  assert.deepEqual(granted([text, other], [3, 4], -1), [0, 0]);
});
