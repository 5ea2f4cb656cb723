"""Three kinds of parallelism by hand: data, pipeline and tensor parallelism in one `shard_map`.

Nothing here is left to a partitioner. The loss is a `shard_map` that is manual over all axes, `dp`,
`pp` and `tp`: every line in it is about what one device holds, and every collective of the forward
pass is written there. Those of the backward pass are JAX's, which differentiates the collectives;
only the optimizer, which works element by element, is outside.

    tokens     [microbatches, batch, sequence]   (None, 'dp', 'tp')
    stream     [batch, sequence, features]       ('dp', None, 'tp') of one microbatch
    kernel     [layers, inputs, outputs]         ('pp', 'tp', 'dp')
    bias       [layers, outputs]                 ('pp', None)
    gamma      [layers, features]                ('pp', 'tp')
    embedding  [vocab, features]                 (None, None), its norm's gamma ('tp')

Specs are by path and rank (`partition`): what is called gamma is a norm's scale, three dimensions
are a kernel.

**Data parallelism, fully sharded.** The batch is on `dp`, and the loss is averaged over it
(pmean). A kernel has its outputs on `dp` as well: before use it is gathered whole, and what comes
back for it in the backward pass is a reduce-scatter, which is what differentiating an all-gather
gives.

**Tensor parallelism, by scattering.** Features are on `tp`. A device multiplies its features by
its rows of the kernel, which gives a part of the sum for all outputs: psum_scatter adds the parts
up and leaves each device its share of the outputs. A norm needs the sum of squares over all
features (psum of one number a token). Tokens come in pieces of the sequence, are looked up, and
change over to pieces of the features by an all_to_all; before the logits they change back. Rotary
angles are cut out for the channels that a device has.

**Attention** is multi-head latent attention: keys and values come from one narrow latent, queries
from another, and position is in a few rotary channels besides, which all heads' keys share. A
device has a part of the channels of each head, and needs all channels of some heads: an all_to_all,
and one back.

**Pipeline parallelism.** Layers are stacked and on `pp`: a stage is layers / n of them. In each
step a stage works on one microbatch and passes it on with a ppermute; stage 0 takes the next from
the embedding, the last one keeps what comes out. m microbatches take n + m - 1 steps, in n - 1 of
which a stage has nothing to do: a bubble of (n - 1) / (n + m - 1). It still computes then, on
nothing; the loss takes what the last stage has kept.

JAX refuses sizes that do not divide: layers by pp; batch by dp; sequence, heads and every width by
tp; every width by dp, too.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.models._train_step import (
    OPTIMIZERS,
    AnyMesh,
    Parameter,
    one_of,
    place,
    positive,
    train_program,
)
from sdyscope.program import Program

MESH = {"dp": 2, "pp": 2, "tp": 2}


@dataclass(frozen=True)
class Settings:
    """Sizes and options; small enough by default to run on 8 CPU devices in seconds."""

    layers: int = field(default=4, metadata={"help": "layers, over all stages"})
    microbatches: int = field(default=4, metadata={"help": "parts of a batch in the pipeline"})
    batch: int = field(default=4, metadata={"help": "sequences a microbatch"})
    sequence: int = field(default=16, metadata={"help": "tokens a sequence"})
    features: int = field(default=64, metadata={"help": "width of the stream"})
    heads: int = field(default=4, metadata={"help": "attention heads"})
    latent: int = field(default=32, metadata={"help": "width of the latents of attention"})
    rotary: int = field(default=8, metadata={"help": "rotary channels of a head"})
    hidden: int = field(default=128, metadata={"help": "width of the MLP's hidden layer"})
    vocab: int = field(default=128, metadata={"help": "number of tokens there are"})
    remat: bool = field(default=True, metadata={"help": "recompute each stage when backward"})
    optimizer: str = field(
        default="adamw", metadata={"help": "which optimizer", "choices": OPTIMIZERS}
    )
    donate: bool = field(
        default=True, metadata={"help": "donate the parameters and the optimizer state"}
    )


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """One train step on `mesh`, which must have the axes `dp`, `pp` and `tp`.

    Raises:
      TargetError: the mesh lacks an axis, a size is not positive or does not divide.
    """
    sizes = ("layers", "microbatches", "batch", "sequence", "features", "heads", "latent")
    positive(settings, *sizes, "rotary", "hidden", "vocab")
    one_of("optimizer", settings.optimizer, OPTIMIZERS)
    if missing := [axis for axis in MESH if axis not in mesh.axis_names]:
        raise TargetError(
            f"The mesh has no axis {missing[0]!r}.", hint="Give --mesh dp=2,pp=2,tp=2."
        )
    tp = mesh.shape["tp"]
    if settings.heads % tp or settings.rotary % (2 * tp):
        raise TargetError(
            f"heads={settings.heads} must be divisible by tp={tp}, and rotary={settings.rotary} by "
            f"twice that: rotary turns pairs."
        )
    declared = parameters(settings)
    specs = jax.tree.map(lambda parameter: P(*parameter.axes), declared)
    tokens_spec = P(None, "dp", "tp")
    loss = jax.shard_map(
        lambda params, batch: local_loss(params, batch, settings),
        mesh=mesh,
        in_specs=(specs, {"tokens": tokens_spec, "targets": tokens_spec}),
        out_specs=P(),
    )
    shape = (settings.microbatches, settings.batch, settings.sequence)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=place(mesh, None, "dp", "tp"))

    def host_batch(rng: np.random.Generator) -> dict[str, Any]:
        text = rng.integers(settings.vocab, size=(*shape[:2], shape[2] + 1), dtype=np.int32)
        return {"tokens": text[..., :-1], "targets": text[..., 1:]}

    return train_program(
        name="parallel-3d",
        mesh=mesh,
        settings=settings,
        parameters=declared,
        param_dtype="float32",
        loss=loss,
        batch={"tokens": tokens, "targets": tokens},
        host_batch=host_batch,
    )


# --- parameters -----------------------------------------------------------------------------------


def parameters(settings: Settings) -> dict[str, Any]:
    """Every array that is trained, with the axes that its path and rank give it."""
    width, latent, rotary = settings.features, settings.latent, settings.rotary

    def kernel(inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (settings.layers, inputs, outputs)}

    def dense(inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {**kernel(inputs, outputs), "bias": (settings.layers, outputs)}

    def norm() -> dict[str, tuple[int, ...]]:
        return {"gamma": (settings.layers, width)}

    shapes = {
        "embedding": {"table": (settings.vocab, width), "norm": {"gamma": (width,)}},
        "layers": {
            "norm1": norm(),
            "attention": {
                "latent_q": dense(width, latent),
                "latent_kv": dense(width, latent),
                "q": dense(latent, width),
                # A bias of keys adds the same to all scores of a query, which softmax ignores.
                "k": kernel(latent, width),
                "v": dense(latent, width),
                "rotary_q": dense(latent, rotary * settings.heads),
                "rotary_k": dense(width, rotary),
                "out": dense(width, width),
            },
            "norm2": norm(),
            "mlp": {"up": dense(width, settings.hidden), "down": dense(settings.hidden, width)},
        },
    }
    return jax.tree_util.tree_map_with_path(
        partition, shapes, is_leaf=lambda node: isinstance(node, tuple)
    )


def partition(path: Any, shape: tuple[int, ...]) -> Parameter:
    """The declaration of the parameter at a path."""
    names = [entry.key for entry in path]
    if names[0] == "embedding":
        axes: tuple[str | None, ...] = ("tp",) if "gamma" in names else (None, None)
        return Parameter(shape, axes, fan_in=None if "gamma" in names else shape[-1])
    if "gamma" in names:
        return Parameter(shape, ("pp", "tp"), fan_in=None)
    if len(shape) == 3:
        return Parameter(shape, ("pp", "tp", "dp"), fan_in=shape[1])
    return Parameter(shape, ("pp", None), fan_in=shape[-1])


# --- what one device does -------------------------------------------------------------------------


def local_loss(params: Any, batch: Any, settings: Settings) -> jax.Array:
    """The mean loss over all devices; everything else in here is one device's part."""
    table = params["embedding"]["table"]
    with jax.named_scope("embed"):
        # [m, batch, sequence / tp, features] to [m, batch, sequence, features / tp]
        x = jax.lax.all_to_all(
            table[batch["tokens"]], "tp", split_axis=3, concat_axis=2, tiled=True
        )

    def stage(x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
            return transformer_layer(x, own, settings), None

        return jax.lax.scan(layer, x, params["layers"])[0]

    with jax.named_scope("pipeline"):
        x, _ = pipeline(jax.checkpoint(stage) if settings.remat else stage, x)
    with jax.named_scope("logits"):
        x = rms_norm(x, params["embedding"]["norm"]["gamma"])
        x = jax.lax.all_to_all(x, "tp", split_axis=2, concat_axis=3, tiled=True)
        logits = jnp.einsum("mbsf,vf->mbsv", x, table)
    with jax.named_scope("loss"):
        wanted = jax.nn.one_hot(batch["targets"], settings.vocab)
        entropy = -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * wanted, axis=-1))
        is_last = jax.lax.axis_index("pp") == jax.lax.axis_size("pp") - 1
        return jax.lax.pmean(jax.lax.psum(jnp.where(is_last, entropy, 0.0), "pp"), ("dp", "tp"))


