"""Live ranges of scheduled modules: which values are buffers, from when to when they are held."""

# ruff: noqa: E501 - lines of HLO are long

import pytest

from sdyscope.errors import SdyscopeError
from sdyscope.hlo import read_hlo
from sdyscope.hlo.allocation import allocate
from sdyscope.hlo.live import live_ranges
from sdyscope.values.entry_layout import read_entry_layout


def module(entry, *, others="", layout, head=""):
    return f"HloModule m, is_scheduled=true, entry_computation_layout={{{layout}}}{head}\n\n{others}\n{entry}"


def followed(text):
    return live_ranges(read_hlo(text), read_entry_layout(text))


def ranges(live):
    """From when to when each value is held, by the instruction that makes it."""
    found = {}
    for value, maker in enumerate(live.makers):
        found.setdefault(maker.name, []).append((live.starts[value], live.ends[value]))
    return found


def together(live, *names):
    """Whether the last values of some instructions are in one buffer."""
    last = {maker.name: live.buffers[value] for value, maker in enumerate(live.makers)}
    return len({last[name] for name in names}) == 1


CHAIN = module(
    """ENTRY %main (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  %a = f32[1024]{0} sine(%p)
  %t = (f32[1024]{0}, f32[1024]{0}) tuple(%a, %p)
  %g = f32[1024]{0} get-tuple-element(%t), index=0
  %b = f32[1024]{0} bitcast(%g)
  %d = f32[1024]{0} reverse(%b), dimensions={0}
  ROOT %e = f32[1024]{0} add(%d, %p)
}""",
    layout="(f32[1024]{0})->f32[1024]{0}",
)


def test_what_passes_arrays_on_makes_none():
    live = followed(CHAIN)
    assert [maker.name for maker in live.makers] == ["p", "a", "d", "e"]
    assert ranges(live) == {"p": [(0, 7)], "a": [(1, 5)], "d": [(5, 6)], "e": [(6, 7)]}
    # a and d are in the result's memory whenever that is free: one of them at a time.
    assert max(allocate(live).heap()) == 4096


def test_a_donated_parameter_ends_where_its_result_begins():
    text = CHAIN.replace(
        "->f32[1024]{0}}", "->f32[1024]{0}}, input_output_alias={ {}: (0, {}, may-alias) }"
    )
    live = followed(text)
    assert live.ends[live.parameters[0]] == 6
    assert live.buffers[live.parameters[0]] == live.buffers[live.results[0]]


def test_a_text_that_is_not_scheduled_is_refused():
    with pytest.raises(SdyscopeError, match="not scheduled"):
        followed(CHAIN.replace(", is_scheduled=true", ""))


LOOP = module(
    """ENTRY %main (p: f32[4,256], w: f32[256]) -> f32[4,256] {
  %p = f32[4,256]{1,0} parameter(0)
  %w = f32[256]{0} parameter(1)
  %zero = s32[] constant(0)
  %stack = f32[4,256]{1,0} copy(%p)
  %start = (s32[], f32[4,256]{1,0}, f32[256]{0}) tuple(%zero, %stack, %w)
  %loop = (s32[], f32[4,256]{1,0}, f32[256]{0}) while(%start), condition=%less, body=%body, backend_config={"known_trip_count":{"n":"4"}}
  %filled = f32[4,256]{1,0} get-tuple-element(%loop), index=1
  ROOT %out = f32[4,256]{1,0} negate(%filled)
}""",
    others="""%less (c: (s32[], f32[4,256], f32[256])) -> pred[] {
  %c = (s32[], f32[4,256]{1,0}, f32[256]{0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(4)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

%body (b: (s32[], f32[4,256], f32[256])) -> (s32[], f32[4,256], f32[256]) {
  %b = (s32[], f32[4,256]{1,0}, f32[256]{0}) parameter(0)
  %j = s32[] get-tuple-element(%b), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%j, %one)
  %have = f32[4,256]{1,0} get-tuple-element(%b), index=1
  %row = f32[256]{0} get-tuple-element(%b), index=2
  %new = f32[1,256]{1,0} reshape(%row)
  %set = f32[4,256]{1,0} dynamic-update-slice(%have, %new, %j, %one)
  ROOT %done = (s32[], f32[4,256]{1,0}, f32[256]{0}) tuple(%next, %set, %row)
}
""",
    layout="(f32[4,256]{1,0}, f32[256]{0})->f32[4,256]{1,0}",
)


