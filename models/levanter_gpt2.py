"""GPT-2 as Levanter trains it: named axes, and two mappings from them to the mesh.

The model is in `_gpt2.py` and never mentions a mesh; this is the trainer, which never mentions a
dimension. Between the two stand names:

    input_ids   [batch, position]
    stream      [batch, position, embed]
    queries     [batch, position, heads, head_size]
    keys        [batch, key_position, heads, head_size]
    scores      [batch, position, heads, key_position]
    hidden      [batch, position, mlp]
    logits      [batch, position, vocab]

    c_attn      [layers, qkv, heads, head_size, embed]
    c_proj      [layers, embed, heads, head_size] of attention, [layers, embed, mlp] of the MLP
    c_fc        [layers, mlp, embed]
    embeddings  [vocab, embed], [position, embed]

**The mesh** is `replica_dcn, replica, data, model`, as Levanter has it by default: slices, replicas
within a slice, what parameters are stored over, and tensor parallelism. The batch is on the first
three together.

**Two mappings.** `param_mapping` says where parameters and the optimizer's state rest,
`compute_mapping` where everything is while the step computes. A name may mean different things in
the two. `--set parallelism` takes them through the stages by which such a trainer is built:

    data     compute {batch: (replica_dcn, replica, data)}   parameters {}
    fsdp     the same                                        {embed: data}
    tensor   and {mlp: model, heads: model}                  and {mlp: model, heads: model}
    context  and {position: context}                         and {position: context}

`--mesh-config FILE` says both mappings instead, and the mesh: every line of the file decides.

* With `data` every device has the whole model, and gradients are summed.
* With `fsdp`, `embed` is in pieces at rest and whole in compute: each weight is gathered before its
  use, and its gradient is summed and cut. `embed` is the axis that nearly every parameter has; the
  biases of `c_attn` and `c_fc` have not, and stay whole.
* `mlp` and `heads` are on `model` in both mappings: no weight moves for them, and sums over them
  cross devices.
* `position` is the queries', and on `context`. `key_position`, the same positions under the name
  that keys and values have, is mapped to nothing: each device gathers the keys and values of its
  sequences. Renaming is where that happens.

A new axis is a line of the mapping and none of the model.

**The step.** Optax makes its state of the model's arrays, so the moments carry names too, and one
call of Haliax (`infer_resource_partitions`) places it all. Parameters are float32, and are cast to
`dtype` before they are gathered (CPUs compute in float32 all the same). Blocks are stacked along
`layers` and run in one loop; `gradient_checkpointing` keeps the stream between them and computes
the rest again, and so gathers the weights again. Model and optimizer state are donated.

**Dropout** (`--set dropout=0.1`) takes a key for each example, [batch, key], where the batch is.
It is split by layer, and in each block by use: attention weights, and what attention and the MLP
add to the stream. Each device draws the masks of its own examples, heads and positions. JAX's
Threefry gives the same numbers wherever they are drawn, so nothing is sent for them, and eight
devices drop what one does.

JAX refuses sizes that do not divide: batch by replica_dcn x replica x data, embed by data, heads
and mlp by model, positions by context. GPT-2 XL has 25 heads: `model` is 5 for it, or 1.
"""

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.mesh_config import AxisMapping, MappedMesh
from sdyscope.models._train_step import DTYPES, LEARNING_RATE, AnyMesh, one_of, place, positive

MESH = MappedMesh(axes={"model": 2}).over(8).sizes

#: What the mappings have that is not in the defaults, by kind of parallelism.
PARALLELISM: Mapping[str, Mapping[str, Any]] = {
    "data": {"shared_mapping": {"mlp": [], "heads": []}, "param_mapping": {"embed": []}},
    "fsdp": {"shared_mapping": {"mlp": [], "heads": []}},
    "tensor": {},
    "context": {"shared_mapping": {"position": "context"}},
}


