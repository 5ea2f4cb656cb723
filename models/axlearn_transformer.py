"""Transformer as AXLearn configures one: parameter specs by layer, experts, parallel tracks.

**The mesh** has seven axes, most of which are 1 in any one configuration:
`mesh_shape_from_axes(data=-1, fsdp=256, track=8)` is (1, 16, 1, 256, 1, 8, 1) on 32,768 devices.
Layers name axes and never sizes, so one model runs on all of them.

    tokens      [batch, sequence]                  (BATCH, 'seq')
    stream      [track, batch, sequence, model]    ('track', BATCH, 'seq', None)
    heads       [.., batch, sequence, heads, dim]  (BATCH, 'seq', 'model', None)
    hidden      [.., batch, sequence, ff]          (BATCH, 'seq', 'model')
    dispatched  [.., experts, batch, slots, model] ('expert', ('data', 'fsdp'), None, None)

    Linear in   [model, heads x dim or ff]         ('fsdp', 'model'), its bias ('model')
    Linear out  [heads x dim or ff, model]         ('model', 'fsdp'), its bias ('fsdp')
    experts in  [experts, model, ff]               ('expert', 'fsdp', 'model')
    experts out [experts, ff, model]               ('expert', 'model', 'fsdp')
    embedding   [vocab, model]                     ('model', 'fsdp')

where BATCH is ('data', 'fsdp', 'expert'). All that is in a track has 'track' on a first dimension.

**From a layer to the step.** Each layer (in `_axlearn_layers.py`) declares its own parameters, with
the sharding as one property among others. `collect` gathers the declarations recursively into a
tree that mirrors the model; mapping it gives the PartitionSpecs. The trainer's state is (prng_key,
model, learner), and the learner's moments lie where their parameters do, Adafactor's (in
`_adafactor.py`) on what is left of their axes. `jax.jit` is told the sharding of the state and the
batch as `in_shardings`, and of the new state as `out_shardings`. The old state is donated: its
buffers become the new one's, which is only possible because the two lie alike.

**Fully sharded data parallelism** is `fsdp` on one dimension of every weight: an all-gather of the
weight before its use, and a reduction of its gradient into shards after.

**Experts.** In a mixture-of-experts layer a token goes to one expert of `experts`. Tokens are on
their batch's device, experts on theirs: the axis `expert` shards the batch everywhere else, and
here it moves from the batch to the experts. That is an all-to-all there and one back. Each
sequence has room for `capacity` times its even share of each expert, and tokens beyond that pass
by. For dense layers `expert` is more data parallelism: a replica of their weights for each.

**Tracks.** Tensor parallelism synchronizes twice a layer. Here the model is instead `tracks` small
transformers side by side, which see the same input, run several layers without a word to each
other, and are added up at the end of a block: one all-reduce over `track` a block. In the program a
block is a `vmap` over the tracks, whose parameters are stacked.

**The routing is discrete.** A token at the edge between two experts goes to either by the last bit
of its logits, so the step computes in float32 unless told otherwise.

**Repeated blocks.** With `repeat` there is one block, whose parameters are stacked as often as it
is repeated, and a loop over them: the program is as long for twelve blocks as for one.

**A pipeline.** With several devices on `pipeline` the repeated blocks are its stages: their stack
is on `pipeline`, and a batch passes through them in `microbatches` parts, from stage to stage by a
collective-permute. Of n + m - 1 steps a stage is idle in n - 1.

With `seq` a device has part of each sequence, and attention gathers the keys. JAX refuses sizes
that do not divide: batch by data x fsdp x expert, d_model by fsdp.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.lax import with_sharding_constraint

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.mesh_config import mesh_shape_from_axes
from sdyscope.models._adafactor import abstract_state, scale_by_factored_rms
from sdyscope.models._axlearn_layers import (
    BATCH,
    Attention,
    Context,
    Decoder,
    Embedding,
    FeedForward,
    Linear,
    MixtureOfExperts,
    Pipeline,
    Repeat,
    RMSNorm,
    Track,
    TrackBlock,
    TransformerLayer,
)
from sdyscope.models._parameter_specs import abstract, initial
from sdyscope.models._train_step import (
    DTYPES,
    LEARNING_RATE,
    AnyMesh,
    one_of,
    optimizer_state,
    place,
    positive,
)
from sdyscope.models.fsdp_transformer import Positions

LEARNERS = ("adamw", "adafactor")
MESH = mesh_shape_from_axes(expert=2, fsdp=-1, track=2).over(8).sizes


@dataclass(frozen=True)
class Settings:
    """Sizes and options; small enough by default to run on 8 CPU devices in seconds."""

    blocks: int = field(default=1, metadata={"help": "blocks; tracks are summed after each"})
    repeat: bool = field(default=False, metadata={"help": "stack the blocks, run them in a loop"})
    microbatches: int = field(
        default=1, metadata={"help": "parts of a batch in the pipeline of repeated blocks"}
    )
    layers: int = field(default=2, metadata={"help": "layers per block; every second has experts"})
    tracks: int = field(default=2, metadata={"help": "transformers side by side"})
    experts: int = field(default=4, metadata={"help": "experts of a mixture-of-experts layer"})
    capacity: float = field(
        default=2.0, metadata={"help": "room for tokens in an expert, in even shares"}
    )
    d_model: int = field(default=64, metadata={"help": "width of a track's residual stream"})
    heads: int = field(default=4, metadata={"help": "attention heads per track"})
    head_dim: int = field(default=16, metadata={"help": "width of a head; even, for rotary"})
    d_ff: int = field(default=128, metadata={"help": "width of the hidden layer, of each expert"})
    vocab: int = field(default=256, metadata={"help": "vocabulary size"})
    batch: int = field(default=8, metadata={"help": "sequences per step"})
    sequence: int = field(default=16, metadata={"help": "tokens per sequence"})
    dtype: str = field(
        default="float32",
        metadata={"help": "dtype to compute in; parameters are float32", "choices": DTYPES},
    )
    constrained: bool = field(
        default=True, metadata={"help": "constrain the activations' shardings"}
    )
    learner: str = field(
        default="adamw", metadata={"help": "what updates the parameters", "choices": LEARNERS}
    )
    donate: bool = field(default=True, metadata={"help": "donate the trainer's state"})


def build(settings: Settings, stages: int = 1) -> Decoder:
    """The model: layers with their partition specs filled in, as a configuration does it.

    Args:
        settings: sizes and options.
        stages: how many the pipeline has.
    """
    model, heads = settings.d_model, settings.heads * settings.head_dim

    def out_of(width: int, *, bias: bool = False) -> Linear:
        return Linear(model, width, ("fsdp", "model"), bias)

    def back_from(width: int, *, bias: bool = False) -> Linear:
        return Linear(width, model, ("model", "fsdp"), bias)

    def layer(index: int) -> TransformerLayer:
        experts = MixtureOfExperts(model, settings.d_ff, settings.experts, settings.capacity)
        dense = FeedForward(out_of(settings.d_ff, bias=True), back_from(settings.d_ff, bias=True))
        attention = Attention(
            settings.heads, out_of(heads), out_of(heads), out_of(heads), back_from(heads)
        )
        return TransformerLayer(
            RMSNorm(model), attention, RMSNorm(model), experts if index % 2 else dense
        )

    block = TrackBlock(Track(tuple(map(layer, range(settings.layers)))), settings.tracks)
    blocks: tuple[TrackBlock, ...] | Repeat | Pipeline = (block,) * settings.blocks
    if settings.repeat:
        blocks = Repeat(block, settings.blocks)
        if stages > 1 or settings.microbatches > 1:
            blocks = Pipeline(block, settings.blocks, stages, settings.microbatches)
    return Decoder(Embedding(settings.vocab, model), blocks, RMSNorm(model))


# --- the trainer ----------------------------------------------------------------------------------


def make_learner(name: str, specs: Any) -> optax.GradientTransformation:
    """Adam or Adafactor, with weight decay for the parameters whose specs say so."""
    decays = jax.tree.map(lambda spec: spec.weight_decay_scale > 0, specs)
    if name == "adamw":
        return optax.adamw(LEARNING_RATE, mask=decays)
    return optax.chain(
        scale_by_factored_rms(specs),
        optax.clip_by_block_rms(1.0),
        optax.add_decayed_weights(1e-4, decays),
        optax.scale_by_learning_rate(LEARNING_RATE),
    )


def learner_state(
    name: str, learner: optax.GradientTransformation, specs: Any, params: Any, mesh: AnyMesh
) -> Any:
    """The learner's state as `jax.ShapeDtypeStruct`s, its statistics beside their parameters."""
    if name == "adamw":
        return optimizer_state(mesh, learner, params)
    # Only the first transformation of the chain keeps anything.
    _, *others = jax.eval_shape(learner.init, params)
    return (abstract_state(specs, mesh), *others)


