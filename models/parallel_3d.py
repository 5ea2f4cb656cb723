"""Three kinds of parallelism by hand: data, pipeline and tensor parallelism in one `shard_map`.

Nothing here is left to a partitioner. The loss is a `shard_map` that is manual over all axes, `dp`,
`pp` and `tp`: every line in it is about what one device holds, and every collective of the forward
pass is written there. Those of the backward pass are JAX's, which differentiates the collectives;
only the optimizer, which works element by element, is outside.

    tokens     [microbatches, batch, sequence]   ('pp', 'dp', 'tp')
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

**Pipeline parallelism.** Layers are stacked and on `pp`: a stage is layers / n of them. So are the
m microbatches: a stage has the tokens, the embeddings, the logits and the loss of m / n of them. In
each step a stage works on one microbatch and passes it on with a ppermute. Another ppermute is a
belt that runs the other way, by one microbatch a step: stage 0 takes the next one from it, and the
last stage puts there what comes out, which so gets back to the stage that had it first. These are
n + m - 1 steps, in n - 1 of which a stage has nothing to do: a bubble of (n - 1) / (n + m - 1). It
then skips its layers (`cond`), and no gradient comes from there. The collectives in the layers are
along dp and tp, within one stage, where all skip or none does; what is along pp is never skipped.

**Dropout**, where it is asked for, is of what attention and the MLP add to the stream. Each
microbatch, layer, sequence and channel has a key of its own, by its number in the whole: the same
is dropped on any mesh.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.models._train_step import (
    OPTIMIZERS,
    AnyMesh,
    Parameter,
    one_of,
    place,
    positive,
    train_program,
)

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
    dropout: float = field(
        default=0.0, metadata={"help": "part of what attention and MLP add that is dropped"}
    )
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
    if not 0 <= settings.dropout < 1:
        raise TargetError(f"dropout={settings.dropout} must be from 0 to less than 1.")
    if missing := [axis for axis in MESH if axis not in mesh.axis_names]:
        raise TargetError(
            f"The mesh has no axis {missing[0]!r}.", hint="Give --mesh dp=2,pp=2,tp=2."
        )
    divisible(mesh, settings)
    declared = parameters(settings)
    specs = jax.tree.map(lambda parameter: P(*parameter.axes), declared)
    shape = (settings.microbatches, settings.batch, settings.sequence)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=place(mesh, "pp", "dp", "tp"))
    batch = {"tokens": tokens, "targets": tokens}
    if settings.dropout:
        key = jax.eval_shape(jax.random.key, 0)
        batch["key"] = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=place(mesh))

    def host_batch(rng: np.random.Generator) -> dict[str, Any]:
        text = rng.integers(settings.vocab, size=(*shape[:2], shape[2] + 1), dtype=np.int32)
        made = {"tokens": text[..., :-1], "targets": text[..., 1:]}
        return {**made, "key": jax.random.key(0)} if settings.dropout else made

    loss = jax.shard_map(
        lambda params, batch: local_loss(params, batch, settings),
        mesh=mesh,
        in_specs=(specs, jax.tree.map(lambda leaf: leaf.sharding.spec, batch)),
        out_specs=P(),
    )
    return train_program(
        name="parallel-3d",
        mesh=mesh,
        settings=settings,
        parameters=declared,
        param_dtype="float32",
        loss=loss,
        batch=batch,
        host_batch=host_batch,
    )


def divisible(mesh: AnyMesh, settings: Settings) -> None:
    """Raises TargetError unless everything can be cut into as many pieces as the mesh wants."""
    dp, pp, tp = (mesh.shape[axis] for axis in MESH)
    pieces = {
        "layers": (("pp", pp),),
        "microbatches": (("pp", pp),),
        "batch": (("dp", dp),),
        "sequence": (("tp", tp),),
        "heads": (("tp", tp),),
        "features": (("dp", dp), ("heads x tp", settings.heads * tp)),
        "latent": (("dp", dp), ("tp", tp)),
        "hidden": (("dp", dp), ("tp", tp)),
        "rotary": (("dp", dp), ("2 x tp", 2 * tp)),  # pairs of channels are turned
    }
    for name, wanted in pieces.items():
        size = getattr(settings, name)
        for words, count in wanted:
            if size % count:
                raise TargetError(f"{name}={size} must be divisible by {words}={count}.")


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
        # [m / pp, batch, sequence / tp, features] to [m / pp, batch, sequence, features / tp]
        x = jax.lax.all_to_all(
            table[batch["tokens"]], "tp", split_axis=3, concat_axis=2, tiled=True
        )

    def stage(x: jax.Array, microbatch: jax.Array) -> jax.Array:
        def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
            layer_params, number = own
            key = folded(batch["key"], microbatch, number) if settings.dropout else None
            return transformer_layer(x, layer_params, key, settings), None

        numbers = own_numbers("pp", settings.layers // jax.lax.axis_size("pp"))
        return jax.lax.scan(layer, x, (params["layers"], numbers))[0]

    with jax.named_scope("pipeline"):
        x, _ = pipeline(stage, x, settings.remat)
    with jax.named_scope("logits"):
        x = rms_norm(x, params["embedding"]["norm"]["gamma"])
        x = jax.lax.all_to_all(x, "tp", split_axis=2, concat_axis=3, tiled=True)
        logits = jnp.einsum("mbsf,vf->mbsv", x, table)
    with jax.named_scope("loss"):
        wanted = jax.nn.one_hot(batch["targets"], settings.vocab)
        entropy = -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * wanted, axis=-1))
        return jax.lax.pmean(entropy, ("dp", "pp", "tp"))


def pipeline(stage: Any, inputs: jax.Array, remat: bool) -> tuple[jax.Array, jax.Array]:
    """GPipe: every microbatch through every stage.

    Args:
      stage: What this device's layers make of a microbatch, given it and its number.
      inputs: [microbatches / n, ...], those of this stage: stage 0 has the first ones.
      remat: Whether `stage` is computed again in the backward pass.

    Returns:
      What came out of the last stage, each microbatch where it was in `inputs`; and in how many of
      the n + m - 1 steps this stage had nothing to do.
    """
    index, count = jax.lax.axis_index("pp"), jax.lax.axis_size("pp")
    slots = inputs.shape[0]
    microbatches = slots * count
    onwards = [(here, (here + 1) % count) for here in range(count)]
    backwards = [(here, (here - 1) % count) for here in range(count)]

    def work(working: jax.Array, x: jax.Array, microbatch: jax.Array) -> jax.Array:
        return jax.lax.cond(working, stage, lambda x, _: x, x, microbatch)

    if remat:
        work = jax.checkpoint(work)

    def step(carry: Any, now: jax.Array) -> tuple[Any, None]:
        held, belt, idle = carry
        own = now - index  # the microbatch that this stage is at
        working = (own >= 0) & (own < microbatches)
        slot = now % slots
        taken = jnp.where(index == 0, belt[slot], held)
        made = work(working, taken, own)
        held = jax.lax.ppermute(made, "pp", onwards)
        moved = jax.lax.ppermute(belt[slot], "pp", backwards)
        belt = belt.at[slot].set(jnp.where(index == count - 1, made, moved))
        return (held, belt, idle + ~working), None

    start = (jnp.zeros_like(inputs[0]), inputs, 0 * index)
    steps = jnp.arange(count + microbatches - 1)
    (_, belt, idle), _ = jax.lax.scan(step, start, steps)
    # The first one came out in step n - 1.
    return jnp.roll(belt, 1 - count, axis=0), idle


def bubble_ratio(stages: int, microbatches: int) -> float:
    """The part of all steps in which a stage has nothing to do."""
    return (stages - 1) / (stages + microbatches - 1)


def transformer_layer(x: jax.Array, params: Any, key: Any, settings: Settings) -> jax.Array:
    """Attention and an MLP, each added to the stream x [batch, sequence, features / tp]."""
    with jax.named_scope("attention"):
        y = attention(rms_norm(x, params["norm1"]["gamma"]), params["attention"], settings)
        x = x + dropout(y, key, 0, settings.dropout)
    with jax.named_scope("mlp"):
        hidden = dense(rms_norm(x, params["norm2"]["gamma"]), params["mlp"]["up"])
        y = dense(jax.nn.gelu(hidden), params["mlp"]["down"])
        return x + dropout(y, key, 1, settings.dropout)


def dropout(x: jax.Array, key: Any, place: int, rate: float) -> jax.Array:
    """Zeroes a part `rate` of x [batch, sequence, features / tp], and scales up the rest.

    Each sequence and channel has a key of its own, by its number among those of all devices.
    """
    if not rate:
        return x

    def kept(sequence: jax.Array, channel: jax.Array) -> jax.Array:
        return jax.random.bernoulli(folded(key, place, sequence, channel), 1 - rate, x.shape[1:2])

    by_channel = jax.vmap(kept, in_axes=(None, 0), out_axes=1)
    mask = jax.vmap(by_channel, in_axes=(0, None))(
        own_numbers("dp", x.shape[0]), own_numbers("tp", x.shape[2])
    )
    return jnp.where(mask, x / (1 - rate), 0)


def folded(key: Any, *numbers: Any) -> Any:
    """A key of its own for what has these numbers."""
    return functools.reduce(jax.random.fold_in, numbers, key)


def own_numbers(axis: str, count: int) -> jax.Array:
    """The numbers of this device's `count` things among those along a mesh axis."""
    return jax.lax.axis_index(axis) * count + jnp.arange(count)


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
