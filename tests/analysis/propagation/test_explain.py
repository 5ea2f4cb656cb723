"""explain: every kind of chain, every reason for an absence, how much of a model they cover."""

import re
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import sdyscope
from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.analysis.propagation.explain import Explainer
from sdyscope.analysis.propagation.flow import Flow
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.facts.propagated import DebugInfo
from sdyscope.stages import compat
from sdyscope.stages.lowered.lower import NotLowerable
from sdyscope.values.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.words.propagation import (
    absence_text,
    allowed_text,
    beginning_text,
    closed_texts,
    note_text,
    tensor_text,
)
from tests.analysis.propagations import case_of, of_model, of_program, of_text, sharded
from tests.programs import PROGRAMS
from tests.user_programs import USER_PROGRAMS

T = "tensor<8x16xf32>"
MESH = Mesh.of({"a": 4, "b": 2})
# Shardings of arguments and results.
A = sharded('[{"a"}, {}]')
A_ON_1 = sharded('[{}, {"a"}]')
HALF_OF_A = sharded('[{"a":(1)2, ?}, {?}]')
A_OPEN = sharded('[{"a", ?}, {?}]')
B = sharded('[{"b"}, {}]')
B_LATER = sharded('[{"b", ?}p1, {?}]')
A_FIRST = sharded('[{"a", ?}p0, {?}]')
ALL = sharded('[{"a", "b", "c"}]')

MODELS = [
    ("mlp", {}),
    ("fsdp-transformer", {}),
    ("fsdp-transformer", {"constrained": False}),
    ("fsdp-transformer", {"scan": True}),
    ("fsdp-transformer", {"scan": True, "constrained": False}),
    ("fsdp-transformer", {"remat": True, "constrained": False}),
    ("fsdp-transformer", {"remat": True, "scan": True}),
]


@cache
def case(body, arguments, results=T, mesh='"a"=4, "b"=2'):
    return of_text(body, arguments, results, mesh)


def explainer(program, propagated=None):
    return Explainer(
        Decisions(propagated or program.propagated, program.graph, program.annotations)
    )


def explained(program, name):
    (value,) = resolve_value(program.graph, name)
    return explainer(program).explain(value)


def chain(program, name, dimension=0, axis="a"):
    chains = explained(program, name).chains
    (chosen,) = [c for c in chains if c.dimension == dimension and c.axis.name == axis]
    return chosen


def counted(program, propagated=None):
    """Each axis on a value that is still there, and those without a chain to an annotation."""
    propagated = propagated or program.propagated
    flow = Flow(propagated, program.graph)
    pointers = Pointers(flow, program.annotations)
    every, unexplained = [], []
    for value in propagated.values.values():
        if value.node is None or propagated.graph.ops[value.node].is_result:
            continue  # A result has the chains of what is returned, and of its own annotation.
        ref = flow.root((value.node, value.result))
        for dimension, part in flow.parts_in(value.sharding) or flow.parts(ref):
            every.append((value.id, dimension, part))
            for piece in pointers.pieces(ref, part):
                if pointers.table[pointers.pointer(ref, piece)].beginning is None:
                    unexplained.append((value.id, dimension, piece))
    return every, unexplained


def is_complete(program):
    every, unexplained = counted(program)
    return bool(every) and not unexplained


def absence(program, name, reason):
    absences = explained(program, name).absences
    matching = [one for one in absences if one.reason == reason]
    assert matching, [absence_text(one) for one in absences]
    return matching[0]


# --- chains ---------------------------------------------------------------------------------------


def test_forward_through_two_ops():
    program = case(
        f"%0 = stablehlo.negate %arg0 : {T}\n%1 = stablehlo.tanh %0 : {T}\nreturn %1 : {T}",
        f"%arg0: {T} {A}",
    )
    steps = chain(program, "%1")
    assert steps.beginning.kind == "argument"
    assert steps.beginning.dimension == 0
    assert [move.direction for move in steps.moves] == ["forward", "forward"]
    assert [move.through.kind for move in steps.moves] == ["stablehlo.negate", "stablehlo.tanh"]
    first, second = steps.moves
    assert first.step < second.step
    assert "dim 0 of the operand is dim 0 of the result (factor i of size 8)" in allowed_text(
        first.rule
    )
    assert beginning_text(steps.beginning).startswith("the annotation {a} on dim 0 of the argument")
    assert is_complete(program)


