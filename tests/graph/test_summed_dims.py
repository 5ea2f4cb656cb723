"""The dimensions that ops sum over, as StableHLO writes them and JAX lowers them."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from sdyscope.graph import build
from sdyscope.graph.summed_dims import summed_dims


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


INDICES = array(5, dtype=jnp.int32)


@pytest.mark.parametrize(
    ("kind", "function", "arguments", "dims"),
    [
        (
            "dot_general",
            lambda x, w: jnp.einsum("bij,bkij->bk", x, w),
            (array(2, 3, 4), array(2, 6, 3, 4)),
            [{1, 2}, {2, 3}],
        ),
        ("reduce", lambda x: x.max((0, 2)), (array(2, 3, 4),), [{0, 2}, set()]),
        ("gather", lambda x, at: x[:, at], (array(3, 8), INDICES), [{1}, set()]),
        (
            "scatter",
            lambda x, at, new: x.at[:, at].add(new),
            (array(3, 8), INDICES, array(3, 5)),
            [set(), {0}, {1}],
        ),
        ("sort", lambda x: jnp.sort(x), (array(3, 8),), [None]),
        (
            "convolution",
            lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
            (array(1, 2, 8, 8), array(4, 2, 3, 3)),
            [None, None],
        ),
    ],
)
def test_of_each_operand(kind, function, arguments, dims):
    graph = build(jax.jit(function).lower(*arguments).compiler_ir())
    op = next(op for op in graph.operations() if op.mnemonic == kind)
    given = graph.operands(op)
    found = [
        summed_dims(op, edge.operand, len(producer.types[edge.result].shape), len(given))
        for producer, edge in given
    ]
    assert found == [None if each is None else frozenset(each) for each in dims]
