import assert from "node:assert/strict";
import { test } from "node:test";
import { Layout } from "../../../reports/js/graph/layout.js";
import { GraphModel, ROOT } from "../../../reports/js/graph/model.js";
import {
  lanes,
  oneLevelMore,
  openAtFirst,
  readOpen,
  writeOpen,
} from "../../../reports/js/graph/open.js";
import { Pan } from "../../../reports/js/graph/pan.js";
import { path, route } from "../../../reports/js/graph/route.js";
import { StepValues } from "../../../reports/js/propagation/values.js";
import * as dagre from "../../../reports/vendor/dagre.js";

const column = (values) => ({ values });

// x -> convert -> a -> b in lane 0, group 1; b -> c in lane 0; c -> d in lane 2.
function program(more = {}) {
  const nodes = [
    ["argument", "x", []],
    ["convert", "", [1]],
    ["tanh", "", [1]],
    ["exp", "", [1]],
    ["add", "", [1, 2]],
    ["multiply", "", [1]],
    ["constant", "", []],
  ];
  return {
    partitioners: ["shardy"],
    nodes: {
      rows: nodes.length,
      columns: {
        kind: column(nodes.map(([kind]) => kind)),
        name: column(nodes.map(([, name]) => name)),
        ssa: column(nodes.map((_, at) => `%${at}`)),
        group: column([0, 1, 1, 1, 0, 2, 0]),
        results: column(nodes.map(() => 1)),
        type: column(nodes.map(() => "f32[8]")),
        splat: column(nodes.map(([kind]) => Number(kind === "constant"))),
        operands: column(nodes.map(([, , operands]) => operands)),
      },
    },
    groups: {
      rows: 3,
      columns: {
        parent: column([null, 0, null]),
        name: column(["Forward", "block", "Backward"]),
        kind: column(["lane", "scope", "lane"]),
        ssa: column(["", "", ""]),
      },
    },
    inputs: { node: [0], group: [1] },
    marks: {},
    sent: {},
    ...more,
  };
}

const FORWARD = 7;
const BLOCK = 8;
const BACKWARD = 9;
const CHIP = 10;

test("what only changes a form is passed through, unless all is drawn or it is marked", () => {
  const model = new GraphModel(program());
  assert.deepEqual(model.childrenOf.get(BLOCK), [CHIP, 2, 3]);
  assert.deepEqual(
    Array.from(model.from, (from, use) => [from, model.to[use]]),
    [
      [CHIP, 2],
      [2, 3],
      [3, 4],
      [2, 4],
      [4, 5],
    ],
  );
  assert.deepEqual(new GraphModel(program(), true).childrenOf.get(BLOCK), [CHIP, 1, 2, 3]);
  const mark = { rows: 1, columns: { node: column([1]) } };
  const marked = new GraphModel(program({ marks: { shardy: mark } }));
  assert.ok(marked.childrenOf.get(BLOCK).includes(1));
});

test("edges of a level are between its children, or through a door named by the neighbour", () => {
  const model = new GraphModel(program());
  const said = (group) =>
    model.level(group).edges.map(({ from, to, door, uses }) => [from, to, door, uses.length]);
  assert.deepEqual(said(FORWARD), [[BLOCK, 4, null, 2]]);
  assert.deepEqual(said(BLOCK), [
    [CHIP, 2, null, 1],
    [2, 3, null, 1],
    [3, null, 4, 1],
    [2, null, 4, 1],
  ]);
  assert.deepEqual(model.level(ROOT).across, [4]);
});

test("what is drawn of something is the outermost group around it that is closed", () => {
  const model = new GraphModel(program());
  assert.equal(model.drawn(3, new Set()), FORWARD);
  assert.equal(model.drawn(3, new Set([FORWARD])), BLOCK);
  assert.equal(model.drawn(3, new Set([FORWARD, BLOCK])), 3);
  assert.ok(model.isIn(3, FORWARD));
  assert.ok(!model.isIn(3, BACKWARD));
});

