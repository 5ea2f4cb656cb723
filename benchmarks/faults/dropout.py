"""Dropout over a batch in pieces: every device draws its own random numbers."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 4, "model": 2}
BATCH, WIDTH = 512, 256

jax.config.update("jax_threefry_partitionable", True)


def program(mesh):
    def forward(w, x, seed):
        key = jax.random.key(seed[0])
        for layer in range(2):
            keep = jax.random.bernoulli(jax.random.fold_in(key, layer), 0.9, (BATCH, WIDTH))
            x = jnp.where(keep, jax.nn.relu(x @ w[layer]), 0.0)
            sharded = NamedSharding(mesh, P("data", "model"))
            x = jax.lax.with_sharding_constraint(x, sharded)
        return x

    def abstract(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    w = [abstract((WIDTH, WIDTH), None, "model") for _ in range(2)]
    x = abstract((BATCH, WIDTH), "data", None)
    seed = abstract((1,), None, dtype=jnp.uint32)
    return Program("dropout", jax.jit(forward), (w, x, seed), mesh=mesh)
