"""Which slice of a tensor which devices hold, in words: ``device 0 holds weight[0:16, :]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdyscope.facts.slices import BlockRule, DeviceSet, Slice, Unplaced
from sdyscope.values.placement import Digits
from sdyscope.words.counts import few

#: So many devices are listed one by one.
_LISTED: Final = 8

_UNPLACED: Final[Mapping[Unplaced, str]] = {
    Unplaced.DROPPED: "dropped by jit",
    Unplaced.IN_SHARD_MAP: "in the body of a shard_map, where each device sees its own block",
    Unplaced.NO_SHAPE: "of a shape that is not known",
    Unplaced.LEFT_TO_COMPILER: "left to the compiler",
}

_NAMES: Final = "ijklmnpqrstuvw"


def unplaced_text(why: Unplaced) -> str:
    """Why it is not said which devices hold what: goes on behind ``3 tensors are``."""
    return _UNPLACED[why]


def devices_text(devices: DeviceSet) -> str:
    """``device 3``; ``devices 0, 2, 4, 6``; ``devices 0-7 (+2,048 x16)``."""
    if devices.count == devices.total:
        return f"all {devices.total:,} devices" if devices.total > 1 else "the one device"
    if devices.count == 1:
        return f"device {next(devices.members())}"
    in_a_row = devices.repeats[-1][1] == 1
    is_run = in_a_row and len(devices.repeats) == 1 and devices.count > 2
    if devices.count <= _LISTED and not (devices.order is None and is_run):
        return f"devices {', '.join(map(str, devices.members()))}"
    what = "device" if devices.order is None else "position"
    outer = devices.repeats[:-1] if in_a_row else devices.repeats
    run = f"{what}s {devices.first}"
    if in_a_row:
        run = f"{what}s {devices.first}-{devices.first + devices.repeats[-1][0] - 1}"
    return run + "".join(f" (+{apart:,} x{times:,})" for times, apart in reversed(outer))


def order_text(order: Sequence[int]) -> str:
    """That devices are numbered by position in their mesh, and which is at each position."""
    numbers = few([f"{number:,}" for number in order], 2 * _LISTED)
    return f"device: a position in the mesh, whose devices are JAX's {numbers}"


def slice_text(part: Slice) -> str:
    """``device 0 holds weight[0:16, :]``; of a scalar the name alone, or ``it`` without one."""
    verb = "holds" if part.devices.count == 1 else "hold"
    if part.is_padding:
        return f"{devices_text(part.devices)} {verb} padding only"
    entries = [
        ":" if (start, stop) == (0, size) else f"{start}:{stop}"
        for (start, stop), size in zip(part.index, part.shape, strict=True)
    ]
    what = f"{part.subject}[{', '.join(entries)}]" if entries else part.subject or "it"
    return f"{devices_text(part.devices)} {verb} {what}"


def rule_text(rule: BlockRule) -> str:
    """``[16*i:16*i+16, :] where i = d // 8 % 256``: what device ``d`` or position ``p`` holds."""
    what = "p" if rule.by_position else "d"
    entries: list[str] = []
    where: list[str] = []
    for digits, size, local in rule.dims:
        if not digits:
            entries.append(":")
            continue
        letter = _NAMES[len(where)] if len(where) < len(_NAMES) else f"i{len(where)}"
        start = letter if local == 1 else f"{local}*{letter}"
        entries.append(f"{start}:{start}+{local}")
        where.append(f"{letter} = {_number(digits, what, rule.total)}")
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


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same devices again, at a stride.

    Attributes:
        times: how many times in all.
        apart: how many devices further each time.
    """

    times: int
    apart: int


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """One slice of a tensor, and the devices that hold it.

    Attributes:
        index: start and stop of each dimension; where they are equal it is padding.
        text: who holds it, in words.
        devices: how many devices hold it.
        first: the first of them; a position of the mesh where its devices are in an order of their
            own.
        repeats: where the others are, most significant first: 16 times 2,048 apart and 8 times 1
            apart are 8 devices in a row, and that 16 times.
    """

    index: tuple[tuple[int, int], ...]
    text: str
    devices: int
    first: int
    repeats: tuple[Repeat, ...]


def slice_document(part: Slice) -> DeviceSlice:
    """A slice as documents have it."""
    devices = part.devices
    repeats = tuple(Repeat(times, apart) for times, apart in devices.repeats)
    return DeviceSlice(part.index, slice_text(part), devices.count, devices.first, repeats)
