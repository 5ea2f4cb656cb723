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

**From a layer to the step.** Each layer declares its own parameters (`parameter_specs`), with the
sharding as one property among others. `collect` gathers the declarations recursively into a tree
that mirrors the model; mapping it gives the PartitionSpecs. The trainer's state is (prng_key,
model, learner), and the learner's moments lie where their parameters do. `jax.jit` is told the
sharding of the state and the batch as `in_shardings`, and of the new state as `out_shardings`. The
old state is donated: its buffers become the new one's, which is only possible because the two lie
alike.

**Fully sharded data parallelism** is `fsdp` on one dimension of every weight: an all-gather of the
weight before its use, and a reduction of its gradient into shards after.

**Experts.** In a mixture-of-experts layer a token goes to one expert of `experts`. Tokens are on
their batch's device, experts on theirs: the axis `expert` shards the batch everywhere else, and
here it moves from the batch to the experts. That is an all-to-all there and one back. Each
sequence has room for `capacity` times its even share of each expert, and tokens beyond that pass
by. For dense layers `expert` is more data parallelism: a copy of their weights for each.

**Tracks.** Tensor parallelism synchronizes twice a layer. Here the model is instead `tracks` small
transformers side by side, which see the same input, run several layers without a word to each
other, and are added up at the end of a block: one all-reduce over `track` a block. In the program a
block is a `vmap` over the tracks, whose parameters are stacked.

**The routing is discrete.** A token at the edge between two experts goes to either by the last bit
of its logits, so the step computes in float32 unless told otherwise.

Nothing is on `pipeline`. With `seq` a device has part of each sequence, and attention gathers the
keys. JAX refuses sizes that do not divide: batch by data x fsdp x expert, d_model by fsdp.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding

from sdyscope.mesh_config import mesh_shape_from_axes
from sdyscope.models._parameter_specs import (
    Layer,
    MeshAxes,
    ParameterSpec,
    abstract,
    initial,
)
from sdyscope.models._train_step import (
    DTYPES,
    LEARNING_RATE,
    AnyMesh,
    one_of,
    optimizer_state,
    place,
    positive,
)
from sdyscope.models.fsdp_transformer import Positions, attend, rms_norm
from sdyscope.program import Program

MESH = mesh_shape_from_axes(expert=2, fsdp=-1, track=2).over(8).sizes
BATCH = ("data", "fsdp", "expert")


@dataclass(frozen=True)
class Settings:
    """Sizes and options; small enough by default to run on 8 CPU devices in seconds."""

    blocks: int = field(default=1, metadata={"help": "blocks, at whose ends tracks are added up"})
    layers: int = field(default=2, metadata={"help": "layers a block; every second has experts"})
    tracks: int = field(default=2, metadata={"help": "transformers side by side"})
    experts: int = field(default=4, metadata={"help": "experts of a mixture-of-experts layer"})
    capacity: float = field(
        default=2.0, metadata={"help": "room for tokens in an expert, in even shares"}
    )
    d_model: int = field(default=64, metadata={"help": "width of a track's residual stream"})
    heads: int = field(default=4, metadata={"help": "attention heads of a track"})
    head_dim: int = field(default=16, metadata={"help": "width of a head; even, for rotary"})
    d_ff: int = field(default=128, metadata={"help": "width of the hidden layer, of each expert"})
    vocab: int = field(default=256, metadata={"help": "number of tokens there are"})
    batch: int = field(default=8, metadata={"help": "sequences a step"})
    sequence: int = field(default=16, metadata={"help": "tokens a sequence"})
    dtype: str = field(
        default="float32",
        metadata={"help": "dtype to compute in; parameters are float32", "choices": DTYPES},
    )
    constrained: bool = field(
        default=True, metadata={"help": "constrain the activations' shardings"}
    )
    donate: bool = field(default=True, metadata={"help": "donate the trainer's state"})


# --- layers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Context:
    """What a pass needs besides parameters: the mesh, positions, and `constrain(x, sharding)`."""

    mesh: AnyMesh
    positions: Positions
    constrain: Callable[[jax.Array, NamedSharding], jax.Array]

    def at(self, *axes: str | tuple[str, ...] | None) -> NamedSharding:
        """The sharding with these axes of the mesh."""
        return place(self.mesh, *axes)


@dataclass(frozen=True)
class Linear(Layer):
    """x @ weight + bias. Replicated, unless whoever builds the model says otherwise."""

    input_dim: int
    output_dim: int
    param_partition_spec: MeshAxes = (None, None)
    bias: bool = True

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The weight, and a bias on the axes of the weight's outputs."""
        weight = ParameterSpec(
            (self.input_dim, self.output_dim), mesh_axes=self.param_partition_spec
        )
        if not self.bias:
            return {"weight": weight}
        axes = self.param_partition_spec[-1:]
        bias = ParameterSpec(
            (self.output_dim,), mesh_axes=axes, initializer="zeros", weight_decay_scale=0.0
        )
        return {"weight": weight, "bias": bias}

    def __call__(self, params: Any, x: jax.Array) -> jax.Array:
        """`[..., input_dim]` to `[..., output_dim]`."""
        y = jnp.einsum("...i,io->...o", x, params["weight"])
        return y + params["bias"] if self.bias else y


