"""Which dimensions of an op's tensors are one, of what JAX lowers."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from sdyscope.graph import build
from sdyscope.graph.same_dims import same_dims


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ("kind", "function", "arguments", "groups"),
    [
        (
            "dot_general",
            lambda x, w: jnp.einsum("bij,bkj->bik", x, w),
            (array(2, 3, 4), array(2, 6, 4)),
            [((0, 0), (1, 0), (2, 0)), ((0, 1), (2, 1)), ((0, 2), (1, 2)), ((1, 1), (2, 2))],
        ),
        (
            "transpose",
            lambda x: x.transpose(2, 0, 1),
            (array(2, 3, 4),),
            [((0, 0), (1, 1)), ((0, 1), (1, 2)), ((0, 2), (1, 0))],
        ),
        (
            "broadcast_in_dim",
            lambda x: lax.broadcast_in_dim(x, (5, 3, 4), (1, 2)),
            (array(1, 4),),
            [((0, 1), (1, 2))],
        ),
        ("reduce", lambda x: x.max((0,)), (array(2, 3),), [((0, 1), (2, 0))]),
        (
            "reshape",
            lambda x: x.reshape(2, 12, 5),
            (array(2, 3, 4, 1, 5),),
            [((0, 0), (1, 0)), ((0, 1), (1, 1)), ((0, 4), (1, 2))],
        ),
        ("reshape", lambda x: x.reshape(()), (array(1, 1),), []),
        (
            "gather",
            lambda x, at: x[at],
            (array(8, 3), array(5, dtype=jnp.int32)),
            [((0, 1), (2, 1)), ((1, 0), (2, 0))],
        ),
        (
            "gather",
            lambda x, at: jnp.take_along_axis(x, at, 1),
            (array(4, 8), array(4, 2, dtype=jnp.int32)),
            [((0, 0), (2, 0)), ((1, 0), (2, 0)), ((1, 1), (2, 1))],
        ),
        (
            "scatter",
            lambda x, at, updates: x.at[at].add(updates),
            (array(8, 3), array(8, dtype=jnp.int32), array(8, 3)),
            # What is scattered is no dimension of the result, though as large.
            [((0, 0), (3, 0)), ((0, 1), (3, 1), (2, 1)), ((1, 0), (2, 0))],
        ),
        (
            "scatter",
            lambda x, at: jax.grad(lambda x: jnp.take_along_axis(x, at, 1).sum())(x),
            (array(4, 8), array(4, 2, dtype=jnp.int32)),
            [((0, 0), (3, 0), (1, 0), (2, 0)), ((0, 1), (3, 1)), ((1, 1), (2, 1))],
        ),
        (
            "optimization_barrier",
            lambda x, y, z: lax.optimization_barrier((x, y, z)),
            (array(3), array(3), array(2, 3)),
            [((0, 0), (3, 0)), ((1, 0), (4, 0)), ((2, 0), (5, 0)), ((2, 1), (5, 1))],
        ),
        (
            "while",
            lambda x, y: lax.while_loop(lambda c: c[0][0] < 9, lambda c: (c[0] + 1, -c[1]), (x, y)),
            (array(3), array(3)),
            [((0, 0), (2, 0)), ((1, 0), (3, 0))],
        ),
        (
            "add",
            lambda x, y: x + y,
            (array(2, 3), array(2, 3)),
            [((0, 0), (1, 0), (2, 0)), ((0, 1), (1, 1), (2, 1))],
        ),
    ],
)
def test_dimensions_that_are_one(kind, function, arguments, groups):
    graph = build(jax.jit(function).lower(*arguments).compiler_ir())
    op = next(op for op in graph.operations() if op.mnemonic == kind)
    types = [graph.ops[node].types[result] for node, result in graph.operand_values[op.id]]
    shapes = [each.shape for each in (*types, *op.types)]
    assert sorted(same_dims(op, shapes)) == groups
