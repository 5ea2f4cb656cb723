"""One attention block and its MLP, FSDP and tensor parallel, trained with plain SGD."""

import functools

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding, PartitionSpec

from sdyscope import Program

MESH = {"fsdp": 4, "model": 2}
BATCH, SEQUENCE, HEADS, HEAD, WIDTH, VOCAB = 16, 128, 4, 32, 128, 512


def program(mesh):
    def sharded(*spec):
        return NamedSharding(mesh, PartitionSpec(*spec))

    residual = sharded("fsdp", None, None)
    heads = sharded("fsdp", None, "model", None)
    hidden = sharded("fsdp", None, "model")

    def attention(x, w):
        q = with_sharding_constraint(jnp.einsum("bse,ehd->bshd", x, w["q"]), heads)
        k = with_sharding_constraint(jnp.einsum("bse,ehd->bshd", x, w["k"]), heads)
        v = with_sharding_constraint(jnp.einsum("bse,ehd->bshd", x, w["v"]), heads)
        scores = jnp.einsum("bshd,bthd->bhst", q, k) / HEAD**0.5
        mixed = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores), v)
        mixed = with_sharding_constraint(mixed, heads)
        return jnp.einsum("bshd,hde->bse", mixed, w["out"])

    def mlp(x, w):
        h = jax.nn.gelu(jnp.einsum("bse,ef->bsf", x, w["up"]))
        h = with_sharding_constraint(h, hidden)
        return jnp.einsum("bsf,fe->bse", h, w["down"])

    def loss(params, tokens):
        x = params["embedding"][tokens]
        x = with_sharding_constraint(x, residual)
        x = x + with_sharding_constraint(attention(x, params), residual)
        x = x + with_sharding_constraint(mlp(x, params), residual)
        logits = jnp.einsum("bse,ev->bsv", x, params["head"])
        logits = with_sharding_constraint(logits, hidden)
        picked = jnp.sum(jax.nn.one_hot(tokens, VOCAB) * jax.nn.log_softmax(logits), axis=-1)
        return -jnp.mean(picked)

    @functools.partial(jax.jit, donate_argnums=(0,))
    def step(params, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads), value

    def parameter(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharded(*spec))

    params = {
        "embedding": parameter((VOCAB, WIDTH), "model", "fsdp"),
        "q": parameter((WIDTH, HEADS, HEAD), "fsdp", "model", None),
        "k": parameter((WIDTH, HEADS, HEAD), "fsdp", "model", None),
        "v": parameter((WIDTH, HEADS, HEAD), "fsdp", "model", None),
        "out": parameter((HEADS, HEAD, WIDTH), "model", None, "fsdp"),
        "up": parameter((WIDTH, 4 * WIDTH), "fsdp", "model"),
        "down": parameter((4 * WIDTH, WIDTH), "model", "fsdp"),
        "head": parameter((WIDTH, VOCAB), "fsdp", "model"),
    }
    tokens = jax.ShapeDtypeStruct((BATCH, SEQUENCE), jnp.int32, sharding=sharded("fsdp", None))
    return Program("attention", step, (params, tokens), mesh=mesh)
