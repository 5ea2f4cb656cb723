"""What a collective moves and how that arrives, in HLO whose meaning is plain."""

import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit.facts import AuditedOp, Layout
from sdyscope.stages.audit.hlo_dump import DumpedHlo
from sdyscope.stages.audit.ways import RETURN, Laid, Ways

pytestmark = pytest.mark.skipif(
    compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
)

ROWS = [[0, 0], [1, 0]]
COLUMNS = [[0, 0], [0, 1]]
WHOLE = [[0, 0]]

#: What the tags of the module stand for.
OPS = [
    AuditedOp("stablehlo.sine", ["tensor<4x4xf32>"], []),
    AuditedOp("stablehlo.dot_general", ["tensor<4x4xf32>"], []),
    AuditedOp("stablehlo.transpose", ["tensor<4x4xf32>"], []),
    AuditedOp("stablehlo.while", ["tensor<i32>", "tensor<4x4xf32>"], []),
    AuditedOp("stablehlo.cosine", ["tensor<4x4xf32>"], []),
    AuditedOp("sdy.sharding_constraint", ["tensor<4x4xf32>"], []),
]
LAYOUTS = {
    0: Layout("", ROWS),
    1: Layout("", ROWS),
    2: Layout("", COLUMNS),
    4: Layout("", ROWS),
}

MODULE = """
HloModule m

%body (p: (s32[], f32[2,4])) -> (s32[], f32[2,4]) {
  %p = (s32[], f32[2,4]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[2,4] get-tuple-element(%p), index=1
  %whole = f32[4,4] all-gather(%x), GROUPS, dimensions={0}, metadata={op_name="audit3./audit1."}
  %inside = f32[2,4] dot(%x, %whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="audit3./audit1."}
  ROOT %t = (s32[], f32[2,4]) tuple(%i, %inside)
}

%cond (p.1: (s32[], f32[2,4])) -> pred[] {
  %p.1 = (s32[], f32[2,4]) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(5)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (v: f32[2,4]) -> (f32[2,4], f32[4,4], f32[2,4], f32[4,4]) {
  %v = f32[2,4] parameter(0), metadata={op_name="v"}
  %zero = s32[] constant(0)
  %table = s32[2] constant({0, 2})
  %id = u32[] partition-id()
  %cell = s32[1] dynamic-slice(%table, %id), dynamic_slice_sizes={1}
  %at = s32[] reshape(%cell)
  %sine = f32[2,4] sine(%v), metadata={op_name="audit0."}

  %gather = f32[4,4] all-gather(%sine), GROUPS, dimensions={0}, metadata={op_name="audit0."}
  %cut = f32[4,2] dynamic-slice(%gather, %zero, %at), dynamic_slice_sizes={4,2}, \
metadata={op_name="audit1."}
  %dot = f32[2,2] dot(%sine, %cut), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="audit1."}

  %mine = f32[4,4] all-gather(%v), GROUPS, dimensions={0}, metadata={op_name="v"}
  %first = f32[4,4] all-gather(%v), GROUPS, dimensions={0}, metadata={op_name="v"}
  %kept = f32[4,2] dynamic-slice(%first, %zero, %at), dynamic_slice_sizes={4,2}
  %said = f32[4,2] copy(%kept), metadata={op_name="audit5."}
  %again = f32[4,4] all-gather(%said), GROUPS, dimensions={1}, metadata={op_name="audit4."}

  %turned = f32[4,4] transpose(%mine), dimensions={1,0}, metadata={op_name="audit0."}
  %cosine = f32[4,4] cosine(%turned), metadata={op_name="audit4."}

  %start = (s32[], f32[2,4]) tuple(%zero, %sine)
  %while = (s32[], f32[2,4]) while(%start), condition=%cond, body=%body, \
metadata={op_name="audit3."}
  %carried = f32[2,4] get-tuple-element(%while), index=1

  %padded = f32[2,4] add(%sine, %v), metadata={op_name="audit1."}
  %masked = f32[4,4] all-gather(%padded), GROUPS, dimensions={0}, metadata={op_name="audit1."}
  ROOT %results = (f32[2,4], f32[4,4], f32[2,4], f32[4,4]) tuple(%carried, %cosine, %sine, %masked)
}
""".replace("GROUPS", "replica_groups={{0,1}}")


@pytest.fixture(scope="module")
def ways():
    module = DumpedHlo.parse(MODULE, compat.hlo)
    return Ways(module, 2, Laid(OPS, LAYOUTS, [Layout("", ROWS)]))


def way(ways, name):
    return ways.way(ways.module.instructions[name])


def test_what_is_cut_on_the_way_arrives_cut(ways):
    """Whatever the cut is named after; the value is what is behind all of it."""
    moved = way(ways, "gather")
    assert (moved.makers, moved.arguments, moved.given) == ([0], [], ROWS)
    assert moved.arrived == [(1, COLUMNS)]
    assert moved.passed == [WHOLE, COLUMNS]


def test_an_argument_that_is_turned_on_the_way_is_no_block_of_its_dimensions(ways):
    moved = way(ways, "mine")
    assert (moved.makers, moved.arguments, moved.given) == ([], [0], ROWS)
    assert moved.arrived == [(4, None)]
    assert moved.passed == [WHOLE, None]


def test_what_a_loop_carries_is_what_it_begins_with_and_what_it_gives_itself(ways):
    moved = way(ways, "whole")
    assert moved.makers == [0, 1, 3]
    assert moved.given == ROWS
    assert moved.arrived == [(3, WHOLE), (1, WHOLE)]


def test_the_layout_that_a_constraint_gives_on_the_way_is_kept(ways):
    moved = way(ways, "again")
    assert (moved.arguments, moved.given, moved.constrained) == ([0], ROWS, [COLUMNS])
    assert way(ways, "mine").constrained == []


def test_what_is_made_on_the_way_is_not_followed(ways):
    """The sum has the name of an op that is none."""
    moved = way(ways, "masked")
    assert (moved.makers, moved.given) == ([], None)
    assert moved.arrived == [(RETURN, None)]