def pipeline(stage: Any, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """GPipe: every microbatch through every stage.

    Args:
      stage: What this device's layers make of a microbatch.
      inputs: [microbatches, ...], the same on every stage.

    Returns:
      On the last stage, what came out, in the form of `inputs`; and in how many of the n + m - 1
      steps this stage had nothing to do.
    """
    index, count = jax.lax.axis_index("pp"), jax.lax.axis_size("pp")
    microbatches = inputs.shape[0]
    onwards = [(here, (here + 1) % count) for here in range(count)]
    # Each stage holds something else from the first step on: 0 * index says so to JAX's types.
    inputs = inputs + 0 * index.astype(inputs.dtype)

    def step(carry: Any, now: jax.Array) -> tuple[Any, None]:
        held, outputs, idle = carry
        own = now - index  # the microbatch that this stage is at
        working = (own >= 0) & (own < microbatches)
        slot = jnp.clip(own, 0, microbatches - 1)
        made = stage(jnp.where(index == 0, inputs[slot], held))
        outputs = outputs.at[slot].set(jnp.where(working, made, outputs[slot]))
        return (jax.lax.ppermute(made, "pp", onwards), outputs, idle + ~working), None

    start = (jnp.zeros_like(inputs[0]), jnp.zeros_like(inputs), 0 * index)
    steps = jnp.arange(count + microbatches - 1)
    (_, outputs, idle), _ = jax.lax.scan(step, start, steps)
    return outputs, idle


def bubble_ratio(stages: int, microbatches: int) -> float:
    """The part of all steps in which a stage has nothing to do."""
    return (stages - 1) / (stages + microbatches - 1)


def transformer_layer(x: jax.Array, params: Any, settings: Settings) -> jax.Array:
    """Attention and an MLP, each added to the stream x [batch, sequence, features / tp]."""
    with jax.named_scope("attention"):
        x = x + attention(rms_norm(x, params["norm1"]["gamma"]), params["attention"], settings)
    with jax.named_scope("mlp"):
        hidden = dense(rms_norm(x, params["norm2"]["gamma"]), params["mlp"]["up"])
        return x + dense(jax.nn.gelu(hidden), params["mlp"]["down"])


def dense(x: jax.Array, params: Any) -> jax.Array:
    """[..., inputs / tp] to [..., outputs / tp]."""
    kernel = jax.lax.all_gather(params["kernel"], "dp", axis=1, tiled=True)
    partial = jnp.einsum("...i,io->...o", x, kernel)
    y = jax.lax.psum_scatter(partial, "tp", scatter_dimension=partial.ndim - 1, tiled=True)
    return y + own_channels(params["bias"]) if "bias" in params else y


def own_channels(whole: jax.Array) -> jax.Array:
    """This device's part of the last dimension of what every device of `tp` has whole."""
    width = whole.shape[-1] // jax.lax.axis_size("tp")
    return jax.lax.dynamic_slice_in_dim(whole, jax.lax.axis_index("tp") * width, width, axis=-1)


def rms_norm(x: jax.Array, gamma: jax.Array) -> jax.Array:
    """Over the features of all devices."""
    power = jax.lax.psum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), "tp")
    return x * jax.lax.rsqrt(power / (x.shape[-1] * jax.lax.axis_size("tp")) + 1e-6) * gamma


