"""What is wrong, or worth a look, where a model's tensors meet the mappings of its mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.errors import TargetError
from sdyscope.facts.findings import Observation, Severity
from sdyscope.facts.lint import LogicalCollide, LogicalIndivisible, LogicalUnused, LogicalWhole
from sdyscope.mesh_config.mapped_mesh import AxisMapping, MappedMesh, MappingName
from sdyscope.mesh_config.mesh_shape import names_of
from sdyscope.words.counts import counted
from sdyscope.words.findings import Finding, finding_of


@dataclass(frozen=True, slots=True)
class LogicalTensor:
    """A tensor with named dimensions.

    Attributes:
        name: what to call it.
        axes: the logical axis of each dimension.
        shape: size of each dimension; None if it is not known.

    Raises:
        TargetError: there are more sizes than axes, or fewer, or the axes are no list of names.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        axes = names_of(self.axes, f"The logical axes of {self.name}", "embed")
        object.__setattr__(self, "axes", axes)
        if self.shape is None:
            return
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) != len(axes):
            raise TargetError(
                f"{self.name} has {counted(len(axes), 'logical axis', 'logical axes')} and "
                f"{counted(len(self.shape), 'size')}."
            )


def mapping_findings(
    config: MappedMesh,
    parameters: Sequence[LogicalTensor],
    activations: Sequence[LogicalTensor] = (),
    *,
    sizes: Mapping[str, int] | None = None,
) -> tuple[Finding, ...]:
    """Checks the mappings of a mesh against the tensors of a model.

    Parameters are held under ``param_mapping`` and computed with under ``compute_mapping``;
    activations know only the latter. The rules:

    - ``logical-axis-unused``: a mapping has a logical axis that no tensor has.
    - ``logical-axes-collide``: two dimensions of a tensor are mapped to one mesh axis.
    - ``parameter-not-sharded``: a parameter stays whole under ``param_mapping``.
    - ``logical-not-divisible``: a dimension does not divide by the mesh axes that it is mapped to,
      where shapes and sizes are known; it says whether the other mapping would do.

    Args:
        config: the mesh.
        parameters: the model's parameters.
        activations: its activations, inputs and results.
        sizes: devices by mesh axis, as from ``SizedMeshShape.sizes``.

    Raises:
        TargetError: the sizes lack an axis of the mesh.
    """
    return tuple(map(finding_of, mapping_observations(config, parameters, activations, sizes)))


def mapping_observations(
    config: MappedMesh,
    parameters: Sequence[LogicalTensor],
    activations: Sequence[LogicalTensor],
    sizes: Mapping[str, int] | None,
) -> tuple[Observation, ...]:
    """The same as facts."""
    if sizes is not None:
        missing = [name for name in config.mesh_shape.axis_names if name not in sizes]
        if missing:
            raise TargetError(
                f"The sizes lack the mesh axis {missing[0]!r}.",
                hint="They are those of the mesh, such as config.over(8).sizes.",
            )
    compute, param = config.resolved_compute_mapping, config.resolved_param_mapping
    tensors = (*parameters, *activations)
    findings = list(_unused(config, compute, param, tensors, bool(activations)))
    for tensor in parameters:
        findings += _whole(param, tensor, sizes)
    for count, tensor in enumerate(tensors):
        under = (param, compute) if count < len(parameters) else (compute,)
        findings += _repeated(under, tensor)
        if sizes is not None:
            findings += _divides(under, param, compute, tensor, sizes)
    return tuple(findings)


def _unused(
    config: MappedMesh,
    compute: AxisMapping,
    param: AxisMapping,
    tensors: Iterable[LogicalTensor],
    has_activations: bool,
) -> Iterator[Observation]:
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
        severity: Severity = (
            "warning" if logical in given or logical in ("embed", "batch") else "note"
        )
        fact = LogicalUnused(logical, tuple(where), tuple(known))
        yield Observation("logical-axis-unused", severity, fact)


def _repeated(under: Sequence[AxisMapping], tensor: LogicalTensor) -> Iterator[Observation]:
    collisions: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for mapping in under:
        for collision in mapping.repeated(tensor.axes):
            collisions.setdefault(collision, []).append(mapping.name)
    for (axis, dims), where in collisions.items():
        fact = LogicalCollide(tensor.name, tuple(where), axis, dims, tensor.axes)
        yield Observation("logical-axes-collide", "error", fact, tensor.name)


def _whole(
    mapping: AxisMapping, tensor: LogicalTensor, sizes: Mapping[str, int] | None
) -> Iterator[Observation]:
    axes = [axis for dim in tensor.axes for axis in mapping.axes.get(dim, ())]
    if axes or len(tensor.axes) < 2:  # biases and scales are small
        return
    if sizes is not None and math.prod(sizes.values()) == 1:
        return
    fact = LogicalWhole(tensor.name, mapping.name, tensor.axes)
    yield Observation("parameter-not-sharded", "note", fact, tensor.name)


def _divides(
    under: Sequence[AxisMapping],
    param: AxisMapping,
    compute: AxisMapping,
    tensor: LogicalTensor,
    sizes: Mapping[str, int],
) -> Iterator[Observation]:
    for dim, size in zip(tensor.axes, tensor.shape or (), strict=bool(tensor.shape)):
        indivisible: dict[tuple[str, ...], list[MappingName]] = {}
        for mapping in under:
            axes = mapping.axes.get(dim, ())
            if size % math.prod(sizes[axis] for axis in axes):
                indivisible.setdefault(axes, []).append(mapping.name)
        for axes, where in indivisible.items():
            fitting = tuple(
                mapping.name
                for mapping in (param, compute)
                if not size % math.prod(sizes[axis] for axis in mapping.axes.get(dim, ()))
            )
            over = tuple((axis, sizes[axis]) for axis in axes)
            fact = LogicalIndivisible(tensor.name, tuple(where), dim, size, over, fitting)
            yield Observation("logical-not-divisible", "error", fact, tensor.name)