@dataclass(frozen=True)
class RMSNorm(Layer):
    """Divides by the root mean square, times a scale."""

    dim: int

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The scale; with no mesh axes, every device has it whole."""
        return {"scale": ParameterSpec((self.dim,), initializer="ones", weight_decay_scale=0.0)}

    def __call__(self, params: Any, x: jax.Array) -> jax.Array:
        """Keeps the shape."""
        return rms_norm(x) * params["scale"]


@dataclass(frozen=True)
class Attention(Layer):
    """Causal attention whose heads are on `model`."""

    heads: int
    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    o_proj: Linear

    def __call__(self, params: Any, x: jax.Array, context: Context) -> jax.Array:
        """`[batch, sequence, model]`, mixed over the sequence."""
        split = (*x.shape[:2], self.heads, -1)
        query, key, value = (
            context.constrain(
                getattr(self, name)(params[name], x).reshape(split),
                context.at(BATCH, "seq", "model", None),
            )
            for name in ("q_proj", "k_proj", "v_proj")
        )
        query, key = context.positions.rotate(query), context.positions.rotate(key)
        mixed = attend(query, key, value, context.positions.mask).reshape(*x.shape[:2], -1)
        return context.constrain(
            self.o_proj(params["o_proj"], mixed), context.at(BATCH, "seq", None)
        )


@dataclass(frozen=True)
class FeedForward(Layer):
    """Two matrices: out of the stream by columns, back by rows."""

    linear1: Linear
    linear2: Linear

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The output, and no auxiliary loss."""
        hidden = context.constrain(
            self.linear1(params["linear1"], x), context.at(BATCH, "seq", "model")
        )
        out = self.linear2(params["linear2"], jax.nn.gelu(hidden))
        return context.constrain(out, context.at(BATCH, "seq", None)), jnp.zeros((), jnp.float32)


@dataclass(frozen=True)
class MixtureOfExperts(Layer):
    """A feed-forward network of which there are many, and a gate that sends each token to one."""

    input_dim: int
    hidden_dim: int
    experts: int
    capacity: float

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The gate, which every device needs for its own tokens; the experts, on `expert`."""
        experts, model, hidden = self.experts, self.input_dim, self.hidden_dim
        return {
            "gate_weight": ParameterSpec((model, experts), mesh_axes=(None, None)),
            "wi_weight": ParameterSpec(
                (experts, model, hidden), mesh_axes=("expert", "fsdp", "model")
            ),
            "wo_weight": ParameterSpec(
                (experts, hidden, model), mesh_axes=("expert", "model", "fsdp")
            ),
        }

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The output, and the loss that keeps the experts evenly loaded."""
        with jax.named_scope("gate"):
            logits = jnp.einsum("bsm,me->bse", x, params["gate_weight"]).astype(jnp.float32)
            gates = jax.nn.softmax(logits, axis=-1)
            chosen = jax.nn.one_hot(jnp.argmax(gates, axis=-1), self.experts)
            slots = max(1, math.ceil(self.capacity * x.shape[1] / self.experts))
            # How many tokens of its sequence chose the same expert before; -1 for all others.
            turn = jnp.cumsum(chosen, axis=1) * chosen - 1
            dispatch = jax.nn.one_hot(turn.astype(jnp.int32), slots)  # [b, s, e, slots]
            combine = (dispatch * (gates * chosen)[..., None]).astype(x.dtype)
            load, share = jnp.mean(chosen, axis=(0, 1)), jnp.mean(gates, axis=(0, 1))
            balance = self.experts * jnp.sum(load * share)
        with jax.named_scope("experts"):
            by_token = context.at(None, BATCH, None, None)
            by_expert = context.at("expert", ("data", "fsdp"), None, None)
            # First sorted where the tokens are, then sent: without the first of the two constraints
            # every device would gather the tokens of all experts' devices and pick.
            there = jnp.einsum("bsec,bsm->ebcm", dispatch.astype(x.dtype), x)
            there = context.constrain(context.constrain(there, by_token), by_expert)
            hidden = jnp.einsum("ebcm,emh->ebch", there, params["wi_weight"])
            split = context.at("expert", ("data", "fsdp"), None, "model")
            hidden = context.constrain(jax.nn.gelu(hidden), split)
            done = jnp.einsum("ebch,ehm->ebcm", hidden, params["wo_weight"])
            back = context.constrain(context.constrain(done, by_expert), by_token)
            out = jnp.einsum("bsec,ebcm->bsm", combine, back)
        return context.constrain(out, context.at(BATCH, "seq", None)), balance


