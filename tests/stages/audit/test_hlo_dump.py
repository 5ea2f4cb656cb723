"""The reader of dumps, on texts whose meaning is plain."""

import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit.hlo_dump import (
    DumpedHlo,
    collectives,
    groups_of,
    layout,
    moved,
    over_axes,
)

pytestmark = pytest.mark.skipif(
    compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
)

LOOPS = """
HloModule m, entry_computation_layout={(f32[4]{0})->f32[8]{0}}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[4]{0} get-tuple-element(%p), index=1
  %ar = f32[4]{0} all-reduce(%x), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%sum, \
metadata={op_name="audit7./audit9.;audit3."}
  ROOT %t = (s32[], f32[4]{0}) tuple(%i, %ar)
}

%cond (p.1: (s32[], f32[4])) -> pred[] {
  %p.1 = (s32[], f32[4]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(5)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (x.1: f32[4]) -> f32[8] {
  %x.1 = f32[4]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[4]{0}) tuple(%zero, %x.1)
  %w = (s32[], f32[4]{0}) while(%start), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  %y = f32[4]{0} get-tuple-element(%w), index=1
  ROOT %ag = f32[8]{0} all-gather(%y), replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0}
  %dead = f32[4]{0} negate(%x.1)
}
"""


def test_collectives_in_a_loop_are_counted_by_its_trips():
    module = DumpedHlo.parse(LOOPS, compat.hlo)
    reduced, gathered = collectives(module, 8)
    assert (reduced.kind, reduced.bytes, reduced.sent, reduced.count) == ("all-reduce", 16, 16, 5)
    assert reduced.groups == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert reduced.scopes == ["audit7./audit9.;audit3."]
    assert (reduced.along, gathered.along) == ((), (0,))
    assert (gathered.kind, gathered.bytes, gathered.sent, gathered.count) == (
        "all-gather",
        32,
        16,
        1,
    )
    assert module.root(module.entry).name == "ag"
    assert [parameter.name for parameter in module.parameters] == ["x.1"]


MOVES = """
HloModule m

%turned (p: f32[4,4]) -> f32[4,4] {
  %p = f32[4,4]{1,0} parameter(0)
  ROOT %t = f32[4,4]{1,0} transpose(%p), dimensions={1,0}
}

ENTRY %main (x: f32[4,8], w: f32[8,4]) -> (f32[8,4], f32[8,4]) {
  %x = f32[4,8]{1,0} parameter(0)
  %w = f32[8,4]{1,0} parameter(1)
  %product = f32[4,4]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="audit5."}
  %turn = f32[4,4]{1,0} fusion(%product), kind=kLoop, calls=%turned
  %swap = f32[4,4]{1,0} collective-permute(%turn), source_target_pairs={{0,1},{1,0}}, \
metadata={op_name="audit5."}
  %of_result = f32[8,4]{1,0} all-gather(%swap), replica_groups={{0,1}}, dimensions={0}, \
metadata={op_name="audit5."}
  %of_operand = f32[8,4]{1,0} all-gather(%product), replica_groups={{0,1}}, dimensions={0}, \
metadata={op_name="audit6."}
  ROOT %both = (f32[8,4]{1,0}, f32[8,4]{1,0}) tuple(%of_result, %of_operand)
}
"""


def test_what_an_op_makes_is_told_from_what_it_takes():
    read = {each.name: each for each in collectives(DumpedHlo.parse(MOVES, compat.hlo), 2)}
    assert {name: (each.is_of_result, each.is_moved_before) for name, each in read.items()} == {
        "swap": (True, False),
        "of_result": (True, True),
        "of_operand": (False, False),
    }


def test_a_permutation_moves_the_dimensions_whose_blocks_differ():
    rows, columns = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
    for text, dims in ((rows, (0,)), (columns, (1,)), ("{replicated}", ())):
        assert moved([(0, 1), (1, 0)], [layout(text, 2, compat.hlo)]) == dims


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", [[0, 1, 2, 3]]),
        ("{{0,2},{1,3}}", [[0, 2], [1, 3]]),
        ("[2,2]<=[4]", [[0, 1], [2, 3]]),
        ("[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
        ("mesh['a'=2,'b'=2] {'a'}", [[0, 2], [1, 3]]),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}", [[0, 1], [2, 3]]),
        ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", [[3, 1], [2, 0]]),
        ("mesh['a'=4] {'a':(2)2}", [[0, 1], [2, 3]]),
        ("mesh['a'=4] {'a':(1)2}", [[0, 2], [1, 3]]),
    ],
)
def test_groups_in_every_form(text, groups):
    assert groups_of(text, 4) == groups


def test_groups_over_parts_of_axes():
    sizes = {"a": 4, "b": 2}
    assert over_axes([("a", 2, 2)], sizes, range(8)) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert over_axes([("a", 1, 2), ("b", 1, 2)], sizes, range(8)) == [[0, 1, 4, 5], [2, 3, 6, 7]]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", [[0, 0]]),
        ("{replicated}", [[0, 0]]),
        ("{manual}", [[0, 0]]),
        ("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", [[0, 0], [0, 0], [1, 0], [1, 0]]),
        ("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={manual}}", [[0, 0], [0, 1]] * 2),
        ("{devices=[2,2]3,2,1,0}", [[1, 1], [1, 0], [0, 1], [0, 0]]),
    ],
)
def test_layouts(text, blocks):
    assert layout(text, 2, compat.hlo).blocks == blocks
