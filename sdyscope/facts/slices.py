"""Which slice of a tensor which devices hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from sdyscope.values.placement import Digits


class Unplaced(Enum):
    """Why it is not said which devices hold what of a tensor."""

    DROPPED = auto()
    """`jit` drops the argument."""
    IN_SHARD_MAP = auto()
    """In the body of a `shard_map` each device sees its own block."""
    NO_SHAPE = auto()
    """Its shape is not known."""
    LEFT_TO_COMPILER = auto()
    """Nothing says where it is."""


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """The devices that hold the same: one, and the same again at strides.

    Attributes:
        first: the first of them.
        repeats: (times, devices apart), most significant first: ``((16, 2048), (8, 1))`` is 8
            devices in a row, 16 times, each 2,048 devices further.
        total: how many devices the whole mesh has.
        order: None, or the device at each position of a mesh whose devices are in an order of their
            own; all numbers are then positions.
    """

    first: int
    repeats: tuple[tuple[int, int], ...]
    total: int
    order: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """How many they are."""
        return math.prod(times for times, _ in self.repeats)

    def members(self) -> Iterator[int]:
        """Each of the devices, in order."""
        positions = self._positions()
        yield from positions if self.order is None else sorted(self.order[at] for at in positions)

    def _positions(self) -> Iterator[int]:
        for number in range(self.count):
            at, rest = self.first, number
            for times, apart in reversed(self.repeats):
                at += rest % times * apart
                rest //= times
            yield at


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a tensor, and who holds it.

    Attributes:
        index: (start, stop) of each dimension; an empty range is padding.
        devices: the devices.
        shape: the whole tensor's.
        subject: what the tensor is called before brackets; empty for none.
    """

    index: tuple[tuple[int, int], ...]
    devices: DeviceSet
    shape: tuple[int, ...]
    subject: str = ""

    @property
    def is_padding(self) -> bool:
        """Whether nothing of the tensor is in it, though the tensor has elements."""
        return any(start == stop for start, stop in self.index) and 0 not in self.shape


@dataclass(frozen=True, slots=True)
class BlockRule:
    """Which slice any device holds.

    Attributes:
        dims: of each dimension the digits of the device that number its blocks, the tensor's size
            and a block's.
        total: how many devices there are.
        by_position: whether digits are those of a position, as the mesh's devices are in an order
            of their own.
    """

    dims: tuple[tuple[Digits, int, int], ...]
    total: int
    by_position: bool
