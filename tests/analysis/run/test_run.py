"""What results are compared with is not taken for right where XLA computes it in two ways."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import inspect


@pytest.mark.compiles
def test_a_reference_that_xla_simplifies_wrongly_is_not_the_programs_error():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    mapped = jax.shard_map(
        lambda x, w: jnp.tanh(x @ w),
        mesh=mesh,
        in_specs=(P("data"), P(None, "model")),
        out_specs=P("data", "model"),
    )
    layer = jax.checkpoint(lambda x, w: x + mapped(x, w))
    step = jax.jit(jax.grad(lambda w, x: jnp.sum(layer(layer(x, w), w))))
    w, x = (
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in (((32, 32), P()), ((64, 32), P("data")))
    )
    run = inspect(step, w, x, partitioners=("shardy",)).run(steps=1)
    assert run.passed
    assert all(error.within for errors in run.numerics.values() for error in errors)
