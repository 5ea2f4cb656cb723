# ruff: noqa: E501 - MLIR writes an op on one line
"""Differences of two propagations: which values, where they begin, what follows from each."""

import gc
import json
import weakref
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.diff.propagated import PropagatedSide, inputs, propagated_diff
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.facts.differences import NotComparedValues
from sdyscope.facts.program import Program
from sdyscope.graph import read_text
from sdyscope.inspection import Inspection, inspect
from sdyscope.stages import compat
from sdyscope.stages.lowered.lower import NotLowerable
from sdyscope.stages.propagated.propagate import propagate
from sdyscope.stages.propagated.xla_dump import propagated_by_xla
from sdyscope.targets import resolve
from sdyscope.words.differences import propagated_verdict
from tests.analysis.propagations import of_model, of_text, sharded
from tests.programs import PROGRAMS

T = "tensor<8x16xf32>"
BATCH, FEATURES = sharded('[{"a"}, {}]'), sharded('[{}, {"a"}]')


def side(label, decided):
    return PropagatedSide(label, Decisions(decided.propagated, decided.graph))


def chain_of_ops(sharding, *, first="negate"):
    body = (
        f"%0 = stablehlo.{first} %arg0 : {T}\n%1 = stablehlo.tanh %0 : {T}\n"
        f"%c = stablehlo.constant dense<1.0> : {T}\n%2 = stablehlo.add %1, %c : {T}\n"
        f"%3 = stablehlo.negate %arg1 : {T}\nreturn %2, %3 : {T}, {T}"
    )
    return of_text(body, f"%arg0: {T} {sharding}, %arg1: {T} {BATCH}", f"{T}, {T}")


@cache
def both(settings):
    """The transformer under Shardy in process and under GSPMD as XLA propagates it."""
    inspection = Inspection(resolve("fsdp-transformer", settings=json.loads(settings)))
    try:
        gspmd = inspection.lowered["gspmd"]
    except (KeyError, NotLowerable):  # pragma: no cover - a future JAX without GSPMD
        pytest.fail("GSPMD is gone from this JAX")
    graphs = [inspection.graph(partitioner) for partitioner in ("shardy", "gspmd")]
    found = (
        propagate(inspection.lowered["shardy"], graphs[0]),
        propagated_by_xla(gspmd, graphs[1]),
    )
    sides = zip(("shardy", "gspmd"), found, graphs, strict=True)
    one, two = (PropagatedSide(label, Decisions(*side)) for label, *side in sides)
    return one, two


def left_out(diff):
    return sum(missing.values for missing in diff.not_compared)


def diff(a, b, across="partitioners"):
    return propagated_diff("program", a, b, across)


def test_the_same_is_the_same():
    chain = chain_of_ops(BATCH)
    same = diff(side("one", chain), side("two", chain))
    assert same.same
    assert same.compared == same.same_values == len(chain.propagated.values)
    assert same.not_compared == ()


def test_everything_that_follows_from_one_argument_is_one_group():
    a, b = chain_of_ops(BATCH), chain_of_ops(FEATURES)
    difference = diff(side("batch", a), side("features", b))
    (group,) = difference.beginnings
    assert group.begins.value.kind == "argument"
    assert group.inputs == ()
    kinds = [value.value.kind for value in group.follows]
    assert kinds == [
        "stablehlo.negate",
        "stablehlo.tanh",
        "stablehlo.constant",
        "stablehlo.add",
        "result",
    ]
    assert (group.values, difference.different_values, difference.same_values) == (6, 6, 3)
    assert group.bytes == 6 * 8 * 16 * 4
    assert group.bytes_a == group.bytes_b == group.bytes // 4
    assert group.begins.a.placement.shards == (4, 1)
    assert group.begins.b.placement.shards == (1, 4)


def test_a_difference_begins_where_inputs_agree():
    body = (
        f"%0 = stablehlo.negate %arg0 : {T}\n"
        f"%1 = sdy.sharding_constraint %0 <@mesh, SHARDING> : {T}\n"
        f"%2 = stablehlo.tanh %1 : {T}\nreturn %2 : {T}"
    )
    cases = [
        of_text(body.replace("SHARDING", sharding), f"%arg0: {T} {BATCH}", T)
        for sharding in ('[{"a"}, {}]', '[{}, {"a"}]')
    ]
    difference = diff(side("a", cases[0]), side("b", cases[1]))
    (group,) = difference.beginnings
    assert group.begins.value.kind in ("stablehlo.negate", "sdy.sharding_constraint")
    assert len(group.inputs) == len(inputs(cases[0].graph, group.begins.value.id)) == 1
    (before,) = inputs(cases[0].graph, group.begins.value.id)
    for case in cases:
        assert case.propagated.values[before].placement.shards == (4, 1)
    assert [value.value.kind for value in group.follows[-2:]] == ["stablehlo.tanh", "result"]


