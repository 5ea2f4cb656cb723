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


def sign_of_noise(groups=1, rate=1e-3, devices=8):
    """A step and its arguments: the gradient of its bias is zero but for rounding.

    Args:
        groups: in so many parts rows are summed.
        rate: what the step adds to parameters, or takes from them.
        devices: how many the rows are on.
    """

    def loss(params, x):
        h = x * params["w"] + params["b"]
        mean = h.reshape(groups, -1, h.shape[1]).mean(1).mean(0)
        return jnp.mean(jax.nn.relu(h - mean) ** 2)

    def step(params, x):
        gradients = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - rate * jnp.sign(g), params, gradients)

    mesh = jax.make_mesh((devices,), ("data",), axis_types=(AxisType.Auto,))
    whole, rows = (NamedSharding(mesh, spec) for spec in (P(), P("data")))
    arguments = (
        {name: jax.ShapeDtypeStruct((64,), jnp.float32, sharding=whole) for name in "wb"},
        jax.ShapeDtypeStruct((256, 64), jnp.float32, sharding=rows),
    )
    return jax.jit(step, out_shardings=whole), *arguments
