"""Constraints that a helper of the author's makes: the same in what was asked and in the module."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import sdyscope
from tests.programs import AUTO


def put(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(AUTO, P(*spec)))


def maybe_put(x, *spec):
    return x if x.ndim == 0 else put(x, *spec)


def step(x, w):
    h = maybe_put(x @ w, "data", "model")  # line A
    return maybe_put(jnp.tanh(h), "data").sum()  # line B


def lines():
    first = step.__code__.co_firstlineno
    return [first + 1, first + 2]


@pytest.fixture(scope="module")
def found():
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    return sdyscope.inspect(sdyscope.Program("step", jax.jit(step), (shape, shape)))


def test_each_is_told_by_the_line_that_called_the_helper(found):
    rows = [row for row in found.tensors.tensors if row.kind == "constraint"]
    assert [row.source.line for row in rows] == lines()
    assert {row.source.function for row in rows} == {"step"}
    # What was asked for knows its own line only, and is the same row still.
    assert {row.requested.source.function for row in rows} == {"put"}
    assert [row.lowered["shardy"].source.line for row in rows] == lines()
    assert found.check().passed


def test_collectives_are_told_by_it_too(found):
    ops = [op for op in found.graph("shardy") if op.kind == "sdy.sharding_constraint"]
    assert [op.source.line for op in ops] == lines()