def check_pipeline(settings: Settings, axes: Mapping[str, int]) -> None:
    """Raises TargetError unless blocks can be stages and the batch can be microbatches."""
    stages, microbatches = axes.get("pipeline", 1), settings.microbatches
    if stages > 1 and not settings.repeat:
        raise TargetError(
            f"The mesh has pipeline={stages}, and only repeated blocks can be its stages.",
            hint=f"Add --set repeat=true --set blocks={stages}.",
        )
    if microbatches > 1 and not settings.repeat:
        raise TargetError(
            f"microbatches={microbatches} are parts of a batch in a pipeline, which only repeated "
            "blocks can be.",
            hint="Add --set repeat=true.",
        )
    if settings.blocks % stages:
        raise TargetError(f"blocks={settings.blocks} must be divisible by pipeline={stages}.")
    if settings.batch % microbatches:
        raise TargetError(
            f"batch={settings.batch} must be divisible by microbatches={microbatches}."
        )


class TrainerState(NamedTuple):
    """Everything that goes from one step to the next."""

    prng_key: Any
    model: Any
    learner: Any


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """One train step on `mesh`: `(state, batch) -> (state, {"loss": ..., "aux": ...})`.

    Raises:
        TargetError: a size or the experts' capacity is not positive, head_dim is odd, an option has
            no such choice, or blocks are not repeated or do not divide where the mesh has a
            pipeline.
    """
    sizes = ("blocks", "layers", "tracks", "experts", "d_model", "heads", "head_dim", "d_ff")
    positive(settings, *sizes, "microbatches", "vocab", "batch", "sequence")
    axes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    stages = axes.get("pipeline", 1)
    check_pipeline(settings, axes)
    one_of("dtype", settings.dtype, DTYPES)
    one_of("learner", settings.learner, LEARNERS)
    if not 0 < settings.capacity < math.inf:
        raise TargetError(
            f"capacity={settings.capacity} leaves no token room in an expert.",
            hint="1 is each expert's even share of the tokens, 2 twice that.",
        )
    if settings.head_dim % 2:
        raise TargetError(f"head_dim={settings.head_dim} must be even: rotary turns pairs.")
    model = build(settings, stages)
    specs = model.collect()
    learner = make_learner(settings.learner, specs)

    params = abstract(specs, mesh)
    state = TrainerState(
        jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=place(mesh, None)),
        params,
        learner_state(settings.learner, learner, specs, params, mesh),
    )
    tokens = jax.ShapeDtypeStruct(
        (settings.batch, settings.sequence), jnp.int32, sharding=place(mesh, BATCH, "seq")
    )
    batch = {"input_ids": tokens, "target_labels": tokens}

    def loss(params: Any, batch: Any) -> tuple[jax.Array, jax.Array]:
        params = jax.tree.map(lambda p: p.astype(settings.dtype), params)
        positions = Positions.of(settings.sequence, settings.head_dim)
        # Without constraints the same lines run, and the partitioner is on its own.
        constrain = with_sharding_constraint if settings.constrained else lambda x, _: x
        context = Context(mesh, positions, constrain)
        logits, aux = model(params, batch["input_ids"], context)
        with jax.named_scope("loss"):
            wanted = jax.nn.one_hot(batch["target_labels"], settings.vocab)
            entropy = -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * wanted, axis=-1))
        return entropy + 0.01 * aux, aux

    def train_step(state: TrainerState, batch: Any) -> tuple[TrainerState, dict[str, jax.Array]]:
        (value, aux), gradients = jax.value_and_grad(loss, has_aux=True)(state.model, batch)
        with jax.named_scope("learner"):
            updates, learned = learner.update(gradients, state.learner, state.model)
            updated = optax.apply_updates(state.model, updates)
        next_key = jax.random.key_data(
            jax.random.split(jax.random.wrap_key_data(state.prng_key))[0]
        )
        return TrainerState(next_key, updated, learned), {"loss": value, "aux": aux}

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        rng = np.random.default_rng(0)
        values = initial(specs, rng)
        key = np.array([0, 1], np.uint32)
        text = rng.integers(
            settings.vocab, size=(settings.batch, settings.sequence + 1), dtype=np.int32
        )
        host = TrainerState(key, values, jax.tree.map(np.asarray, learner.init(values)))
        return (host, {"input_ids": text[:, :-1], "target_labels": text[:, 1:]}), {}

    state_shardings, batch_shardings = jax.tree.map(lambda leaf: leaf.sharding, (state, batch))
    jitted = jax.jit(
        train_step,
        in_shardings=(state_shardings, batch_shardings),
        out_shardings=(state_shardings, {"loss": None, "aux": None}),
        donate_argnums=(0,) if settings.donate else (),
    )
    return Program(
        name="axlearn-transformer",
        fun=jitted,
        args=(state, batch),
        mesh=mesh,
        inputs=inputs,
        settings=dataclasses.asdict(settings),
    )
