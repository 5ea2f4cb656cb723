"""A tensor parallel MLP whose collectives are written by hand, in a `shard_map`."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 4, "model": 2}
BATCH, WIDTH, HIDDEN = 256, 128, 512


def program(mesh):
    def local(params, x, y):
        def loss(params):
            h = jax.nn.relu(x @ params["up"])
            out = jax.lax.psum_scatter(h @ params["down"], "model", scatter_dimension=1, tiled=True)
            return jnp.sum(jnp.square(out - y)) / BATCH

        value, grads = jax.value_and_grad(loss)(params)
        value = jax.lax.psum(value, ("data", "model"))
        params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)
        return params, value

    specs = {"up": P(None, "model"), "down": P("model", None)}
    mapped = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(specs, P("data", None), P("data", "model")),
        out_specs=(specs, P()),
    )
    shapes = {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}

    def abstract(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = {name: abstract(shapes[name], specs[name]) for name in specs}
    x = abstract((BATCH, WIDTH), P("data", None))
    y = abstract((BATCH, WIDTH), P("data", "model"))
    return Program("mapped", jax.jit(mapped, donate_argnums=0), (params, x, y), mesh=mesh)
