"""Shardings as HLO writes them (``xla/hlo/ir/hlo_sharding.h``, ``xla/xla_data.proto``).

``HloSharding`` is the classic form, a tile assignment over numbered devices;
``NamedHloSharding`` the newer one over a mesh ("V3", the default from JAX 0.12 on);
``TupleSharding`` one a leaf. ``str`` of a value is text that XLA's own parser reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.errors import ConversionError
from sdyscope.formatters import Displayed
from sdyscope.values.hlo_text import c_string, check_axis_lists, hlo_axis, hlo_mesh, in_mesh_order
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, device_order
from sdyscope.values.sharding import DimSharding, ReductionKind

SubgroupType = Literal["replicated", "manual", "unreduced"]
HloShardingType = Literal["replicated", "manual", "maximal", "unknown", "unreduced", "tiled"]


@dataclass(frozen=True)
class TileAssignment:
    """Devices laid out in an array of tiles: ``[4,2]<=[8]``, ``[2,2]3,1,2,0``.

    An explicit list that an iota describes becomes that iota. Lists that are not a permutation
    (XLA accepts them) are kept as they are.
    """

    dims: tuple[int, ...]
    devices: IotaTile | tuple[int, ...]

    def __post_init__(self) -> None:
        if any(dim < 1 for dim in self.dims):
            raise ConversionError(f"tile dimensions must be positive: {list(self.dims)}")
        size = math.prod(self.dims)
        devices = self.devices
        count = devices.num_devices if isinstance(devices, IotaTile) else len(devices)
        if count != size:
            raise ConversionError(
                f"tile dimensions {list(self.dims)} hold {size} devices, but {count} are given"
            )
        if isinstance(devices, tuple) and sorted(devices) == list(range(count)):
            object.__setattr__(self, "devices", device_order(devices))

    @property
    def num_devices(self) -> int:
        """How many devices, or tiles, there are."""
        return math.prod(self.dims)

    def listed(self) -> list[int]:
        """The device of each tile, row-major. Lists every device."""
        devices = self.devices
        return devices.devices() if isinstance(devices, IotaTile) else list(devices)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.dims))
        if isinstance(self.devices, IotaTile):
            return f"[{dims}]<={self.devices}"
        return f"[{dims}]{','.join(map(str, self.devices))}"


def split_digits(
    digits: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> list[list[tuple[int, int]]] | None:
    """The (size, stride) digits of a number, dealt out to dimensions of these sizes.

    Both are most significant first, and as many numbers in all. None when a dimension begins in
    the middle of a digit that it does not divide.
    """
    parts: list[list[tuple[int, int]]] = []
    rest = list(digits)
    for size in reversed(sizes):
        part: list[tuple[int, int]] = []
        while size > 1:
            digit, stride = rest.pop()
            taken = math.gcd(digit, size)
            if taken != digit and taken != size:
                return None
            part.insert(0, (taken, stride))
            size //= taken
            if digit > taken:
                rest.append((digit // taken, stride * taken))
        parts.insert(0, part)
    return parts


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """``shard_as 8`` (all alike) or ``shard_like 8`` (like the others where possible)."""

    kind: Literal["shard_as", "shard_like"]
    group_id: int

    def __str__(self) -> str:
        return f"{self.kind} {self.group_id}"


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """Where a sharding came from: ``{op_name="..." source_line=3}``; fields as written.

    Raises:
        ConversionError: a field is given twice.
    """

    fields: tuple[tuple[str, str | int | tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.fields]
        for name in names:
            if names.count(name) > 1:
                raise ConversionError(f"metadata gives {name} twice")

    def __str__(self) -> str:
        return "{" + " ".join(f"{name}={_field_text(value)}" for name, value in self.fields) + "}"


def _field_text(value: str | int | tuple[int, ...]) -> str:
    if isinstance(value, str):
        return c_string(value)
    return str(value) if isinstance(value, int) else "{" + ",".join(map(str, value)) + "}"


@dataclass(frozen=True)
class HloSharding(Displayed):
    """A sharding in HLO's classic form.

    ``tile_assignment`` has a dimension for each of the tensor's, then one for each of
    ``subgroup_types``. ``device`` is that of a maximal sharding. ``dim_count`` is the tensor's
    rank.
    """

    type: HloShardingType
    tile_assignment: TileAssignment | None = None
    subgroup_types: tuple[SubgroupType, ...] = ()
    device: int | None = None
    shard_group: ShardGroup | None = None
    metadata: tuple[OpMetadata, ...] = ()

    def __post_init__(self) -> None:
        if (self.type == "tiled") != (self.tile_assignment is not None):
            raise ConversionError("a tiled sharding, and no other, has a tile assignment")
        if (self.type == "maximal") != (self.device is not None):
            raise ConversionError("a maximal sharding, and no other, has a device")
        if self.tile_assignment and len(self.subgroup_types) > len(self.tile_assignment.dims):
            raise ConversionError(
                f"{len(self.subgroup_types)} last_tile_dims need as many tile dimensions; "
                f"there are {len(self.tile_assignment.dims)}"
            )

    @property
    def data_dims(self) -> tuple[int, ...]:
        """Tiles along each dimension of the tensor (empty unless tiled)."""
        if self.tile_assignment is None:
            return ()
        dims = self.tile_assignment.dims
        return dims[: len(dims) - len(self.subgroup_types)]

    def __str__(self) -> str:
        parts: list[str] = []
        if self.type == "maximal":
            parts.append(f"maximal device={self.device}")
        elif self.tile_assignment is None:
            parts.append(self.type)
        else:
            parts.append(f"devices={self.tile_assignment}")
            if self.subgroup_types == ("replicated",):
                parts.append("last_tile_dim_replicate")
            elif self.subgroup_types:
                parts.append(f"last_tile_dims={{{', '.join(self.subgroup_types)}}}")
        if self.shard_group is not None:
            parts.append(str(self.shard_group))
        if self.metadata:
            parts.append(_metadata_text(self.metadata))
        return "{" + " ".join(parts) + "}"


def _metadata_text(metadata: tuple[OpMetadata, ...]) -> str:
    if len(metadata) == 1:
        return f"metadata={metadata[0]}"
    return "metadata={" + ", ".join(map(str, metadata)) + "}"


@dataclass(frozen=True)
class NamedHloSharding:
    """A sharding in HLO's named form: ``{mesh['a'=4,'b'=2], [{'a'}, {}], unreduced={'b'}}``.

    Without dimensions it is for a tensor of any rank. The axes that are not of a dimension are
    kept in the order of the mesh. Over a maximal mesh, it has nothing but metadata.

    Raises:
        ConversionError: axes that the mesh does not have or that overlap, a dimension's priority,
            which HLO can't say.
    """

    mesh: Mesh
    dim_shardings: tuple[DimSharding, ...] = ()
    replicated_axes: tuple[AxisRef, ...] = ()
    unreduced_axes: tuple[AxisRef, ...] = ()
    manual_axes: tuple[AxisRef, ...] = ()
    reduction: ReductionKind = "sum"
    metadata: tuple[OpMetadata, ...] = ()

    def __post_init__(self) -> None:
        if any(dim.priority is not None for dim in self.dim_shardings):
            raise ConversionError("an HLO sharding can't say the priority of a dimension")
        for field in ("replicated_axes", "unreduced_axes", "manual_axes"):
            object.__setattr__(self, field, in_mesh_order(self.mesh, getattr(self, field)))
        check_axis_lists(
            self.mesh,
            *(dim.axes for dim in self.dim_shardings),
            self.replicated_axes,
            self.unreduced_axes,
            self.manual_axes,
        )
        if not self.unreduced_axes:
            object.__setattr__(self, "reduction", "sum")
        if self.mesh.is_maximal:
            object.__setattr__(self, "dim_shardings", ())

    def __str__(self) -> str:
        parts = [hlo_mesh(self.mesh)]
        if not self.mesh.is_maximal:
            parts += self._axes_parts()
        if self.metadata:
            parts.append(_metadata_text(self.metadata))
        return "{" + ", ".join(parts) + "}"

    def _axes_parts(self) -> list[str]:
        kind = "" if self.reduction == "sum" else self.reduction
        everything = tuple(AxisRef(axis.name) for axis in self.mesh.axes)
        if not self.dim_shardings:
            if everything and self.manual_axes == everything:
                return ["manual"]
            if everything and self.unreduced_axes == everything:
                return [f"unreduced={kind}" if kind else "unreduced"]
            if not (self.replicated_axes or self.unreduced_axes or self.manual_axes):
                return ["replicated"]
        parts = ["[" + ", ".join(map(_hlo_dim, self.dim_shardings)) + "]"]
        if self.replicated_axes:
            parts.append(f"replicated={_hlo_axes(self.replicated_axes)}")
        if self.unreduced_axes:
            parts.append(f"unreduced={kind}{_hlo_axes(self.unreduced_axes)}")
        if self.manual_axes:
            parts.append(f"manual={_hlo_axes(self.manual_axes)}")
        return parts


def _hlo_axes(axes: tuple[AxisRef, ...]) -> str:
    return "{" + ", ".join(map(hlo_axis, axes)) + "}"


def _hlo_dim(dim: DimSharding) -> str:
    items = [hlo_axis(axis) for axis in dim.axes]
    if not dim.is_closed:
        items.append("?")
    return "{" + ", ".join(items) + "}"


@dataclass(frozen=True)
class TupleSharding:
    """A sharding a leaf of a tuple: ``{{replicated}, {devices=[2]<=[2]}}``."""

    elements: tuple[HloSharding | NamedHloSharding, ...]

    def __str__(self) -> str:
        # XLA numbers every fifth element.
        marked = (
            f"/*index={k}*/{element}" if k and k % 5 == 0 else str(element)
            for k, element in enumerate(self.elements)
        )
        return "{" + ", ".join(marked) + "}"


AnyHloSharding = HloSharding | NamedHloSharding | TupleSharding
