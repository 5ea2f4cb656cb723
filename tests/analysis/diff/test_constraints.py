"""Constraints of one scope: which of them is which is told by the value that they stand on."""

import re

import jax
import jax.numpy as jnp
import pytest

from sdyscope.inspection import inspect
from sdyscope.snapshots import compare, read_snapshots, write
from tests.programs import on

pytestmark = pytest.mark.compiles


def inspected(*constraints, swapped=False, partitioner="shardy"):
    """Each of some functions of the argument, constrained over an axis; all without a scope."""

    def step(x):
        parts = [
            jax.lax.with_sharding_constraint(function(x), on(axis))
            for function, axis in (reversed(constraints) if swapped else constraints)
        ]
        return sum(reversed(parts) if swapped else parts)

    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=on("data"))
    return inspect(jax.jit(step), x, name="step", partitioners=(partitioner,))


BEFORE = ((jnp.sin, "data"), (jnp.cos, "model"), (jnp.tan, "data"))
EXCHANGED = ((jnp.sin, "model"), (jnp.cos, "data"), (jnp.tan, "data"))


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_shardings_that_were_exchanged_are_two_differences(partitioner):
    before, after = (
        inspected(*program, partitioner=partitioner) for program in (BEFORE, EXCHANGED)
    )
    diff = before.diff(after)
    assert not diff.same
    assert len(diff.tensors) == 2
    comparison = compare(before.snapshot(["lowered"]), after.snapshot(["lowered"]))
    assert comparison.different == 1


def test_the_one_that_changed_is_named():
    changed = inspected((jnp.sin, "model"), *BEFORE[1:])
    (difference,) = inspected(*BEFORE).diff(changed).tensors
    graph = changed.graph()
    (made_by,) = (op.id for op in graph.operations() if op.kind == "stablehlo.sine")
    constraint = graph.ops[difference.b.annotation.op]
    assert [producer.id for producer, _ in graph.operands(constraint)] == [made_by]


def test_the_order_of_what_is_computed_makes_no_difference():
    assert inspected(*BEFORE).diff(inspected(*BEFORE, swapped=True)).same


def test_lines_that_changed_places_propagate_alike():
    def program(*, swapped):
        def step(x, y):
            values = [(x, "data"), (y, "model")]
            parts = [
                jax.lax.with_sharding_constraint(jnp.sin(value), on(axis))
                for value, axis in (reversed(values) if swapped else values)
            ]
            return parts[swapped] + parts[not swapped]

        array = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=on("data"))
        return inspect(jax.jit(step), array, array, name="step", partitioners=("shardy",))

    before, after = program(swapped=False), program(swapped=True)
    assert before.diff(after).same
    assert before.propagated_diff(after).same


def test_a_snapshot_of_version_4_does_not_say_which_is_which_and_is_not_compared_so():
    before, after = (inspected(*program).snapshot(["lowered"]) for program in (BEFORE, EXCHANGED))
    text = write([before])
    assert "places 1,3" in text
    assert read_snapshots(text) == (before,)
    older = text.replace("sdyscope snapshot 6", "sdyscope snapshot 4")
    older = re.sub(r"\n +(places|on) [0-9a-f,]+", "", older)
    (old,) = read_snapshots(older)
    comparison = compare(old, after)
    assert comparison.is_same
    assert comparison.not_compared == ("places",)
    assert not compare(before, after).is_same
    assert compare(before, inspected(*BEFORE).snapshot(["lowered"])).is_same
