"""Ops that cut, join, pad or turn nothing, as JAX lowers them."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from sdyscope.graph import build
from sdyscope.graph.rearranged_dims import cuts_ends_only, operand_given_back

X = jax.ShapeDtypeStruct((4, 8, 1), jnp.float32)


@pytest.mark.parametrize(
    ("kind", "function", "operand"),
    [
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0)] * 3), 0),
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0), (1, -1, 0), (0, 0, 0)]), None),
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0), (1, 0, 0), (0, 0, 0)]), None),
        ("slice", lambda x: x[:3], None),
        ("dynamic_slice", lambda x: lax.dynamic_slice(x, (0, 0, 0), (4, 8, 1)), 0),
        ("dynamic_slice", lambda x: lax.dynamic_slice(x, (0, 2, 0), (4, 4, 1)), None),
        (
            "dynamic_update_slice",
            lambda x: lax.dynamic_update_slice(jnp.zeros((4, 8, 1)), x, (0, 0, 0)),
            1,
        ),
        (
            "dynamic_update_slice",
            lambda x: lax.dynamic_update_slice(jnp.zeros((4, 9, 1)), x, (0, 0, 0)),
            None,
        ),
        ("concatenate", lambda x: jnp.concatenate([jnp.zeros((4, 0, 1)), x], 1), 1),
        ("concatenate", lambda x: jnp.concatenate([x, x]), None),
        ("reverse", lambda x: lax.rev(x, (2,)), 0),
        ("reverse", lambda x: lax.rev(x, (1, 2)), None),
        ("sort", lambda x: lax.sort(x, dimension=2), 0),
        ("sort", lambda x: lax.sort((x, x), dimension=2)[0], None),
        ("sort", lambda x: lax.sort(x, dimension=1), None),
        ("cosine", lambda x: jnp.cos(x), None),
    ],
)
def test_the_operand_that_an_op_gives_back(kind, function, operand):
    graph = build(jax.jit(function).lower(X).compiler_ir("stablehlo"))
    op = next(op for op in graph.ops if op.mnemonic == kind)
    values = [*graph.operand_values[op.id], (op.id, 0)]
    shapes = [graph.ops[node].types[result].static_shape for node, result in values]
    assert operand_given_back(op, shapes) == operand


@pytest.mark.parametrize(
    ("kind", "function", "is_cut"),
    [
        ("slice", lambda x: lax.slice_in_dim(x, 0, 3), True),
        ("slice", lambda x: lax.slice_in_dim(x, 1, None), False),
        ("slice", lambda x: lax.slice_in_dim(x, 0, 3, 2), False),
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0), (0, -1, 0), (0, 0, 0)]), True),
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0), (0, 1, 0), (0, 0, 0)]), False),
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0), (-1, 0, 0), (0, 0, 0)]), False),
        ("pad", lambda x: lax.pad(x, 0.0, [(0, 0, 0), (0, -1, 1), (0, 0, 0)]), False),
        ("reverse", lambda x: lax.rev(x, (1,)), False),
    ],
)
def test_what_cuts_off_ends_and_moves_nothing(kind, function, is_cut):
    graph = build(jax.jit(function).lower(X).compiler_ir("stablehlo"))
    assert cuts_ends_only(next(op for op in graph.ops if op.mnemonic == kind)) is is_cut
