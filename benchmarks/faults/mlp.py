"""A residual MLP in plain JAX: data and tensor parallel, SGD with momentum."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 4, "model": 2}
LAYERS, BATCH, WIDTH, HIDDEN, CLASSES = 2, 1024, 128, 512, 256


def program(mesh):
    def abstract(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    def constrain(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def layer(x, w):
        h = jnp.tanh(x @ w["up"])
        h = constrain(h, "data", "model")
        y = h @ w["down"]
        return x + constrain(y, "data", None)

    def loss(params, batch):
        x = batch["x"] @ params["embed"]
        x = constrain(x, "data", None)
        for w in params["layers"]:
            x = layer(x, w)
        logits = x @ params["head"]
        logits = constrain(logits, "data", "model")
        target = jax.nn.one_hot(batch["y"], CLASSES)
        return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits), axis=-1))

    def step(params, momentum, batch):
        value, grads = jax.value_and_grad(loss)(params, batch)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 1e-2 * m, params, momentum)
        return params, momentum, value

    weights = {
        "up": abstract((WIDTH, HIDDEN), None, "model"),
        "down": abstract((HIDDEN, WIDTH), "model", None),
    }
    params = {
        "embed": abstract((WIDTH, WIDTH), None, None),
        "layers": [weights for _ in range(LAYERS)],
        "head": abstract((WIDTH, CLASSES), None, "model"),
    }
    momentum = jax.tree.map(
        lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype, sharding=p.sharding), params
    )
    batch = {
        "x": abstract((BATCH, WIDTH), "data", None),
        "y": abstract((BATCH,), "data", dtype=jnp.int32),
    }
    jitted = jax.jit(step, donate_argnums=(0, 1))
    return Program("mlp", jitted, (params, momentum, batch), mesh=mesh)