def test_a_difference_in_a_loop_begins_at_what_is_written_otherwise():
    """Of values that follow from each other, in a circle, the first of the module is any."""
    mesh = AbstractMesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def program(*spec):
        def body(x, _):
            written = jax.lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, P(*spec)))
            return jnp.tanh(written), None

        x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P()))
        step = jax.jit(lambda x: jax.lax.scan(body, x, length=3)[0])
        inspection = inspect(step, x, partitioners=["shardy"])
        return PropagatedSide(spec[0], Decisions.of(inspection, inspection.propagated("shardy")))

    difference = diff(program("a"), program("b"), "programs")
    begins = [group.begins.value for group in difference.beginnings]
    assert [value.kind for value in begins] == ["sdy.sharding_constraint"]
    assert begins[0].source is not None


def test_values_that_one_side_does_not_have_are_counted():
    a, b = chain_of_ops(BATCH), chain_of_ops(BATCH, first="exponential")
    difference = diff(side("a", a), side("b", b))
    assert difference.not_compared == (NotComparedValues("absent", "b", 1),)
    # Of the first's two negates, the one that negates the same argument is the same.
    assert difference.same
    assert difference.compared + left_out(difference) == len(a.propagated.values)


def test_different_programs_match_arguments_by_path():
    mlp = of_model("mlp")
    wide = of_model("mlp", optimizer="sgd")
    pairs = value_pairs(mlp.graph, wide.graph, by_name=True)
    names = {a.node: a.name for a in mlp.graph.main.arguments}
    others = {a.node: a.name for a in wide.graph.main.arguments}
    matched = [(names[a], others[b]) for (a, _), (b, _) in pairs.items() if a in names]
    assert matched
    assert all(one == other for one, other in matched)
    difference = diff(side("adamw", mlp), side("sgd", wide), "programs")
    # What only one of them has is counted as that, not as left out too.
    both = difference.compared + left_out(difference)
    assert both + difference.only_a == len(mlp.propagated.values)


def test_modules_are_paired_once_for_each_way_and_forgotten_with_them():
    a = Inspection(resolve("mlp"), ("shardy",)).graph()
    b = Inspection(resolve("mlp", settings={"optimizer": "sgd"}), ("shardy",)).graph()
    by_name, by_number = value_pairs(a, b, by_name=True), value_pairs(a, b)
    assert by_name != by_number
    assert value_pairs(a, b, by_name=True) is by_name
    assert value_pairs(a, b) is by_number
    assert value_pairs(b, a) != by_number
    kept = weakref.ref(a)
    del a
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", ["shard_map", "shard_map_grad", "shard_map_nested"])
def test_what_enters_and_leaves_a_shard_map_has_a_partner(name):
    inspection = Inspection(Program(name, *PROGRAMS[name]))
    a, b = inspection.graph("shardy"), inspection.graph("gspmd")
    pairs = value_pairs(a, b)
    bodies = [op for op in a.ops if op.kind == "sdy.manual_computation"]
    assert bodies
    for op in bodies:
        arguments = [(child.id, 0) for child in a.children(op) if child.is_argument]
        for node, result in [*arguments, *((op.id, k) for k in range(len(op.types)))]:
            other, number = pairs[node, result]
            assert b.ops[other].types[number].text == a.ops[node].types[result].text
    targets = {b.ops[pairs[op.id, 0][0]].call_target for op in bodies if op.types}
    assert targets == {"SPMDShardToFullShape"}


