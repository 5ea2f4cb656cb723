"""The Shardy guide's examples, each a program of its own: what JAX lowers for each partitioner.

`example` chooses one. None is a train step: each is the few lines that put one kind of sharding
into a program, to be read beside the module that they become (`sdyscope lower shardy-guide`).
The mesh is the guide's, 4 x 2 devices with the axes `data` and `model`, and so are the sizes.

    in-out-shardings   x by batch, w1 by columns, w2 left to propagation
    constraint         ('data', UNCONSTRAINED): closed and open dimensions
    shard-map          a body that sees its own block and gathers the others itself
    shard-map-auto     one over `data` alone: `model` is still the compiler's
    custom-partitioning-string, -rule, -callback
                       a function with its own partitioning: the rule in each of its forms
    priorities         three strategies on one program, taken one after the other
    no-priorities      the same three at once, of which the wrong one wins
    sub-axes           an axis that a reshape splits: "data":(1)2 and "data":(2)2

**What Shardy writes.** The mesh once, by name, and shardings that name its axes:
`#sdy.sharding<@mesh, [{"data"}, {}]>`. A dimension without `?` is closed: propagation may not
shard it further. `{?}` is open, which is what UNCONSTRAINED is. A constraint is an op,
`sdy.sharding_constraint`; a shard_map is one, `sdy.manual_computation`, with its specs, its body
and its manual axes in one place.

**What GSPMD writes.** Tiles and a list of devices, without names:
`{devices=[4,1,2]<=[8] last_tile_dim_replicate}`. Everything else is a custom call: `@Sharding`
(with `unspecified_dims=[1]` for UNCONSTRAINED), and `@SPMDFullToShardShape` and
`@SPMDShardToFullShape` around the body of a shard_map, which is a function of its own. Priorities
it has none, and the two examples about them are the same to it. `check` shows that all else means
the same.

**Custom partitioning.** The partitioner cannot look into `batched_matmul`. It has to be told how
the dimensions of operands and result belong together, which is a rule like einsum's subscripts
(`... i j, ... j k -> ... i k`), and what a device then computes, which is `partition`. GSPMD knows
no rules and asks `infer_sharding_from_operands` instead (the guide leaves it out: without it JAX
from 0.11 on refuses to lower the program for GSPMD). Both are Python functions that the compiler
calls back, so these programs need devices to lower, virtual ones if there are no others.

**Priorities.** Rows of a table are picked by tokens. The batch of the tokens is on `data` (data
parallelism); the table has its rows on `model` (Megatron) and its columns on `data` (ZeRO). What is
picked has a batch and columns, and only one can be on `data`. Without priorities Shardy lets the
table's columns win. With 0 for the batch (which is what nothing written means), 1 for the rows and
2 for the columns the batch does: it has been propagated before the columns are looked at. JAX has
no words for this yet. The module has: `constrain_in_order` is JAX's constraint, lowered by JAX,
with the priorities put in afterwards.

**Sub-axes.** An array of 16 rows on `data` (4 devices) that is reshaped to [2, 8] has its first
dimension too short for the axis: it takes the first half, `"data":(1)2`, and the second dimension
the other, `"data":(2)2`. No PartitionSpec can say it, and it appears only after propagation.

Where no argument has a sharding (`constraint`, the two of `shard_map`), nothing but the devices of
its mesh tells JAX for how many it lowers: these programs take real ones where there are enough.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import BATCHING, SdyShardingRule, custom_partitioning
from jax.extend.core import Primitive
from jax.extend.mlir.dialects import sdy
from jax.interpreters import mlir
from jax.lax import with_sharding_constraint
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.models._train_step import AnyMesh, one_of, place, positive
from sdyscope.stages.executed.devices import find_devices, more_cpu_devices

MESH = {"data": 4, "model": 2}

EXAMPLES = (
    "in-out-shardings",
    "constraint",
    "shard-map",
    "shard-map-auto",
    "custom-partitioning-string",
    "custom-partitioning-rule",
    "custom-partitioning-callback",
    "priorities",
    "no-priorities",
    "sub-axes",
)


@dataclass(frozen=True)
class Settings:
    """Which example, and how much larger than the guide's it is."""

    example: str = field(
        default="in-out-shardings", metadata={"help": "the example", "choices": EXAMPLES}
    )
    scale: int = field(default=1, metadata={"help": "factor on every size of the guide"})


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """One example on `mesh`, which must have the axes `data` and `model`.

    Raises:
        TargetError: there is no such example, the mesh lacks an axis, or custom_partitioning finds
            too few devices for it.
    """
    one_of("example", settings.example, EXAMPLES)
    positive(settings, "scale")
    if not set(MESH) <= set(mesh.axis_names):
        raise TargetError(
            "The guide's mesh has the axes data and model.", hint="Give --mesh data=4,model=2."
        )
    name, _, form = settings.example.partition("-partitioning-")
    if form:
        mesh = on_devices(mesh)
        function, args = custom(mesh, settings.scale, form)
    else:
        if name in ("constraint", "shard-map", "shard-map-auto"):
            mesh = on_devices(mesh, optional=True)
        function, args = PLAIN[name](mesh, settings.scale)

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        rng = np.random.default_rng(0)
        return tuple(value(rng, arg) for arg in args), {}

    return Program(
        name=f"shardy-guide-{settings.example}",
        fun=function,
        args=args,
        mesh=mesh,
        inputs=inputs,
        settings=asdict(settings),
    )