def test_an_annotated_value_has_no_moves():
    program = case(f"return %arg0 : {T}", f"%arg0: {T} {A}")
    assert chain(program, "%arg0").moves == ()


def test_backward_from_a_result():
    program = case(
        f"%0 = stablehlo.negate %arg0 : {T}\nreturn %0 : {T}",
        f"%arg0: {T}",
        f"{T} {A}",
    )
    steps = chain(program, "%arg0")
    assert steps.beginning.kind == "result"
    assert [move.direction for move in steps.moves] == ["backward"]
    assert is_complete(program)


def test_sideways_through_a_contraction():
    types = "(tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>"
    program = case(
        f"%0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : {types}\n"
        "return %0 : tensor<8x4xf32>",
        f"%arg0: {T} {A_ON_1}, %arg1: tensor<16x4xf32>",
        "tensor<8x4xf32>",
    )
    steps = chain(program, "%arg1")
    assert [move.direction for move in steps.moves] == ["sideways"]
    assert "dim 1 of the left operand is dim 0 of the right operand" in allowed_text(
        steps.moves[0].rule
    )
    assert "size 16, which is reduced over" in allowed_text(steps.moves[0].rule)


def test_from_a_constraint_to_what_it_constrains():
    program = case(
        f"%0 = stablehlo.negate %arg0 : {T}\n"
        f'%1 = sdy.sharding_constraint %0 <@mesh, [{{"a"}}, {{}}]> : {T}\nreturn %1 : {T}',
        f"%arg0: {T}",
    )
    assert chain(program, "%1").beginning.kind == "constraint"
    steps = chain(program, "%arg0")
    assert steps.beginning.kind == "constraint"
    assert steps.beginning.annotation.ordinal == 0
    assert [move.direction for move in steps.moves] == ["backward", "backward"]
    assert is_complete(program)


def test_over_the_boundary_of_a_loop():
    body = f"""
      %c = stablehlo.constant dense<0> : tensor<i32>
      %n = stablehlo.constant dense<3> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %0:2 = stablehlo.while(%i = %c, %x = %arg0) : tensor<i32>, {T} cond {{
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        %y = stablehlo.tanh %x : {T}
        stablehlo.return %j, %y : tensor<i32>, {T}
      }}
      %1 = stablehlo.negate %0#1 : {T}
      return %1 : {T}"""
    program = case(body, f"%arg0: {T} {A}")
    steps = chain(program, "%1")
    assert steps.beginning.kind == "argument"
    assert [move.direction for move in steps.moves] == ["data flow", "forward"]
    assert "loop" in allowed_text(steps.moves[0].rule)
    (loop,) = [op for op in program.graph.ops if op.kind == "stablehlo.while"]
    names = resolve_value(program.graph, f"{loop.name}#1")
    assert [move.direction for move in chain(program, names[0].ssa).moves] == ["data flow"]
    assert is_complete(program)


def test_into_and_out_of_a_manual_computation():
    body = f"""
      %0 = stablehlo.negate %arg0 : {T}
      %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{{"a", "b"}}, {{}}]>]
          out_shardings=[<@mesh, [{{"a"}}, {{"b"}}]>] manual_axes={{"a"}}
          (%x: tensor<2x16xf32>) {{
        %y = stablehlo.tanh %x : tensor<2x16xf32>
        sdy.return %y : tensor<2x16xf32>
      }} : ({T}) -> {T}
      %2 = stablehlo.negate %1 : {T}
      return %2 : {T}"""
    program = case(body, f"%arg0: {T}")
    assert is_complete(program)
    entering = {c.axis.name: c for c in explained(program, "%0").chains}
    assert {c.beginning.kind for c in entering.values()} == {"shard_map input"}
    inside = next(op for op in program.graph.ops if op.kind == "stablehlo.tanh")
    (own,) = explained(program, inside.name).chains
    assert (own.axis.name, own.beginning.kind) == ("b", "shard_map input")
    leaving = chain(program, "%2", 1, "b")
    assert leaving.beginning.kind == "shard_map output"
    assert [move.direction for move in leaving.moves] == ["forward"]


