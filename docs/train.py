"""Trains a small network on eight devices, virtual ones of the CPU: a script to record."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))


def on(*spec):
    return NamedSharding(mesh, P(*spec))


def predict(params, batch):
    return jnp.tanh(batch @ params["w1"]) @ params["w2"]


@jax.jit
def train_step(params, batch, targets):
    def loss(params):
        return jnp.mean((predict(params, batch) - targets) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


@jax.jit
def evaluate(params, batch, targets):
    return jnp.mean((predict(params, batch) - targets) ** 2)


params = {
    "w1": jax.device_put(jnp.ones((64, 128)) / 64, on(None, "model")),
    "w2": jax.device_put(jnp.ones((128, 8)) / 128, on("model", None)),
}
for size in (32, 32, 24):  # what is left over for the last batch is smaller
    batch = jax.device_put(jnp.ones((size, 64)), on("data", None))
    targets = jax.device_put(jnp.ones((size, 8)), on("data", None))
    params = train_step(params, batch, targets)
    print(f"loss {evaluate(params, batch, targets):.4f}")
