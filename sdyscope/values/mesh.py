"""Meshes: named axes over an ordered set of devices.

The vocabulary is Shardy's (``mlir::sdy::MeshAttr``, ``AxisRefAttr``, ``SubAxisInfoAttr``; see
https://openxla.org/shardy/sharding_representation). Device orders are XLA's
``IotaTileAssignment`` (``xla/hlo/ir/tile_assignment.h``), so that a mesh of 32,768 devices costs
what a mesh of eight does; an order that no iota describes is kept as the explicit list it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sdyscope.errors import ConversionError


def quote(name: str, mark: str = '"') -> str:
    """``name`` as a string literal, escaped the way MLIR prints string attributes."""
    if name.isalnum() and name.isascii():
        return f"{mark}{name}{mark}"
    pieces: list[str] = []
    for byte in name.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        if char == "\\":
            pieces.append("\\\\")
        elif 32 <= byte < 127 and char != mark:
            pieces.append(char)
        else:
            pieces.append(f"\\{byte:02X}")
    return mark + "".join(pieces) + mark


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """A named mesh axis and the number of devices along it."""

    name: str
    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConversionError(f'mesh axis "{self.name}" has size {self.size}; sizes start at 1')

    def __str__(self) -> str:
        return f"{quote(self.name)}={self.size}"


@dataclass(frozen=True, slots=True, order=True)
class SubAxisInfo:
    """Which part of a full axis: ``(pre_size)size``.

    Splitting an axis of size ``pre_size * size * rest`` into ``[pre_size, size, rest]``, this is
    the middle part.
    """

    pre_size: int
    size: int

    def __post_init__(self) -> None:
        if self.pre_size < 1:
            raise ConversionError(f"sub-axis pre-size must be at least 1, not {self.pre_size}")
        if self.size < 2:
            raise ConversionError(f"sub-axis size must be at least 2, not {self.size}")

    def __str__(self) -> str:
        return f"({self.pre_size}){self.size}"


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A full axis, or a sub-axis of it: ``"a"`` or ``"a":(1)2``."""

    name: str
    sub_axis_info: SubAxisInfo | None = None

    def __str__(self) -> str:
        if self.sub_axis_info is None:
            return quote(self.name)
        return f"{quote(self.name)}:{self.sub_axis_info}"


@dataclass(frozen=True, slots=True)
class IotaTile:
    """A device order written as ``arange(n).reshape(reshape_dims).transpose(transpose_perm)``.

    Canonical on construction, as XLA's is: dimensions of size 1 go, dimensions that stay
    neighbours are merged, so equal orders are equal values. ``[8]``, ``[4,2]T(1,0)``.
    """

    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...]

    def __post_init__(self) -> None:
        dims, perm = tuple(self.reshape_dims), tuple(self.transpose_perm)
        if sorted(perm) != list(range(len(dims))):
            raise ConversionError(
                f"transpose {list(perm)} is not a permutation of the {len(dims)} reshape dimensions"
            )
        if any(dim < 1 for dim in dims):
            raise ConversionError(f"reshape dimensions must be positive: {list(dims)}")
        digits = merge_digits(
            [(dims[axis], math.prod(dims[axis + 1 :])) for axis in perm if dims[axis] > 1]
        )
        by_stride = sorted(range(len(digits)), key=lambda k: -digits[k][1])
        rank = {position: k for k, position in enumerate(by_stride)}
        object.__setattr__(self, "reshape_dims", tuple(digits[k][0] for k in by_stride) or (1,))
        object.__setattr__(
            self, "transpose_perm", tuple(rank[k] for k in range(len(digits))) or (0,)
        )

    @classmethod
    def identity(cls, num_devices: int) -> IotaTile:
        """Devices in the order 0, 1, 2, ..."""
        return cls((num_devices,), (0,))

    @property
    def num_devices(self) -> int:
        """How many devices are ordered."""
        return math.prod(self.reshape_dims)

    @property
    def is_identity(self) -> bool:
        """Whether the order is 0, 1, 2, ..."""
        return len(self.reshape_dims) == 1

    @property
    def digits(self) -> tuple[tuple[int, int], ...]:
        """(size, device stride) of each digit of a position, most significant first."""
        dims = self.reshape_dims
        return tuple((dims[axis], math.prod(dims[axis + 1 :])) for axis in self.transpose_perm)

    def devices(self) -> list[int]:
        """The device at each position: a list of ``num_devices`` numbers."""
        return numbers_of(self.digits)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.reshape_dims))
        if self.is_identity:
            return f"[{dims}]"
        return f"[{dims}]T({','.join(map(str, self.transpose_perm))})"