@dataclass(frozen=True)
class Settings:
    """Sizes and options; small enough by default to run on 8 CPU devices in seconds."""

    parallelism: str = field(
        default="tensor",
        metadata={
            "help": "each adds to the one before it: replicas of the model, storage in shards, "
            "mlp and heads on model, positions on context",
            "choices": tuple(PARALLELISM),
        },
    )
    layers: int = field(default=2, metadata={"help": "blocks, which run in one loop"})
    embed: int = field(default=64, metadata={"help": "width of the stream"})
    heads: int = field(default=4, metadata={"help": "attention heads, each embed / heads wide"})
    mlp_scale: int = field(default=4, metadata={"help": "width of the MLP over that of the stream"})
    vocab: int = field(default=256, metadata={"help": "vocabulary size"})
    batch: int = field(default=16, metadata={"help": "sequences per step"})
    positions: int = field(default=32, metadata={"help": "tokens per sequence"})
    prompt: int = field(default=8, metadata={"help": "tokens of the prompt that prefill reads"})
    dtype: str = field(
        default="bfloat16",
        metadata={"help": "dtype to compute in; parameters are float32", "choices": DTYPES},
    )
    gradient_checkpointing: bool = field(
        default=True, metadata={"help": "keep only each block's input, compute the rest again"}
    )
    dropout: float = field(
        default=0.0,
        metadata={"help": "dropout rate of attention weights and of what is added to the stream"},
    )
    scale_by_inverse_layer_idx: bool = field(
        default=False, metadata={"help": "divide the scores of layer i, from 0, by i + 1"}
    )
    upcast: bool = field(
        default=False, metadata={"help": "compute scores from float32 queries and keys"}
    )
    donate: bool = field(
        default=True, metadata={"help": "donate the model and the optimizer state"}
    )


