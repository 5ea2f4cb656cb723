"""Decoder-only transformer: fully sharded data parallelism, with tensor parallelism on top.

**The mesh.** `fsdp` shards the batch *and* the parameters; `model` splits heads, hidden
features and the vocabulary as Megatron does; `data`, if the mesh has it, shards the batch
only (parameters are replicated along it: hybrid sharding, say one replica a pod).

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
    scale       [embed]                           (None)

**Why this is FSDP.** In `residual @ wq` the axis `fsdp` shards the batch of one operand
and the summed dimension of the other; both cannot stay. The residual stream is pinned, so
it is the weight that moves: an all-gather of each matrix over `fsdp` before its use, of
values already cast to the compute dtype (CPUs compute in f32 all the same). The weight's
gradient is a sum over the batch that is wanted in shards: a reduce-scatter over `fsdp`,
which the CPU backend writes as an all-reduce and a slice. The optimizer then touches only
the shards a device owns and sends nothing. The scale of the last norm (the layers' norms
have none) is small: every device keeps it whole, and its gradient takes an all-reduce.

**What `model` adds.** Attention and the MLP are each matmuls split by columns (wq, wk, wv;
gate, up), work within a head or a hidden feature, and a matmul split by rows (wo; down),
whose sum crosses devices: one all-reduce over `model` each, forward. Backward, each of the
matmuls split by columns has such a sum in the gradient of its input, and XLA reduces them
before it adds them up: three tensors for attention, two for the MLP, where one would do.
The loss needs the maximum and the sum over a vocabulary in pieces: two more, of one number
a token. It picks the target's logit by a product with a one-hot vector, since indexing
into a sharded dimension would gather the logits.

**What the constraints are for.** The only tensors not fixed by an argument or a result
are activations. With `constrained=false` the partitioner must choose what happens to
`embedding[tokens]`: the table says `fsdp` is on the features, the tokens say it is on the
batch. GSPMD follows the tokens. Shardy follows the table, and from there on the residual
stream has its features on `fsdp` and its batch whole: the matmuls become partial sums, and
all-reduces of activations replace all-gathers of weights. Nothing is wrong, and it costs
more than twice the memory even at the default sizes: the constraint after the lookup
decides it. (It takes an all-to-all there, from features to batch.)

**Options.** `scan` stacks the layers' parameters along a leading, unsharded dimension and
runs one layer in a loop: the program no longer grows with `layers`. `remat` keeps only
each layer's input for the backward pass. It undoes something easily missed: without it XLA
gathers each weight once and keeps it whole until the backward pass has used it too.

Other mesh axes stay unused. JAX refuses arguments whose sharded dimensions do not divide:
`batch` by data x fsdp, `d_model` by fsdp; `heads`, `d_ff` and `vocab` by model.
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
from sdyscope.facts.program import Program
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
    vocab: int = field(default=1024, metadata={"help": "vocabulary size"})
    batch: int = field(default=16, metadata={"help": "sequences per step"})
    sequence: int = field(default=64, metadata={"help": "tokens per sequence"})
    tied: bool = field(default=False, metadata={"help": "unembed with the embedding's transpose"})
    scan: bool = field(default=False, metadata={"help": "run the layers in one lax.scan"})
    remat: bool = field(default=False, metadata={"help": "recompute layers in the backward pass"})
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
    project = Parameter((embed, heads, head), ("fsdp", "model", None), fan_in=embed)
    expand = Parameter((embed, ff), ("fsdp", "model"), fan_in=embed)
    layer = {
        "wq": project,
        "wk": project,
        "wv": project,
        "wo": Parameter((heads, head, embed), ("model", None, "fsdp"), fan_in=heads * head),
        "gate": expand,
        "up": expand,
        "down": Parameter((ff, embed), ("model", "fsdp"), fan_in=ff),
    }
    tree: dict[str, Any] = {
        "embedding": Parameter((settings.vocab, embed), ("model", "fsdp"), fan_in=embed),
        "scale": Parameter((embed,), (None,), fan_in=None),
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
    with jax.named_scope("positions"):
        positions = Positions.of(settings.sequence, settings.head_dim)

    def decode(x: jax.Array, layer: Any) -> jax.Array:
        return decoder_layer(x, layer, positions, layout)

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
        x = rms_norm(x) * params["scale"]
        unembedding = params["embedding"].T if settings.tied else params["unembedding"]
        logits = jnp.einsum("bse,ev->bsv", x, unembedding).astype(jnp.float32)
        return layout.constrain(logits, layout.logits)


def decoder_layer(x: jax.Array, layer: Any, positions: "Positions", layout: Layout) -> jax.Array:
    """Attention and a SwiGLU MLP, each added to the residual stream x [batch, sequence, embed]."""
    with jax.named_scope("attention"):
        normed = rms_norm(x)
        query, key, value = (
            layout.constrain(jnp.einsum("bse,ehd->bshd", normed, layer[name]), layout.heads)
            for name in ("wq", "wk", "wv")
        )
        query, key = positions.rotate(query), positions.rotate(key)
        mixed = layout.constrain(attend(query, key, value, positions.mask), layout.heads)
        x = x + layout.constrain(jnp.einsum("bshd,hde->bse", mixed, layer["wo"]), layout.residual)
    with jax.named_scope("mlp"):
        normed = rms_norm(x)
        gate = jnp.einsum("bse,ef->bsf", normed, layer["gate"])
        up = jnp.einsum("bse,ef->bsf", normed, layer["up"])
        hidden = layout.constrain(jax.nn.silu(gate) * up, layout.hidden)
        down = jnp.einsum("bsf,fe->bse", hidden, layer["down"])
        return x + layout.constrain(down, layout.residual)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Positions:
    """What depends on positions alone, computed once for all layers; every device has it whole."""

    cos: jax.Array  # [sequence, 1, head_dim]
    sin: jax.Array  # [sequence, 1, head_dim], negative in the first half
    mask: jax.Array  # [sequence, sequence], 0 where a query may look and -1e30 elsewhere

    @staticmethod
    def of(sequence: int, head_dim: int) -> "Positions":
        """Rotary angles (position times a frequency that falls along the head), causal mask."""
        position = jnp.arange(sequence)
        frequency = 10_000.0 ** -(jnp.arange(0, head_dim, 2) / head_dim)
        angle = position[:, None, None] * frequency
        visible = position[:, None] >= position[None, :]
        return Positions(
            cos=jnp.concatenate([jnp.cos(angle), jnp.cos(angle)], axis=-1),
            sin=jnp.concatenate([-jnp.sin(angle), jnp.sin(angle)], axis=-1),
            mask=jnp.where(visible, 0.0, -1e30).astype(jnp.float32),
        )

    def rotate(self, x: jax.Array) -> jax.Array:
        """Turns each pair (x[..., i], x[..., i + head_dim / 2]) by its position's angle."""
        wide = x.astype(jnp.float32)
        swapped = jnp.roll(wide, x.shape[-1] // 2, axis=-1)
        return (wide * self.cos + swapped * self.sin).astype(x.dtype)


def attend(query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array) -> jax.Array:
    """Softmax attention of arrays [batch, sequence, heads, head_dim]."""
    scores = jnp.einsum("bshd,bthd->bhst", query, key).astype(jnp.float32)
    weights = jax.nn.softmax(scores * query.shape[-1] ** -0.5 + mask, axis=-1)
    return jnp.einsum("bhst,bthd->bshd", weights.astype(value.dtype), value)


def rms_norm(x: jax.Array) -> jax.Array:
    """Divides x by its root mean square along the last dimension, in f32."""
    wide = x.astype(jnp.float32)
    power = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(power + 1e-6)).astype(x.dtype)
