"""How XLA's module before partitioning lays out what every op makes."""

import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit.facts import AuditedOp
from sdyscope.stages.audit.hlo_dump import DumpedHlo
from sdyscope.stages.audit.laid_out import Layouts, laid_out

pytestmark = pytest.mark.skipif(
    compat.version_tuple() < (0, 10), reason="this JAX can't read dumps"
)

HALVES = "sharding={devices=[2]<=[2]}"


def op(kind, *types, operands=(), kept=()):
    named = [f"tensor<{type_}>" for type_ in types]
    return AuditedOp(kind, named, list(operands), kept=list(kept))


def texts(hlo, ops):
    """By op the text of each of its results' layouts, each time that it is there."""
    layouts = Layouts()
    laid = laid_out(DumpedHlo.parse(hlo, compat.hlo), ops, layouts)

    def text(at):
        return None if at < 0 else layouts.layouts[at].text

    return {number: [list(map(text, own)) for own in each] for number, each in laid.values.items()}


def test_constants_without_a_name_are_read_by_what_takes_them():
    """XLA calls what is constant by no name of the program, and puts it last."""
    hlo = f"""
HloModule step

ENTRY main {{
  x = f32[8] parameter(0), {HALVES}
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={{}}, {HALVES}
  ROOT y = f32[8] multiply(x, ones), {HALVES}, metadata={{op_name="audit2."}}
}}
"""
    ops = [
        op("stablehlo.constant", "f32"),
        op("stablehlo.broadcast_in_dim", "8xf32", operands=[(0, -1, 0)]),
        op("stablehlo.multiply", "8xf32", operands=[(1, -1, 0), (9, 0, 0)]),
    ]
    halves = "{devices=[2]<=[2]}"
    assert texts(hlo, ops) == {0: [[""]], 1: [[halves]], 2: [[halves]]}


def test_a_callback_without_results_has_no_layout():
    """XLA writes one sharding for its empty tuple."""
    hlo = f"""
HloModule step

ENTRY main {{
  x = f32[8] parameter(0), {HALVES}
  said = () custom-call(x), custom_call_target="callback", sharding={{{{maximal device=0}}}},
    metadata={{op_name="audit0."}}
  ROOT y = f32[8] negate(x), {HALVES}, metadata={{op_name="audit1."}}
}}
"""
    ops = [op("stablehlo.custom_call"), op("stablehlo.negate", "8xf32", operands=[(9, 0, 0)])]
    assert texts(hlo, ops)[1] == [["{devices=[2]<=[2]}"]]


def test_constants_that_could_be_either_operand_are_left_out():
    """Which of the two is which is not known where the order says nothing."""
    hlo = f"""
HloModule step

ENTRY main {{
  one = f32[8] constant({{1,1,1,1,1,1,1,1}})
  two = f32[8] constant({{2,2,2,2,2,2,2,2}}), {HALVES}
  sum = f32[8] add(one, two), metadata={{op_name="audit2."}}
  ROOT y = f32[8] divide(one, two), metadata={{op_name="audit5."}}
}}
"""
    ops = [
        *(op("stablehlo.constant", "8xf32") for _ in range(2)),
        op("stablehlo.add", "8xf32", operands=[(0, -1, 0), (1, -1, 0)]),
        *(op("stablehlo.constant", "8xf32") for _ in range(2)),
        op("stablehlo.divide", "8xf32", operands=[(3, -1, 0), (4, -1, 0)]),
    ]
    assert texts(hlo, ops) == {2: [[""]], 3: [[""]], 4: [["{devices=[2]<=[2]}"]], 5: [[""]]}


