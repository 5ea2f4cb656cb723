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
