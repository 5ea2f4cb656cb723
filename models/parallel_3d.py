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
from another, and position is in a few rotary channels besides, which all heads' keys share. The
features of a device are whole heads, and only the shared channels are gathered. `--set
cut=channels` cuts as the lesson does that this model comes from: a device takes a part of its own
channels for each head, and an all_to_all brings together what a head has on all devices. Which
channels are a head then depends on the size of `tp`: the same parameters are another function on
another mesh, which `run --meshes` shows, and a checkpoint is of no use there.

**Inference** has two steps of its own: `prefill` reads the tokens of a prompt, and `decode` one
token more. Both pick the likeliest next token and hand on what attention has to remember: for each
layer and sequence the latent of each token, and its turned channels of the keys.

    latent      [layers, microbatches, batch, positions, latent]   ('pp', None, 'dp', None, 'tp')
    rotary_key  [layers, microbatches, batch, positions, rotary]   ('pp', None, 'dp', None, 'tp')

A stage has the caches of its layers for all microbatches, each of which meets its own when it comes
along. Keys and values are made of the latents anew for each token.

**Pipeline parallelism.** Layers are stacked and on `pp`: a stage is layers / n of them. So are the
m microbatches: a stage has the tokens, the embeddings, the logits and the loss of m / n of them. In
each step a stage works on one microbatch and passes it on with a ppermute. Another ppermute is a
belt that runs the other way, by one microbatch a step: stage 0 takes the next one from it, and the
last stage puts there what comes out, which so gets back to the stage that had it first. These are
n + m - 1 steps, in n - 1 of which a stage has nothing to do: a bubble of (n - 1) / (n + m - 1). It
then skips its layers (`cond`), and no gradient comes from there. The collectives in the layers are
along dp and tp, within one stage, where all skip or none does; what is along pp is never skipped.
These are GPipe's steps. `--set schedule=naive` lets a microbatch begin only when the one before is
through: (n - 1) / n of the steps are idle. `--set schedule=1f1b` goes backward with a microbatch as
soon as it is through: GPipe's bubble, and stages keep the inputs of 2n - 1 microbatches, not of all
m. Its gradients are not JAX's derivative of a loss, but made step by step. All three compute the
same; `_pipelines.py` has them.