def mapped_mesh(mesh: AnyMesh, parallelism: str) -> MappedMesh:
    """The mesh's axes with the mappings of a kind of parallelism.

    Raises:
        TargetError: `context` on a mesh that has no such axis.
    """
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    if parallelism == "context" and "context" not in sizes:
        raise TargetError(
            "parallelism=context puts positions on the mesh axis 'context', and there is none.",
            hint="Give one: --mesh replica_dcn=1,replica=1,data=2,context=2,model=2.",
        )
    dcn = {name: size for name, size in sizes.items() if name == "replica_dcn"}
    ici = {name: size for name, size in sizes.items() if name not in dcn}
    return MappedMesh(axes=ici, dcn_axes=dcn, **PARALLELISM[parallelism])


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What both steps are made of.

    Attributes:
        hax: Haliax.
        axes: the model's axes.
        init: makes a model from a key.
        policy: which dtypes it is kept and computed in.
        compute: the mapping of compute, onto the axes that the mesh has.
        stored: likewise that of parameters.
    """

    hax: Any
    axes: Any
    init: Any
    policy: Any
    compute: AxisMapping
    stored: AxisMapping

    def sharded(self, name: str, tree: Any, mapping: AxisMapping, mesh: AnyMesh) -> tuple[Any, Any]:
        """A tree of shapes with the shardings that its names have, and these shardings.

        Raises:
            TargetError: two axes of an array would be on one mesh axis.
        """
        named = jax.tree_util.tree_leaves_with_path(tree, is_leaf=self.is_named)
        for path, leaf in named:
            if self.is_named(leaf):
                mapping.partition_spec(_names(leaf), f"{name}{jax.tree_util.keystr(path)}")
        shardings = self.hax.partitioning.infer_resource_partitions(tree, mapping.axes, mesh=mesh)
        placed = jax.tree.map(
            lambda sharding, named: jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), named
            ),
            shardings,
            tree,
        )
        return placed, shardings

    def is_named(self, value: Any) -> bool:
        """Whether something is an array with names."""
        return isinstance(value, self.hax.NamedArray)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """From here on a name means what it does for compute.

        Raises:
            TargetError: two axes of an array that is computed would be on one mesh axis.
        """
        try:
            with self.hax.axis_mapping(self.compute.axes):
                yield
        except Exception as error:
            # JAX refuses the spec, and says nothing of names: Haliax has the array in its hands.
            for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
                for value in frame.f_locals.values():
                    if self.is_named(value) and any(self.compute.repeated(_names(value))):
                        self.compute.partition_spec(_names(value))
            raise


def _onto(mesh: AnyMesh, mapping: AxisMapping) -> AxisMapping:
    return AxisMapping(mapping.name, mapping.resources(mesh.axis_names))


def _names(array: Any) -> list[str]:
    return [axis.name for axis in array.axes]


def _parts(mesh: AnyMesh, settings: Settings, mapping: MappedMesh | None) -> _Parts:
    try:
        import haliax as hax
        import jmp

        from sdyscope.models._gpt2 import Axes, Gpt2Config, Gpt2LMHeadModel
    except ModuleNotFoundError as error:
        raise TargetError(
            f"levanter-gpt2 is made with Haliax, and {error.name} is not installed.",
            hint="Install it: pip install 'haliax>=1.4.dev0'.",
        ) from error

    positive(
        settings, "layers", "embed", "heads", "mlp_scale", "vocab", "batch", "positions", "prompt"
    )
    one_of("dtype", settings.dtype, DTYPES)
    one_of("parallelism", settings.parallelism, tuple(PARALLELISM))
    if settings.embed % settings.heads:
        raise TargetError(f"embed={settings.embed} must divide by heads={settings.heads}.")
    if not 0 <= settings.dropout < 1:
        raise TargetError(f"dropout={settings.dropout} must be at least 0 and less than 1.")
    mapped = mapping or mapped_mesh(mesh, settings.parallelism)
    axes = Axes.of(
        batch=settings.batch,
        position=settings.positions,
        embed=settings.embed,
        heads=settings.heads,
        head_size=settings.embed // settings.heads,
        mlp=settings.embed * settings.mlp_scale,
        vocab=settings.vocab,
        layers=settings.layers,
    )
    config = Gpt2Config(
        axes,
        settings.dropout,
        settings.scale_by_inverse_layer_idx,
        settings.upcast,
        settings.gradient_checkpointing,
    )
    policy = jmp.get_policy(f"params=float32,compute={settings.dtype},output=float32")
    return _Parts(
        hax=hax,
        axes=axes,
        init=lambda key: policy.cast_to_param(Gpt2LMHeadModel.init(config, key=key)),
        policy=policy,
        compute=_onto(mesh, mapped.resolved_compute_mapping),
        stored=_onto(mesh, mapped.resolved_param_mapping),
    )


def program(mesh: AnyMesh, settings: Settings, mapping: MappedMesh | None = None) -> Program:
    """One train step: `(model, opt_state, input_ids, keys) -> (model, opt_state, loss)`.

    `keys` is None without dropout. With a `mapping`, that of a mesh configuration, the setting
    `parallelism` says nothing.

    Raises:
        TargetError: Haliax is not installed, a size is not positive, heads do not divide embed,
            dropout is no probability below one, an option has no such choice, the mesh lacks
            `context` where positions are to be on it, or a mapping has two dimensions of an array
            on one mesh axis.
    """
    parts = _parts(mesh, settings, mapping)
    hax, axes, policy = parts.hax, parts.axes, parts.policy
    optimizer = optax.adamw(LEARNING_RATE)

    def init(key: Any) -> tuple[Any, Any]:
        model = parts.init(key)
        return model, optimizer.init(model)

    def loss(model: Any, input_ids: Any, keys: Any) -> jax.Array:
        from sdyscope.models._gpt2 import next_token_loss

        # Cast while in shards: what is gathered for compute is half as much.
        with parts.computing():
            model = policy.cast_to_compute(model)
            logits = policy.cast_to_output(model(input_ids, key=keys, inference=False))
            return next_token_loss(axes, logits, input_ids)

    def train_step(model: Any, opt_state: Any, input_ids: Any, keys: Any) -> Any:
        # Haliax asks which mesh its constraints are on; a trainer would say jax.set_mesh once.
        with jax.sharding.use_abstract_mesh(getattr(mesh, "abstract_mesh", mesh)):
            value, gradients = jax.value_and_grad(loss)(model, input_ids, keys)
            with jax.named_scope("optimizer"):
                # And back to where parameters are stored.
                gradients = hax.shard(gradients, parts.stored.axes)
                updates, opt_state = optimizer.update(gradients, opt_state, model)
                model = optax.apply_updates(model, updates)
            return model, opt_state, value

    # Optax makes its state of the model's arrays, so that it has their names as well.
    initial = jax.eval_shape(init, jax.random.key(0))
    model, model_shardings = parts.sharded("model", initial[0], parts.stored, mesh)
    opt_state, opt_shardings = parts.sharded("opt_state", initial[1], parts.stored, mesh)
    shape = (settings.batch, settings.positions)
    tokens = hax.NamedArray(jax.ShapeDtypeStruct(shape, jnp.int32), (axes.batch, axes.position))
    input_ids, _ = parts.sharded("input_ids", tokens, parts.compute, mesh)

    def example_keys() -> Any:
        """A key for each example, as a trainer splits them off its own at every step."""
        split = jax.random.split(jax.random.key(1), settings.batch)
        return hax.NamedArray(jax.random.key_data(split), (axes.batch, hax.Axis("key", 2)))

    keys = None
    if settings.dropout:
        keys, _ = parts.sharded("keys", jax.eval_shape(example_keys), parts.compute, mesh)

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        model, (adam, *others) = jax.tree.map(np.asarray, jax.jit(init)(jax.random.key(0)))
        # As after a thousand steps with gradients of about 0.01. Adam's first step is the sign of
        # the gradient, and biases of keys, which no softmax sees, have rounding errors for one.
        second = jax.tree.map(lambda leaf: np.full_like(leaf, 1e-4), adam.nu)
        adam = adam._replace(count=np.full_like(adam.count, 1000), nu=second)
        text = np.random.default_rng(0).integers(settings.vocab, size=shape, dtype=np.int32)
        tokens = hax.NamedArray(text, (axes.batch, axes.position))
        drawn = jax.tree.map(np.asarray, example_keys()) if settings.dropout else None
        return (model, (adam, *others), tokens, drawn), {}

    jitted = jax.jit(
        train_step,
        out_shardings=(model_shardings, opt_shardings, place(mesh)),
        donate_argnums=(0, 1) if settings.donate else (),
    )
    return Program(
        name="levanter-gpt2",
        fun=jitted,
        args=(model, opt_state, input_ids, keys),
        mesh=mesh,
        inputs=inputs,
        settings=dataclasses.asdict(settings),
    )


def prefill(mesh: AnyMesh, settings: Settings, mapping: MappedMesh | None = None) -> Program:
    """Reads a prompt of each example: `(model, input_ids) -> (next ids, cache)`.

    `input_ids` is `[batch, position]` with `prompt` positions, and the cache what `decode` takes.
    Everything is where the mapping of compute puts it.

    Raises:
        TargetError: as of `program`, or the prompt is longer than the cache.
    """
    if settings.prompt > settings.positions:
        raise TargetError(
            f"prompt={settings.prompt} must be at most positions={settings.positions}."
        )
    parts = _parts(mesh, settings, mapping)
    hax, axes = parts.hax, parts.axes
    serving = _serving(parts, mesh, settings)

    def prefill_step(model: Any, input_ids: Any) -> tuple[Any, Any]:
        with serving.compute():
            logits, attention = parts.policy.cast_to_compute(model).prefill(input_ids)
            length = jnp.int32(settings.prompt)
            return serving.likeliest(logits), {"attention": attention, "length": length}

    shape = (settings.batch, settings.prompt)
    prompt = (axes.batch, hax.Axis("position", settings.prompt))
    tokens = hax.NamedArray(jax.ShapeDtypeStruct(shape, jnp.int32), prompt)
    input_ids, _ = parts.sharded("input_ids", tokens, parts.compute, mesh)

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        text = np.random.default_rng(0).integers(settings.vocab, size=shape, dtype=np.int32)
        return (serving.weights(), hax.NamedArray(text, prompt)), {}

    return Program(
        name="levanter-gpt2 prefill",
        fun=jax.jit(prefill_step, out_shardings=serving.results),
        args=(serving.model, input_ids),
        mesh=mesh,
        inputs=inputs,
        settings=dataclasses.asdict(settings),
    )


def decode(mesh: AnyMesh, settings: Settings, mapping: MappedMesh | None = None) -> Program:
    """One step of greedy decoding: `(model, cache, input_ids) -> (next ids, cache)`.

    `input_ids` has one token of each example, and `cache` the keys and values of those before, and
    how many they are. Everything is where the mapping of compute puts it, the model too, as an
    inference server loads it; keys and values are in the dtype of compute.

    Raises:
        TargetError: as of `program`.
    """
    parts = _parts(mesh, settings, mapping)
    hax, axes = parts.hax, parts.axes
    serving = _serving(parts, mesh, settings)

    def decode_step(model: Any, cache: Any, input_ids: Any) -> tuple[Any, Any]:
        with serving.compute():
            model, length = parts.policy.cast_to_compute(model), cache["length"]
            logits, attention = model.decode(input_ids, cache["attention"], length)
            return serving.likeliest(logits), {"attention": attention, "length": length + 1}

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        rng = np.random.default_rng(0)
        filled = jax.tree.map(
            lambda leaf: rng.standard_normal(leaf.shape, np.float32).astype(leaf.dtype),
            serving.cache["attention"],
        )
        text = rng.integers(settings.vocab, size=(settings.batch,), dtype=np.int32)
        length = np.int32(settings.positions // 2)
        ids = hax.NamedArray(text, (axes.batch,))
        return (serving.weights(), {"attention": filled, "length": length}, ids), {}

    return Program(
        name="levanter-gpt2 decode",
        fun=jax.jit(
            decode_step,
            out_shardings=serving.results,
            donate_argnums=(1,) if settings.donate else (),
        ),
        args=(serving.model, serving.cache, serving.next_ids),
        mesh=mesh,
        inputs=inputs,
        settings=dataclasses.asdict(settings),
    )


@dataclasses.dataclass(frozen=True)
class _Serving:
    """What the steps of inference share.

    Attributes:
        parts: what all steps are made of.
        mesh: the mesh.
        model: the model's shapes, with the shardings of compute.
        cache: likewise of the keys and values, and of how many tokens they are.
        next_ids: likewise of a token of each example.
        results: the shardings of the next tokens and of the cache.
    """

    parts: _Parts
    mesh: AnyMesh
    model: Any
    cache: Any
    next_ids: Any
    results: tuple[Any, Any]

    @contextlib.contextmanager
    def compute(self) -> Iterator[None]:
        """Names mean what they do for compute, on the mesh."""
        here = jax.sharding.use_abstract_mesh(getattr(self.mesh, "abstract_mesh", self.mesh))
        with here, self.parts.computing():
            yield

    def likeliest(self, logits: Any) -> Any:
        """The likeliest next token of each example."""
        hax = self.parts.hax
        return hax.auto_sharded(hax.argmax(logits, self.parts.axes.vocab).astype(jnp.int32))

    def weights(self) -> Any:
        """The model's values on the host."""
        return jax.tree.map(np.asarray, jax.jit(self.parts.init)(jax.random.key(0)))


def _serving(parts: _Parts, mesh: AnyMesh, settings: Settings) -> _Serving:
    hax, axes = parts.hax, parts.axes

    def empty() -> dict[str, Any]:
        from sdyscope.models._gpt2 import Cache

        return {"attention": Cache.of(axes, settings.dtype), "length": jnp.int32(0)}

    initial = jax.eval_shape(parts.init, jax.random.key(0))
    model, _ = parts.sharded("model", initial, parts.compute, mesh)
    cache, cache_shardings = parts.sharded("cache", jax.eval_shape(empty), parts.compute, mesh)
    tokens = hax.NamedArray(jax.ShapeDtypeStruct((settings.batch,), jnp.int32), (axes.batch,))
    next_ids, ids_sharding = parts.sharded("input_ids", tokens, parts.compute, mesh)
    return _Serving(parts, mesh, model, cache, next_ids, (ids_sharding, cache_shardings))
