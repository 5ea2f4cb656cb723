"""Loops that hand a value on: a pipeline by its steps, and what only looks like one."""

import pytest

from sdyscope.analysis.cost.pipelines import pipelines
from sdyscope.hlo import read_hlo
from sdyscope.values.mesh import Mesh
from sdyscope.words.cost import pipeline_text

MESH = Mesh.of({"pp": 4, "tp": 2})
ONWARDS = "{{0,2},{2,4},{4,6},{6,0},{1,3},{3,5},{5,7},{7,1}}"

BACKWARDS = "{{2,0},{4,2},{6,4},{0,6},{3,1},{5,3},{7,5},{1,7}}"


def module(trips, body, pairs=ONWARDS):
    return read_hlo(
        f"""HloModule jit_f, num_partitions=8

%body (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {{
  %p = (s32[], f32[4,8]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[4,8]{{1,0}} get-tuple-element(%p), index=1
{body.replace("PAIRS", pairs).replace("BACK", BACKWARDS)}
  ROOT %t = (s32[], f32[4,8]{{1,0}}) tuple(%next, %out)
}}

%condition (c: (s32[], f32[4,8])) -> pred[] {{
  %c = (s32[], f32[4,8]{{1,0}}) parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant({trips})
  ROOT %lt = pred[] compare(%j, %n), direction=LT
}}

ENTRY %e (a: f32[4,8]) -> f32[4,8] {{
  %a = f32[4,8]{{1,0}} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[4,8]{{1,0}}) tuple(%zero, %a)
  %w = (s32[], f32[4,8]{{1,0}}) while(%start), condition=%condition, body=%body
  ROOT %r = f32[4,8]{{1,0}} get-tuple-element(%w), index=1
}}
"""
    )


#: Computed, then handed on.
AT_THE_END = """  %y = f32[4,8]{1,0} tanh(%x)
  %out = f32[4,8]{1,0} collective-permute(%y), channel_id=1, source_target_pairs=PAIRS"""
#: Handed on, then computed.
AT_THE_START = """  %h = f32[4,8]{1,0} copy(%x)
  %q = f32[4,8]{1,0} collective-permute(%h), channel_id=1, source_target_pairs=PAIRS
  %out = f32[4,8]{1,0} tanh(%q)"""
#: A row of a neighbour's, as a convolution needs.
HALO = """  %row = f32[1,8]{1,0} slice(%x), slice={[0:1], [0:8]}
  %q = f32[1,8]{1,0} collective-permute(%row), channel_id=1, source_target_pairs=PAIRS
  %wide = f32[4,8]{1,0} broadcast(%q), dimensions={0,1}
  %out = f32[4,8]{1,0} add(%x, %wide)"""
#: Made of what is computed, and computed with.
INSIDE = """  %y = f32[4,8]{1,0} tanh(%x)
  %q = f32[4,8]{1,0} collective-permute(%y), channel_id=1, source_target_pairs=PAIRS
  %out = f32[4,8]{1,0} add(%x, %q)"""


@pytest.mark.parametrize("body", [AT_THE_END, AT_THE_START])
@pytest.mark.parametrize(("steps", "microbatches"), [(5, 2), (7, 4), (19, 16)])
def test_a_loop_that_hands_its_value_on_is_a_pipeline(body, steps, microbatches):
    (pipeline,) = pipelines(module(steps, body), MESH)
    assert (pipeline.axis, pipeline.stages, pipeline.microbatches) == ("pp", 4, microbatches)
    assert pipeline.bubble == 3 / steps == (4 - 1) / (4 + microbatches - 1)
    assert pipeline.bytes == 4 * 8 * 4


def test_of_a_pipeline_it_is_not_known_how_often_a_microbatch_passes():
    """Of four that pass twice through four stages there are as many trips as of eight."""
    (pipeline,) = pipelines(module(11, AT_THE_END), MESH)
    assert pipeline.microbatches == 4 * 2
    text = pipeline_text(pipeline)
    assert "with 8 microbatches, or fewer that pass more than once, a stage is idle" in text


def test_the_other_direction_is_as_good():
    (pipeline,) = pipelines(module(7, AT_THE_END, BACKWARDS), MESH)
    assert pipeline.stages == 4


def test_pairs_without_the_last_to_the_first_are_as_good():
    (pipeline,) = pipelines(module(7, AT_THE_END, "{{0,2},{2,4},{4,6},{1,3},{3,5},{5,7}}"), MESH)
    assert pipeline.axis == "pp"


#: One value onwards, another one backwards: a forward and a backward pass in one loop.
BOTH = """  %y = f32[4,8]{1,0} tanh(%x)
  %q = f32[4,8]{1,0} collective-permute(%y), channel_id=1, source_target_pairs=PAIRS
  %z = f32[4,8]{1,0} negate(%q)
  %out = f32[4,8]{1,0} collective-permute(%z), channel_id=2, source_target_pairs=BACK"""
#: Brought along and put back, as a conveyor.
MOVED = """  %h = f32[4,8]{1,0} copy(%x)
  %out = f32[4,8]{1,0} collective-permute(%h), channel_id=1, source_target_pairs=PAIRS"""


@pytest.mark.parametrize(
    ("steps", "body", "pairs"),
    [
        (4, AT_THE_END, ONWARDS),  # a ring, once around
        (7, HALO, ONWARDS),
        (7, MOVED, ONWARDS),
        (7, INSIDE, ONWARDS),
        (7, AT_THE_END, "{{0,4},{4,0},{2,6},{6,2},{1,5},{5,1},{3,7},{7,3}}"),  # two further
        (7, AT_THE_END, "{{0,3},{3,0}}"),  # along no axis
    ],
)
def test_what_is_no_pipeline(steps, body, pairs):
    assert pipelines(module(steps, body, pairs), MESH) == ()


def test_without_a_mesh_nothing_is_named():
    assert pipelines(module(7, AT_THE_END), None) == ()