**Dropout**, where it is asked for, is of what attention and the MLP add to the stream. Each
microbatch, layer, sequence and channel has a key of its own, by its number in the whole: the same
is dropped on any mesh.
"""

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.models._pipelines import (
    SCHEDULES,
    gpipe,
    one_at_a_time,
    one_forward_one_backward,
)
from sdyscope.models._train_step import (
    OPTIMIZERS,
    AnyMesh,
    Parameter,
    abstract,
    initial,
    one_of,
    place,
    positive,
    train_program,
)

MESH = {"dp": 2, "pp": 2, "tp": 2}

CUTS = ("heads", "channels")
#: Where both caches are; see `caches`.
CACHE = P("pp", None, "dp", None, "tp")


@dataclass(frozen=True)
class Settings:
    """Sizes and options; small enough by default to run on 8 CPU devices in seconds."""

    layers: int = field(default=4, metadata={"help": "layers, over all stages"})
    microbatches: int = field(default=4, metadata={"help": "parts of a batch in the pipeline"})
    batch: int = field(default=4, metadata={"help": "sequences per microbatch"})
    sequence: int = field(default=16, metadata={"help": "tokens per sequence"})
    features: int = field(default=64, metadata={"help": "width of the stream"})
    heads: int = field(default=4, metadata={"help": "attention heads"})
    cut: str = field(
        default="heads",
        metadata={
            "help": "what a device holds of attention: whole heads, or channels of each head",
            "choices": CUTS,
        },
    )
    latent: int = field(default=32, metadata={"help": "width of the latents of attention"})
    positions: int = field(default=32, metadata={"help": "tokens that fit in the caches"})
    rotary: int = field(default=8, metadata={"help": "rotary channels of a head"})
    hidden: int = field(default=128, metadata={"help": "width of the MLP's hidden layer"})
    vocab: int = field(default=128, metadata={"help": "vocabulary size"})
    schedule: str = field(
        default="gpipe",
        metadata={
            "help": "the pipeline's: all forward, then all backward; one stage at a time; or one "
            "forward, one backward",
            "choices": SCHEDULES,
        },
    )
    remat: bool = field(default=True, metadata={"help": "recompute stages in the backward pass"})
    dropout: float = field(
        default=0.0, metadata={"help": "dropout rate of what attention and MLP add"}
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
    check(mesh, settings)
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
        drawn = {"tokens": text[..., :-1], "targets": text[..., 1:]}
        return {**drawn, "key": jax.random.key(0)} if settings.dropout else drawn

    in_specs = (specs, jax.tree.map(lambda leaf: leaf.sharding.spec, batch))

    def mapped(local: Any, out_specs: Any) -> Any:
        return jax.shard_map(
            lambda params, batch: local(params, batch, settings),
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
        )

    # Differentiating the loss is GPipe; 1F1B has its own order of forward and backward.
    value_and_grad = jax.value_and_grad(mapped(local_loss, P()))
    if settings.schedule == "1f1b":
        value_and_grad = mapped(functools.partial(local_gradients, specs), (P(), specs))
    return train_program(
        name="parallel-3d",
        mesh=mesh,
        settings=settings,
        parameters=declared,
        param_dtype="float32",
        value_and_grad=value_and_grad,
        batch=batch,
        host_batch=host_batch,
    )


def prefill(mesh: AnyMesh, settings: Settings) -> Program:
    """Reads a prompt: `prefill(params, tokens) -> (next tokens, cache)`.

    Raises:
        TargetError: as of `program`, or the prompt is longer than the cache.
    """
    check(mesh, settings)
    if settings.positions < settings.sequence:
        raise TargetError(
            f"positions={settings.positions} must be at least sequence={settings.sequence}."
        )
    shape = (settings.microbatches, settings.batch, settings.sequence)
    return inference_program("parallel-3d prefill", mesh, settings, shape)


def decode(mesh: AnyMesh, settings: Settings) -> Program:
    """Reads a token of each sequence: `decode(params, cache, tokens) -> (next tokens, cache)`.

    Raises:
        TargetError: as of `program`.
    """
    check(mesh, settings)
    shape = (settings.microbatches, settings.batch, 1)
    return inference_program("parallel-3d decode", mesh, settings, shape)


def inference_program(
    name: str, mesh: AnyMesh, settings: Settings, shape: tuple[int, int, int]
) -> Program:
    """One jitted step of inference on tokens of a shape; with a cache where it is for one token."""
    declared = parameters(settings)
    specs = jax.tree.map(lambda parameter: P(*parameter.axes), declared)
    at = P("pp", "dp", None)
    cached, cache_specs = caches(settings), {"latent": CACHE, "rotary_key": CACHE, "length": P()}
    params = abstract(mesh, declared, "float32")
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=NamedSharding(mesh, at))
    cache = jax.tree.map(
        lambda leaf, spec: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec)
        ),
        cached,
        cache_specs,
    )
    has_cache = shape[-1] == 1

    def first(params: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        return local_inference(params, None, tokens, settings)

    def next_one(params: Any, cache: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        return local_inference(params, cache, tokens, settings)

    step = jax.shard_map(
        next_one if has_cache else first,
        mesh=mesh,
        in_specs=(specs, *((cache_specs,) if has_cache else ()), at),
        out_specs=(at, cache_specs),
    )

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        rng = np.random.default_rng(0)
        values = initial(rng, declared, "float32")
        text = rng.integers(settings.vocab, size=shape, dtype=np.int32)
        if not has_cache:
            return (values, text), {}
        filled = {
            name: rng.standard_normal(leaf.shape, np.float32)
            for name, leaf in cached.items()
            if name != "length"
        }
        return (values, {**filled, "length": np.int32(settings.positions // 2)}, text), {}

    results = (tokens.sharding, jax.tree.map(lambda leaf: leaf.sharding, cache))
    return Program(
        name=name,
        fun=jax.jit(
            step,
            out_shardings=results,
            donate_argnums=(1,) if has_cache and settings.donate else (),
        ),
        args=(params, *((cache,) if has_cache else ()), tokens),
        mesh=mesh,
        inputs=inputs,
        settings=dataclasses.asdict(settings),
    )


def caches(settings: Settings) -> dict[str, jax.ShapeDtypeStruct]:
    """What attention remembers of the tokens so far, and of how many."""
    shape = (settings.layers, settings.microbatches, settings.batch, settings.positions)
    return {
        "latent": jax.ShapeDtypeStruct((*shape, settings.latent), jnp.float32),
        "rotary_key": jax.ShapeDtypeStruct((*shape, settings.rotary), jnp.float32),
        "length": jax.ShapeDtypeStruct((), jnp.int32),
    }


def check(mesh: AnyMesh, settings: Settings) -> None:
    """Raises TargetError where the mesh lacks an axis, or a setting can't be."""
    sizes = ("layers", "microbatches", "batch", "sequence", "features", "heads", "latent")
    positive(settings, *sizes, "positions", "rotary", "hidden", "vocab")
    one_of("optimizer", settings.optimizer, OPTIMIZERS)
    one_of("cut", settings.cut, CUTS)
    one_of("schedule", settings.schedule, SCHEDULES)
    if not 0 <= settings.dropout < 1:
        raise TargetError(f"dropout={settings.dropout} must be from 0 to less than 1.")
    if missing := [axis for axis in MESH if axis not in mesh.axis_names]:
        raise TargetError(
            f"The mesh has no axis {missing[0]!r}.", hint="Give --mesh dp=2,pp=2,tp=2."
        )
    divisible(mesh, settings)


