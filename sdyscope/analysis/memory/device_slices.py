"""Which slice of a tensor which devices hold, in words: ``device 0 holds weight[0:16, :]``.

Worked out from the placement's digits, so a mesh of 32,768 devices costs what one of eight does:
devices that hold the same slice are one set of ranges at strides, only the first few slices and the
last are listed, and a rule says what every other device holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sdyscope.values.placement import Digit, Digits, Placement, without

__all__ = ["LISTED", "DeviceSet", "DeviceSlices", "Slice", "device_slices"]

#: So many different slices are listed whole, and so many devices one by one.
LISTED = 8


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

    def __str__(self) -> str:
        """``device 3``; ``devices 0, 2, 4, 6``; ``devices 0-7 (+2,048 x16)``."""
        if self.count == self.total:
            return f"all {self.total:,} devices" if self.total > 1 else "the one device"
        if self.count == 1:
            return f"device {next(self.members())}"
        in_a_row = self.repeats[-1][1] == 1
        if self.count <= LISTED and not (self.order is None and self._is_run):
            return f"devices {', '.join(map(str, self.members()))}"
        what = "device" if self.order is None else "position"
        outer = self.repeats[:-1] if in_a_row else self.repeats
        run = f"{what}s {self.first}"
        if in_a_row:
            run = f"{what}s {self.first}-{self.first + self.repeats[-1][0] - 1}"
        return run + "".join(f" (+{apart:,} x{times:,})" for times, apart in reversed(outer))

    @property
    def _is_run(self) -> bool:
        """Whether they are three or more that follow each other."""
        return len(self.repeats) == 1 and self.repeats[0][1] == 1 and self.count > 2


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a tensor, and who holds it.

    Attributes:
        index: (start, stop) of each dimension; an empty range is padding.
        devices: the devices.
    """

    index: tuple[tuple[int, int], ...]
    devices: DeviceSet


@dataclass(frozen=True, slots=True)
class DeviceSlices:
    """Who holds what of one tensor.

    Attributes:
        shape: the tensor's.
        different: how many slices there are.
        listed: all of them, or the first few and the last, by the first device that holds them.
        rule: which slice any device ``d`` holds, or any position ``p`` of a mesh whose devices are
            in an order of their own: ``[16*i:16*i+16, :] where i = d // 8 % 256``; empty where all
            are listed.
        partial: whether what a device holds is still to be reduced with what others hold.
    """

    shape: tuple[int, ...]
    different: int
    listed: tuple[Slice, ...]
    rule: str
    partial: bool

    def text(self, part: Slice, name: str) -> str:
        """``device 0 holds weight[0:16, :]``."""
        verb = "holds" if part.devices.count == 1 else "hold"
        if any(start == stop for start, stop in part.index) and 0 not in self.shape:
            return f"{part.devices} {verb} padding only"
        return f"{part.devices} {verb} {self.reference(part, name)}"

    def reference(self, part: Slice, name: str) -> str:
        """``weight[0:16, :]``; of a scalar the name alone, or ``it`` without one."""
        entries = [
            ":" if (start, stop) == (0, size) else f"{start}:{stop}"
            for (start, stop), size in zip(part.index, self.shape, strict=True)
        ]
        return f"{name}[{', '.join(entries)}]" if entries else name or "it"


def device_slices(place: Placement, shape: Sequence[int]) -> DeviceSlices:
    """Who holds what of a tensor.

    Args:
        place: its placement.
        shape: its whole shape.

    Raises:
        ConversionError: the placement is of another number of dimensions.
    """
    shape = tuple(shape)
    if place.device is not None:
        whole = tuple((0, size) for size in shape)
        alone = DeviceSet(place.device, (), place.num_devices + 1)
        return DeviceSlices(shape, 1, (Slice(whole, alone),), "", False)
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
            )
        )
    rule = _rule(place, shape) if abridged else ""
    return DeviceSlices(shape, different, tuple(listed), rule, bool(place.unreduced))


def _position(number: int, digits: Sequence[Digit]) -> int:
    """The position that has a number written in these digits, and zero in all others."""
    position = 0
    for size, stride in reversed(digits):
        position += number % size * stride
        number //= size
    return position


_NAMES = "ijklmnpqrstuvw"


def _rule(place: Placement, shape: tuple[int, ...]) -> str:
    what = "p" if place.order is not None else "d"
    entries: list[str] = []
    where: list[str] = []
    for digits, size, local in zip(place.dims, shape, place.local_shape(shape), strict=True):
        if not digits:
            entries.append(":")
            continue
        letter = _NAMES[len(where)] if len(where) < len(_NAMES) else f"i{len(where)}"
        start = letter if local == 1 else f"{local}*{letter}"
        entries.append(f"{start}:{start}+{local}")
        where.append(f"{letter} = {_number(digits, what, place.num_devices)}")
        if size % local:
            where[-1] += f", up to {size}"
    return f"[{', '.join(entries)}] where {', '.join(where)}"


def _number(digits: Digits, device: str, total: int) -> str:
    """The block that a device ``d`` has along a dimension: ``d // 8 % 256``."""
    text = ""
    for size, stride in digits:
        digit = device if stride == 1 else f"{device} // {stride}"
        if size * stride < total:
            digit += f" % {size}"
        text = digit if not text else f"({text}) * {size} + {digit}"
    return text
