"""How the devices that a program was compiled for are connected: where each one stands.

A topology is symbolic, as a mesh is: the number of a device, in the order in which a program
numbers its partitions, is split into digits, and each digit counts along one dimension of the
hardware. So 32,768 devices cost what 8 do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

DimensionName: TypeAlias = Literal["slice", "z", "y", "x", "host", "gpu", "core"]
"""TPUs: the slice, the chip's place in the slice's torus, and the core on the chip, where each is a
device. GPUs: the slice (NVLink or network domain), the host in it, and the GPU of the host."""

DIMENSIONS: tuple[DimensionName, ...] = get_args(DimensionName)


@dataclass(frozen=True, slots=True)
class DeviceDigit:
    """One digit of a device's number.

    Attributes:
        dimension: along which dimension of the hardware it counts.
        size: how many values it has.
        step: how far apart in that dimension neighbours are.
    """

    dimension: DimensionName
    size: int
    step: int


@dataclass(frozen=True, slots=True)
class Topology:
    """Where devices stand.

    Attributes:
        digits: of a device's number, most significant first; sizes multiply to the devices.
    """

    digits: tuple[DeviceDigit, ...]

    @property
    def num_devices(self) -> int:
        """How many devices there are."""
        return math.prod(digit.size for digit in self.digits)

    def size(self, dimension: DimensionName) -> int:
        """How many places a dimension has; 1 if the hardware has no such dimension."""
        return math.prod(digit.size for digit in self.digits if digit.dimension == dimension)


def topology_of(names: Sequence[DimensionName], places: Sequence[Sequence[int]]) -> Topology | None:
    """The topology in which devices stand at these places.

    Args:
        names: the dimensions.
        places: for each device, in order, its coordinate in each of them.

    Returns:
        The topology; None where the places are not digits of the device's number.
    """
    total = len(places)
    if not total:
        return None
    digits: list[DeviceDigit] = []
    covered = 1
    while covered < total:
        changed = [
            (name, there - here)
            for name, here, there in zip(names, places[0], places[covered], strict=True)
            if here != there
        ]
        if len(changed) != 1 or changed[0][1] < 1:
            return None
        name, step = changed[0]
        at, size = names.index(name), 1
        while (
            covered * size < total
            and places[covered * size][at] == places[0][at] + size * step
            and all(
                places[covered * size][other] == places[0][other]
                for other in range(len(names))
                if other != at
            )
        ):
            size += 1
        if size < 2 or total % (covered * size):
            return None
        digits.append(DeviceDigit(name, size, step))
        covered *= size
    topology = Topology(tuple(digits[::-1]))
    return topology if _places(topology, names, places[0]) == list(map(tuple, places)) else None


def _places(
    topology: Topology, names: Sequence[DimensionName], first: Sequence[int]
) -> list[tuple[int, ...]]:
    """Where each device stands; lists every device."""
    places = [tuple(first)]
    for digit in topology.digits:
        at = names.index(digit.dimension)
        places = [
            (*place[:at], place[at] + value * digit.step, *place[at + 1 :])
            for place in places
            for value in range(digit.size)
        ]
    return places
