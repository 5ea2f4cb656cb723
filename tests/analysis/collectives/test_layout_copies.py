"""Copies of the layout around collectives, in texts of compilers."""

import pytest

from sdyscope.analysis.collectives.layout_copies import LayoutCopy, layout_copies
from sdyscope.hlo import read_hlo

#: As libtpu 0.0.42 compiles an exchange of rows for columns.
TPU = """HloModule jit_f, num_partitions=8

%fused (param_0.1: f32[64,4,128]) -> f32[64,4,128] {
  %param_0.1 = f32[64,4,128]{2,1,0:T(4,128)} parameter(0)
  %copy.2 = f32[64,4,128]{2,0,1:T(8,128)} copy(%param_0.1)
  ROOT %bitcast.1 = f32[64,4,128]{2,0,1:T(8,128)S(1)} bitcast(%copy.2)
}

ENTRY %main (param: f32[64,4,128]) -> f32[64,4,128] {
  %param = f32[64,4,128]{2,1,0:T(4,128)} parameter(0)
  %moved = f32[64,4,128]{2,0,1:T(8,128)S(1)} fusion(%param), kind=kLoop, calls=%fused
  %all-to-all = f32[64,4,128]{2,0,1:T(8,128)S(1)} all-to-all(%moved), dimensions={1}
  ROOT %copy.9 = f32[64,4,128]{RESULT:T(8,128)} copy(%all-to-all)
}
"""


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        # To another memory, or with other tiles, is no other layout.
        ("2,0,1", []),
        ("2,1,0", [LayoutCopy("all-to-all", "result", (2, 0, 1), (2, 1, 0), 131072, 1)]),
    ],
)
def test_copies_right_before_and_behind_on_a_tpu(result, expected):
    module = read_hlo(TPU.replace("RESULT", result))
    assert list(layout_copies(module, ["all-to-all"])) == [
        LayoutCopy("all-to-all", "operand", (2, 1, 0), (2, 0, 1), 131072, 1),
        *expected,
    ]
    assert not list(layout_copies(module, ["all-gather"]))


LOOP = """HloModule jit_g, num_partitions=8

%fused_computation (p0: f32[8], p1: f32[16,64]) -> f32[16,64] {
  %p0 = f32[8]{0} parameter(0)
  %p1 = f32[16,64]{0,1} parameter(1)
  %copy = f32[16,64]{1,0} copy(%p1)
  ROOT %sine = f32[16,64]{1,0} sine(%copy)
}

%body (state: (s32[], f32[16,16])) -> (s32[], f32[16,16]) {
  %state = (s32[], f32[16,16]{0,1}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[16,16]{0,1} get-tuple-element(%state), index=1
  %v = f32[8]{0} constant({...})
  %start = (f32[16,16]{0,1}, f32[16,64]{0,1}) all-gather-start(%x), dimensions={1}
  %done = f32[16,64]{0,1} all-gather-done(%start)
  %fusion = f32[16,64]{1,0} fusion(%v, %done), kind=kLoop, calls=%fused_computation
  ROOT %tuple = (s32[], f32[16,16]{0,1}) tuple(%i, %x)
}

%cond (state.1: (s32[], f32[16,16])) -> pred[] {
  %state.1 = (s32[], f32[16,16]{0,1}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (init: (s32[], f32[16,16])) -> (s32[], f32[16,16]) {
  %init = (s32[], f32[16,16]{0,1}) parameter(0)
  ROOT %w = (s32[], f32[16,16]{0,1}) while(%init), condition=%cond, body=%body, TRIPS
}
"""


LOOP = LOOP.replace("TRIPS", 'backend_config={"known_trip_count":{"n":"5"}}')


def test_copies_of_a_loop_and_in_a_fusion_count_each_time():
    copies = list(layout_copies(read_hlo(LOOP), ["start"]))
    assert copies == [LayoutCopy("start", "result", (0, 1), (1, 0), 5 * 16 * 64 * 4, 1)]
