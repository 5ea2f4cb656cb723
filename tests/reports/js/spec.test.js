import assert from "node:assert/strict";
import { test } from "node:test";
import { axisSpans, colourAxes } from "../../../reports/js/base/spec.js";

colourAxes([{ axes: { data: 4, model: 2 } }]);

const axes = (text) => axisSpans(text).map(([from, to]) => text.slice(from, to));

test("axes are found in shardings and in prose about them", () => {
  assert.deepEqual(axes("P(('data', 'model'), None)"), ["'data'", "'model'"]);
  assert.deepEqual(axes("all-reduce over data=4 x model:(1)2"), ["data", "model"]);
  assert.deepEqual(axes("[{model:(1)2}, {data, ?}]"), ["model", "data"]);
  assert.deepEqual(axes('<@mesh, [{"data", "model"}, {}]>'), ['"data"', '"model"']);
  assert.deepEqual(axes("dim 0 split 8 ways over data, model; replicated over model"), [
    "data",
    "model",
    "model",
  ]);
  assert.deepEqual(axes("it sums over (data, model)"), ["data", "model"]);
});

test("a text of axes alone is", () => {
  assert.deepEqual(axes("data, model"), ["data", "model"]);
  assert.deepEqual(axes("data"), ["data"]);
});

test("an argument that is called like an axis is none", () => {
  assert.deepEqual(axes("batch['data'] P('data', None)"), ["'data'"]);
  assert.deepEqual(axes("data P('model', None), for constraint at line 2"), ["'model'"]);
  assert.deepEqual(axes("it sums a dimension sharded over data by data P('data')"), [
    "data",
    "'data'",
  ]);
  assert.deepEqual(axes("the model is compiled"), []);
});
