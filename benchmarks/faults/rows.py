"""Row statistics over a feature dimension in pieces: what a `shard_map` gathers and sums."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 2, "model": 4}
ROWS, COLUMNS = 256, 1024


def program(mesh):
    def local(x, scale):
        mean = jax.lax.psum(jnp.sum(x, axis=1), "model") / COLUMNS
        centred = x - mean[:, None]
        power = jax.lax.psum(jnp.sum(jnp.square(centred), axis=1), "model") / COLUMNS
        normal = centred * jax.lax.rsqrt(power + 1e-6)[:, None]
        scaled = normal * scale
        rows = jax.lax.psum(scaled @ scaled.T, "model")
        return scaled, rows

    mapped = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(P("data", "model"), P("model")),
        out_specs=(P("data", "model"), P("data", None)),
    )

    def abstract(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return Program(
        "rows",
        jax.jit(mapped, donate_argnums=0),
        (abstract((ROWS, COLUMNS), "data", "model"), abstract((COLUMNS,), "model")),
        mesh=mesh,
    )
