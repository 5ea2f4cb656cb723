"""The same step on one device: the jaxpr that was traced, with every sharding taken out of it.

What is compared against must be the same program: the very jaxpr is evaluated, in which sharding
constraints are left out, nested jits forget their shardings, and the body of a `shard_map` is
mapped (`jax.vmap`) over the blocks of its arguments, with the mesh axes as the names of the maps:
its collectives then are sums, gathers and shifts along a dimension (see ``mapped_collectives``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from sdyscope.stages import compat
from sdyscope.stages.executed.mapped_collectives import ENDS, mapped_collective
from sdyscope.stages.lowered.signature import ShardMap

#: Ops that say where a value is to be, or along which axes it may differ, and nothing about what it
#: is.
_PLACING = frozenset(
    {
        "mesh_cast",
        "pcast",
        "preduced",
        "pvary",
        "reduced_vary_cast",
        "reshard",
        "sharding_constraint",
        "vary_unreduced_cast",
    }
)

#: Ops that JAX can't map over some of their arguments alone.
_NOT_MAPPED = frozenset({"ragged_dot_general"})

#: Ops whose values may depend on how they are partitioned.
_RANDOM = ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform")


class Around(NamedTuple):
    """What is around an equation.

    Attributes:
        axes: sizes of the mesh axes that are manual.
        typed: whether types say how values are sharded, as they do on Explicit axes.
        wide: whether some value is of a type of 64 bits, which a program may allow for a part of it
            only (`jax.enable_x64`): traced again outside of it, JAX would halve them.
    """

    axes: Mapping[str, int]
    typed: bool
    wide: bool

    def inside(self, shard_map: ShardMap) -> Around:
        """What is around an equation in the body of a shard_map."""
        return self._replace(axes={**self.axes, **_sizes(shard_map)})

    @property
    def in_types(self) -> bool:
        """Whether the types of nested functions say something of a mesh."""
        return self.typed or bool(self.axes)


def unsharded(traced: Any) -> Callable[..., Sequence[Any]]:
    """The traced function on flat arguments that lie on one device, results flat."""
    function: Callable[..., Sequence[Any]] = core.jaxpr_as_fun(unsharded_jaxpr(traced))
    return function


def unsharded_jaxpr(traced: Any) -> Any:
    """The closed jaxpr of a traced function without shardings, its constants on one device."""
    closed = traced.jaxpr
    consts = [*map(on_one, closed.consts)]
    return closed.replace(jaxpr=stripped(closed.jaxpr, around(traced)), consts=consts)


def around(traced: Any) -> Around:
    """What is around the equations of a program itself."""
    return Around({}, _has_explicit_axes(traced.jaxpr), _has_wide_types(traced.jaxpr))


def _has_explicit_axes(closed: Any) -> bool:
    """Whether the type of some value says how it is sharded."""
    meshes = {
        variable.aval.sharding.mesh
        for equation in compat.equations(closed)
        for variable in (*equation.invars, *equation.outvars)
        if getattr(variable.aval, "sharding", None) is not None
    }
    return any(jax.sharding.AxisType.Explicit in (mesh.axis_types or ()) for mesh in meshes)


def _has_wide_types(closed: Any) -> bool:
    """Whether some value is of a type that JAX has only where `jax_enable_x64` is set."""
    return any(
        jax.dtypes.canonicalize_dtype(dtype) != dtype
        for equation in compat.equations(closed)
        for variable in (*equation.invars, *equation.outvars)
        if (dtype := getattr(variable.aval, "dtype", None)) is not None
        and not jnp.issubdtype(dtype, jax.dtypes.extended)
    )


def _jaxpr(function: Callable[..., Any], avals: Sequence[Any], around: Around) -> Any:
    """A function's jaxpr on arguments of these types, as they are."""
    make = jax.make_jaxpr(function, axis_env=list(around.axes.items()))
    with compat.types_of_64_bits() if around.wide else nullcontext():
        return make(*avals)


def on_one(value: Any) -> Any:
    """A constant that may lie on the devices of a mesh, brought to one of them."""
    if isinstance(value, jax.Array) and len(value.sharding.device_set) > 1:
        devices: Any = value.sharding.device_set
        return jax.device_put(value, min(devices, key=lambda device: device.id))
    return value