def test_what_a_loop_carries_into_a_shard_map():
    """XLA's import writes a constraint on the carry, which the author did not."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 2, "model": 4}))
    fully_manual = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "model"),
        mesh=mesh,
        in_specs=(P("data", "model"), P("model", None)),
        out_specs=P("data", None),
    )

    def step(w, x):
        body = lambda h, _: (jnp.maximum(fully_manual(h, w), 0) + h, None)  # noqa: E731
        return jax.lax.scan(body, x, length=3)[0] ** 2

    x, w = (
        jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, spec))
        for spec in (P("data", None), P("model", None))
    )
    program = case_of(Program("step", jax.jit(step), (w, x)))
    explains = explainer(program)
    beginnings = [
        each.beginning
        for value, decided in program.propagated.values.items()
        if decided.placement is not None
        for each in explains.explain(value).chains
    ]
    assert all(beginning.annotation is not None for beginning in beginnings)
    assert "shard_map input" in {beginning.kind for beginning in beginnings}


def test_values_of_a_sharding_group():
    program = case(
        f"sdy.sharding_group %arg0 group_id=21 : {T}\n"
        f"%0 = stablehlo.negate %arg1 : {T}\n"
        f"sdy.sharding_group %0 group_id=21 : {T}\nreturn %0 : {T}",
        f"%arg0: {T} {A}, %arg1: {T}",
    )
    steps = chain(program, "%arg1")
    assert steps.beginning.name == program.annotations[0].path
    assert [move.direction for move in steps.moves] == ["group", "backward"]
    assert steps.moves[0].step is None
    assert is_complete(program)


def test_an_axis_whose_halves_come_from_two_places():
    program = case(
        f"%0 = stablehlo.add %arg0, %arg1 : {T}\nreturn %0 : {T}",
        f"%arg0: {T} {HALF_OF_A}, %arg1: {T} {A_OPEN}",
    )
    own, brought = explained(program, "%arg0").chains
    assert str(own.axis) == '"a":(1)2'
    assert own.moves == ()
    assert str(brought.axis) == '"a":(2)2'
    assert [move.direction for move in brought.moves] == ["sideways"]
    assert is_complete(program)


def test_a_constant_is_sharded_as_its_use():
    program = case(
        f"%c = stablehlo.constant dense<1.0> : {T}\n"
        f"%0 = stablehlo.add %arg0, %c : {T}\nreturn %0 : {T}",
        f"%arg0: {T} {A}",
    )
    (constant,) = [op for op in program.graph.ops if op.kind == "stablehlo.constant"]
    steps = chain(program, constant.name)
    assert steps.beginning.kind == "argument"
    assert [move.direction for move in steps.moves] == ["sideways"]


# --- absences -------------------------------------------------------------------------------------


def test_conflict_with_another_dimension():
    types = "(tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>"
    program = case(
        f"%0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : {types}\n"
        "return %0 : tensor<8x4xf32>",
        f"%arg0: {T} {A_OPEN}, %arg1: tensor<16x4xf32> {A_OPEN}",
        "tensor<8x4xf32>",
    )
    stopped = absence(program, "%arg0", "conflict")
    assert (stopped.dimension, stopped.axis.name) == (1, "a")
    assert tensor_text(stopped.neighbour) == "dim 0 of the right operand"
    assert "dim 0 of the value already has a, from the annotation" in absence_text(stopped)
    assert stopped.rival.beginning.kind == "argument"
    missing = absence(program, "%0", "no factor")
    assert missing.dimension is None
    assert "reduced over" in absence_text(missing)


def test_what_stopped_an_axis_is_called_as_what_moved_one():
    """By JAX's name: `reduce_sum`, which is a `reduce` in StableHLO."""
    mesh = AbstractMesh((2,), ("a",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P("a", None)))
    inspection = sdyscope.inspect(jax.jit(lambda x: jnp.sin(x).sum(0)), x)
    ((absence,), *_) = (found.absences for found in inspection.explain("result"))
    assert absence_text(absence).startswith("dim 0 of operand 0 of reduce_sum at ")


def test_two_operands_that_can_not_agree():
    program = case(
        f"%0 = stablehlo.add %arg0, %arg1 : {T}\nreturn %0 : {T}",
        f"%arg0: {T} {A}, %arg1: {T} {B}",
    )
    assert "the same factor" in absence_text(absence(program, "%0", "conflict"))
    closed = absence(program, "%arg1", "closed")
    assert "closed by the annotation {b} on dim 0 of the argument" in absence_text(closed)


