"""A mesh with default axes, and mappings from logical axes to its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from sdyscope.errors import TargetError, did_you_mean
from sdyscope.mesh_config.mesh_shape import (
    MeshShape,
    SizedMeshShape,
    check_name,
    check_size,
    names_of,
)
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.counts import listed
from sdyscope.words.mesh import repeated_hint, repeated_words

MappingName: TypeAlias = Literal["compute_mapping", "param_mapping"]
"""For the forward and backward pass, or for parameters and optimizer state at rest."""

#: Devices of a slice by axis, unless a configuration says otherwise.
DEFAULT_AXES: Final = MappingProxyType({"replica": 1, "data": -1, "model": 1})
#: Slices by axis.
DEFAULT_DCN_AXES: Final = MappingProxyType({"replica_dcn": -1})
#: Logical axes that are sharded alike in both mappings: tensor parallelism.
DEFAULT_SHARED_MAPPING: Final = MappingProxyType({"mlp": ("model",), "heads": ("model",)})
#: Parameters are sharded over the axis of fully sharded data parallelism.
DEFAULT_PARAM_MAPPING: Final = MappingProxyType({"embed": ("data",)})
#: What the batch is sharded over.
BATCH_AXES: Final = ("replica_dcn", "replica", "data")

_Physical: TypeAlias = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class AxisMapping:
    """Which mesh axes the logical axes are sharded over.

    Attributes:
        name: which mapping it is.
        axes: mesh axes, major to minor, by logical axis; none for one that stays whole.
    """

    name: MappingName
    axes: Mapping[str, tuple[str, ...]]

    def partition_spec(self, logical: Sequence[str], tensor: str = "") -> PartitionSpec:
        """How a tensor with these logical axes is sharded.

        Args:
            logical: name of each dimension; one that is not mapped stays whole.
            tensor: what to call it in an error.

        Raises:
            TargetError: two dimensions would be sharded over the same mesh axis, or the dimensions
                are no list of names.
        """
        logical = names_of(logical, "The logical axes", "embed")
        for axis, dims in self.repeated(logical):
            raise TargetError(
                repeated_words([self.name], axis, dims, logical, tensor),
                hint=repeated_hint([self.name], dims),
            )
        return PartitionSpec.of(*(self.axes.get(dim, ()) for dim in logical))

    def resources(self, mesh_axes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The mapping as Haliax takes it, for `haliax.axis_mapping` and `haliax.named_jit`.

        Args:
            mesh_axes: the names of the mesh's axes, `mesh.axis_names`; others are left out.
        """
        there = {
            logical: tuple(axis for axis in axes if axis in mesh_axes)
            for logical, axes in self.axes.items()
        }
        return {logical: axes for logical, axes in there.items() if axes}

    def rules(self, mesh_axes: Sequence[str]) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
        """The mapping as rules: Flax's `logical_axis_rules` and MaxText's, one for each axis.

        Args:
            mesh_axes: the names of the mesh's axes, `mesh.axis_names`; others are left out.
        """
        there = self.resources(mesh_axes)
        return tuple((logical, there.get(logical)) for logical in self.axes)

    def repeated(self, logical: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Mesh axes that more than one dimension is mapped to, and these dimensions."""
        used: dict[str, list[str]] = {}
        for dim in logical:
            for axis in self.axes.get(dim, ()):
                used.setdefault(axis, []).append(dim)
        return ((axis, tuple(dims)) for axis, dims in used.items() if len(dims) > 1)


@dataclass(frozen=True, slots=True)
class MappedMesh:
    """Mesh axes that are merged into defaults, and what is sharded over them.

    The mesh has the axes ``replica_dcn, replica, data, model``, outermost first; further DCN axes
    stand after ``replica_dcn``, further ICI axes before ``model``.

    Attributes:
        axes: devices of a slice by axis, merged into ``replica=1, data=-1, model=1``. Where
            another axis is -1, and ``data`` is not given, ``data`` is 1.
        dcn_axes: slices by axis, merged into ``replica_dcn=-1`` in the same way.
        shared_mapping: logical axes to mesh axes for both mappings, merged into ``mlp`` and
            ``heads`` to ``model``.
        compute_mapping: for compute, over that.
        param_mapping: for parameters and optimizer state, over that, merged into ``embed`` to
            ``data``.
        batch_axis_name: the logical axis that compute shards over ``replica_dcn, replica, data``
            unless it is mapped otherwise; None for none.

    Raises:
        TargetError: an axis is in both, two sizes are -1, or a mapping names an axis that is not
            there.
    """

    axes: Mapping[str, int] = field(default_factory=dict)
    dcn_axes: Mapping[str, int] = field(default_factory=dict)
    shared_mapping: Mapping[str, _Physical] = field(default_factory=dict)
    compute_mapping: Mapping[str, _Physical] = field(default_factory=dict)
    param_mapping: Mapping[str, _Physical] = field(default_factory=dict)
    batch_axis_name: str | None = "batch"

    def __post_init__(self) -> None:
        # Plain dicts: they can be copied and pickled.
        for where, kind in (("axes", "ICI "), ("dcn_axes", "DCN ")):
            given = _table(getattr(self, where), where, "a mesh axis")
            sizes = {name: check_size(name, size, kind) for name, size in given.items()}
            object.__setattr__(self, where, sizes)
        for name in _merged(DEFAULT_AXES, self.axes):
            if name in _merged(DEFAULT_DCN_AXES, self.dcn_axes):
                raise TargetError(
                    f"The mesh axis {name!r} is in axes and in dcn_axes.",
                    hint="Name the part across slices otherwise, as replica and replica_dcn are.",
                )
        for kind, axes in (("ICI", self.ici_axes), ("DCN", self.slice_axes)):
            unknown = [name for name, size in axes.items() if size == -1]
            if len(unknown) > 1:
                raise TargetError(
                    f"The {kind} sizes of {listed(unknown)} are -1, and only one of them can "
                    "absorb what is left.",
                    hint=f"Give all but one of them a size, such as {unknown[0]} = 1.",
                )
        for where in ("shared_mapping", "compute_mapping", "param_mapping"):
            given = _table(getattr(self, where), where, "a logical axis")
            mapping = {name: self._checked(where, name, over) for name, over in given.items()}
            object.__setattr__(self, where, mapping)
        batch: object = self.batch_axis_name
        if batch is not None and (not isinstance(batch, str) or not batch):
            raise TargetError(f"batch_axis_name is {batch!r}, not the name of a logical axis.")

    def _checked(self, where: str, logical: str, physical: object) -> tuple[str, ...]:
        """The mesh axes that a logical axis is mapped to."""
        named = (physical,) if isinstance(physical, str) else physical
        if not isinstance(named, list | tuple) or not all(isinstance(axis, str) for axis in named):
            raise TargetError(
                f"{where} maps {logical!r} to {physical!r}, which is neither a mesh axis nor a "
                "list of them.",
                hint="To leave it whole, map it to []." if physical is None else None,
            )
        known = self.mesh_shape.axis_names
        for axis in named:
            if axis not in known:
                has = did_you_mean(axis, known, f"It has {', '.join(known)}.")
                raise TargetError(
                    f"{where} maps {logical!r} to {axis!r}, and the mesh has no such axis.",
                    hint=f"{has} Else add {axis!r} to axes." if axis else has,
                )
            if named.count(axis) > 1:
                raise TargetError(
                    f"{where} maps {logical!r} to {axis!r} twice.",
                    hint=f"Leave one {axis!r} out.",
                )
        return tuple(named)

    @property
    def ici_axes(self) -> dict[str, int]:
        """Devices of a slice by axis, merged, in the order of the mesh."""
        return _absorbing(DEFAULT_AXES, self.axes, last="model")

    @property
    def slice_axes(self) -> dict[str, int]:
        """Slices by axis, merged, in the order of the mesh."""
        return _absorbing(DEFAULT_DCN_AXES, self.dcn_axes)

    @property
    def mesh_shape(self) -> MeshShape:
        """The mesh's shape, DCN axes outermost."""
        ici, dcn = self.ici_axes, self.slice_axes
        return MeshShape(
            (*dcn, *ici),
            (*(1 for _ in dcn), *ici.values()),
            (*dcn.values(), *(1 for _ in ici)),
        )

    def over(self, devices: int, slices: int = 1) -> SizedMeshShape:
        """The mesh on a number of devices; see ``MeshShape.over``."""
        return self.mesh_shape.over(devices, slices)

    @property
    def resolved_compute_mapping(self) -> AxisMapping:
        """For compute: shared, then the batch where it is not mapped yet, then compute's own."""
        mapping = self._shared()
        if self.batch_axis_name is not None:
            mapping.setdefault(self.batch_axis_name, BATCH_AXES)
        return AxisMapping("compute_mapping", {**mapping, **_tuples(self.compute_mapping)})

    @property
    def resolved_param_mapping(self) -> AxisMapping:
        """For storage: shared, then the parameters' defaults, then the parameters' own.

        What ``shared_mapping`` is given for ``embed`` stands before the default.
        """
        defaults = {
            name: axes
            for name, axes in DEFAULT_PARAM_MAPPING.items()
            if name not in self.shared_mapping
        }
        own = _tuples(self.param_mapping)
        return AxisMapping("param_mapping", {**self._shared(), **defaults, **own})

    def _shared(self) -> dict[str, tuple[str, ...]]:
        return {**DEFAULT_SHARED_MAPPING, **_tuples(self.shared_mapping)}


def _tuples(mapping: Mapping[str, _Physical]) -> dict[str, tuple[str, ...]]:
    """A mapping that was checked, and so has tuples."""
    return {logical: tuple(physical) for logical, physical in mapping.items()}


def _merged(defaults: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    return {**defaults, **given}


def _absorbing(
    defaults: Mapping[str, int], given: Mapping[str, int], last: str | None = None
) -> dict[str, int]:
    """Defaults and what is given, in order; a default -1 makes way for one that is given."""
    merged = _merged(defaults, given)
    if -1 in given.values():
        for name, size in defaults.items():
            if size == -1 and name not in given:
                merged[name] = 1
    if last is not None:
        merged[last] = merged.pop(last)
    return merged


def _table(value: Any, where: str, what: str) -> Mapping[str, Any]:
    """Checks that something is a table by name.

    Args:
        value: it.
        where: what it is called.
        what: what its names are the names of.

    Raises:
        TargetError: it is none, or has something else in the place of a name.
    """
    if not isinstance(value, Mapping):
        raise TargetError(f"{where} is {value!r}, not a table of names and values.")
    for name in value:
        check_name(name, what)
    return value
