"""Equations of jaxprs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jax._src import core, source_info_util

from sdyscope.source import SourceLocation
from sdyscope.stages.signature import ShardMap


def scan_body_is_inlined() -> bool:
    """Whether a scan's body is lowered into the loop (0.12) or as a function `closed_call`."""
    return hasattr(core, "eval_jaxpr_p")


def sub_jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    """The jaxprs among an equation's parameters, directly or in a list."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(item, "jaxpr", item), "eqns"):
                yield item


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
    )


def user_frame(equation: Any) -> SourceLocation | None:
    """The innermost line of an equation's traceback that is not JAX's own."""
    frame = source_info_util.user_frame(equation.source_info.traceback)
    if frame is None:
        return None
    # The column as JAX writes it into the IR, where it is counted from 0.
    column = max(frame.start_column, 0)
    return SourceLocation(frame.file_name, frame.start_line, column, frame.function_name)