def test_a_loop_keeps_what_it_carries_in_one_buffer():
    live = followed(LOOP)
    assert together(live, "stack", "set", "loop")
    # What the body only passes on is what the loop was given: no value of its own.
    assert len([maker for maker in live.makers if maker.name == "loop"]) == 4
    (body,) = [span for span in live.spans if span.computation == "body"]
    assert ranges(live)["stack"] == [(3, 5)]
    assert (body.start, body.end) == (9, 18)
    assert not live.unfollowed


def test_what_is_started_holds_its_result_until_it_is_done():
    text = module(
        """ENTRY %main (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0:T(1024)} parameter(0)
  %cs = (f32[1024]{0:T(1024)S(1)}, f32[1024]{0:T(1024)}, u32[]{:S(2)}) copy-start(%p)
  %ss = ((f32[1024]{0:T(1024)}), f32[512]{0:T(512)S(1)}, s32[]{:S(2)}) slice-start(%p), slice={[0:512]}
  %ag = (f32[1024]{0:T(1024)}, f32[2048]{0:T(1024)}) all-gather-start(%p), dimensions={0}
  %cd = f32[1024]{0:T(1024)S(1)} copy-done(%cs)
  %sd = f32[512]{0:T(512)S(1)} slice-done(%ss)
  %gd = f32[2048]{0:T(1024)} all-gather-done(%ag)
  %ar = f32[2048]{0:T(1024)} all-reduce-start(%gd), to_apply=%sum
  %rd = f32[2048]{0:T(1024)} all-reduce-done(%ar)
  ROOT %out = f32[1024]{0:T(1024)} custom-call(%cd, %sd, %rd), custom_call_target="f"
}""",
        layout="(f32[1024]{0:T(1024)})->f32[1024]{0:T(1024)}",
    )
    live = followed(text)
    assert together(live, "ag", "ar")
    assert ranges(live)["cs"][0] == (1, 9)
    assert [
        live.spaces[value] for value, maker in enumerate(live.makers) if maker.name == "ss"
    ] == [1, 2]
    allocation = allocate(live)
    assert allocation.spaces == (0, 1, 2)
    assert max(allocation.heap(1)) == 4096 + 2048
    assert not live.unfollowed


def test_sizes_are_those_of_tiles():
    text = module(
        """ENTRY %main (p: f32[128,10]) -> f32[128,10] {
  %p = f32[128,10]{0,1:T(8,128)} parameter(0)
  %a = f32[128,10]{0,1:T(8,128)} sort(%p), dimensions={0}, to_apply=%less
  ROOT %b = f32[128,10]{0,1:T(8,128)} reverse(%a), dimensions={0}
}""",
        layout="(f32[128,10]{0,1:T(8,128)})->f32[128,10]{0,1:T(8,128)}",
    )
    live = followed(text)
    assert set(live.sizes) == {16 * 128 * 4}


FUSED = """%fused (x: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0)
  ROOT %y = f32[1024]{0} OP(%x)
}
"""
WRITTEN_OVER = module(
    """ENTRY %main (p: f32[1024]) -> f32[] {
  %p = f32[1024]{0} parameter(0)
  %a = f32[1024]{0} reverse(%p), dimensions={0}
  %b = f32[1024]{0} fusion(%a), kind=kLoop, calls=%fused
  %zero = f32[] constant(0)
  ROOT %c = f32[] reduce(%b, %zero), dimensions={0}, to_apply=%sum
}""",
    others=FUSED,
    layout="(f32[1024]{0})->f32[]",
)


@pytest.mark.parametrize(("op", "buffers"), [("sine", 1), ("reverse", 2)])
def test_element_by_element_a_result_is_written_over_its_operand(op, buffers):
    attributes = ", dimensions={0}" if op == "reverse" else ""
    text = WRITTEN_OVER.replace("OP(%x)", f"{op}(%x){attributes}")
    assert max(allocate(followed(text)).heap()) == buffers * 4096


def test_gpus_write_over_operands_of_another_form_with_as_many_elements():
    text = (
        WRITTEN_OVER.replace("OP(%x)", "sine(%v)")
        .replace("  ROOT %y", "  %v = f32[1024]{0} bitcast(%x)\n  ROOT %y")
        .replace("%x = f32[1024]{0}", "%x = f32[32,32]{1,0}")
        .replace(
            "%a = f32[1024]{0} reverse(%p), dimensions={0}",
            "%r = f32[32,32]{1,0} bitcast(%p)\n  %a = f32[32,32]{1,0} transpose(%r), dimensions={1,0}",
        )
    )
    live = followed(text)
    assert max(allocate(live, "cuda").heap()) == 4096
    assert max(allocate(live, "cpu").heap()) == 2 * 4096