def stripped(jaxpr: Any, around: Around) -> Any:
    """A jaxpr without shardings; what is around it says what its types are about."""
    renamed: dict[Any, Any] = {}

    def now(atom: Any) -> Any:
        if not isinstance(atom, core.Literal):
            return renamed.get(atom, atom)
        # A number of Python's is of the type that the setting says (JAX 0.9 and before).
        return _typed_literal(atom) if around.wide else atom

    equations = []
    for equation in jaxpr.eqns:
        # JAX names some of its casts by its variables for them.
        name = equation.primitive.name.removesuffix("_p")
        invars = [now(atom) for atom in equation.invars]
        if name in _PLACING or name in ENDS:
            renamed.update(zip(equation.outvars, invars, strict=True))
        elif name == "shard_map":
            body = _mapped(compat.shard_map_parameters(equation.params), around)
            equations.append(_instead(equation, invars, body, around))
        elif (collective := mapped_collective(name, equation.params)) is not None:
            equations.append(_instead(equation, invars, collective, around))
        elif name in _NOT_MAPPED and around.axes:
            equations.append(_instead(equation, invars, _in_turn(equation, around), around))
        else:
            params = _stripped_params(equation, around)
            kept = compat.without_mesh(equation) if around.in_types else equation
            equations.append(kept.replace(invars=invars, params=params))
    return jaxpr.replace(eqns=equations, outvars=[now(atom) for atom in jaxpr.outvars])


def _stripped_params(equation: Any, around: Around) -> dict[str, Any]:
    return {key: _stripped_value(key, value, around) for key, value in equation.params.items()}


def _typed_literal(literal: Any) -> Any:
    """A literal whose value has the type that the jaxpr says."""
    dtype = getattr(literal.aval, "dtype", None)
    if dtype is None or not isinstance(literal.val, (bool, int, float, complex)):
        return literal
    return core.Literal(np.asarray(literal.val, dtype), literal.aval)


def _stripped_value(key: str, value: Any, around: Around) -> Any:
    """One parameter of an equation, without shardings, in nested jaxprs too."""
    if isinstance(value, core.ClosedJaxpr):
        consts = [*map(on_one, value.consts)]
        return _retyped(value.replace(jaxpr=stripped(value.jaxpr, around), consts=consts), around)
    if isinstance(value, core.Jaxpr):
        plain = stripped(value, around)
        if value.constvars:
            return plain
        return _retyped(core.ClosedJaxpr(plain, []), around).jaxpr
    if type(value) is tuple:
        return tuple(_stripped_value(key, item, around) for item in value)
    if isinstance(value, jax.sharding.Sharding):
        return compat.unspecified() if key in ("in_shardings", "out_shardings") else None
    return value


def _retyped(closed: Any, around: Around) -> Any:
    """The jaxpr of a nested function in the body of a shard_map or on Explicit axes, traced again.

    Its types say along which of the mesh's axes a value varies, or is sharded. Mapped over them, or
    on one device, no value is.
    """
    if not around.in_types:
        return closed
    avals = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
        for aval in closed.in_avals
    ]
    return _jaxpr(core.jaxpr_as_fun(closed), avals, around)


def _instead(
    equation: Any, invars: Sequence[Any], function: Callable[..., Any], around: Around
) -> Any:
    """An equation that calls a function in place of another one."""
    avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    traced = _jaxpr(jax.jit(function), avals, around)
    (call,) = traced.jaxpr.eqns
    return call.replace(invars=[*traced.consts, *invars], outvars=equation.outvars)


def _in_turn(equation: Any, around: Around) -> Callable[..., list[Any]]:
    """An equation of a single result as a function that a map calls for a block after the other."""
    params = _stripped_params(equation, around)

    @jax.custom_batching.custom_vmap
    def call(*values: Any) -> Any:
        return equation.primitive.bind(*values, **params)

    @call.def_vmap
    def mapped_call(size: int, is_mapped: Sequence[bool], *values: Any) -> tuple[Any, bool]:
        def of_block(k: Any) -> Any:
            return call(
                *(value[k] if own else value for value, own in zip(values, is_mapped, strict=True))
            )

        return jax.lax.map(of_block, jnp.arange(size)), True

    return lambda *values: [call(*values)]


# --- shard_map ------------------------------------------------------------------------------------


def _mapped(shard_map: ShardMap, around: Around) -> Callable[..., list[Any]]:
    """A shard_map as maps over the blocks of its arguments, one for each manual axis."""
    jaxpr = getattr(shard_map.jaxpr, "jaxpr", shard_map.jaxpr)
    consts = getattr(shard_map.jaxpr, "consts", [])
    plain = stripped(jaxpr, around.inside(shard_map))
    return mapped(shard_map, core.jaxpr_as_fun(core.ClosedJaxpr(plain, consts)))


