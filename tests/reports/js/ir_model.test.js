import assert from "node:assert/strict";
import { test } from "node:test";
import { Module, marked, tokens } from "../../../reports/js/ir/model.js";

const TEXT = `module @jit_f {
  func.func public @main(%arg0: tensor<4xf32>,
      %arg1: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<4xf32>
    %1:2 = stablehlo.while(%iterArg = %0, %iterArg_0 = %arg1) : tensor<4xf32>, tensor<4xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg, %0 : tensor<4xi1>
      stablehlo.return %3 : tensor<4xi1>
    } do {
      %3 = func.call @g(%iterArg_0) : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %3, %iterArg : tensor<4xf32>, tensor<4xf32>
    }
    %2 = stablehlo.add %1#0, %0 : tensor<4xf32>
    return {a = "%0 %9"} %2 : tensor<4xf32>
  }
  func.func private @g(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}`;

const lines = TEXT.split("\n");
const module = new Module(lines);

test("a name is the definition of its own region and function", () => {
  const zero = module.find("%0");
  assert.equal(module.definedAt[zero], 3);
  assert.deepEqual(module.uses(zero), [4, 6, 12]);
  const other = module.find("g:%0");
  assert.equal(module.definedAt[other], 16);
  assert.deepEqual(module.uses(other), [17]);
  assert.equal(module.address(other), "g:%0");
  assert.equal(module.address(zero), "%0");
});

test("the same name in sibling regions is two values", () => {
  const threes = module.names.flatMap((name, at) => (name === "%3" ? [at] : []));
  assert.deepEqual(
    threes.map((definition) => [module.definedAt[definition], module.uses(definition)]),
    [
      [6, [7]],
      [9, [10]],
    ],
  );
  assert.deepEqual(
    threes.map((definition) => module.address(definition)),
    ["%3", "%3~2"],
  );
  assert.deepEqual(
    ["%3", "%3~2"].map((address) => module.find(address)),
    threes,
  );
  assert.deepEqual([...new Set(threes.map((three) => module.written(three)))], ["%3"]);
  assert.equal(module.find("%3~3"), -1);
});

test("arguments of functions on any of their lines, and of loops, are definitions", () => {
  assert.equal(module.definedAt[module.find("%arg1")], 2);
  assert.deepEqual(module.uses(module.find("%arg1")), [3, 4]);
  assert.deepEqual(module.uses(module.find("%iterArg")), [6, 10]);
  assert.deepEqual(module.uses(module.find("g:%arg0")), [16]);
});

test("results of one op are one name", () => {
  assert.equal(module.find("%1#1"), module.find("%1"));
  assert.deepEqual(module.uses(module.find("%1")), [12]);
});

test("every name in a line is resolved, or said not to be", () => {
  assert.equal(module.find("%nothing"), -1);
  assert.equal(module.find("h:%0"), -1);
  for (let line = 0; line < lines.length; line += 1) {
    const names = lines[line].replace(/".*"/, "").match(/%[\w.$-]+/g) ?? [];
    names.forEach((name, at) => {
      assert.equal(module.names[module.definition(line, at)], name);
    });
  }
});

test("regions fold from the line that opens them to the one that closes", () => {
  assert.equal(module.ends[0], lines.length - 1);
  assert.equal(module.ends[2], 14);
  assert.equal(module.ends[5], 7);
  assert.equal(module.ends[8], 11);
  const visible = module.visible(new Set([2]));
  assert.deepEqual(visible.slice(0, 5), [0, 1, 2, 14, 15]);
});

test("tokens are the text again, whatever it is", () => {
  for (const text of [
    ...lines,
    '<script>"%0" #sdy.sharding<@mesh, [{"a"}]> /* 1 */ %',
    "",
    "\\\"'",
  ]) {
    assert.equal(
      tokens(text)
        .map(([, piece]) => piece)
        .join(""),
      text,
    );
  }
  assert.deepEqual(
    tokens('%0 = stablehlo.add "%1" @g').filter(([kind]) => kind),
    [
      ["value", "%0"],
      ["op", "stablehlo.add"],
      ["string", '"%1"'],
      ["symbol", "@g"],
    ],
  );
});

test("what is marked is cut out of the tokens, and nothing is lost", () => {
  const text =
    '%0 = stablehlo.add %a {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>} : tensor<4xf32>';
  const from = text.indexOf("sdy.sharding =");
  const to = text.indexOf("} : tensor");
  const runs = marked(tokens(text), [from, to, "added"]);
  const words = ({ pieces }) => pieces.map(([, piece]) => piece).join("");
  assert.deepEqual(
    runs.map(({ change }) => change),
    ["", "added", ""],
  );
  assert.equal(words(runs[1]), 'sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>');
  assert.equal(runs.map(words).join(""), text);
  const twice = marked(tokens(text), [0, 2, "added", from, to, "changed"]);
  assert.deepEqual(
    twice.map(({ change }) => change),
    ["added", "", "changed", ""],
  );
  assert.equal(twice.map(words).join(""), text);
  assert.deepEqual(marked(tokens(text), []), [{ change: "", pieces: tokens(text) }]);
});