def test_another_axis_in_its_place_by_priority():
    found = case(
        f"%0 = stablehlo.add %arg0, %arg1 : {T}\nreturn %0 : {T}",
        f"%arg0: {T} {B_LATER}, %arg1: {T} {A_FIRST}",
    )
    assert [str(c.axis) for c in explained(found, "%0").chains] == ['"a"']
    stopped = absence(found, "%0", "priority")
    assert stopped.axis.name == "b"
    assert "has priority 0 before 1" in absence_text(stopped)


def test_a_closed_constraint():
    found = case(
        f"%0 = stablehlo.negate %arg0 : {T}\n"
        f"%1 = sdy.sharding_constraint %0 <@mesh, [{{}}, {{}}]> : {T}\nreturn %1 : {T}",
        f"%arg0: {T} {A}",
    )
    stopped = absence(found, "%0", "closed")
    assert "closed by the annotation {} on dim 0 of the constraint" in absence_text(stopped)


def test_an_axis_that_is_kept_replicated():
    sharding = '<@mesh, [{?}, {?}], replicated={"a"}>'
    found = case(
        f"%0 = stablehlo.negate %arg0 : {T}\n"
        f"%1 = sdy.sharding_constraint %0 {sharding} : {T}\nreturn %1 : {T}",
        f"%arg0: {T} {A}",
    )
    assert "replicated along a" in absence_text(absence(found, "%1", "replicated"))


def test_operands_follow_a_result_that_is_closed():
    found = case(
        f"%0 = stablehlo.add %arg0, %arg1 : {T}\n"
        f"%1 = sdy.sharding_constraint %0 <@mesh, [{{}}, {{}}]> : {T}\nreturn %1 : {T}",
        f"%arg0: {T} {A}, %arg1: {T}",
    )
    stopped = absence(found, "%arg1", "closed")
    assert "operands follow the result, which can't have it: dim 0 is closed by" in absence_text(
        stopped
    )


def test_a_size_that_does_not_divide():
    types = "(tensor<8x6xf32>) -> tensor<48xf32>"
    found = case(
        f"%0 = stablehlo.reshape %arg0 : {types}\nreturn %0 : tensor<48xf32>",
        "%arg0: tensor<8x6xf32>",
        f"tensor<48xf32> {ALL}",
        '"a"=4, "b"=2, "c"=4',
    )
    stopped = absence(found, "%arg0", "not divisible")
    assert "factor j of size 6 does not divide into" in absence_text(stopped)


def test_a_factor_that_nothing_propagates_along():
    rule = "<([i, j])->([i, j]) {i=8, j=16} blocked_propagation={i}, custom>"
    found = case(
        f"%0 = stablehlo.custom_call @own(%arg0) "
        f"{{sdy.sharding_rule = #sdy.op_sharding_rule{rule}}} : ({T}) -> {T}\nreturn %0 : {T}",
        f"%arg0: {T} {A}",
    )
    stopped = absence(found, "%0", "blocked")
    assert "nothing propagates along factor i of size 8" in absence_text(stopped)


def test_an_op_without_a_rule():
    found = case(
        f"%0 = stablehlo.custom_call @unknown(%arg0) : ({T}) -> {T}\nreturn %0 : {T}",
        f"%arg0: {T} {A}",
    )
    assert "has no sharding rule" in absence_text(absence(found, "%0", "no rule"))


def test_a_barrier():
    found = case(
        f"%0 = stablehlo.negate %arg0 : {T}\n"
        f"%1 = sdy.propagation_barrier %0 allowed_direction=NONE : {T}\nreturn %1 : {T}",
        f"%arg0: {T} {A}",
    )
    assert "barrier stands between" in absence_text(absence(found, "%1", "barrier"))


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), MODELS)
def test_models_are_explained_completely(name, settings):
    program = of_model(name, **settings)
    every, unexplained = counted(program)
    assert unexplained == []
    assert len(every) > 80