def rotate(x: jax.Array, channels: int) -> jax.Array:
    """Turns neighbouring channels of x [batch, sequence, ..., channels / tp] by their angles."""
    frequency = 10_000.0 ** -(jnp.arange(0, channels, 2) / channels)
    angle = own_channels(jnp.repeat(jnp.arange(x.shape[1])[:, None] * frequency, 2, axis=-1))
    angle = jnp.expand_dims(angle, tuple(range(1, x.ndim - 2)))
    even, odd = x[..., ::2], x[..., 1::2]
    turned = jnp.stack([-odd, even], axis=-1).reshape(x.shape)
    return x * jnp.cos(angle) + turned * jnp.sin(angle)


def attention(x: jax.Array, params: Any, settings: Settings) -> jax.Array:
    """Causal multi-head latent attention of x [batch, sequence, features / tp]."""
    heads = settings.heads

    def by_head(y: jax.Array) -> jax.Array:
        return y.reshape(*y.shape[:2], heads, -1)

    latent_q, latent_kv = dense(x, params["latent_q"]), dense(x, params["latent_kv"])
    turned_q = rotate(by_head(dense(latent_q, params["rotary_q"])), settings.rotary)
    turned_k = rotate(by_head_of_all(dense(x, params["rotary_k"]), heads), settings.rotary)
    query = jnp.concatenate([by_head(dense(latent_q, params["q"])), turned_q], axis=-1)
    key = jnp.concatenate([by_head(dense(latent_kv, params["k"])), turned_k], axis=-1)
    value = by_head(dense(latent_kv, params["v"]))
    # From [b, s, heads, d / tp], a part of each head's channels, to [b, s, heads / tp, d].
    query, key, value = (
        jax.lax.all_to_all(y, "tp", split_axis=2, concat_axis=3, tiled=True)
        for y in (query, key, value)
    )
    scores = jnp.einsum("bshd,bthd->bhst", query, key) * query.shape[-1] ** -0.5
    position = jnp.arange(x.shape[1])
    visible = position[:, None] >= position[None, :]
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1)
    mixed = jnp.einsum("bhst,bthd->bshd", weights, value)
    mixed = jax.lax.all_to_all(mixed, "tp", split_axis=3, concat_axis=2, tiled=True)
    return dense(mixed.reshape(*mixed.shape[:2], -1), params["out"])


def by_head_of_all(y: jax.Array, heads: int) -> jax.Array:
    """The same channels for each head."""
    return jnp.broadcast_to(y[:, :, None], (*y.shape[:2], heads, y.shape[2]))