function pictureOf(open, model = new GraphModel(program())) {
  const layout = new Layout(model, dagre, () => ({ width: 100, height: 40 }));
  return layout.picture(new Set(open));
}

test("nothing overlaps, children are inside, and edges end at boxes", () => {
  const { boxes, edges } = pictureOf([FORWARD, BLOCK, BACKWARD]);
  const inside = (a, b) =>
    a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width && a.y + a.height <= b.y + b.height;
  for (const child of [CHIP, 2, 3]) assert.ok(inside(boxes.get(child), boxes.get(BLOCK)));
  assert.ok(inside(boxes.get(BLOCK), boxes.get(FORWARD)));
  const leaves = [CHIP, 2, 3, 4, 5].map((item) => boxes.get(item));
  for (const [at, a] of leaves.entries()) {
    for (const b of leaves.slice(at + 1)) {
      const apart =
        a.x + a.width <= b.x ||
        b.x + b.width <= a.x ||
        a.y + a.height <= b.y ||
        b.y + b.height <= a.y;
      assert.ok(apart);
    }
  }
  const into = edges.find(({ from, to }) => from === BLOCK && to === 4);
  const box = boxes.get(4);
  assert.equal(into.points.at(-1).y, box.y);
  assert.ok(into.points.at(-1).x >= box.x && into.points.at(-1).x <= box.x + box.width);
});

/** One op with many inputs, or one whose result goes to many, in one lane. */
function fan(count, fromHub) {
  const ends = Array.from({ length: count }, (_, at) => at + 1);
  // Operands are named by how many ops before they are.
  const all = fromHub
    ? [["tanh", []], ...ends.map((before) => ["exp", [before]])]
    : [...ends.map(() => ["exp", []]), ["add", ends]];
  return {
    partitioners: ["shardy"],
    nodes: {
      rows: all.length,
      columns: {
        kind: column(all.map(([kind]) => kind)),
        name: column(all.map(() => "")),
        ssa: column(all.map((_, at) => `%${at}`)),
        group: column(all.map(() => 0)),
        results: column(all.map(() => 1)),
        type: column(all.map(() => "f32[8]")),
        splat: column(all.map(() => 0)),
        operands: column(all.map(([, operands]) => operands)),
      },
    },
    groups: {
      rows: 1,
      columns: {
        parent: column([null]),
        name: column(["Forward"]),
        kind: column(["lane"]),
        ssa: column([""]),
      },
    },
    inputs: { node: [], group: [] },
    marks: {},
    sent: {},
  };
}

test("many boxes with an edge to the same one stand in rows, their lines beside them", () => {
  for (const fromHub of [false, true]) {
    const data = fan(40, fromHub);
    const model = new GraphModel(data);
    const { nodeCount } = model;
    assert.equal(model.from.length, 40);
    const { boxes, edges, width, height } = pictureOf([nodeCount], model);
    assert.ok(width < 3 * height && height < 3 * width, `${width} by ${height}`);
    const leaves = Array.from({ length: nodeCount }, (_, item) => boxes.get(item));
    for (const [at, a] of leaves.entries()) {
      assert.ok(a.x >= 0 && a.y >= 0 && a.x + a.width <= width && a.y + a.height <= height);
      for (const b of leaves.slice(at + 1)) {
        const apart =
          a.x + a.width <= b.x ||
          b.x + b.width <= a.x ||
          a.y + a.height <= b.y ||
          b.y + b.height <= a.y;
        assert.ok(apart);
      }
    }
    assert.equal(edges.length, 40);
    for (const { from, to, points } of edges) {
      const [start, end] = [boxes.get(from), boxes.get(to)];
      assert.equal(points[0].y, start.y + start.height);
      assert.equal(points.at(-1).y, end.y);
      // Between the ends it runs beside boxes, not over them.
      for (const point of points.slice(1, -1)) {
        for (const box of leaves) {
          const over =
            point.x > box.x &&
            point.x < box.x + box.width &&
            point.y > box.y &&
            point.y < box.y + box.height;
          assert.ok(!over);
        }
      }
    }
  }
});

