"""Where values go on at the boundaries of functions and loops, of what JAX lowers."""

import jax
import jax.numpy as jnp

from sdyscope.analysis.collectives.boundaries import Boundaries
from sdyscope.graph import build


def test_what_a_loop_carries_and_what_it_is_given_once():
    def step(x, w):
        return jax.lax.while_loop(lambda c: c[0, 0] < 3, lambda c: jnp.tanh(c @ w), x)

    array = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    graph = build(jax.jit(step).lower(array, array).compiler_ir())
    boundaries = Boundaries(graph)
    (loop,) = (op for op in graph.operations() if op.mnemonic == "while")
    product = next(op for op in graph.operations() if op.mnemonic == "dot_general")
    carried, weight = graph.operand_values[product.id]
    assert carried in boundaries.carries[loop.id]
    assert carried not in boundaries.invariant
    # Later versions of JAX take what stays the same from outside.
    assert graph.ops[weight[0]].parent != loop.id or weight in boundaries.invariant
    # What the body returns is the result of that number.
    (result,) = (
        number
        for number, value in boundaries.bodies[loop.id]
        if graph.ops[value[0]].mnemonic == "tanh"
    )
    assert loop.types[result].static_shape == (4, 4)
    given = graph.operand_values[loop.id][result]
    assert carried in boundaries.passed[given]


def test_what_a_function_is_given_goes_on_as_its_argument():
    inner = jax.jit(lambda x: jnp.sin(x) * 2)
    array = jax.ShapeDtypeStruct((4,), jnp.float32)
    graph = build(jax.jit(lambda x: inner(jnp.cos(x))).lower(array).compiler_ir())
    (cosine,) = (op for op in graph.operations() if op.mnemonic == "cosine")
    (sine,) = (op for op in graph.operations() if op.mnemonic == "sine")
    assert graph.operand_values[sine.id][0] in Boundaries(graph).passed[cosine.id, 0]
