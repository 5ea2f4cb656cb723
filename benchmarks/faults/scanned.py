"""Layers in one scan, with stacked weights, as large models are written; Adam by hand."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 2, "tensor": 4}
LAYERS, BATCH, WIDTH, HIDDEN = 3, 1024, 128, 512


def program(mesh):
    specs = {
        "in": P(None, None, "tensor"),
        "out": P(None, "tensor", None),
        "bias": P(None, None),
    }
    shapes = {
        "in": (LAYERS, WIDTH, HIDDEN),
        "out": (LAYERS, HIDDEN, WIDTH),
        "bias": (LAYERS, WIDTH),
    }

    def put(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = {name: put(shapes[name], specs[name]) for name in specs}
    state = {
        "mu": {name: put(shapes[name], specs[name]) for name in specs},
        "nu": {name: put(shapes[name], specs[name]) for name in specs},
    }
    activations = NamedSharding(mesh, P("data", None))

    def forward(params, x):
        def layer(x, w):
            h = jax.nn.relu(x @ w["in"])
            h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P("data", "tensor")))
            y = h @ w["out"] + w["bias"]
            return jax.lax.with_sharding_constraint(x + y, activations), None

        return jax.lax.scan(layer, x, params)[0]

    def loss(params, x, y):
        return jnp.mean(jnp.square(forward(params, x) - y))

    def step(params, state, x, y):
        grads = jax.grad(loss)(params, x, y)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
        nu = jax.tree.map(lambda n, g: 0.99 * n + 0.01 * g * g, state["nu"], grads)
        new = jax.tree.map(lambda p, m, n: p - 1e-3 * m / (jnp.sqrt(n) + 1e-6), params, mu, nu)
        return new, {"mu": mu, "nu": nu}

    x = put((BATCH, WIDTH), P("data", None))
    y = put((BATCH, WIDTH), P("data", None))
    return Program("scanned", jax.jit(step, donate_argnums=(0, 1)), (params, state, x, y))