test("an edge meets at the door what goes on inside", () => {
  const { edges } = pictureOf([FORWARD, BLOCK, BACKWARD]);
  const outside = edges.find(({ from, to }) => from === BLOCK && to === 4);
  const leaving = edges.filter(({ group, to }) => group === BLOCK && to === null);
  assert.equal(leaving.length, 2);
  for (const use of leaving) assert.ok(Math.abs(use.points.at(-1).x - outside.points[0].x) < 1);
});

test("the backward pass is beside the forward pass", () => {
  const { boxes, crossing } = pictureOf([FORWARD, BACKWARD]);
  assert.ok(boxes.get(BACKWARD).x > boxes.get(FORWARD).x + boxes.get(FORWARD).width);
  assert.deepEqual(
    crossing.map(({ from, to, lists }) => [from, to, lists.flat().length]),
    [[4, 5, 1]],
  );
});

test("what did not change is not laid out again", () => {
  const model = new GraphModel(program());
  const layout = new Layout(model, dagre, () => ({ width: 100, height: 40 }));
  layout.picture(new Set([FORWARD, BLOCK, BACKWARD]));
  const block = layout.layouts.get(BLOCK);
  const forward = layout.layouts.get(FORWARD);
  layout.picture(new Set([FORWARD, BLOCK]));
  assert.equal(layout.layouts.get(BLOCK), block);
  assert.equal(layout.layouts.get(FORWARD), forward);
  layout.picture(new Set([FORWARD]));
  assert.notEqual(layout.layouts.get(FORWARD), forward);
});

test("a line goes through its ends", () => {
  const points = [
    { x: 0, y: 0 },
    { x: 10, y: 5 },
    { x: 20, y: 40 },
  ];
  const d = path({ points });
  assert.ok(d.startsWith("M0 0"));
  assert.ok(d.endsWith("20 40"));
});

test("a line goes around the boxes in its way, and straight where there are none", () => {
  const from = { x: 0, y: 0, width: 40, height: 20 };
  const to = { x: 0, y: 200, width: 40, height: 20 };
  const wall = { x: -60, y: 80, width: 160, height: 40 };
  const straight = {
    points: [
      { x: 20, y: 20 },
      { x: 20, y: 200 },
    ],
  };
  route(straight, [{ ...wall, x: 60 }], [from, to]);
  assert.deepEqual(straight, {
    points: [
      { x: 20, y: 20 },
      { x: 20, y: 200 },
    ],
  });
  // Past a second box that stands in the way around the first.
  const beside = { x: -200, y: 60, width: 120, height: 100 };
  const line = {
    points: [
      { x: 20, y: 20 },
      { x: 20, y: 200 },
    ],
  };
  route(line, [wall, beside, { x: 110, y: 90, width: 30, height: 30 }], [from, to]);
  assert.ok(line.bent);
  assert.deepEqual(
    [line.points[0], line.points.at(-1)],
    [
      { x: 20, y: 20 },
      { x: 20, y: 200 },
    ],
  );
  for (const [at, { x, y }] of line.points.entries()) {
    for (const box of [wall, beside]) {
      const inside = x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height;
      assert.ok(!inside, `point ${at}`);
    }
  }
  assert.ok(line.points.some(({ x }) => x < wall.x || x > wall.x + wall.width));
  assert.ok(path(line).endsWith("20 200"));
  // What comes back leaves its box downwards and enters from above, around both.
  const back = {
    points: [
      { x: 20, y: 220 },
      { x: 20, y: 110 },
      { x: 20, y: 0 },
    ],
  };
  route(back, [], [to, from]);
  assert.ok(back.points[1].y > 220 && back.points.at(-2).y < 0);
});

