"""A Flax NNX model: its layers' weights are sharded by their paths, activations by constraints."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 4, "model": 2}
BATCH, WIDTH, HIDDEN, CLASSES = 1024, 128, 512, 256

SPECS = {
    "inward": P(None, "model"),
    "outward": P("model", None),
    "head": P(None, "model"),
}


class Block(nnx.Module):
    def __init__(self, rngs):
        self.inward = nnx.Linear(WIDTH, HIDDEN, use_bias=False, rngs=rngs)
        self.outward = nnx.Linear(HIDDEN, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x, put):
        hidden = put(nnx.relu(self.inward(x)), P("data", "model"))
        return x + put(self.outward(hidden), P("data", None))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = Block(rngs)
        self.second = Block(rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, use_bias=False, rngs=rngs)

    def __call__(self, x, put):
        x = self.second(self.first(x, put), put)
        return put(self.head(x), P("data", "model"))


def program(mesh):
    def put(x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    graph, state = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))

    def place(path, leaf):
        layer = next(spec for name, spec in SPECS.items() if name in str(path))
        sharding = NamedSharding(mesh, layer)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    params = jax.tree_util.tree_map_with_path(place, nnx.to_pure_dict(state))

    def loss(params, x, y):
        restored = jax.tree.map(lambda leaf: leaf, state)
        nnx.replace_by_pure_dict(restored, params)
        logits = nnx.merge(graph, restored)(x, put)
        logits = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.sum(jax.nn.one_hot(y, CLASSES) * logits, axis=-1))

    def step(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads), value

    x = jax.ShapeDtypeStruct(
        (BATCH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("data", None))
    )
    y = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=NamedSharding(mesh, P("data")))
    return Program("nnx", jax.jit(step, donate_argnums=0), (params, x, y), mesh=mesh)