def divisible(mesh: AnyMesh, settings: Settings) -> None:
    """Raises TargetError unless everything can be cut into as many pieces as the mesh wants."""
    dp, pp, tp = (mesh.shape[axis] for axis in MESH)
    per_head = ("heads", settings.heads)
    if settings.cut == "channels":
        per_head = ("heads x tp", settings.heads * tp)
    pieces = {
        "layers": (("pp", pp),),
        "microbatches": (("pp", pp),),
        "batch": (("dp", dp),),
        "sequence": (("tp", tp),),
        "heads": (("tp", tp),),
        "features": (("dp", dp), per_head),
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
    x = embed(table, batch["tokens"])

    def stage(x: jax.Array, microbatch: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        return own_layers(params, x, microbatch, batch, settings), state

    with jax.named_scope("pipeline"):
        schedule = gpipe if settings.schedule == "gpipe" else one_at_a_time
        x, _, _ = schedule(stage, x, settings.remat)
    entropy = cross_entropy(params["embedding"], x, batch["targets"], settings)
    with jax.named_scope("loss"):
        return jax.lax.pmean(entropy, ("dp", "pp", "tp"))


def local_gradients(
    specs: Any, params: Any, batch: Any, settings: Settings
) -> tuple[jax.Array, Any]:
    """The mean loss over all devices and this device's part of the gradients, by 1F1B.

    The first stage looks tokens up and the last one computes the loss, of all microbatches: the
    tokens of all of them, which are small, are gathered.

    Args:
        specs: the PartitionSpecs of the parameters.
        params: this device's part.
        batch: likewise.
        settings: the model's.
    """
    place = sum(jax.lax.axis_index(axis) for axis in MESH)
    sizes = {axis: jax.lax.axis_size(axis) for axis in MESH}

    def varying(leaf: jax.Array) -> jax.Array:
        """The same, as far as JAX's types know another on each device: its gradient is a part."""
        return leaf + (0 * place).astype(leaf.dtype)

    with jax.named_scope("tokens"):
        tokens, targets = (
            jax.lax.all_gather(batch[name], "pp", axis=0, tiled=True)
            for name in ("tokens", "targets")
        )
    index, last = jax.lax.axis_index("pp"), sizes["pp"] - 1

    def part(params: Any, x: jax.Array, microbatch: jax.Array) -> tuple[jax.Array, jax.Array]:
        embedding = params["embedding"]
        own, wanted = (
            jax.lax.dynamic_index_in_dim(each, microbatch, 0, keepdims=False)
            for each in (tokens, targets)
        )
        x = jax.lax.cond(
            index == 0, lambda x: varying(embed(embedding["table"], own)), lambda x: x, x
        )
        x = own_layers(params, x, microbatch, batch, settings)
        loss = jax.lax.cond(
            index == last,
            lambda x: varying(cross_entropy(embedding, x, wanted, settings)),
            lambda x: 0 * jnp.sum(x),
            x,
        )
        return x, loss

    shape = (*tokens.shape[1:2], tokens.shape[2] * sizes["tp"], settings.features // sizes["tp"])
    nothing = varying(jnp.zeros(shape, jnp.float32))
    weight = 1 / (settings.microbatches * sizes["dp"] * sizes["tp"])
    with jax.named_scope("pipeline"):
        loss, gradients, _ = one_forward_one_backward(
            part, jax.tree.map(varying, params), nothing, settings.microbatches, weight
        )

    def summed(gradient: jax.Array, spec: P) -> jax.Array:
        """Over the axes on which the parameter is not in pieces."""
        used = {axis for entry in spec for axis in ((entry,) if isinstance(entry, str) else ())}
        axes = tuple(axis for axis in MESH if axis not in used)
        return jax.lax.psum(gradient, axes) if axes else gradient

    with jax.named_scope("gradients"):
        return jax.lax.psum(loss, tuple(MESH)), jax.tree.map(summed, gradients, specs)


def embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """[..., batch, sequence / tp] to [..., batch, sequence, features / tp]."""
    with jax.named_scope("embed"):
        count = tokens.ndim
        return jax.lax.all_to_all(
            table[tokens], "tp", split_axis=count, concat_axis=count - 1, tiled=True
        )


def own_layers(
    params: Any, x: jax.Array, microbatch: jax.Array, batch: Any, settings: Settings
) -> jax.Array:
    """What this stage's layers make of a microbatch [batch, sequence, features / tp]."""

    def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
        layer_params, number = own
        key = folded(batch["key"], microbatch, number) if settings.dropout else None
        return transformer_layer(x, layer_params, key, settings)[0], None

    numbers = own_numbers("pp", settings.layers // jax.lax.axis_size("pp"))
    return jax.lax.scan(layer, x, (params["layers"], numbers))[0]


def cross_entropy(
    embedding: Any, x: jax.Array, targets: jax.Array, settings: Settings
) -> jax.Array:
    """The mean over this device's tokens, of x [..., batch, sequence, features / tp]."""
    with jax.named_scope("logits"):
        x, count = rms_norm(x, embedding["norm"]["gamma"]), x.ndim
        x = jax.lax.all_to_all(x, "tp", split_axis=count - 2, concat_axis=count - 1, tiled=True)
        logits = jnp.einsum("...bsf,vf->...bsv", x, embedding["table"])
    with jax.named_scope("loss"):
        wanted = jax.nn.one_hot(targets, settings.vocab)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * wanted, axis=-1))


def local_inference(
    params: Any, cache: Any, tokens: jax.Array, settings: Settings
) -> tuple[jax.Array, Any]:
    """The likeliest next token of each sequence, and the caches with `tokens` in them.

    Args:
        params: this device's part.
        cache: likewise; None before the first token.
        tokens: [m / pp, batch / dp, tokens], the same on all devices of tp.
        settings: the model's.
    """
    table, gamma = params["embedding"]["table"], params["embedding"]["norm"]["gamma"]
    x = own_channels(table)[tokens]
    if cache is None:
        # Zeros that differ by device, as what will be in their place does.
        place = sum(jax.lax.axis_index(axis) for axis in MESH)
        sizes = (jax.lax.axis_size("pp"), 1, jax.lax.axis_size("dp"), 1, jax.lax.axis_size("tp"))
        cache = {
            name: jnp.zeros([d // n for d, n in zip(leaf.shape, sizes, strict=True)], leaf.dtype)
            + 0 * place
            for name, leaf in caches(settings).items()
            if name != "length"
        } | {"length": jnp.int32(0)}
    length = cache["length"]

    def stage(x: jax.Array, microbatch: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        def layer(x: jax.Array, own: Any) -> tuple[jax.Array, Any]:
            layer_params, remembered = own
            return transformer_layer(x, layer_params, None, settings, (*remembered, length))

        own = jax.tree.map(
            lambda leaf: jax.lax.dynamic_index_in_dim(leaf, microbatch, 1, keepdims=False), state
        )
        x, own = jax.lax.scan(layer, x, (params["layers"], own))
        return x, jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, microbatch, 1),
            state,
            own,
        )

    with jax.named_scope("pipeline"):
        state = (cache["latent"], cache["rotary_key"])
        x, _, (latent, rotary_key) = gpipe(stage, x, False, state)
    with jax.named_scope("logits"):
        last = rms_norm(x[:, :, -1:], gamma)
        logits = jax.lax.psum(jnp.einsum("mbsf,vf->mbsv", last, own_channels(table)), "tp")
    cache = {"latent": latent, "rotary_key": rotary_key, "length": length + tokens.shape[-1]}
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), cache


def transformer_layer(
    x: jax.Array, params: Any, key: Any, settings: Settings, remembered: Any = None
) -> tuple[jax.Array, Any]:
    """Attention and an MLP, each added to the stream x [batch, sequence, features / tp].

    Args:
        x: the stream.
        params: the layer's.
        key: what is dropped; None for nothing.
        settings: the model's.
        remembered: as `attention` takes it.

    Returns:
        The stream, and what attention remembers now.
    """
    rate = 0.0 if key is None else settings.dropout
    with jax.named_scope("attention"):
        normed = rms_norm(x, params["norm1"]["gamma"])
        y, remembered = attention(normed, params["attention"], settings, remembered)
        x = x + dropout(y, key, 0, rate)
    with jax.named_scope("mlp"):
        hidden = dense(rms_norm(x, params["norm2"]["gamma"]), params["mlp"]["up"])
        y = dense(jax.nn.gelu(hidden), params["mlp"]["down"])
        return x + dropout(y, key, 1, rate), remembered


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


def rotate(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Turns neighbouring channels of x [batch, sequence, ..., channels] by angles of them.

    Args:
        x: the channels.
        angle: [sequence, channels], from `angles`, or a device's part of it.
    """
    angle = jnp.expand_dims(angle, tuple(range(1, x.ndim - 2)))
    even, odd = x[..., ::2], x[..., 1::2]
    turned = jnp.stack([-odd, even], axis=-1).reshape(x.shape)
    return x * jnp.cos(angle) + turned * jnp.sin(angle)


def angles(positions: jax.Array, channels: int) -> jax.Array:
    """By how much the channels are turned at each position: [positions, channels]."""
    frequency = 10_000.0 ** -(jnp.arange(0, channels, 2) / channels)
    return jnp.repeat(positions[:, None] * frequency, 2, axis=-1)


def attention(
    x: jax.Array, params: Any, settings: Settings, remembered: Any = None
) -> tuple[jax.Array, Any]:
    """Causal multi-head latent attention of x [batch, sequence, features / tp].

    Args:
        x: the stream, after its norm.
        params: the layer's.
        settings: the model's.
        remembered: the caches [batch, positions, channels / tp] of latents and of turned channels
            of the keys, and of how many tokens they are; None without caches.

    Returns:
        What is added to the stream, and the two caches with these tokens in them.
    """
    before = jnp.int32(0) if remembered is None else remembered[2]
    position = before + jnp.arange(x.shape[1])
    angle = angles(position, settings.rotary)
    latent_q, latent = dense(x, params["latent_q"]), dense(x, params["latent_kv"])
    rotary_key = rotate(dense(x, params["rotary_k"]), own_channels(angle))
    if remembered is not None:
        latent, rotary_key = (
            jax.lax.dynamic_update_slice_in_dim(cache, new, before, axis=1)
            for cache, new in zip(remembered[:2], (latent, rotary_key), strict=True)
        )
    query, rotary_query, key, value = (
        dense(latent_q, params["q"]),
        dense(latent_q, params["rotary_q"]),
        dense(latent, params["k"]),
        dense(latent, params["v"]),
    )
    by_heads = whole_heads if settings.cut == "heads" else channels_of_heads
    query, key, value, back = by_heads(
        settings.heads, angle, (query, rotary_query), (key, rotary_key), value
    )
    scores = jnp.einsum("bshd,bthd->bhst", query, key) * query.shape[-1] ** -0.5
    visible = position[:, None] >= jnp.arange(key.shape[1])[None, :]
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1)
    mixed = back(jnp.einsum("bhst,bthd->bshd", weights, value))
    return dense(mixed.reshape(*mixed.shape[:2], -1), params["out"]), (latent, rotary_key)


def whole_heads(heads: int, angle: jax.Array, query: Any, key: Any, value: jax.Array) -> Any:
    """Queries, keys and values [batch, sequence, heads / tp, channels], and the way back.

    The channels of a device are whole heads, which heads do not depend on the mesh. Only what the
    heads' keys share, which each device has a part of, is gathered.

    Args:
        heads: how many there are on all devices.
        angle: by how much the rotary channels of the queries are turned.
        query: channels of the queries, and rotary channels.
        key: those of the keys; the rotary ones are turned already.
        value: the values.
    """
    own = heads // jax.lax.axis_size("tp")

    def by_head(y: jax.Array) -> jax.Array:
        return y.reshape(*y.shape[:2], own, -1)

    shared = jax.lax.all_gather(key[1], "tp", axis=2, tiled=True)
    turned = rotate(by_head(query[1]), angle)
    return (
        jnp.concatenate([by_head(query[0]), turned], axis=-1),
        jnp.concatenate([by_head(key[0]), for_each(shared, own)], axis=-1),
        by_head(value),
        lambda mixed: mixed,
    )


def channels_of_heads(heads: int, angle: jax.Array, query: Any, key: Any, value: jax.Array) -> Any:
    """The same, where a device's channels are parts of all heads, as in the lesson.

    From [batch, sequence, heads, channels / tp] to [batch, sequence, heads / tp, channels]. Which
    of all channels are a head depends on how many devices there are.
    """

    def by_head(y: jax.Array) -> jax.Array:
        with jax.named_scope("heads_of_own_channels"):
            return y.reshape(*y.shape[:2], heads, -1)

    turned = rotate(by_head(query[1]), own_channels(angle))
    parts = (
        jnp.concatenate([by_head(query[0]), turned], axis=-1),
        jnp.concatenate([by_head(key[0]), for_each(key[1], heads)], axis=-1),
        by_head(value),
    )
    return (
        *(jax.lax.all_to_all(y, "tp", split_axis=2, concat_axis=3, tiled=True) for y in parts),
        lambda mixed: jax.lax.all_to_all(mixed, "tp", split_axis=3, concat_axis=2, tiled=True),
    )


def for_each(y: jax.Array, heads: int) -> jax.Array:
    """The same channels for each head."""
    return jnp.broadcast_to(y[:, :, None], (*y.shape[:2], heads, y.shape[2]))
