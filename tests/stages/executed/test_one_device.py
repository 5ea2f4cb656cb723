"""The same step on one device: the jaxpr without its shardings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.stages.executed.one_device import unsharded

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def typed(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def looked_up(table, tokens, *, out=None):
    return table.at[tokens].get(**({} if out is None else {"out_sharding": out}))


def scanned(table, tokens, *, out=None):
    def body(carry, _):
        return jnp.tanh(carry * jnp.cos(looked_up(table, tokens, out=out))), None

    first = looked_up(table, tokens, out=out)
    return jax.lax.scan(jax.checkpoint(body), first, None, length=2)[0]


def gradient(table, tokens, *, out=None):
    return jax.grad(lambda table: scanned(table, tokens, out=out).sum())(table)


@pytest.mark.parametrize("function", [looked_up, scanned, gradient])
def test_explicit_axes(function):
    """The types of all values name a mesh of eight devices, those in loops and branches too."""
    arguments = typed((64, 16), None, "model"), typed((8, 4), "data", None, dtype=jnp.int32)
    with jax.sharding.use_abstract_mesh(MESH):
        out = NamedSharding(MESH, P("data", None, "model"))
        traced = jax.jit(lambda *args: function(*args, out=out)).trace(*arguments)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(64, 16)).astype(np.float32), rng.integers(0, 64, (8, 4), np.int32)
    (result,) = jax.jit(unsharded(traced))(*values)
    assert len(result.sharding.device_set) == 1
    np.testing.assert_allclose(result, jax.jit(function)(*values), rtol=1e-5)


def sharded_over(mesh, body, *shapes, specs, out):
    """A shard_map of a body, traced on `mesh`."""
    mapped = jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=out)
    with jax.sharding.use_abstract_mesh(mesh):
        return jax.jit(mapped).trace(*(jax.ShapeDtypeStruct(*shape) for shape in shapes))


def enabled_x64():
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(True)


def test_types_of_64_bits_in_a_part():
    """A part of a program that computes in them under a setting of its own."""
    mesh = AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def body(x):
        with enabled_x64():
            wide = jnp.clip(jnp.cumsum(x.astype(jnp.float64)), 0.0, 2.5 * len(x))
            total = jax.lax.psum(wide, "model") + jax.lax.axis_index("data")
            return total.astype(jnp.float32) * 2.0

    traced = sharded_over(
        mesh, body, ((8,), jnp.float32), specs=P(("data", "model")), out=P("data")
    )
    values = np.arange(8, dtype=np.float32)
    (result,) = jax.jit(unsharded(traced))(values)
    blocks = np.clip(np.cumsum(values.reshape(2, 2, 2), -1, dtype=np.float64), 0, 5)
    expected = 2 * (blocks.sum(1) + np.arange(2)[:, None])
    np.testing.assert_array_equal(result, expected.reshape(-1).astype(np.float32))


def test_a_product_of_groups_of_rows():
    """A ragged product has no rule of JAX's for weights that all devices of an axis share."""
    mesh = AbstractMesh((2, 2), ("data", "expert"), axis_types=(AxisType.Auto,) * 2)
    shapes = ((8, 3), jnp.float32), ((4, 3, 5), jnp.float32), ((8,), jnp.int32)
    specs = P(("data", "expert")), P("expert"), P(("data", "expert"))
    traced = sharded_over(mesh, jax.lax.ragged_dot, *shapes, specs=specs, out=specs[0])
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 3)).astype(np.float32)
    weights = rng.normal(size=(4, 3, 5)).astype(np.float32)
    sizes = np.asarray([2, 0, 1, 1, 0, 2, 0, 1], np.int32)
    (result,) = jax.jit(unsharded(traced))(rows, weights, sizes)
    expected = [
        jax.lax.ragged_dot(rows[2 * k : 2 * k + 2], weights[2 * (k % 2) :][:2], sizes[2 * k :][:2])
        for k in range(4)
    ]
    np.testing.assert_allclose(result, np.concatenate(expected), rtol=1e-5)
