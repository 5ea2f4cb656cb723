"""Programs that are run."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


def simplified_wrongly():
    """A step and its arguments: XLA's algebraic simplifier computes it wrongly on one device."""
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
    return step, w, x