@pytest.mark.parametrize(
    ("name", "settings"),
    [*MODELS[:2], MODELS[4], pytest.param(*MODELS[6], marks=pytest.mark.thorough)],
)
def test_chains_begin_where_shardy_says_that_axes_come_from(name, settings):
    program = of_model(name, **settings)
    explains = explainer(program)
    flow = Flow(program.propagated, program.graph)
    constraints = program.propagated.debug_info.names
    checked = 0
    for value in program.propagated.values.values():
        if value.node is None:
            continue
        for chain in explains.explain(value.id).chains:
            part = part_of(chain.axis, flow.mesh)
            origin = next(o for a, o in value.origins if part_of(a, flow.mesh).shared(part))
            start = chain.beginning
            checked += 1
            if origin.type == "self":
                assert chain.moves == ()
            elif origin.type == "constraint":
                nodes = [node for node, _ in flow.lowered_ids[constraints[str(origin)], 0]]
                assert start.annotation.op in nodes
            else:
                kind = {"input": "argument", "output": "result"}[origin.type]
                assert (start.kind, start.annotation.index) == (kind, origin.index)
    assert checked > 80


@pytest.mark.parametrize(("name", "settings"), MODELS[2:4])
def test_every_absence_on_a_model_has_a_reason(name, settings):
    program = of_model(name, **settings)
    explains = explainer(program)
    reasons = set()
    for value in program.propagated.values:
        for absence in explains.explain(value).absences:
            assert absence.reason != "unknown", absence_text(absence)
            reasons.add(absence.reason)
    assert {"conflict", "no factor"} <= reasons


def test_why_the_unconstrained_lookup_is_sharded_on_features():
    program = of_model("fsdp-transformer", constrained=False)
    (value,) = resolve_value(program.graph, "embed/gather")
    why = explainer(program).explain(value)
    (only,) = why.chains
    assert (only.dimension, only.axis.name) == (2, "fsdp")
    assert only.beginning.name == "params['embedding']"
    (stopped,) = [absence for absence in why.absences if absence.dimension == 0]
    assert stopped.reason == "conflict"
    assert "dim 2 of the value already has" in absence_text(stopped)
    assert stopped.rival.beginning.name == "params['embedding']"


def test_a_result_is_explained_by_its_own_annotation():
    program = of_model("mlp")
    main = program.graph.main
    sharded_results = [a for a in program.annotations if a.kind == "result" and a.placement]
    annotation = next(a for a in sharded_results if any(a.placement.dims))
    (value,) = resolve_value(program.graph, annotation.path)
    assert value.id == (main.results[annotation.index].node, 0)
    assert value.name == main.results[annotation.index].name
    why = explainer(program).explain(value)
    assert why.chains
    assert {c.beginning.kind for c in why.chains} == {"result"}


@pytest.mark.parametrize("name", [*PROGRAMS, *USER_PROGRAMS])
def test_whatever_jax_lets_one_write_is_explained(name):
    try:
        collectives = of_program(name)
    except NotLowerable:
        return  # This JAX can't lower it, which is the test of the lowering to judge.
    assert counted(collectives)[1] == []
    explains = explainer(collectives)
    for value in collectives.propagated.values:
        for absence in explains.explain(value).absences:
            assert absence.reason != "unknown", absence_text(absence)


def test_what_can_not_be_explained_says_so():
    program = of_model("mlp")
    values = [v for v in program.propagated.values.values() if v.node is not None and v.origins]
    without_steps = replace(program.propagated, read_debug_info=DebugInfo)
    why = explainer(program, without_steps).explain(values[0].id)
    assert "no steps" in note_text(why.notes[-1])
    gspmd = replace(program.propagated, partitioner="gspmd")
    tanh = next(v for v in values if program.graph.ops[v.id[0]].mnemonic == "tanh")
    why = explainer(program, gspmd).explain(tanh.id)
    assert why.chains == why.absences == ()
    assert "GSPMD does not say" in note_text(why.notes[-1])