@pytest.mark.parametrize(
    ("second", "expected"),
    [("{devices=[2]<=[2]}", "{devices=[2]<=[2]}"), ("{replicated}", None)],
)
def test_what_a_loop_carries_is_told_apart_by_type_or_laid_out_alike(second, expected):
    """XLA has it in another order."""
    hlo = f"""
HloModule step

body {{
  in = (f32[8], s32[], f32[8]) parameter(0),
    sharding={{{{devices=[2]<=[2]}}, {{replicated}}, {second}}}
  ROOT out = (f32[8], s32[], f32[8]) copy(in)
}}

condition {{
  given = (f32[8], s32[], f32[8]) parameter(0)
  ROOT no = pred[] constant(false)
}}

ENTRY main {{
  x = (f32[8], s32[], f32[8]) parameter(0)
  ROOT y = (f32[8], s32[], f32[8]) while(x), condition=condition, body=body,
    sharding={{{{devices=[2]<=[2]}}, {{replicated}}, {second}}}, metadata={{op_name="audit0."}}
}}
"""
    loop = op("stablehlo.while", "i32", "8xf32", "8xf32")
    assert texts(hlo, [loop]) == {0: [["{replicated}", expected, expected]]}


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ((0, 2), [None, "{devices=[2]<=[2]}", None]),  # the first may be the third
        ((0,), [None, None, None]),  # XLA knows more of it than the module says
    ],
)
def test_what_a_loop_never_changes_is_behind_the_rest_also_where_all_types_are_one(kept, expected):
    """The types alone would say that the order is the same."""
    shardings = "{{devices=[2]<=[2]}, {replicated}, {devices=[2]<=[1,2]T(1,0)}}"
    hlo = f"""
HloModule step

body {{
  in = (f32[8], f32[8], f32[8]) parameter(0), sharding={shardings}
  x = f32[8] get-tuple-element(in), index=0
  v = f32[8] get-tuple-element(in), index=1
  w = f32[8] get-tuple-element(in), index=2
  y = f32[8] multiply(x, w)
  ROOT out = (f32[8], f32[8], f32[8]) tuple(y, v, w)
}}

condition {{
  given = (f32[8], f32[8], f32[8]) parameter(0)
  ROOT no = pred[] constant(false)
}}

ENTRY main {{
  x = (f32[8], f32[8], f32[8]) parameter(0)
  ROOT y = (f32[8], f32[8], f32[8]) while(x), condition=condition, body=body,
    sharding={shardings}, metadata={{op_name="audit0."}}
}}
"""
    loop = op("stablehlo.while", "8xf32", "8xf32", "8xf32", kept=kept)
    assert texts(hlo, [loop]) == {0: [expected]}


def test_results_of_a_shard_map_of_one_type_are_told_apart_by_their_place():
    """They are in the order in which they are used; of one that is not there is nothing."""
    hlo = f"""
HloModule step

body {{
  x = f32[4] parameter(0)
  ROOT out = (f32[4], f32[4], f32[4]) tuple(x, x, x)
}}

ENTRY main {{
  x = f32[4] parameter(0), sharding={{manual}}
  call = (f32[4], f32[4], f32[4]) call(x), to_apply=body
  a = f32[4] get-tuple-element(call), index=1
  b = f32[4] copy(a), sharding={{manual}}
  c = f32[8] custom-call(b), custom_call_target="SPMDShardToFullShape", {HALVES},
    metadata={{op_name="audit0."}}
  d = f32[4] get-tuple-element(call), index=0
  e = f32[8] custom-call(d), custom_call_target="SPMDShardToFullShape", sharding={{replicated}},
    metadata={{op_name="audit0."}}
  ROOT y = (f32[8], f32[8]) tuple(c, e)
}}
"""
    shard_map = op("sdy.manual_computation", "8xf32", "8xf32", "8xf32")
    assert texts(hlo, [shard_map]) == {0: [["{replicated}", "{devices=[2]<=[2]}", None]]}


def test_each_result_of_a_shard_map_is_an_instruction():
    """They are told apart by their types."""
    hlo = f"""
HloModule step

ENTRY main {{
  x = f32[4] parameter(0), sharding={{manual}}
  n = s32[4] parameter(1), sharding={{manual}}
  a = s32[8] custom-call(n), custom_call_target="SPMDShardToFullShape", {HALVES},
    metadata={{op_name="audit0."}}
  b = f32[4] custom-call(x), custom_call_target="SPMDShardToFullShape", sharding={{replicated}},
    metadata={{op_name="audit0."}}
  ROOT y = (f32[4], s32[8]) tuple(b, a)
}}
"""
    shard_map = op("sdy.manual_computation", "4xf32", "8xi32")
    assert texts(hlo, [shard_map]) == {0: [["{replicated}", "{devices=[2]<=[2]}"]]}
