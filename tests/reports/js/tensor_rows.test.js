import assert from "node:assert/strict";
import { test } from "node:test";
import { Shared } from "../../../reports/js/base/data.js";
import { Rows } from "../../../reports/js/tensors/rows.js";

const ROWS = 1000;
const each = (value) => ({ values: Array.from({ length: ROWS }, (_, row) => value(row)) });
const shared = new Shared({
  shardings: [
    { text: "", short: "P('a')" },
    { text: "", short: "P('b')" },
  ],
  sources: { rows: 1, columns: { file: { values: ["step.py"] }, line: { values: [7] } } },
});
const newRows = () =>
  new Rows(
    {
      rows: ROWS,
      partitioners: ["shardy", "gspmd"],
      stages: { propagated: ["shardy", "gspmd"] },
      columns: {
        key: each((row) => `%${row}`),
        section: each(() => "inside"),
        name: each((row) => `Layer${row % 4}`),
        kind: each(() => "stablehlo.add"),
        op: each(() => "add"),
        ssa: each((row) => `%${row}`),
        dtype: each(() => "f32"),
        shape: each(() => [8]),
        source: each(() => 0),
        verdict: each((row) => (row % 2 ? "decided" : "agrees")),
        requested: each(() => null),
        "propagated.shardy": each(() => 0),
        "propagated.gspmd": each((row) => (row === 3 ? 1 : 0)),
      },
    },
    shared,
  );

test("what a search looks at is put together in pieces, and is the same then", () => {
  const rows = newRows();
  let looks = 0;
  assert.equal(
    rows.prepare(() => {
      looks += 1;
      return false;
    }),
    false,
  );
  assert.equal(looks, 1);
  assert.ok(rows.texts.length > 0 && rows.texts.length < ROWS);
  while (!rows.prepare(() => false));
  assert.deepEqual(rows.texts, newRows().haystacks());
});

test("a search finds names, sources and the shardings of every stage", () => {
  const rows = newRows();
  const matchCount = (query) => rows.matches({ query }).reduce((sum, match) => sum + match, 0);
  assert.equal(matchCount("layer1 ADD"), ROWS / 4);
  assert.equal(matchCount("step.py:7"), ROWS);
  assert.equal(matchCount("p('a')"), ROWS);
  assert.equal(matchCount("p('b')"), 1);
  assert.equal(matchCount("nothing"), 0);
  assert.equal(rows.matches({}), null);
});