def test_why_a_value_without_axes_has_none():
    body = (
        "%0 = stablehlo.negate %arg0 : tensor<8x16xf32>\n"
        "%1 = stablehlo.negate %arg1 : tensor<f32>\n"
        "%2 = stablehlo.negate %arg3 : tensor<8x16xf32>\n"
        "return %0, %1, %2 : tensor<8x16xf32>, tensor<f32>, tensor<8x16xf32>"
    )
    arguments = f"%arg0: {T}, %arg1: tensor<f32>, %arg2: {T} {sharded('[{}, {}]')}"
    program = of_text(body, arguments + f", %arg3: {T} {A}", f"{T}, tensor<f32>, {T}")
    explains = explainer(program)

    def words(name: str) -> list[str]:
        (value,) = resolve_value(program.graph, name)
        why = explains.explain(value)
        return [*closed_texts(why.closed, why.absences), *map(note_text, why.notes)]

    assert words("%0") == words("%arg0") == ["No axis came to it, and none was stopped beside it."]
    assert words("%1") == ["It has no dimension that could be sharded."]
    assert words("%arg2") == ["dims 0 and 1 are closed by the annotation on the argument main(2)"]
    assert words("%arg3") == [
        "dim 1 is closed by the annotation {} on dim 1 of the argument main(3)"
    ]


def test_no_axis_could_come_to_a_value_that_is_manual_on_all():
    body = f"""
      %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{{"a", "b"}}, {{}}]>]
          out_shardings=[<@mesh, [{{"a", "b"}}, {{}}]>] manual_axes={{"a", "b"}}
          (%x: tensor<1x16xf32>) {{
        %y = stablehlo.tanh %x : tensor<1x16xf32>
        sdy.return %y : tensor<1x16xf32>
      }} : ({T}) -> {T}
      return %0 : {T}"""
    program = of_text(body, f"%arg0: {T}", T)
    (inside,) = [op for op in program.graph.ops if op.kind == "stablehlo.tanh"]
    decisions = Decisions(program.propagated, program.graph, program.annotations, MESH)
    notes = Explainer(decisions).explain((inside.id, 0)).notes
    kinds = {note.kind for note in notes}
    assert "all manual" in kinds
    assert "untouched" not in kinds


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="results have parts of axes there")
def test_a_part_of_an_axis_that_a_result_can_not_have_is_said():
    """The reshape splits the 8 of dimension 0 in 2 and 4, as it splits the axis."""
    body = (
        "%0 = stablehlo.reshape %arg0 : (tensor<8x16xf32>) -> tensor<2x4x16xf32>\n"
        "return %0 : tensor<2x4x16xf32>"
    )
    argument = "%arg0: tensor<8x16xf32> " + sharded('[{"a"}, {}]')
    program = of_text(body, argument, "tensor<2x4x16xf32>")
    (result,) = program.graph.results()
    notes = explainer(program).explain((result.id, 0)).notes
    assert [note.kind for note in notes if note.kind == "parts of axes"]
    assert "What is returned is sharded on a:(1)2 and a:(2)" in note_text(notes[-1])


@pytest.mark.parametrize(
    ("fate", "words"), [("merged", "merged this value with"), ("folded", "folded this value")]
)
def test_the_fate_of_a_value_is_said(fate, words):
    program = of_model("mlp")
    value = next(v for v in program.propagated.values.values() if v.fate == fate)
    why = explainer(program).explain(value.id)
    assert words in note_text(why.notes[0])
    assert fate == "merged" or why.chains == ()


def test_a_chain_that_begins_nowhere_is_missing():
    program = of_model("mlp")
    silent = replace(program.propagated, read_debug_info=DebugInfo)
    every, unexplained = counted(program, silent)
    assert 0 < len(unexplained) < len(every)


# --- naming values --------------------------------------------------------------------------------


def test_values_by_path_and_ssa_name():
    graph = of_model("mlp").graph
    argument = graph.main.arguments[0]
    assert [v.id for v in resolve_value(graph, argument.name)] == [(argument.node, 0)]
    assert [v.id for v in resolve_value(graph, "%arg0")] == [(argument.node, 0)]
    assert [v.id for v in resolve_value(graph, "main:%arg0")] == [(argument.node, 0)]


