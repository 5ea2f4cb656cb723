"""What is wrong, or worth a look, where a model's tensors meet the mappings of its mesh."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sdyscope.errors import TargetError
from sdyscope.findings import Finding
from sdyscope.mesh_config.mapped_mesh import AxisMapping, MappedMesh, MappingName, repeated_hint


@dataclass(frozen=True, slots=True)
class LogicalTensor:
    """A tensor with named dimensions.

    Attributes:
        name: what to call it.
        axes: the logical axis of each dimension.
        shape: size of each dimension; None if it is not known.

    Raises:
        TargetError: there are more sizes than axes, or fewer.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.shape is not None and len(self.shape) != len(self.axes):
            raise TargetError(
                f"{self.name} has {len(self.axes)} logical axes and {len(self.shape)} sizes."
            )


def mapping_findings(
    config: MappedMesh,
    parameters: Sequence[LogicalTensor],
    activations: Sequence[LogicalTensor] = (),
    *,
    sizes: dict[str, int] | None = None,
) -> tuple[Finding, ...]:
    """Checks the mappings of a mesh against the tensors of a model.

    Parameters are held under ``param_mapping`` and computed with under ``compute_mapping``;
    activations know only the latter. The rules:

    - ``logical-axis-unused``: a mapping has a logical axis that no tensor has.
    - ``mesh-axis-used-twice``: two dimensions of a tensor are mapped to one mesh axis.
    - ``parameter-not-sharded``: a parameter stays whole under ``param_mapping``.
    - ``not-divisible``: a dimension does not divide by the mesh axes that it is mapped to, where
      shapes and sizes are known; it says whether the other mapping would do.

    Args:
        config: the mesh.
        parameters: the model's parameters.
        activations: its activations, inputs and results.
        sizes: devices by mesh axis, as from ``SizedMeshShape.sizes``.
    """
    compute, param = config.resolved_compute_mapping, config.resolved_param_mapping
    tensors = (*parameters, *activations)
    found = list(_unused(config, compute, param, tensors, bool(activations)))
    for mapping, under in ((param, parameters), (compute, tensors)):
        other = compute if mapping is param else param
        for tensor in under:
            found += _repeated(mapping, tensor)
            if mapping is param:
                found += _whole(mapping, tensor, sizes)
            if sizes is not None:
                found += _divides(mapping, other, tensor, sizes)
    return tuple(found)


def _unused(
    config: MappedMesh,
    compute: AxisMapping,
    param: AxisMapping,
    tensors: Iterable[LogicalTensor],
    has_activations: bool,
) -> Iterator[Finding]:
    """Logical axes of the mappings that no tensor has."""
    known = sorted({axis for tensor in tensors for axis in tensor.axes})
    named: dict[str, list[MappingName]] = {}
    for mapping in (compute, param):
        for logical, axes in mapping.axes.items():
            if axes and logical not in known:
                named.setdefault(logical, []).append(mapping.name)
    given = {*config.shared_mapping, *config.compute_mapping, *config.param_mapping}
    for logical, where in named.items():
        if logical == config.batch_axis_name and logical not in given and not has_activations:
            continue  # no parameter has it
        close = difflib.get_close_matches(logical, known, n=1)
        names = ", ".join(known) or "none"
        yield Finding(
            rule="logical-axis-unused",
            severity="warning" if logical in given or logical in ("embed", "batch") else "note",
            message=f"No tensor has the logical axis {logical!r} of {' and '.join(where)}, so that "
            "the entry shards nothing.",
            hint=(f"Did you mean {close[0]!r}? " if close else "")
            + f"Rename the entry or the axis of the model; the model has {names}.",
        )


def _repeated(mapping: AxisMapping, tensor: LogicalTensor) -> Iterator[Finding]:
    for axis, dims in mapping.repeated(tensor.axes):
        yield Finding(
            rule="mesh-axis-used-twice",
            severity="error",
            message=mapping.repeated_words(axis, dims, tensor.axes, tensor.name),
            tensor=tensor.name,
            hint=repeated_hint(dims, mapping),
        )


def _whole(
    mapping: AxisMapping, tensor: LogicalTensor, sizes: dict[str, int] | None
) -> Iterator[Finding]:
    axes = [axis for dim in tensor.axes for axis in mapping.axes.get(dim, ())]
    if axes or len(tensor.axes) < 2:  # biases and scales are small
        return
    if sizes is not None and math.prod(sizes.values()) == 1:
        return
    yield Finding(
        rule="parameter-not-sharded",
        severity="note",
        message=f"{tensor.name} [{', '.join(tensor.axes)}] is whole on every device: "
        f"{mapping.name} maps none of its logical axes.",
        tensor=tensor.name,
        hint=f"Name its main dimension 'embed', or map one of its axes in {mapping.name}.",
    )


def _divides(
    mapping: AxisMapping, other: AxisMapping, tensor: LogicalTensor, sizes: dict[str, int]
) -> Iterator[Finding]:
    for dim, size in zip(tensor.axes, tensor.shape or (), strict=bool(tensor.shape)):
        axes = mapping.axes.get(dim, ())
        blocks = math.prod(sizes[axis] for axis in axes)
        if size % blocks == 0:
            continue
        over = " x ".join(f"{axis}={sizes[axis]}" for axis in axes)
        fits = size % math.prod(sizes[axis] for axis in other.axes.get(dim, ())) == 0
        yield Finding(
            rule="not-divisible",
            severity="error",
            message=f"Under {mapping.name}, dimension {dim!r} of {tensor.name} has size {size}, "
            f"which does not divide into {blocks} over {over}.",
            tensor=tensor.name,
            hint=f"Make it a multiple of {blocks}, or map {dim!r} to fewer devices."
            + (
                f" Under {other.name} it does divide: is that the one that is meant?"
                if fits
                else ""
            ),
        )