def value(rng: np.random.Generator, arg: jax.ShapeDtypeStruct) -> np.ndarray[Any, Any]:
    """Gaussians; of integers, which are rows of a table here, small ones."""
    if jnp.issubdtype(arg.dtype, jnp.integer):
        return rng.integers(0, 16, arg.shape, dtype=arg.dtype)
    return rng.standard_normal(arg.shape).astype(arg.dtype)


def on_devices(mesh: AnyMesh, *, optional: bool = False) -> AnyMesh:
    """The mesh on real devices; with `optional`, as it is where there are too few.

    Raises:
        TargetError: there are too few, and they are not optional.
    """
    if not isinstance(mesh, AbstractMesh):
        return mesh
    more_cpu_devices(mesh.size)
    try:
        devices = find_devices(mesh.size)[: mesh.size]
    except TargetError:
        if optional:
            return mesh
        raise
    array = np.array(devices).reshape(mesh.axis_sizes)
    return Mesh(array, mesh.axis_names, axis_types=mesh.axis_types)


def free(*shape: int) -> jax.ShapeDtypeStruct:
    """An argument whose sharding is left to the compiler."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


# --- arguments, constraints -----------------------------------------------------------------------


def in_out_shardings(mesh: AnyMesh, scale: int) -> tuple[Any, tuple[Any, ...]]:
    """Data parallelism on x, tensor parallelism on w1; w2's part is propagation's to find."""

    def predict(x: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
        hidden = jnp.einsum("bf,fh->bh", jnp.tanh(x), w1)
        return jnp.sin(jnp.einsum("bh,ho->bo", hidden, w2))

    def placed(*shape: int, axes: tuple[str | None, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place(mesh, *axes))

    x = placed(16 * scale, 128 * scale, axes=("data", None))
    w1 = placed(128 * scale, 256 * scale, axes=(None, "model"))
    w2 = free(256 * scale, 10 * scale)
    return jax.jit(predict, in_shardings=(x.sharding, w1.sharding, None)), (x, w1, w2)


def constraint(mesh: AnyMesh, scale: int) -> tuple[Any, tuple[Any, ...]]:
    """Rows on `data` and not further; columns wherever the compiler likes."""

    def constrained(x: jax.Array) -> jax.Array:
        return with_sharding_constraint(x, NamedSharding(mesh, P("data", P.UNCONSTRAINED)))

    return jax.jit(constrained), (free(32 * scale, 64 * scale),)


# --- shard_map ------------------------------------------------------------------------------------


def shard_map(mesh: AnyMesh, scale: int) -> tuple[Any, tuple[Any, ...]]:
    """Every axis is manual: a device sees its rows, and gathers the others'."""

    def body(x: jax.Array) -> jax.Array:
        return jax.lax.all_gather(x, "data", tiled=True)

    mapped = jax.shard_map(body, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False)
    return jax.jit(mapped), (free(32 * scale, 64 * scale),)


def shard_map_auto(mesh: AnyMesh, scale: int) -> tuple[Any, tuple[Any, ...]]:
    """Only `data` is manual: a device's rows have all columns, as far as the body can see."""

    def body(x: jax.Array) -> jax.Array:
        # Inside the body the mesh is another, on which `data` is manual.
        columns = NamedSharding(jax.sharding.get_abstract_mesh(), P(None, "model"))
        x = with_sharding_constraint(jnp.tanh(x), columns)
        # Not all_gather: beside an axis that is not manual it ends the process under GSPMD.
        return jax.lax.psum(x, "data")

    mapped = jax.shard_map(body, mesh=mesh, in_specs=P("data"), out_specs=P(), axis_names={"data"})
    return jax.jit(mapped), (free(32 * scale, 64 * scale),)


# --- custom_partitioning --------------------------------------------------------------------------


def written_rule(mesh: Any, operands: Any, result: Any) -> str:
    """The rule for operands of any rank, written out: b0 b1 for the dimensions of the batch."""
    batch = " ".join(f"b{index}" for index in range(len(operands[0].shape) - 2))
    return f"{batch} i j, {batch} j k -> {batch} i k"


RULES: dict[str, Any] = {
    "string": "... i j, ... j k -> ... i k",
    "rule": SdyShardingRule(
        operand_mappings=((BATCHING, "i", "j"), (BATCHING, "j", "k")),
        result_mappings=((BATCHING, "i", "k"),),
    ),
    "callback": written_rule,
}


