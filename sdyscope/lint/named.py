"""Logical axes of a program's arguments, from the names that they carry or a file gives them."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.facts.program import RequestedTensor
from sdyscope.lint.logical import LogicalAxes
from sdyscope.mesh_config import MappedMesh


def named_axes(
    config: MappedMesh,
    requested: Sequence[RequestedTensor],
    names: Sequence[Sequence[str] | None],
) -> LogicalAxes | None:
    """The logical axes of the arguments that have names; None where none has.

    An argument with the axis of the batch is held as compute is, any other as parameters are. Of
    arguments that are alike, as a parameter and what an optimizer keeps of it, the one with the
    shortest path stands for all: what is wrong with one is wrong with each.

    Args:
        config: the mesh, with its mappings.
        requested: the program's tensors; its arguments come first, in their order.
        names: of each flat argument the names of its dimensions, or None.
    """
    arguments = [tensor for tensor in requested if tensor.kind == "argument"]
    if len(arguments) != len(names):
        return None  # A library flattens its arrays otherwise.
    first: dict[tuple[tuple[str, ...], tuple[int, ...]], str] = {}
    for argument, axes in zip(arguments, names, strict=True):
        if argument.dropped or axes is None or len(axes) != len(argument.shape):
            continue
        key = (tuple(axes), tuple(argument.shape))
        known = first.get(key)
        if known is None or len(argument.path) < len(known):
            first[key] = argument.path
    parameters: dict[str, Sequence[str]] = {}
    activations: dict[str, Sequence[str]] = {}
    for (axes, _), path in first.items():
        is_batch = config.batch_axis_name is not None and config.batch_axis_name in axes
        (activations if is_batch else parameters)[path] = axes
    return LogicalAxes(config, parameters, activations) if first else None
