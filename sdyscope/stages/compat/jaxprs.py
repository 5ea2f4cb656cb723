"""Equations of jaxprs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import jax
from jax._src import core, source_info_util

from sdyscope.facts.program import Partitioner
from sdyscope.stages.lowered.signature import ShardMap
from sdyscope.values.source import SourceLocation, own_line


def scan_body_is_inlined() -> bool:
    """Whether a scan's body is lowered into the loop (0.12) or as a function `closed_call`."""
    return hasattr(core, "eval_jaxpr_p")


def sub_jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    """The jaxprs among an equation's parameters, directly or in a list."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(item, "jaxpr", item), "eqns"):
                yield item


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr, those of the jaxprs in its equations included."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in sub_jaxprs(equation.params):
            yield from equations(inner)


def abstract_mesh_inside(traced: Any) -> Any:
    """The mesh of more than one device, without devices, that a program's body names; or None."""
    for equation in equations(traced.jaxpr):
        params = equation.params
        mesh = params.get("mesh", getattr(params.get("sharding"), "mesh", None))
        if isinstance(mesh, jax.sharding.AbstractMesh) and mesh.size > 1:
            return mesh
    return None


def is_traced_for(traced: Any, partitioner: Partitioner) -> bool:
    """Whether a `jax.stages.Traced` can be lowered for a partitioner.

    Each `custom_partitioning` keeps only what the partitioner needs that is set while it is traced:
    its rule for Shardy, its callbacks for GSPMD, which ends the process where it misses them.
    """

    def fits(params: Mapping[str, Any]) -> bool:
        called_back = params["infer_sharding_from_operands"] is not None
        if partitioner == "gspmd":
            return called_back
        return params["sharding_rule"] is not None or not called_back

    return all(
        fits(equation.params)
        for equation in equations(traced.jaxpr)
        if equation.primitive.name == "custom_partitioning"
    )


def shard_map_parameters(params: Mapping[str, Any]) -> ShardMap:
    """Reads the parameters of a shard_map equation; manual axes in the order of the mesh."""
    mesh = params["mesh"]
    manual = params.get("newly_manual_axes", params.get("manual_axes", frozenset()))
    return ShardMap(
        mesh=mesh,
        in_specs=tuple(params["in_specs"]),
        out_specs=tuple(params["out_specs"]),
        manual_axes=tuple(name for name in mesh.axis_names if name in manual),
        jaxpr=params["jaxpr"],
        function=_function_of(params["jaxpr"]),
    )


def _function_of(jaxpr: Any) -> str:
    """The name of the function that a jaxpr was traced from; empty of a lambda, or none."""
    said = str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", ""))
    name, is_known, _ = said.partition(" at ")
    return name if is_known and name.isidentifier() else ""


def scan_operands(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many constants a scan takes, and how many values it carries, which come next."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = (len(list(part)) for part in params["ft_in"].unpack())  # 0.12
    return constants, carried


def without_mesh(equation: Any) -> Any:
    """An equation that is evaluated in no mesh, whichever it was traced in."""
    context = equation.ctx
    with context.manager, jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        if inspect.isfunction(type(context).__init__):
            changed: Any = type(context)(
                context.compute_type, context.threefry_partitionable, context.xla_metadata
            )
        else:  # written in C++, from one of JAX 0.10's releases on
            changed = type(context)()  # of what is set here
        return equation.replace(ctx=changed)


def types_of_64_bits() -> AbstractContextManager[Any]:
    """Within, JAX keeps types of 64 bits, whatever the setting says."""
    enable: Any = getattr(jax, "enable_x64", None)
    if enable is None:  # before JAX 0.8
        enable = import_module("jax.experimental").enable_x64
    context: AbstractContextManager[Any] = enable(True)
    return context


def user_frame(equation: Any) -> SourceLocation | None:
    """The line of the user's that an equation comes from, as `Location.source` is in the IR."""
    # The column as JAX writes it into the IR, where it is counted from 0.
    return own_line(
        [
            SourceLocation(
                frame.file_name, frame.start_line, max(frame.start_column, 0), frame.function_name
            )
            for frame in source_info_util.user_frames(equation.source_info.traceback)
        ]
    )


def varying(value: Any, axes: Sequence[str]) -> Any:
    """A value in a shard_map, as one that may differ along all of these manual axes."""
    aval = jax.typeof(value)
    varies = aval.manual_axis_type.varying if hasattr(aval, "manual_axis_type") else aval.vma
    missing = tuple(axis for axis in axes if axis not in varies)
    if not missing:
        return value
    lax: Any = jax.lax
    if hasattr(lax, "pcast"):
        return lax.pcast(value, missing, to="varying")
    return lax.pvary(value, missing)
