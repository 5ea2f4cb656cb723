"""Replica groups: which devices take part in a collective together.

The three forms that HLO writes, under XLA's names (``xla/hlo/ir/replica_group.h``): every device
listed, an iota order cut into groups of one size, and axes of a mesh. A device's place in its group
is its place in the result of an all-gather, so it is part of the meaning; the order of the groups
is not. ``str`` of a value is text that XLA's own parser reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.errors import ConversionError
from sdyscope.values.hlo_text import check_axis_lists, hlo_axis, hlo_mesh
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, merge_digits, numbers_of
from sdyscope.values.placement import unused_digits
from sdyscope.values.tiling import split_digits

#: (size, stride) digits of a device number, most significant first.
Digits = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CollectiveDeviceList:
    """Groups listed device by device: ``{{0,1},{2,3}}``; ``{}`` is one group of all devices.

    As XLA's parser does, it takes groups of different sizes, empty ones, and a device twice.
    """

    replica_groups: tuple[tuple[int, ...], ...] = ()

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return len(self.replica_groups) or 1

    @property
    def group_size(self) -> int | None:
        """Devices in each group; None when groups differ, or when ``{}`` leaves it open."""
        sizes = {len(group) for group in self.replica_groups}
        return sizes.pop() if len(sizes) == 1 else None

    def groups(self, num_devices: int | None = None) -> list[list[int]]:
        """The devices of each group, in order. Lists every device.

        Args:
            num_devices: how many devices the program has; needed for ``{}`` only.

        Raises:
            ConversionError: ``{}`` without ``num_devices``.
        """
        if self.replica_groups:
            return [list(group) for group in self.replica_groups]
        if num_devices is None:
            raise ConversionError("replica groups {} are all devices, and their number is unknown")
        return [list(range(num_devices))]

    def __str__(self) -> str:
        groups = ("{" + ",".join(map(str, group)) + "}" for group in self.replica_groups)
        return "{" + ",".join(groups) + "}"


@dataclass(frozen=True, slots=True)
class IotaReplicaGroupList:
    """Devices in an iota order, cut into groups of one size: ``[2,4]<=[8]``.

    Raises:
        ConversionError: the order has another number of devices than the groups.
    """

    num_groups: int
    group_size: int
    devices: IotaTile

    def __post_init__(self) -> None:
        if self.num_groups < 1 or self.group_size < 1:
            raise ConversionError(
                f"replica groups need positive sizes, not [{self.num_groups},{self.group_size}]"
            )
        total = self.num_groups * self.group_size
        if total != self.devices.num_devices:
            raise ConversionError(
                f"{self.num_groups} groups of {self.group_size} hold {total} devices, but "
                f"{self.devices.num_devices} are given"
            )

    def groups(self, num_devices: int | None = None) -> list[list[int]]:
        """The devices of each group, in order. Lists every device."""
        listed, size = self.devices.devices(), self.group_size
        return [listed[at : at + size] for at in range(0, len(listed), size)]

    def digits(self) -> tuple[Digits, int] | None:
        """The digits of a device in its group, and the number of devices; None without such."""
        parts = split_digits(self.devices.digits, (self.num_groups, self.group_size))
        return None if parts is None else (merge_digits(parts[1]), self.devices.num_devices)

    def __str__(self) -> str:
        return f"[{self.num_groups},{self.group_size}]<={self.devices}"


@dataclass(frozen=True)
class MeshAxesReplicaGroupList:
    """The devices along axes of a mesh: ``mesh['a'=4,'b'=2] {'a'}``.

    In a group, the device changes fastest along the last of ``axes``.

    Raises:
        ConversionError: axes that the mesh does not have or that overlap.
    """

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    def __post_init__(self) -> None:
        check_axis_lists(self.mesh, self.axes)

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return self.mesh.size // self.group_size

    @property
    def group_size(self) -> int:
        """Devices in each group."""
        size = 1
        for axis in self.axes:
            size *= self.mesh.axis_size(axis)
        return size

    def groups(self, num_devices: int | None = None) -> list[list[int]]:
        """The devices of each group, in order. Lists every device."""
        within = [self.mesh.position_digit(axis) for axis in self.axes]
        devices = self.mesh.devices()
        offsets = numbers_of(within)
        return [
            [devices[start + offset] for offset in offsets]
            for start in numbers_of(unused_digits(within, self.mesh.size))
        ]

    def digits(self) -> tuple[Digits, int] | None:
        """The digits of a device in its group, and the number of devices; None without such."""
        within = [digit for axis in self.axes if (digit := self.mesh.position_digit(axis))[0] > 1]
        order = self.mesh.device_ids
        if order is None:
            return merge_digits(within), self.mesh.size
        if not isinstance(order, IotaTile):
            return None
        whole = sorted(
            [*within, *unused_digits(within, self.mesh.size)], key=lambda digit: -digit[1]
        )
        parts = split_digits(order.digits, [size for size, _ in whole])
        if parts is None:
            return None
        in_group = [part for digit in within for part in parts[whole.index(digit)]]
        return merge_digits(in_group), self.mesh.size

    def __str__(self) -> str:
        return f"{hlo_mesh(self.mesh)} {{{','.join(map(hlo_axis, self.axes))}}}"


ReplicaGroups = CollectiveDeviceList | IotaReplicaGroupList | MeshAxesReplicaGroupList
