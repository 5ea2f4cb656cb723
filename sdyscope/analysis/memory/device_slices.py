"""Which slice of a tensor which devices hold.

Worked out from the placement's digits, so a mesh of 32,768 devices costs what one of eight does:
devices that hold the same slice are one set of ranges at strides, only the first few slices and the
last are listed, and a rule says what every other device holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sdyscope.facts.slices import BlockRule, DeviceSet, Slice
from sdyscope.values.placement import Digit, Placement, without

#: So many different slices are listed whole.
LISTED = 8


@dataclass(frozen=True, slots=True)
class DeviceSlices:
    """Who holds what of one tensor.

    Attributes:
        shape: the tensor's.
        different: how many slices there are.
        listed: all of them, or the first few and the last, by the first device that holds them.
        rule: which slice any device holds; None where all are listed.
        partial: whether what a device holds is still to be reduced with what others hold.
    """

    shape: tuple[int, ...]
    different: int
    listed: tuple[Slice, ...]
    rule: BlockRule | None
    partial: bool


def device_slices(place: Placement, shape: Sequence[int], subject: str = "") -> DeviceSlices:
    """Who holds what of a tensor.

    Args:
        place: its placement.
        shape: its whole shape.
        subject: what it is called before brackets.

    Raises:
        ConversionError: the placement is of another number of dimensions.
    """
    shape = tuple(shape)
    if place.device is not None:
        whole = tuple((0, size) for size in shape)
        alone = DeviceSet(place.device, (), place.num_devices + 1)
        return DeviceSlices(shape, 1, (Slice(whole, alone, shape, subject),), None, False)
    used = tuple(digit for dim in place.dims for digit in dim)
    same = without((Digit(place.num_devices, 1),), used)
    # In the order of positions, whatever the order of the dimensions that they index.
    ordered = sorted(used, key=lambda digit: -digit.stride)
    different = math.prod(digit.size for digit in ordered)
    abridged = different > LISTED
    numbers = [*range(LISTED - 1), different - 1] if abridged else list(range(different))
    at_positions = replace(place, order=None)
    listed = []
    for number in numbers:
        position = _position(number, ordered)
        index = at_positions.index(position, shape)
        assert index is not None
        listed.append(
            Slice(
                tuple((part.start, part.stop) for part in index),
                DeviceSet(position, same, place.num_devices, place.order),
                shape,
                subject,
            )
        )
    rule = None
    if abridged:
        dims = tuple(zip(place.dims, shape, place.local_shape(shape), strict=True))
        rule = BlockRule(dims, place.num_devices, place.order is not None)
    return DeviceSlices(shape, different, tuple(listed), rule, bool(place.unreduced))


def _position(number: int, digits: Sequence[Digit]) -> int:
    """The position that has a number written in these digits, and zero in all others."""
    position = 0
    for size, stride in reversed(digits):
        position += number % size * stride
        number //= size
    return position