def test_what_is_in_a_shard_map_is_not_what_is_outside():
    """Shardy's module has a body where it is mapped, GSPMD's behind main, here with one scope."""
    shardy = """
module @m {
  sdy.mesh @mesh = <["a"=2]>
  func.func public @main(%arg0: tensor<8xf32>, %arg1: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"a"}]>] out_shardings=[<@mesh, [{"a"}]>] manual_axes={"a"} (%arg2: tensor<4xf32>) {
      %2 = stablehlo.negate %arg2 : tensor<4xf32>
      sdy.return %2 : tensor<4xf32>
    } : (tensor<8xf32>) -> tensor<8xf32>
    %1 = stablehlo.negate %arg1 : tensor<4xf32>
    return %0, %1 : tensor<8xf32>, tensor<4xf32>
  }
}"""
    gspmd = """
module @m attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%arg0: tensor<8xf32>, %arg1: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<8xf32>) -> tensor<4xf32>
    %2 = call @body(%1) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<4xf32>
    %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<4xf32>) -> tensor<8xf32>
    %5 = stablehlo.negate %arg1 : tensor<4xf32>
    return %4, %5 : tensor<8xf32>, tensor<4xf32>
  }
  func.func private @body(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""
    a, b = read_text(shardy), read_text(gspmd)
    pairs = value_pairs(a, b)
    negated = [op for op in a.operations() if op.kind == "stablehlo.negate"]
    assert [b.ops[pairs[op.id, 0][0]].function for op in negated] == ["body", "main"]


def test_inputs_of_a_loop_flow_over_its_boundary():
    graph = of_model("fsdp-transformer", scan=True, constrained=False).graph
    loop = next(op for op in graph.ops if op.kind == "stablehlo.while")
    carried = next(op for op in graph.children(loop) if op.is_argument)
    assert len(inputs(graph, (carried.id, 0))) == 2
    assert len(inputs(graph, (loop.id, 0))) == 1


@pytest.mark.compiles
def test_the_unconstrained_transformer_differs_from_the_embedding_lookup_on():
    difference = diff(*both('{"constrained": false}'))
    first = difference.beginnings[0]
    assert first.begins.value.name == "jvp(embed)/gather"
    assert [one.placement.shards[:3] for one in (first.begins.a, first.begins.b)] == [
        (1, 1, 4),
        (4, 1, 1),
    ]
    assert first.values > 0.9 * difference.different_values
    assert first.bytes_a > 2 * first.bytes_b
    assert difference.compared > 10 * len(difference.not_compared)
    assert [group.bytes for group in difference.beginnings] == sorted(
        (group.bytes for group in difference.beginnings), reverse=True
    )


@pytest.mark.compiles
def test_the_constrained_transformer_does_not_differ():
    difference = diff(*both("{}"))
    assert difference.same_values > 1000
    # GSPMD of JAX up to 0.9 leaves the two halves that jnp.roll puts together without a sharding.
    assert all("roll" in group.begins.value.ssa for group in difference.beginnings)
    assert difference.same or compat.version_tuple() < (0, 10)


@pytest.mark.compiles
def test_every_value_has_its_partner_under_the_other_partitioner():
    a, b = both("{}")
    pairs = value_pairs(a.graph, b.graph)
    assert len(pairs) == len(a.propagated.values)
    assert len(set(pairs.values())) == len(pairs)


def layer_of(sharding, *, rows=8, dtype="f32", second=""):
    wide = f"tensor<{rows}x16x{dtype}>"
    body = (
        f"%0 = stablehlo.negate %arg0 : {wide}\n{second}"
        f"%1 = stablehlo.tanh %0 : {wide}\nreturn %1 : {wide}"
    )
    return of_text(body, f"%arg0: {wide} {sharding}", wide)


@pytest.mark.parametrize("other", [{"dtype": "bf16"}, {"rows": 32}])
def test_values_of_another_dtype_or_size_are_compared_by_their_axes(other):
    """Of a program that is computed in bf16, or of a larger batch: did anything move?"""
    a, b = layer_of(BATCH), layer_of(BATCH, **other)
    alike = diff(side("a", a), side("b", b), "programs")
    count = len(a.propagated.values)
    assert (alike.same_values, alike.other_types, alike.only_a, alike.only_b) == (
        count,
        count,
        0,
        0,
    )
    assert not alike.same  # They are sharded alike, and are not the same values.
    assert propagated_verdict(alike) == (
        f"{count} values, sharded the same way in a and b; all {count} have another dtype or shape"
    )
    moved = diff(side("a", a), side("b", layer_of(FEATURES, **other)), "programs")
    assert (moved.different_values, moved.other_types) == (count, count)
    # Not of those that are sharded differently, of which there can be fewer.
    some = propagated_verdict(replace(moved, other_types=count - 1))
    assert some.endswith(f"; {count - 1} of the {count} have another dtype or shape")
    unmoved = propagated_verdict(replace(alike, other_types=count - 1))
    assert unmoved.endswith(f"; {count - 1} of them have another dtype or shape")


def test_one_of_two_values_of_another_size_is_nobodys_partner():
    more = "%9 = stablehlo.negate %0 : tensor<32x16xf32>\n"
    a, b = layer_of(BATCH), layer_of(BATCH, rows=32, second=more)
    difference = diff(side("a", a), side("b", b), "programs")
    # Which of the two is the one that was there before is not known.
    assert (difference.only_a, difference.only_b) == (1, 2)


@pytest.mark.compiles
def test_a_sum_with_and_without_a_type_that_varies_is_one():
    """JAX calls it `psum_invariant` where `shard_map` checks what varies, else `psum`."""
    mesh = AbstractMesh((4,), ("a",))
    rows = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P("a")))

    def summed(check):
        mapped = jax.shard_map(
            lambda x: jax.lax.psum(x, "a"),
            mesh=mesh,
            in_specs=P("a"),
            out_specs=P(),
            check_vma=check,
        )
        return Inspection(Program("step", jax.jit(mapped), (rows,)), ["shardy"])

    checked, unchecked = summed(True), summed(False)
    assert "psum_invariant" in checked.lowered["shardy"].text()
    assert "psum_invariant" not in unchecked.lowered["shardy"].text()
    assert checked.propagated_diff(unchecked).same
    assert checked.compiled_diff(unchecked).same