test("in a narrow window passes stand one below the other, with lines beside them", () => {
  const model = new GraphModel(program());
  const layout = new Layout(model, dagre, () => ({ width: 100, height: 40 }));
  const { boxes, crossing, width } = layout.picture(new Set([FORWARD, BACKWARD]), true);
  assert.ok(boxes.get(BACKWARD).y > boxes.get(FORWARD).y + boxes.get(FORWARD).height);
  const [{ points }] = crossing;
  const right = boxes.get(4).x + boxes.get(4).width;
  assert.equal(points[0].x, right);
  assert.ok(points[1].x > right && points[1].x <= width);
});

test("scaling keeps the point under the pointer", () => {
  const pan = new Pan(() => {});
  pan.by(13, -7);
  const at = (x, y) => [(x - pan.x) / pan.scale, (y - pan.y) / pan.scale];
  const before = at(200, 100);
  pan.zoom(1.7, 200, 100);
  const after = at(200, 100);
  assert.ok(Math.abs(before[0] - after[0]) < 1e-9);
  assert.ok(Math.abs(before[1] - after[1]) < 1e-9);
  pan.fit({ x: 0, y: 0, width: 400, height: 100 }, 848, 648);
  assert.equal(pan.scale, 1);
  assert.equal(pan.x, 224);
});

test("what is too wide to be read whole begins at its first box, not at an empty corner", () => {
  const pan = new Pan(() => {});
  const whole = { x: 0, y: 0, width: 4000, height: 100 };
  const fit = (x) => {
    const boxes = [{ x, y: 20, width: 80, height: 40 }];
    pan.fit(whole, 420, 600, { margin: 12, least: 0.75, boxes });
  };
  fit(1200);
  assert.equal(1240 * pan.scale + pan.x, 210);
  fit(0);
  assert.equal(pan.x, 12);
  fit(3920);
  assert.equal(4000 * pan.scale + pan.x, 408);
  // From its top on, although it is not too tall.
  assert.equal(20 * pan.scale + pan.y, 12);
});

test("what is too wide begins with its first lane, however tall and full a later one is", () => {
  const pan = new Pan(() => {});
  const first = { x: 0, y: 400, width: 300, height: 200, open: true };
  const own = [460, 520].map((y) => ({ x: 40, y, width: 80, height: 40 }));
  const later = { x: 400, y: 0, width: 3600, height: 600, open: true };
  const full = [...Array(120)].map((_, at) => ({
    x: 1400 + 90 * (at % 20),
    y: 40 + 60 * Math.floor(at / 20),
    width: 80,
    height: 40,
  }));
  const boxes = [first, ...own, later, ...full];
  const fit = (height) =>
    pan.fit({ x: 0, y: 0, width: 4000, height: 600 }, 800, height, { least: 0.75, boxes });
  fit(600);
  assert.deepEqual([pan.x, pan.y], [24, 24]);
  // Too tall as well, it has that lane's top at its own.
  fit(300);
  assert.deepEqual([pan.x, 400 * pan.scale + pan.y], [24, 24]);
});

test("where little stands at the first box, it begins where most boxes are", () => {
  const pan = new Pan(() => {});
  const whole = { x: 0, y: 0, width: 4000, height: 3000 };
  const group = { x: 0, y: 0, width: 4000, height: 3000, open: true };
  const lone = { x: 2000, y: 30, width: 80, height: 40 };
  const row = (top) =>
    [0, 1, 2, 3].map((at) => ({ x: 300 + 90 * at, y: top, width: 80, height: 40 }));
  const fit = (boxes) => pan.fit(whole, 420, 600, { margin: 12, least: 0.75, boxes });
  fit([group, lone, ...row(900), ...row(960), ...row(1020)]);
  assert.equal(900 * pan.scale + pan.y, 12);
  assert.ok(300 * pan.scale + pan.x > 0 && 560 * pan.scale + pan.x < 420);
  // Boxes that are seen from the top on are.
  fit([group, lone, ...row(100), ...row(160), ...row(220)]);
  assert.equal(pan.y, 12);
  // One box as good as the others is the beginning.
  fit([group, lone, { ...lone, x: 300, y: 900 }]);
  assert.equal(2040 * pan.scale + pan.x, 210);
});