def test_branches_leave_their_results_in_one_buffer():
    branch = "%{0} (x{0}: f32[1024]) -> f32[1024] {{\n  %x{0} = f32[1024]{{0}} parameter(0)\n  ROOT %r{0} = f32[1024]{{0}} {1}(%x{0})\n}}\n"
    text = module(
        """ENTRY %main (w: s32[], p: f32[1024]) -> f32[1024] {
  %w = s32[] parameter(0)
  %p = f32[1024]{0} parameter(1)
  %c = f32[1024]{0} conditional(%w, %p, %p), branch_computations={%one, %two}
  ROOT %out = f32[1024]{0} reverse(%c), dimensions={0}
}""",
        others=branch.format("one", "sine") + "\n" + branch.format("two", "cosine"),
        layout="(s32[], f32[1024]{0})->f32[1024]{0}",
    )
    live = followed(text)
    assert together(live, "rone", "rtwo", "c")
    assert [span.computation for span in live.spans] == ["one", "two"]


def test_a_computation_that_two_calls_run_is_followed_for_each():
    text = module(
        """ENTRY %main (p: f32[1024], q: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  %q = f32[1024]{0} parameter(1)
  %one = f32[1024]{0} call(%p), to_apply=%fused
  %two = f32[1024]{0} call(%q), to_apply=%fused
  ROOT %out = f32[1024]{0} add(%one, %two)
}""",
        others=FUSED.replace("OP", "sine"),
        layout="(f32[1024]{0}, f32[1024]{0})->f32[1024]{0}",
    )
    live = followed(text)
    assert len([maker for maker in live.makers if maker.name == "y"]) == 2


def test_what_is_not_there_is_counted():
    text = CHAIN.replace("sine(%p)", "sine(%nothing)")
    assert [instruction.name for instruction in followed(text).unfollowed] == ["a"]


VECTOR = module(
    """ENTRY %main (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  %a = f32[1024]{0:S(1)} sine(%p)
  %b = (f32[1024]{0:S(1)}, f32[1024]{0:S(1)}) fusion(%a, %p), kind=kLoop, output_to_operand_aliasing={{0}: (0, {})}, calls=%f
  %c = f32[1024]{0:S(1)} get-tuple-element(%b), index=0
  %d = f32[1024]{0:S(1)} get-tuple-element(%b), index=1
  ROOT %e = f32[1024]{0} add(%c, %d)
}""",
    others="""%f (x: f32[1024], y: f32[1024]) -> (f32[1024], f32[1024]) {
  %x = f32[1024]{0:S(1)} parameter(0)
  %y = f32[1024]{0} parameter(1)
  %u = f32[1024]{0:S(1)} add(%x, %y)
  ROOT %v = (f32[1024]{0:S(1)}, f32[1024]{0:S(1)}) tuple(%u, %u)
}
""",
    layout="(f32[1024]{0})->f32[1024]{0}",
)


def test_a_tpu_counts_what_is_written_in_place_in_its_vector_memory_twice():
    """By its own peak on 27 of 35 programs, to the byte: benchmarks/peak.py."""
    allocation = allocate(followed(VECTOR), "tpu")
    assert max(allocation.heap(1)) == 2 * 4096
    assert max(allocation.counted(1)) == 3 * 4096
    # At the fusion alone, and in no other memory.
    assert sorted(allocation.counted(1))[-2:] == [2 * 4096, 3 * 4096]
    assert allocation.counted(0) == allocation.heap(0)
    assert max(allocate(followed(VECTOR), "cuda").counted(1)) == 2 * 4096


CALLED = module(
    """ENTRY %main (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  %a = f32[1024]{0} sine(%p)
  %b = f32[1024]{0} cosine(%p)
  ROOT %c = f32[1024]{0} call(%a, %b), to_apply=%f
}""",
    others="""%f (x: f32[1024], y: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0)
  %y = f32[1024]{0} parameter(1)
  %u = f32[1024]{0} reverse(%x), dimensions={0}
  %v = f32[1024]{0} reverse(%u), dimensions={0}
  ROOT %w = f32[1024]{0} reverse(%v), dimensions={0}
}
""",
    layout="(f32[1024]{0})->f32[1024]{0}",
)


def test_what_is_given_to_a_call_ends_where_it_is_read_inside():
    live = followed(CALLED)
    names = [instruction.name for instruction in live.schedule]
    spans = ranges(live)
    assert spans["a"] == [(names.index("a"), names.index("u"))]
    # Nothing reads the other one: it is held until it is there.
    assert spans["b"] == [(names.index("b"), names.index("y"))]
