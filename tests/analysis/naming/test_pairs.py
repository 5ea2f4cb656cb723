"""Which values of two programs are the same."""

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection

pytestmark = pytest.mark.compiles


def step_of(layers):
    """A step whose optimizer has no scopes: only what an op is computed from tells which it is."""

    def loss(params, x):
        for name, w in params.items():
            with jax.named_scope(name):
                x = jnp.tanh(x @ w)
        return (x * x).sum()

    def step(params, moments, x):
        grads = jax.grad(loss)(params, x)
        moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, grads)
        return jax.tree.map(lambda w, m: w - 0.01 * m, params, moments), moments

    shapes = {f"layer{at}": jax.ShapeDtypeStruct((8, 8), jnp.float32) for at in range(layers)}
    batch = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    return Inspection(Program("step", jax.jit(step), (shapes, shapes, batch)), ["shardy"])


def test_what_has_no_scope_is_found_by_what_it_is_computed_from():
    """With a layer more, there are more ops of each kind in the optimizer than before."""
    two, three = (step_of(layers).graph("shardy") for layers in (2, 3))
    pairs = value_pairs(two, three, by_name=True)
    assert {(op.kind, op.scope) for op in two.ops if op.types and (op.id, 0) not in pairs} == set()
    inverse = {other: value for value, other in pairs.items()}
    assert len(inverse) == len(pairs)
    for (node, _), other in pairs.items():
        op = two.ops[node]
        # Each of a moment, and each step of a weight, goes with that of the same layer.
        if op.mnemonic in ("multiply", "add", "subtract") and op.types[0].shape == (8, 8):
            operands = [pairs[value] for value in two.operand_values[node]]
            assert operands == list(three.operand_values[other[0]])


def test_values_of_other_types_are_other_values_of_one_program():
    def of(size):
        x = jax.ShapeDtypeStruct((size,), jnp.float32)
        step = Program("step", jax.jit(lambda x: jnp.sin(x).sum()), (x,))
        return Inspection(step, ["shardy"]).graph("shardy")

    small, large = of(8), of(16)
    retyped = value_pairs(small, large, by_name=True)
    assert {small.ops[node].mnemonic for node, _ in retyped} >= {"sine", "reduce"}
    pairs = value_pairs(small, large, by_name=True, same_types=True)
    assert "sine" not in {small.ops[node].mnemonic for node, _ in pairs}
    for (node, at), (other, result) in pairs.items():
        assert small.ops[node].types[at] == large.ops[other].types[result]


def test_values_with_as_much_said_of_both_are_left_alone():
    """Two ops that do the same to the same are no longer told apart once there is a third."""

    def twice(count):
        def step(x):
            return [jnp.sin(x) * float(at + 1) for at in range(count)]

        x = jax.ShapeDtypeStruct((8,), jnp.float32)
        return Inspection(Program("step", jax.jit(step), (x,)), ["shardy"]).graph("shardy")

    two, three = twice(2), twice(3)
    pairs = value_pairs(two, three, by_name=True)
    for node, op in enumerate(two.ops):
        if op.kind == "stablehlo.multiply":
            (constant,) = [
                producer.attributes["value"].splat
                for value in two.operand_values[node]
                for producer in _behind(two, value)
                if producer.kind == "stablehlo.constant"
            ]
            (other,) = [
                producer.attributes["value"].splat
                for value in three.operand_values[pairs[node, 0][0]]
                for producer in _behind(three, value)
                if producer.kind == "stablehlo.constant"
            ]
            assert constant == other


def _behind(graph, value):
    yield graph.ops[value[0]]
    for before in graph.operand_values[value[0]]:
        yield from _behind(graph, before)
