"""Decoder-only transformer: fully sharded data parallelism, with tensor parallelism on top.

**The mesh.** `fsdp` shards the batch *and* the parameters; `model` splits heads, hidden
features and the vocabulary as Megatron does; `data`, if the mesh has it, shards the batch
only (parameters are copies along it: hybrid sharding, say one copy a pod).

    tokens      [batch, sequence]                 (('data', 'fsdp'), None)
    residual    [batch, sequence, embed]          (('data', 'fsdp'), None, None)
    queries     [batch, sequence, heads, head]    (('data', 'fsdp'), None, 'model', None)
    hidden      [batch, sequence, ff]             (('data', 'fsdp'), None, 'model')
    logits      [batch, sequence, vocab]          (('data', 'fsdp'), None, 'model')

    embedding   [vocab, embed]                    ('model', 'fsdp')
    wq, wk, wv  [embed, heads, head]              ('fsdp', 'model', None)
    wo          [heads, head, embed]              ('model', None, 'fsdp')
    gate, up    [embed, ff]                       ('fsdp', 'model')
    down        [ff, embed]                       ('model', 'fsdp')
    unembedding [embed, vocab]                    ('fsdp', 'model')
    scales      [embed]                           (None)

**Why this is FSDP.** In `residual @ wq` the axis `fsdp` shards the batch of one operand
and the summed dimension of the other; both cannot stay. The residual stream is pinned, so
it is the weight that moves: an all-gather of each matrix over `fsdp` just before its use,
in the compute dtype (that is why `loss` casts first). The weight's gradient is a sum over
the batch which is wanted in shards: a reduce-scatter over `fsdp`, which a backend without
that pass (the CPU) writes as an all-reduce and a slice. The optimizer then
touches only the shards a device owns and sends nothing. The scales are small: every
device keeps them whole, and their gradients take an all-reduce.

**What `model` adds.** Attention and the MLP are each a matmul split by columns (wq, wk,
wv; gate, up), work within a head or a hidden feature, and a matmul split by rows (wo;
down) whose sum crosses devices: an all-reduce over `model` after each, forward, and one
for the gradient of each one's input, backward. The loss needs the maximum and the sum
over a vocabulary in pieces: two more, of one number a token. It picks the
target's logit by a product with a one-hot vector, since indexing into a sharded
dimension would gather the logits.

**What the constraints are for.** The only tensors not fixed by an argument or a result
are activations. With `constrained=false` the partitioner must choose what happens to
`embedding[tokens]`: the table says `fsdp` is on the features, the tokens say it is on the
batch. GSPMD follows the tokens. Shardy follows the table, and from there on the residual
stream has its features on `fsdp`: the matmuls become partial sums, and all-reduces of
activations replace all-gathers of weights. Nothing is wrong, and it can cost several times
the memory and traffic: one constraint right after the lookup decides it.

**Options.** `scan` stacks the layers' parameters along a leading, unsharded dimension and
runs one layer in a loop: the program no longer grows with `layers`. `remat` keeps only
each layer's input for the backward pass, so weights are gathered once more in it.

Unknown mesh axes stay unused. JAX refuses sharded argument dimensions that do not divide:
`batch` by data x fsdp, `d_model` by fsdp, `heads`, `d_ff` and `vocab` by model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding

from sdyscope.errors import TargetError
from sdyscope.models._train_step import (
    DTYPES,
    OPTIMIZERS,
    AnyMesh,
    Parameter,
    one_of,
    place,
    positive,
    train_program,
)
from sdyscope.program import Program

MESH = {"fsdp": 4, "model": 2}
BATCH = ("data", "fsdp")


@dataclass(frozen=True)
class Settings:
    """Sizes and options; small enough by default to run on 8 CPU devices in seconds."""

    layers: int = field(default=2, metadata={"help": "decoder layers"})
    d_model: int = field(default=256, metadata={"help": "width of the residual stream"})
    heads: int = field(default=8, metadata={"help": "attention heads"})
    head_dim: int = field(default=32, metadata={"help": "width of a head; even, for rotary"})
    d_ff: int = field(default=512, metadata={"help": "width of the MLP's hidden layer"})
    vocab: int = field(default=1024, metadata={"help": "number of tokens there are"})
    batch: int = field(default=16, metadata={"help": "sequences a step"})
    sequence: int = field(default=64, metadata={"help": "tokens a sequence"})
    tied: bool = field(default=False, metadata={"help": "unembed with the embedding's transpose"})
    scan: bool = field(default=False, metadata={"help": "run the layers in one lax.scan"})
    remat: bool = field(default=False, metadata={"help": "recompute each layer when backward"})
    dtype: str = field(
        default="bfloat16",
        metadata={"help": "dtype to compute in; parameters are float32", "choices": DTYPES},
    )
    optimizer: str = field(
        default="adamw", metadata={"help": "which optimizer", "choices": OPTIMIZERS}
    )
    constrained: bool = field(
        default=True, metadata={"help": "constrain the activations' shardings"}
    )
    donate: bool = field(
        default=False, metadata={"help": "donate the parameters and the optimizer state"}
    )


@dataclass(frozen=True)
class Layout:
    """Where the activations live, and `constrain(x, sharding)` to hold them there."""

    residual: NamedSharding
    heads: NamedSharding
    hidden: NamedSharding
    logits: NamedSharding
    constrain: Callable[[jax.Array, NamedSharding], jax.Array]


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """One train step of the transformer on `mesh`.

    Raises:
      TargetError: a size is not positive, head_dim is odd, or an option has no such choice.
    """
    sizes = ("layers", "d_model", "heads", "head_dim", "d_ff", "vocab", "batch", "sequence")
    positive(settings, *sizes)
    one_of("dtype", settings.dtype, DTYPES)
    if settings.head_dim % 2:
        raise TargetError(f"head_dim={settings.head_dim} must be even: rotary turns pairs.")

    layout = Layout(
        residual=place(mesh, BATCH, None, None),
        heads=place(mesh, BATCH, None, "model", None),
        hidden=place(mesh, BATCH, None, "model"),
        logits=place(mesh, BATCH, None, "model"),
        # Without constraints the same lines run, and the partitioner is on its own.
        constrain=with_sharding_constraint if settings.constrained else lambda x, _: x,
    )

    def loss(params: Any, batch: Any) -> jax.Array:
        # Cast while the parameters are still in shards, so that half the bytes are gathered.
        params = jax.tree.map(lambda p: p.astype(settings.dtype), params)
        logits = forward(params, batch["tokens"], settings, layout)
        with jax.named_scope("loss"):
            target = jax.nn.one_hot(batch["targets"], settings.vocab, dtype=jnp.float32)
            normalizer = jax.nn.logsumexp(logits, axis=-1)
            return jnp.mean(normalizer - jnp.sum(logits * target, axis=-1))

    shape = (settings.batch, settings.sequence)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=place(mesh, BATCH, None))

    def host_batch(rng: np.random.Generator) -> dict[str, Any]:
        text = rng.integers(settings.vocab, size=(shape[0], shape[1] + 1), dtype=np.int32)
        return {"tokens": text[:, :-1], "targets": text[:, 1:]}

    return train_program(
        name="fsdp-transformer",
        mesh=mesh,
        settings=settings,
        parameters=parameters(settings),
        param_dtype="float32",
        loss=loss,
        batch={"tokens": tokens, "targets": tokens},
        host_batch=host_batch,
    )


def parameters(settings: Settings) -> dict[str, Any]:
    """Every array that is trained; `fsdp` is on the residual stream's width throughout."""
    embed, heads, head, ff = settings.d_model, settings.heads, settings.head_dim, settings.d_ff
    scale = Parameter((embed,), (None,), fan_in=None)
    project = Parameter((embed, heads, head), ("fsdp", "model", None), fan_in=embed)
    expand = Parameter((embed, ff), ("fsdp", "model"), fan_in=embed)
    layer = {
        "attention_norm": scale,
        "wq": project,
        "wk": project,
        "wv": project,
        "wo": Parameter((heads, head, embed), ("model", None, "fsdp"), fan_in=heads * head),
        "mlp_norm": scale,
        "gate": expand,
        "up": expand,
        "down": Parameter((ff, embed), ("model", "fsdp"), fan_in=ff),
    }
    tree: dict[str, Any] = {
        "embedding": Parameter((settings.vocab, embed), ("model", "fsdp"), fan_in=embed),
        "final_norm": scale,
    }
    if not settings.tied:
        tree["unembedding"] = Parameter((embed, settings.vocab), ("fsdp", "model"), fan_in=embed)
    if settings.scan:
        tree["layers"] = {key: p.stacked(settings.layers) for key, p in layer.items()}
    else:
        tree["layers"] = [dict(layer) for _ in range(settings.layers)]
    return tree


