"""Microbatches in a scan: gradients are added up on each device, and summed over devices once."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 8}
MICRO, BATCH, WIDTH, HIDDEN = 8, 64, 124, 508


def program(mesh):
    def loss(params, x):
        h = jnp.tanh(x @ params["up"])
        return jnp.mean(jnp.square(h @ params["down"]))

    def step(params, batches):
        def accumulate(params, batches):
            def body(total, x):
                grads = jax.grad(loss)(params, x)
                return jax.tree.map(jnp.add, total, grads), None

            zeros = jax.tree.map(jnp.zeros_like, params)
            total, _ = jax.lax.scan(body, zeros, batches)
            return jax.lax.pmean(total, "data")

        total = jax.shard_map(
            accumulate,
            mesh=mesh,
            in_specs=(P(), P(None, "data")),
            out_specs=P(),
            check_vma=False,
        )(params, batches)
        return jax.tree.map(lambda p, g: p - 1e-3 * g / MICRO, params, total)

    def abstract(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    params = {
        "up": abstract((WIDTH, HIDDEN), None, None),
        "down": abstract((HIDDEN, WIDTH), None, None),
    }
    batches = abstract((MICRO, BATCH, WIDTH), None, "data", None)
    return Program("accumulate", jax.jit(step, donate_argnums=0), (params, batches), mesh=mesh)
