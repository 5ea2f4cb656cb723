"""The layers of `axlearn-transformer`, each of which declares its own parameters.

A layer names mesh axes and never sizes. What a declaration is, and how declarations become a tree,
is in `_parameter_specs.py`; which axes a `Linear` is on is for whoever builds the model to say, in
`axlearn_transformer.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from sdyscope.models._parameter_specs import FactorizationSpec, Layer, MeshAxes, ParameterSpec
from sdyscope.models._train_step import AnyMesh, place
from sdyscope.models.fsdp_transformer import Positions, attend, rms_norm

BATCH = ("data", "fsdp", "expert")


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
            (self.input_dim, self.output_dim),
            mesh_axes=self.param_partition_spec,
            factorization=FactorizationSpec(axes=("row", "col")),
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
                (experts, model, hidden),
                mesh_axes=("expert", "fsdp", "model"),
                factorization=FactorizationSpec(axes=(None, "row", "col")),
            ),
            "wo_weight": ParameterSpec(
                (experts, hidden, model),
                mesh_axes=("expert", "model", "fsdp"),
                factorization=FactorizationSpec(axes=(None, "row", "col")),
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
class Repeat(Layer):
    """The same block many times, in one loop."""

    block: TrackBlock
    count: int

    def collect(self) -> dict[str, Any]:
        """One block's specs, stacked along a dimension that no mesh axis shards."""
        return jax.tree.map(lambda spec: spec.stacked(self.count, None), {
            "block": self.block.collect()
        })  # fmt: skip

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The stream after all blocks, and the sum of the auxiliary losses."""
        x, aux = jax.lax.scan(lambda x, params: self.block(params, x, context), x, params["block"])
        return x, jnp.sum(aux)


@dataclass(frozen=True)
class Pipeline(Layer):
    """Blocks on the stages of `pipeline`, through which the microbatches of a batch pass.

    GPipe, as one program for all devices: every stage is a position of a `vmap`, and what a stage
    is at moves one position further after each step. The partitioner makes a collective-permute of
    that. In n + m - 1 steps m microbatches are through n stages; a stage computes with zeros in the
    n - 1 steps in which it has none, and nothing of that is used.
    """

    block: TrackBlock
    count: int
    stages: int
    microbatches: int

    def collect(self) -> dict[str, Any]:
        """One block's specs, stacked along `pipeline`: a stage has count / stages of them."""
        return jax.tree.map(lambda spec: spec.stacked(self.count, "pipeline"), {
            "block": self.block.collect()
        })  # fmt: skip

    def __call__(self, params: Any, x: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """The stream after all blocks, and the mean of the microbatches' auxiliary losses."""
        stages, count = self.stages, self.microbatches
        axis = "pipeline" if "pipeline" in context.mesh.axis_names else None
        by_stage = jax.tree.map(
            lambda leaf: leaf.reshape(stages, self.count // stages, *leaf.shape[1:]),
            params["block"],
        )
        run = jax.vmap(
            lambda params, x: Repeat(self.block, self.count // stages)(
                {"block": params}, x, context
            ),
            spmd_axis_name=axis,
        )
        # Every device gives each microbatch a part of its own sequences.
        waiting = x.reshape(x.shape[0] // count, count, *x.shape[1:]).swapaxes(0, 1)
        waiting = context.constrain(waiting, context.at(None, BATCH, "seq", None))

        def step(held: jax.Array, given: Any) -> tuple[jax.Array, Any]:
            now, first = given
            held = jnp.concatenate([first[None], held[:-1]])
            held = context.constrain(held, context.at("pipeline", BATCH, "seq", None))
            held, aux = run(by_stage, held)
            own = now - jnp.arange(stages)  # the microbatch that each stage is at
            return held, (held[-1], jnp.sum(jnp.where((own >= 0) & (own < count), aux, 0)))

        start = jnp.zeros((stages, *waiting.shape[1:]), x.dtype)
        nothing = jnp.zeros((stages - 1, *waiting.shape[1:]), x.dtype)
        steps = jnp.arange(stages + count - 1), jnp.concatenate([waiting, nothing])
        _, (done, aux) = jax.lax.scan(step, start, steps)
        # The first one came out of the last stage in step n - 1.
        done = done[stages - 1 :].swapaxes(0, 1).reshape(x.shape)
        return context.constrain(done, context.at(BATCH, "seq", None)), jnp.sum(aux) / count


@dataclass(frozen=True)
class Embedding(Layer):
    """A row for each token; the same table turns the stream into logits."""

    vocab: int
    dim: int

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The table; logits are sums over a row."""
        weight = ParameterSpec((self.vocab, self.dim), mesh_axes=("model", "fsdp"), fan_in_axis=-1)
        return {"weight": weight}


@dataclass(frozen=True)
class Decoder(Layer):
    """Embedding, blocks, norm, logits."""

    emb: Embedding
    blocks: tuple[TrackBlock, ...] | Repeat | Pipeline
    output_norm: RMSNorm

    def __call__(self, params: Any, tokens: jax.Array, context: Context) -> tuple[jax.Array, Any]:
        """Logits `[batch, sequence, vocab]` in f32, and the auxiliary loss."""
        with jax.named_scope("emb"):
            # Gathered over fsdp as every weight is. In shards, the rows that are looked up would
            # have their features on fsdp, and be wanted with their batch there: XLA's way from one
            # to the other is to have everything everywhere.
            table = context.constrain(params["emb"]["weight"], context.at("model", None))
            x = context.constrain(table[tokens], context.at(BATCH, "seq", None))
        if isinstance(self.blocks, Repeat | Pipeline):
            with jax.named_scope("blocks"):
                x, total = self.blocks(params["blocks"], x, context)
        else:
            total = jnp.zeros((), jnp.float32)
            for index, block in enumerate(self.blocks):
                with jax.named_scope(f"block{index}"):
                    x, aux = block(params[f"layer{index}"], x, context)
                    total = total + aux
        with jax.named_scope("logits"):
            x = self.output_norm(params["output_norm"], x)
            logits = jnp.einsum("bsm,vm->bsv", x, table).astype(jnp.float32)
            return context.constrain(logits, context.at(BATCH, "seq", "model")), total