test("a use that passes what is left out knows it", () => {
  const model = new GraphModel(program());
  const [use] = model.passing.get(1);
  assert.deepEqual([model.node(model.from[use]), model.to[use]], [0, 2]);
  assert.deepEqual(model.passed.get(use), [1]);
  assert.equal(new GraphModel(program(), true).passing.size, 0);
});

test("what is open is written and read again, and nonsense is nothing", () => {
  const model = new GraphModel(program());
  assert.deepEqual(lanes(model), [FORWARD, BACKWARD]);
  assert.equal(writeOpen(model, lanes(model)), "none");
  const open = new Set([FORWARD, BLOCK, BACKWARD]);
  assert.equal(writeOpen(model, [...open]), "1");
  assert.deepEqual(readOpen(model, "1"), new Set([FORWARD, BACKWARD, BLOCK]));
  assert.deepEqual(readOpen(model, "99,-1,x,,none"), new Set([FORWARD, BACKWARD]));
  // A small program is open at first.
  assert.ok(openAtFirst(model).has(BLOCK));
  const picture = { boxes: new Map([[BLOCK, { open: false }]]) };
  assert.ok(oneLevelMore(model, picture, new Set(lanes(model))).has(BLOCK));
});

test("of layers that are alike one is opened, and no other while it is", () => {
  const groups = program().groups;
  groups.rows = 5;
  groups.columns.parent = column([null, 0, null, 0, 0]);
  groups.columns.name = column(["Forward", "layer0", "Backward", "layer1", "embed"]);
  groups.columns.kind = column(["lane", "scope", "lane", "scope", "scope"]);
  groups.columns.ssa = column(["", "", "", "", ""]);
  const model = new GraphModel(program({ groups }));
  const [zero, next, embed] = [BLOCK, FORWARD + 3, FORWARD + 4];
  const boxes = (open) =>
    new Map([zero, next, embed].map((item) => [item, { open: open.has(item) }]));
  const first = new Set(lanes(model));
  const second = oneLevelMore(model, { boxes: boxes(first) }, first);
  assert.equal(second.has(zero) + second.has(next), 1);
  assert.ok(second.has(embed));
  assert.deepEqual(oneLevelMore(model, { boxes: boxes(second) }, second), second);
  // Arguments in one box stay so while there is anything else to open.
  groups.columns.kind = column(["lane", "scope", "lane", "scope", "arguments"]);
  const bundled = new GraphModel(program({ groups }));
  const third = oneLevelMore(bundled, { boxes: boxes(first) }, first);
  assert.ok(!third.has(embed));
  assert.ok(oneLevelMore(bundled, { boxes: boxes(third) }, third).has(embed));
});

test("values as of a step say what is decided, and fill their group", () => {
  const model = new GraphModel(program());
  const steps = { 2: 0, 3: 5 }; // tanh is sharded after step 0, exp after step 5
  const propagation = {
    last: 5,
    data: { values: [null, null, 2, 3, null, null, null] },
    final: () => ({ words: "P('x')", axes: ["x"] }),
    since: (value) => steps[value],
    at: (value, step) =>
      steps[value] <= step ? { words: "P('x')", axes: ["x"] } : { words: "replicated", axes: [] },
  };
  const ofEnd = { model, row: (node) => node, tensors: {} };
  const values = new StepValues(ofEnd, propagation);
  assert.deepEqual(values.progress(BLOCK), { done: 2, of: 2 });
  values.go(3);
  assert.deepEqual(values.progress(BLOCK), { done: 1, of: 2 });
  assert.equal(values.words(BLOCK), "1 of 2 sharded");
  assert.deepEqual([values.standing(2), values.standing(3)], ["all", "nothing"]);
  assert.deepEqual([values.itemKey(2), values.itemKey(3)], ["P('x')", "replicated"]);
  assert.deepEqual(values.axes(values.sharding(2, 0)), ["x"]);
  values.go(-1);
  assert.equal(values.standing(BLOCK), "nothing");
});
