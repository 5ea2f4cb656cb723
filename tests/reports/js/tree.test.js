import assert from "node:assert/strict";
import { test } from "node:test";
import { pieceLabel, pytreePieces, scopePieces, Tree } from "../../../reports/js/tensors/tree.js";

test("a pytree path is cut where it was made", () => {
  assert.deepEqual(pytreePieces("opt_state[0].mu['layers'][0]['w.q[1]']"), [
    "opt_state",
    "[0]",
    ".mu",
    "['layers']",
    "[0]",
    "['w.q[1]']",
  ]);
  for (const odd of ["", "]][[", "a..b", "['unclosed", "x".repeat(10000)]) {
    assert.equal(pytreePieces(odd).join(""), odd);
  }
});

test("a key that is a path is cut like one", () => {
  const name = "params['mlp/~/linear_0']['w']";
  assert.deepEqual(pytreePieces(name), ["params", "['mlp/", "~/", "linear_0']", "['w']"]);
  assert.deepEqual(pytreePieces(name).map(pieceLabel), ["params", "mlp", "~", "linear_0", "['w']"]);
  assert.equal(pieceLabel("['mlp/~/"), "mlp/~");
  for (const odd of ["['/']", "['a/b", '["a/b"]', "['a\\'/b']", "jvp(f)/g"]) {
    assert.equal(pytreePieces(odd).join(""), odd);
  }
});

test("very deep paths keep everything", () => {
  const deep = Array.from({ length: 500 }, (_, at) => `s${at}`).join("/");
  assert.equal(scopePieces(deep).join("/"), deep);
  assert.ok(scopePieces(deep).length < 50);
});

const paths = ["a/b/c", "a/b/d", "a/e", "f", "g/h/i"];
const join = (labels) => labels.join("/");
const tree = () => new Tree(paths.length, (row) => paths[row].split("/"), join);

test("names that stand alone are joined, but not the first", () => {
  const labels = tree().nodes.map((node) => node.label);
  assert.deepEqual(labels, ["", "a", "b", "c", "d", "e", "f", "g", "h/i"]);
});

test("lines are the open groups and the rows that match", () => {
  const folders = tree();
  const lines = folders.lines(null, (node) => node.label === "a");
  assert.deepEqual(
    lines.map((line) => (typeof line === "number" ? line : line.label)),
    ["a", "b", "e", "f", "g"],
  );
  const matches = Uint8Array.from([0, 1, 0, 0, 1]);
  const shown = folders.lines(matches, () => true);
  assert.deepEqual(
    shown.map((line) => (typeof line === "number" ? line : `${line.label} ${line.shown}`)),
    ["a 1", "b 1", "d 1", 1, "g 1", "h/i 1", 4],
  );
});

test("totals go up to the root", () => {
  const folders = tree();
  const totals = folders.totals((sum, row) => sum + row);
  assert.equal(totals[0], 10);
  assert.equal(totals[1], 3);
});

test("siblings are sorted, groups beside rows", () => {
  const folders = tree();
  folders.sort(
    (a, b) => (typeof b === "number" ? b : -b.count) - (typeof a === "number" ? a : -a.count),
  );
  const lines = folders.lines(null, () => false);
  assert.equal(lines.length, 3);
});