@dataclass(frozen=True)
class TransformerLayer(Layer):
    """Attention and a feed-forward network, each added to the stream."""

    norm1: RMSNorm
    self_attention: Attention
    norm2: RMSNorm
    feed_forward: FeedForward | MixtureOfExperts

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The stream, and the auxiliary loss."""
        with jax.named_scope("self_attention"):
            normed = self.norm1(params["norm1"], x)
            x = x + self.self_attention(params["self_attention"], normed, context)
        with jax.named_scope("feed_forward"):
            normed = self.norm2(params["norm2"], x)
            added, aux = self.feed_forward(params["feed_forward"], normed, context)
            return x + added, aux


@dataclass(frozen=True)
class Track(Layer):
    """The layers that run without a word to other tracks."""

    layers: tuple[TransformerLayer, ...]

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The stream, and the sum of the auxiliary losses."""
        total = jnp.zeros((), jnp.float32)
        for index, layer in enumerate(self.layers):
            with jax.named_scope(f"layer{index}"):
                x, aux = layer(params[f"layer{index}"], x, context)
                total = total + aux
        return x, total


@dataclass(frozen=True)
class TrackBlock(Layer):
    """Tracks side by side: one input for all, their outputs averaged."""

    track: Track
    count: int

    def collect(self) -> dict[str, Any]:
        """One track's specs, stacked along `track`."""
        return jax.tree.map(lambda spec: spec.stacked(self.count, "track"), {
            "track": self.track.collect()
        })  # fmt: skip

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The stream `[batch, sequence, model]` after all tracks, and the auxiliary loss."""
        axis = "track" if "track" in context.mesh.axis_names else None
        run = jax.vmap(
            lambda params, x: self.track(params, x, context), in_axes=(0, None), spmd_axis_name=axis
        )
        streams, aux = run(params["track"], x)
        with jax.named_scope("synchronize"):
            streams = context.constrain(streams, context.at("track", BATCH, "seq", None))
            return context.constrain(
                jnp.mean(streams, axis=0), context.at(BATCH, "seq", None)
            ), jnp.mean(aux)


@dataclass(frozen=True)
class Embedding(Layer):
    """A row for each token; the same table turns the stream into logits."""

    vocab: int
    dim: int

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The table."""
        return {"weight": ParameterSpec((self.vocab, self.dim), mesh_axes=("model", "fsdp"))}


@dataclass(frozen=True)
class Decoder(Layer):
    """Embedding, blocks, norm, logits."""

    emb: Embedding
    blocks: tuple[TrackBlock, ...]
    output_norm: RMSNorm

    def __call__(self, params: Any, tokens: jax.Array, context: Context) -> tuple[jax.Array, Any]:
        """Logits `[batch, sequence, vocab]` in f32, and the auxiliary loss."""
        with jax.named_scope("emb"):
            # Gathered over fsdp as every weight is. In shards, the rows that are looked up would
            # have their features on fsdp, and be wanted with their batch there: XLA's way from one
            # to the other is to have everything everywhere.
            table = context.constrain(params["emb"]["weight"], context.at("model", None))
            x = context.constrain(table[tokens], context.at(BATCH, "seq", None))
        total = jnp.zeros((), jnp.float32)
        for index, block in enumerate(self.blocks):
            with jax.named_scope(f"block{index}"):
                x, aux = block(params[f"layer{index}"], x, context)
                total = total + aux
        with jax.named_scope("logits"):
            x = self.output_norm(params["output_norm"], x)
            logits = jnp.einsum("bsm,vm->bsv", x, table).astype(jnp.float32)
            return context.constrain(logits, context.at(BATCH, "seq", "model")), total


def build(settings: Settings) -> Decoder:
    """The model: layers with their partition specs filled in, as a configuration does it."""
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

    track = Track(tuple(map(layer, range(settings.layers))))
    return Decoder(
        Embedding(settings.vocab, model),
        tuple(TrackBlock(track, settings.tracks) for _ in range(settings.blocks)),
        RMSNorm(model),
    )


# --- the trainer ----------------------------------------------------------------------------------


def make_learner(specs: Any) -> optax.GradientTransformation:
    """Adam, with weight decay for the parameters whose specs say so."""
    decays = jax.tree.map(lambda spec: spec.weight_decay_scale > 0, specs)
    return optax.adamw(LEARNING_RATE, mask=decays)


class TrainerState(NamedTuple):
    """Everything that goes from one step to the next."""

    prng_key: Any
    model: Any
    learner: Any


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """One train step on `mesh`: `(state, batch) -> (state, {"loss": ..., "aux": ...})`.

    Raises:
      TargetError: a size is not positive, or an option has no such choice.
    """
    sizes = ("blocks", "layers", "tracks", "experts", "d_model", "heads", "head_dim", "d_ff")
    positive(settings, *sizes, "vocab", "batch", "sequence")
    one_of("dtype", settings.dtype, DTYPES)
    model = build(settings)
    specs = model.collect()
    learner = make_learner(specs)

    params = abstract(specs, mesh)
    state = TrainerState(
        jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=place(mesh, None)),
        params,
        optimizer_state(mesh, learner, params),
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