def test_values_without_a_path_by_the_names_that_tables_have():
    """One name each in every command: not ``argument 0``, ``%arg0`` or ``result 0`` elsewhere."""
    program = case(
        "%0 = stablehlo.tanh %arg0 : tensor<8x16xf32>\nreturn %0 : tensor<8x16xf32>",
        f"%arg0: {T} {A}",
    )
    graph = program.graph
    entries = [each.path for each in program.annotations if each.kind in ("argument", "result")]
    assert entries == ["main(0)", "main[0]"]
    for name in (*entries, "tanh"):
        (value,) = resolve_value(graph, name)
        assert value.name == name
    line = resolve_value(graph, "tanh")[0].source.line
    assert [value.name for value in resolve_value(graph, f"line {line}")] == ["tanh"]
    (chain,) = explainer(program).explain(resolve_value(graph, "tanh")[0].id).chains
    assert "main(0)" in beginning_text(chain.beginning)


def test_values_by_the_end_of_a_scope():
    graph = of_model("fsdp-transformer").graph
    values = resolve_value(graph, "layer0/attention/dot_general")
    assert len(values) > 1
    assert {v.kind for v in values} == {"stablehlo.dot_general"}
    assert all("layer0" in v.name and "attention" in v.name for v in values)
    (gather,) = resolve_value(graph, "jit(step)/jvp(embed)/gather")
    assert [v.id for v in resolve_value(graph, "embed/gather")] == [gather.id]


def test_values_by_source_line():
    graph = of_model("fsdp-transformer").graph
    (gather,) = resolve_value(graph, "jit(step)/jvp(embed)/gather")
    line = f"fsdp_transformer.py:{gather.source.line}"
    value = resolve_value(graph, line)
    assert gather.id in [v.id for v in value]
    assert [v.id for v in resolve_value(graph, str(gather.source))] == [v.id for v in value]


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("params['embeding']", "params['embedding']"),
        ("layer0/attention/dot_generel", "dot_general"),
        ("fsdp_transformer.py:100000", "Lines of fsdp_transformer.py with values"),
        ("elsewhere.py:3", "No value comes from a file that ends with elsewhere.py"),
        ("%no_such", "Did you mean|pytree path"),
        ("", "pytree path"),
    ],
)
def test_a_name_that_nothing_has(wanted, hint):
    with pytest.raises(TargetError) as caught:
        resolve_value(of_model("fsdp-transformer").graph, wanted)
    assert re.search(hint.replace("[", r"\["), caught.value.hint)


# --- parts of axes --------------------------------------------------------------------------------


def test_parts_of_an_axis():
    mesh = Mesh.of({"a": 8})
    whole = part_of(AxisRef("a"), mesh)
    half = part_of(AxisRef("a", SubAxisInfo(1, 2)), mesh)
    middle = part_of(AxisRef("a", SubAxisInfo(2, 2)), mesh)
    assert whole.size == 8
    assert half.shared(middle) is None
    assert whole.shared(middle) == middle
    assert whole.without([middle]) == [half, AxisPart("a", 4, 8)]
    assert str(whole.axis(mesh)) == '"a"'
    assert str(middle.axis(mesh)) == '"a":(2)2'


@pytest.mark.parametrize("name", ["jit(fun)/jit(qr)/geqrf", "jit(qr)/geqrf", "qr/geqrf", "geqrf"])
def test_the_scope_of_what_a_function_of_its_own_does(name):
    """As lint and comms name it: in the module that scope begins with the function."""
    graph = of_program("decomposed").graph
    found = resolve_value(graph, name)
    assert {graph.ops[value.id[0]].kind for value in found} == {"stablehlo.custom_call"}
    assert len(found) == 2


@pytest.mark.compiles
def test_under_gspmd_what_the_program_itself_asks_for_is_said():
    """The annotation is a fact of the module, though GSPMD does not say what it propagates."""
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    places = [NamedSharding(mesh, P(*spec)) for spec in (("data",), (None, "model"))]

    def step(x):
        h = jax.lax.with_sharding_constraint(jnp.sin(x), places[1])
        return h * 2, jnp.cos(h)

    x = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=places[0])
    jitted = jax.jit(step, out_shardings=(places[0], None))
    program = sdyscope.inspect(jitted, x, partitioners=("gspmd",))

    def noted(value):
        (explanation,) = program.explain(value, "gspmd")
        return [(note.kind, note.names) for note in explanation.notes]

    assert noted("x") == [("annotated", ("argument",))]
    assert noted("sharding_constraint") == [("annotated", ("constraint",))]
    assert noted("result[0]") == [("annotated", ("result",))]
    assert noted("result[1]") == noted("cos") == [("not recorded", ())]
