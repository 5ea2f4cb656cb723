"""Gotchas of training with named axes and jit, each with the program that has the remedy."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 8}


def array(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


# --- the partitioner gets confused ----------------------------------------------------------------


def confused(mesh, constrained: bool = False):
    """Batch and embed are both on `data`: which of them is it in [batch, position, embed]?"""
    params = {
        "table": array(mesh, (1024, 256), None, "data"),  # [vocab, embed]
        "c_fc": array(mesh, (256, 1024), "data", None),  # [embed, mlp]
    }

    def loss(params, input_ids):
        x = params["table"][input_ids]
        if constrained:
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", None, None)))
        return jnp.mean(jnp.square(x @ params["c_fc"]))

    input_ids = array(mesh, (64, 32), "data", None, dtype=jnp.int32)
    return Program("loss", jax.jit(loss), (params, input_ids))


def helped(mesh):
    """A constraint says that it is the batch."""
    return confused(mesh, constrained=True)


# --- randomness isn't shardable -------------------------------------------------------------------


def make_matrix(mesh):
    """One key for a whole matrix, wanted in rows."""

    def draw(seed):
        return jax.random.normal(jax.random.key(seed), (256, 1024))

    rows = NamedSharding(mesh, P("data", None))
    return Program("make_matrix", jax.jit(draw, out_shardings=rows), (jnp.uint32(0),))


def make_rows(mesh):
    """A key for each row, and `vmap`."""

    def draw(seed):
        keys = jax.random.split(jax.random.key(seed), 256)
        return jax.vmap(lambda key: jax.random.normal(key, (1024,)))(keys)

    rows = NamedSharding(mesh, P("data", None))
    return Program("make_rows", jax.jit(draw, out_shardings=rows), (jnp.uint32(0),))


# --- the old state is kept ------------------------------------------------------------------------


def kept(mesh, donate: bool = False):
    """The parameters before the step and those after it are both held."""
    params = {"w": array(mesh, (16384, 4096), "data", None)}
    x = array(mesh, (64, 16384), "data", None)

    def step(params, x):
        gradients = jax.grad(lambda params: jnp.mean(jnp.square(x @ params["w"])))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    jitted = jax.jit(step, out_shardings=shardings, donate_argnums=(0,) if donate else ())
    return Program("step", jitted, (params, x))


def donated(mesh):
    """The new parameters take the place of the old ones."""
    return kept(mesh, donate=True)