def forward(params: Any, tokens: jax.Array, settings: Settings, layout: Layout) -> jax.Array:
    """Logits [batch, sequence, vocab] (f32) of the next token at each position."""
    with jax.named_scope("embed"):
        x = layout.constrain(params["embedding"][tokens], layout.residual)
        angles = rotary_angles(settings.sequence, settings.head_dim)

    def decode(x: jax.Array, layer: Any) -> jax.Array:
        return decoder_layer(x, layer, angles, layout)

    if settings.remat:
        decode = jax.checkpoint(decode)
    if settings.scan:
        with jax.named_scope("layers"):
            x, _ = jax.lax.scan(lambda x, layer: (decode(x, layer), None), x, params["layers"])
    else:
        for index, layer in enumerate(params["layers"]):
            with jax.named_scope(f"layer{index}"):
                x = decode(x, layer)

    with jax.named_scope("unembed"):
        x = rms_norm(x, params["final_norm"])
        unembedding = params["embedding"].T if settings.tied else params["unembedding"]
        logits = jnp.einsum("bse,ev->bsv", x, unembedding, preferred_element_type=jnp.float32)
        return layout.constrain(logits, layout.logits)


def decoder_layer(x: jax.Array, layer: Any, angles: jax.Array, layout: Layout) -> jax.Array:
    """Attention and a SwiGLU MLP, each added to the residual stream x [batch, sequence, embed]."""
    with jax.named_scope("attention"):
        normed = rms_norm(x, layer["attention_norm"])
        query, key, value = (
            layout.constrain(jnp.einsum("bse,ehd->bshd", normed, layer[name]), layout.heads)
            for name in ("wq", "wk", "wv")
        )
        mixed = causal_attention(rotate(query, angles), rotate(key, angles), value)
        mixed = layout.constrain(mixed, layout.heads)
        x = x + layout.constrain(
            jnp.einsum("bshd,hde->bse", mixed, layer["wo"]), layout.residual
        )
    with jax.named_scope("mlp"):
        normed = rms_norm(x, layer["mlp_norm"])
        gate = jnp.einsum("bse,ef->bsf", normed, layer["gate"])
        up = jnp.einsum("bse,ef->bsf", normed, layer["up"])
        hidden = layout.constrain(jax.nn.silu(gate) * up, layout.hidden)
        x = x + layout.constrain(
            jnp.einsum("bsf,fe->bse", hidden, layer["down"]), layout.residual
        )
    return x


def causal_attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Softmax attention of [batch, sequence, heads, head_dim]; no position sees a later one."""
    sequence, head_dim = query.shape[1], query.shape[3]
    scores = jnp.einsum("bshd,bthd->bhst", query, key, preferred_element_type=jnp.float32)
    position = jnp.arange(sequence)
    visible = position[:, None] >= position[None, :]
    weights = jax.nn.softmax(jnp.where(visible, scores * head_dim**-0.5, -1e30), axis=-1)
    return jnp.einsum("bhst,bthd->bshd", weights.astype(value.dtype), value)


def rotary_angles(sequence: int, head_dim: int) -> jax.Array:
    """[sequence, head_dim / 2]: position times a frequency that falls along the head."""
    frequency = 10_000.0 ** -(jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    return jnp.arange(sequence, dtype=jnp.float32)[:, None] * frequency


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Turns the pairs (x[..., i], x[..., i + head_dim / 2]) by their position's angles."""
    cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """x over its root mean square along the last dimension, in f32, times a learned scale."""
    wide = x.astype(jnp.float32)
    rms = jnp.sqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + 1e-6)
    return (wide / rms).astype(x.dtype) * scale