def numbers_of(digits: Sequence[tuple[int, int]]) -> list[int]:
    """Every number that digits of a size and stride can say, the last one changing fastest."""
    numbers = [0]
    for size, stride in digits:
        numbers = [number + step * stride for number in numbers for step in range(size)]
    return numbers


def merge_digits(digits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins neighbours (size, stride) that are one longer digit; drops digits of size 1."""
    merged: list[tuple[int, int]] = []
    for size, stride in digits:
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def iota_of_digits(digits: Sequence[tuple[int, int]]) -> IotaTile:
    """The device order whose positions have these (size, device stride) digits."""
    by_stride = sorted(digits, key=lambda digit: -digit[1])
    return IotaTile(
        tuple(size for size, _ in by_stride), tuple(by_stride.index(digit) for digit in digits)
    )


def ranks(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Devices by their place among them all in order of id: of (6, 4, 5), (2, 0, 1)."""
    places = {device: rank for rank, device in enumerate(sorted(ids))}
    return tuple(places[device] for device in ids)


def device_order(devices: tuple[int, ...]) -> IotaTile | tuple[int, ...]:
    """The iota that lists exactly ``devices``, or ``devices`` itself where there is none.

    Linear in the length of the list.

    Raises:
        ConversionError: when ``devices`` is not a permutation of ``0 .. n-1``.
    """
    total = len(devices)
    seen = bytearray(total)
    for device in devices:
        if not 0 <= device < total or seen[device]:
            raise ConversionError(
                f"device ids must be a permutation of 0..{total - 1}; {device} "
                + ("is out of range" if not 0 <= device < total else "is listed twice")
            )
        seen[device] = 1
    digits: list[tuple[int, int]] = []  # least significant first
    covered = 1
    while covered < total:
        stride, size = devices[covered], 1
        while covered * size < total and devices[covered * size] == stride * size:
            size += 1
        if size < 2 or stride < 1 or total % (covered * size):
            return devices
        digits.append((size, stride))
        covered *= size
    tile = iota_of_digits(digits[::-1])
    return tile if tuple(tile.devices()) == devices else devices


@dataclass(frozen=True)
class Mesh:
    """Axes, and which device stands at each position (row-major over the axes).

    ``device_ids`` is None for the order 0, 1, 2, ...; an ``IotaTile`` or an explicit tuple
    otherwise (an explicit order that is an iota becomes one). A mesh without axes and with one
    device id is *maximal*: everything lives on that device.

    Raises:
        ConversionError: duplicate axis names, or device ids that do not fit the axes.
    """

    __document__ = ("axes", "devices", "order")

    axes: tuple[MeshAxis, ...]
    device_ids: IotaTile | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise ConversionError(f'duplicate axis name "{name}" in a mesh')
        order = self.device_ids
        if order is None:
            return
        if isinstance(order, tuple):
            if not self.axes and len(order) == 1:
                if order[0] < 0:
                    raise ConversionError(f"device ids must not be negative: {order[0]}")
                return
            if len(order) != self.size:
                raise ConversionError(
                    f"a mesh of {self.size} devices can't have {len(order)} device ids"
                )
            order = device_order(order)
        elif order.num_devices != self.size:
            raise ConversionError(
                f"a mesh of {self.size} devices can't have {order.num_devices} device ids"
            )
        if isinstance(order, IotaTile) and order.is_identity:
            order = None
        object.__setattr__(self, "device_ids", order)

    @classmethod
    def of(cls, sizes: Mapping[str, int], device_ids: tuple[int, ...] | None = None) -> Mesh:
        """``Mesh.of({"data": 4, "model": 2})``."""
        return cls(tuple(MeshAxis(name, size) for name, size in sizes.items()), device_ids)

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def is_maximal(self) -> bool:
        """Whether this is no mesh but one device that holds everything."""
        return not self.axes and isinstance(self.device_ids, tuple)

    @cached_property
    def shape(self) -> dict[str, int]:
        """Axis sizes by name, in order."""
        return {axis.name: axis.size for axis in self.axes}

    @cached_property
    def strides(self) -> dict[str, int]:
        """How many positions apart neighbours along an axis are, by axis name."""
        strides, stride = {}, 1
        for axis in reversed(self.axes):
            strides[axis.name] = stride
            stride *= axis.size
        return strides

    def axis_size(self, ref: AxisRef) -> int:
        """Size of an axis or sub-axis.

        Raises:
            ConversionError: the mesh has no such axis, or the sub-axis does not divide it.
        """
        full = self.shape.get(ref.name)
        if full is None:
            known = ", ".join(self.shape) or "none"
            raise ConversionError(f'unknown mesh axis "{ref.name}"; the mesh has: {known}')
        info = ref.sub_axis_info
        if info is None:
            return full
        if full % (info.pre_size * info.size) or info.size == full:
            raise ConversionError(
                f'sub-axis {ref} does not split axis "{ref.name}" of size {full} into whole parts'
            )
        return info.size

    def position_digit(self, ref: AxisRef) -> tuple[int, int]:
        """(size, stride) of an axis or sub-axis, in positions of the mesh."""
        size = self.axis_size(ref)
        stride = self.strides[ref.name]
        if ref.sub_axis_info is not None:
            stride *= self.shape[ref.name] // (ref.sub_axis_info.pre_size * size)
        return size, stride

    def devices(self) -> list[int]:
        """The device at each position. Lists every device."""
        if self.device_ids is None:
            return list(range(self.size))
        if isinstance(self.device_ids, IotaTile):
            return self.device_ids.devices()
        return list(self.device_ids)

    def __str__(self) -> str:
        axes = ", ".join(map(str, self.axes))
        if self.device_ids is None:
            return f"<[{axes}]>"
        return f"<[{axes}], device_ids=[{', '.join(map(str, self.devices()))}]>"

    @property
    def attribute(self) -> str:
        """The MLIR attribute: ``#sdy.mesh<...>``."""
        return f"#sdy.mesh{self}"


def only_mesh(meshes: Iterable[Mesh | str]) -> Mesh | None:
    """The mesh that has axes, where there is just one; equal meshes count once.

    Args:
        meshes: meshes of a module or program; the text of an unreadable one is passed over.
    """
    distinct = {mesh for mesh in meshes if isinstance(mesh, Mesh) and mesh.axes}
    return distinct.pop() if len(distinct) == 1 else None


def renamed_axes(mesh: Mesh | None, other: Mesh | None) -> Mapping[str, str]:
    """What the axes of ``other`` are called in ``mesh``, where these differ in names alone.

    Empty where they differ in sizes, too, where no name differs, and where one has a name for
    another axis than the other: then it is not known what was meant.
    """
    if mesh is None or other is None:
        return {}
    names, others = ([axis.name for axis in each.axes] for each in (mesh, other))
    sizes, other_sizes = ([axis.size for axis in each.axes] for each in (mesh, other))
    gone = [name for name in names if name not in others]
    if sizes != other_sizes or not gone:
        return {}
    called = dict(zip(others, names, strict=True))
    moved = any(name != theirs and theirs in names for theirs, name in called.items())
    return {} if moved else called