def custom(mesh: AnyMesh, scale: int, form: str) -> tuple[Any, tuple[Any, ...]]:
    """A batch of matrix products that the partitioner cannot look into."""

    @custom_partitioning
    def batched_matmul(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.matmul(x, y)

    def partition(mesh: Any, operands: Any, result: Any) -> Any:
        """What a device does, and with which blocks: x by columns wherever y is by rows."""
        x, y = (operand.sharding.spec for operand in operands)
        summed = y[-2]
        wanted = (NamedSharding(mesh, P(*x[:-1], summed)), NamedSharding(mesh, y))

        def on_device(x: jax.Array, y: jax.Array) -> jax.Array:
            partial = jnp.matmul(x, y)
            return jax.lax.psum(partial, summed) if summed else partial

        return mesh, on_device, result.sharding, wanted

    def infer(mesh: Any, operands: Any, result: Any) -> NamedSharding:
        x, y = (operand.sharding.spec for operand in operands)
        return NamedSharding(mesh, P(*x[:-1], y[-1]))

    batched_matmul.def_partition(
        partition=partition, infer_sharding_from_operands=infer, sharding_rule=RULES[form]
    )

    def multiply(x: jax.Array, y: jax.Array) -> jax.Array:
        return batched_matmul(x, y)

    rows, columns = place(mesh, None, None, "data"), place(mesh, None, None, "model")
    x = jax.ShapeDtypeStruct((2, 3, 16 * scale, 8 * scale), jnp.float32, sharding=rows)
    y = jax.ShapeDtypeStruct((2, 3, 8 * scale, 16 * scale), jnp.float32, sharding=columns)
    return jax.jit(multiply, out_shardings=rows), (x, y)


# --- priorities -----------------------------------------------------------------------------------

#: JAX's own constraint, with a priority for each dimension besides. It goes by JAX's name, since it
#: is one wherever shardings are read off a jaxpr.
_constraint_p = Primitive("sharding_constraint")
_constraint_p.def_abstract_eval(lambda x, **_: x)
_constraint_p.def_impl(lambda x, **_: x)


def _lowered(ctx: Any, x: Any, *, sharding: Any, priorities: Any, **_: Any) -> Any:
    """JAX's lowering of the constraint; under Shardy its dimensions then get their priorities."""
    (value,) = mlir.lower_fun(
        lambda x: with_sharding_constraint(x, sharding), multiple_results=False
    )(ctx, x)
    op = value.owner
    if op.name == "sdy.sharding_constraint":
        written = sdy.TensorShardingAttr(op.attributes["sharding"])
        dimensions = [
            sdy.DimensionShardingAttr.get(dimension.axes, dimension.is_closed, priority)
            for dimension, priority in zip(
                map(sdy.DimensionShardingAttr, written.dimension_shardings), priorities, strict=True
            )
        ]
        op.attributes["sharding"] = sdy.TensorShardingAttr.get(written.mesh_or_ref, dimensions)
    return [value]


mlir.register_lowering(_constraint_p, _lowered)


def constrain_in_order(
    x: jax.Array, sharding: NamedSharding, priorities: tuple[int | None, ...]
) -> jax.Array:
    """`x`, constrained; dimensions of a lower priority's number are propagated before others."""
    constrained: jax.Array = _constraint_p.bind(
        x, sharding=sharding, unconstrained_dims=frozenset(), priorities=priorities
    )
    return constrained


def strategies(mesh: AnyMesh, scale: int, *, ordered: bool) -> tuple[Any, tuple[Any, ...]]:
    """Rows of a table by tokens: data parallelism, Megatron and ZeRO on one program."""
    weights = place(mesh, "model", "data")

    def look_up(tokens: jax.Array, table: jax.Array) -> jax.Array:
        if ordered:
            table = constrain_in_order(table, weights, (1, 2))
        else:
            table = with_sharding_constraint(table, weights)
        return jnp.tanh(table[tokens])

    # What has no priority written is first, as if it had 0.
    tokens = jax.ShapeDtypeStruct(
        (16 * scale, 32 * scale), jnp.int32, sharding=place(mesh, "data", None)
    )
    return jax.jit(look_up), (tokens, free(64 * scale, 128 * scale))


# --- sub-axes -------------------------------------------------------------------------------------


def sub_axes(mesh: AnyMesh, scale: int) -> tuple[Any, tuple[Any, ...]]:
    """A dimension that is on `data` becomes two, of which the first is shorter than the axis."""

    def split(x: jax.Array) -> jax.Array:
        halves = x.reshape(2, x.shape[0] // 2, x.shape[1])
        return jnp.cos(halves).reshape(x.shape)

    x = jax.ShapeDtypeStruct((16 * scale, 64 * scale), jnp.float32, sharding=place(mesh, "data"))
    return jax.jit(split, out_shardings=x.sharding), (x,)


#: Those that need nothing but a mesh and a size.
PLAIN: dict[str, Callable[[AnyMesh, int], tuple[Any, tuple[Any, ...]]]] = {
    "in-out-shardings": in_out_shardings,
    "constraint": constraint,
    "shard-map": shard_map,
    "shard-map-auto": shard_map_auto,
    "priorities": lambda mesh, scale: strategies(mesh, scale, ordered=True),
    "no-priorities": lambda mesh, scale: strategies(mesh, scale, ordered=False),
    "sub-axes": sub_axes,
}
