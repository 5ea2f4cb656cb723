"""A program to check: its hidden activations do not divide over the mesh."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 4, "model": 2}


def program(mesh):
    def sharded(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    @jax.jit
    def step(w, x):
        hidden = jnp.tanh(x @ w)
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(mesh, P("model", "data")))

    return Program("step", step, (sharded((128, 250), None, "model"), sharded((16, 128), "data")))
