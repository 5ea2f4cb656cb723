"""What is the same in each iteration of a compiled loop, read off its text."""

from sdyscope.hlo import read_hlo
from sdyscope.lint.loops import _invariant

LOOP = """
HloModule m, num_partitions=4

body {
  p = (s32[], f32[8,4], f32[4,4], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  stack = f32[8,4] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  layer = f32[1,4] dynamic-slice(stack, i, zero), dynamic_slice_sizes={1,4}
  gathered_layer = f32[4,4] all-gather(layer), dimensions={0}
  weight = f32[4,4] get-tuple-element(p), index=2
  same_weight = f32[4,4] copy(weight)
  gathered_weight = f32[16,4] all-gather(same_weight), dimensions={0}
  carry = f32[2,4] get-tuple-element(p), index=3
  grown = f32[2,4] add(carry, carry)
  kernel = f32[4,4] custom-call(weight), custom_call_target="draws"
  ROOT out = (s32[], f32[8,4], f32[4,4], f32[2,4]) tuple(next, stack, same_weight, grown)
}

called {
  a = f32[4,4] parameter(0)
  b = f32[2,4] parameter(1)
  of_a = f32[16,4] all-gather(a), dimensions={0}
  ROOT of_b = f32[8,4] all-gather(b), dimensions={0}
}

ENTRY main {
  ROOT x = f32[4,4] parameter(0)
}
"""


def test_only_what_is_handed_on_as_it_is_and_what_is_made_of_that():
    module = read_hlo(LOOP)
    assert _invariant(module.computations["body"]) == {
        "one",
        "zero",
        "stack",
        "weight",
        "same_weight",
        "gathered_weight",
    }


def test_inside_a_call_it_depends_on_what_is_passed():
    called = read_hlo(LOOP).computations["called"]
    assert _invariant(called, [True, False]) == {"a", "of_a"}
    assert _invariant(called, [False, False]) == frozenset()