def mapped(shard_map: ShardMap, body: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
    """A function of blocks, mapped over those of a shard_map's arguments.

    Args:
        shard_map: says how arguments are cut into blocks, and results put together.
        body: the function. What it returns behind the results of the shard_map is not put together:
            it has a dimension in front for each manual axis.
    """
    sizes = _sizes(shard_map)
    ins = [_dims(spec, sizes) for spec in shard_map.in_specs]
    outs = [_dims(spec, sizes) for spec in shard_map.out_specs]

    def call(*values: Any) -> list[Any]:
        function: Callable[..., Any] = body
        left = list(sizes)
        while left:
            # Inside out: the first axis is mapped last, over the first of the blocks' dimensions.
            axis = left.pop()
            function = jax.vmap(
                function,
                in_axes=tuple(0 if axis in dims else None for dims in ins),
                out_axes=0,
                axis_name=axis,
                axis_size=sizes[axis],
            )
        blocks = [_split(value, dims, sizes) for value, dims in zip(values, ins, strict=True)]
        results = list(function(*blocks))
        whole = [_joined(result, dims, sizes) for result, dims in zip(results, outs, strict=False)]
        return whole + results[len(outs) :]

    return call


def _sizes(shard_map: ShardMap) -> dict[str, int]:
    """The sizes of its manual axes, in the order of the mesh."""
    return {axis: int(shard_map.mesh.shape[axis]) for axis in shard_map.manual_axes}


def _dims(spec: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """The dimension that each manual axis splits, major axes of a dimension first."""
    dims: dict[str, int] = {}
    for dim, entry in enumerate(spec):
        for axis in entry if isinstance(entry, tuple) else (entry,):
            if axis in sizes:
                dims[axis] = dim
    return dims


def _split(value: Any, dims: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
    """An array with a dimension in front for each of its axes, in the order of the mesh."""
    shape: list[int] = []
    at: dict[str, int] = {}
    local: list[int] = []
    for dim, size in enumerate(value.shape):
        own = [axis for axis, where in dims.items() if where == dim]
        for axis in own:
            at[axis] = len(shape)
            shape.append(sizes[axis])
        local.append(len(shape))
        shape.append(size // math.prod(sizes[axis] for axis in own))
    order = [at[axis] for axis in sizes if axis in at] + local
    return jnp.transpose(jnp.reshape(value, shape), order)


def _joined(value: Any, dims: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
    """The array whose blocks stand along the first dimensions, one for each axis of the mesh."""
    # Along other axes the blocks are replicas: the first device's is taken.
    value = value[tuple(slice(None) if axis in dims else 0 for axis in sizes)]
    front = [axis for axis in sizes if axis in dims]
    local = value.shape[len(front) :]
    order: list[int] = []
    shape: list[int] = []
    for dim, size in enumerate(local):
        own = [axis for axis, where in dims.items() if where == dim]
        order += [*(front.index(axis) for axis in own), len(front) + dim]
        shape.append(size * math.prod(sizes[axis] for axis in own))
    return jnp.reshape(jnp.transpose(value, order), shape)


# --- what it computes in --------------------------------------------------------------------------


def has_shard_maps(traced: Any) -> bool:
    """Whether there is a shard_map, whose body may depend on the mesh."""
    return any(_shard_maps(traced))


def mapped_devices(traced: Any) -> int:
    """Over how many devices the largest shard_map maps; 1 where there is none."""
    sizes = (
        _sizes(compat.shard_map_parameters(equation.params)).values()
        for equation in _shard_maps(traced)
    )
    return max(map(math.prod, sizes), default=1)


def _shard_maps(traced: Any) -> Iterator[Any]:
    for equation in compat.equations(traced.jaxpr):
        if equation.primitive.name == "shard_map":
            yield equation


def draws_random_numbers(traced: Any) -> bool:
    """Whether some op makes random bits."""
    return any(
        equation.primitive.name.startswith(_RANDOM) for equation in compat.equations(traced.jaxpr)
    )


def compute_dtypes(traced: Any, platform: str) -> tuple[str, ...]:
    """Floating point dtypes (MLIR's names) that results are rounded to on the way.

    Args:
        traced: a `jax.stages.Traced`.
        platform: `cpu`, `gpu` or `tpu`. GPUs round the operands of f32 matrix products to TF32,
            TPUs to bf16, unless a higher precision is asked for.
    """
    dtypes: set[str] = set()
    for equation in compat.equations(traced.jaxpr):
        for variable in equation.outvars:
            dtype = getattr(variable.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.inexact):
                dtypes.add(compat.dtype_name(dtype))
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            dtypes.update(_products(equation, platform))
    return tuple(sorted(dtypes))


def _products(equation: Any, platform: str) -> set[str]:
    rounded = {"gpu": "tf32", "tpu": "bf16"}.get(platform)
    precision = str(
        equation.params.get("precision") or compat.setting("jax_default_matmul_precision")
    )
    is_f32 = any(str(variable.aval.dtype) == "float32" for variable in equation.invars)
    return {rounded} if rounded and is_f32 and "HIGH" not in precision.upper() else set()
