import assert from "node:assert/strict";
import { test } from "node:test";
import { format, parse, State } from "../../../reports/js/base/state.js";

test("an address says what it is given back", () => {
  const hostile = [
    "params['w'][0]",
    "a=b&c#d?e",
    "100%",
    "<script>",
    "\u202eright",
    "a+b c",
    "ä/ö",
  ];
  for (const value of hostile) {
    assert.deepEqual(parse(format("tensors", { tensor: value, q: "x" })), {
      view: "tensors",
      params: { tensor: value, q: "x" },
    });
  }
});

test("paths stay readable", () => {
  assert.equal(format("tensors", { tensor: "a.mu['w'][0]" }), "#tensors?tensor=a.mu['w'][0]");
});

test("what is empty is left out", () => {
  assert.equal(format("tensors", { q: "", flat: false, sort: null }), "#tensors");
});

test("what was cut short is read as far as it goes", () => {
  assert.deepEqual(parse("#tensors?tensor=%E0%A4"), {
    view: "tensors",
    params: { tensor: "%E0%A4" },
  });
});

function fakeWindow(hash) {
  const window = new EventTarget();
  window.location = { hash };
  window.history = {
    pushState: (_state, _title, next) => {
      window.location.hash = next;
    },
    replaceState: (_state, _title, next) => {
      window.location.hash = next;
    },
  };
  return window;
}

test("a view is shown again as it was left", () => {
  const state = new State(fakeWindow("#tensors?q=w1"), ["overview", "tensors"]);
  assert.equal(state.view, "tensors");
  state.go("overview");
  assert.equal(state.view, "overview");
  assert.equal(state.href("tensors"), "#tensors?q=w1");
  state.go("tensors");
  assert.deepEqual(state.params, { q: "w1" });
});

test("listeners are told once a change", () => {
  const state = new State(fakeWindow(""), ["overview"]);
  let calls = 0;
  state.subscribe(() => {
    calls += 1;
  });
  state.set({ q: "a" });
  state.set({ q: "a" });
  assert.equal(calls, 1);
});
