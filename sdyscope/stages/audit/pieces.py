"""Which elements of a value every device holds, followed through what only moves them.

In the module that XLA just partitioned a value is cut, moved and laid out by instructions of which
each says exactly what it does. So what reaches an op can be worked out from what the value was,
without the axes of any mesh.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from sdyscope.stages.audit.facts import Layout
from sdyscope.stages.audit.hlo_dump import DumpedHlo, DumpedInstruction, groups_of_line, shapes

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_DIMENSIONS = re.compile(r", dimensions=\{([\d,]*)\}")
_SLICES = re.compile(r", slice=\{([^}]*)\}")
_CONSTANT = re.compile(r" constant\(([^()]*)\)")

#: How numbers that say where a device cuts are computed.
_ARITHMETIC: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
}
#: Instructions whose result is what they take.
_SAME = ("bitcast-convert", "convert", "copy")


@dataclass(frozen=True)
class Pieces:
    """The elements of a value that each device holds, as indices into the whole of it.

    Attributes:
        starts: by device the index of its first element, ``(devices, rank)``.
        steps: of each dimension of the array that a device holds how far each place is from the
            first, ``(size, rank)``: alike on all devices.
    """

    starts: Numbers
    steps: tuple[Numbers, ...]

    @classmethod
    def of(cls, layout: Layout, shape: Sequence[int], devices: int) -> Pieces:
        """Those of a value that is laid out in blocks.

        Args:
            layout: its layout.
            shape: of the block that a device holds.
            devices: how many there are.
        """
        blocks = np.broadcast_to(
            np.array(layout.blocks, np.int64).reshape(-1, len(shape)), (devices, len(shape))
        )
        sizes = tuple(shape)
        axes = np.eye(len(shape), dtype=np.int64)
        steps = tuple(
            np.arange(size)[:, None] * axis for size, axis in zip(sizes, axes, strict=True)
        )
        return cls(blocks * np.array(sizes, np.int64), steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that a device holds."""
        return tuple(map(len, self.steps))

    def blocks(self) -> list[list[int]] | None:
        """Which block of each dimension each device holds, as a ``Layout`` has it.

        None where it is no block, or the dimensions are others than the value's.
        """
        rank = self.starts.shape[1]
        if len(self.steps) != rank:
            return None
        for dim, steps in enumerate(self.steps):
            plain = np.arange(len(steps))[:, None] * np.eye(rank, dtype=np.int64)[dim]
            if not np.array_equal(steps, plain) or (self.starts[:, dim] % len(steps)).any():
                return None
        rows = self.starts // np.array(self.shape, np.int64)
        return [list(map(int, row)) for row in (rows if rows.any() else rows[:1])]

    def transposed(self, order: Sequence[int]) -> Pieces:
        """With the dimensions of the array in another order."""
        return replace(self, steps=tuple(self.steps[dim] for dim in order))

    def cut(self, dim: int, offsets: Numbers, size: int) -> Pieces | None:
        """What each device keeps of a dimension; None where that is not alike on all."""
        steps = self.steps[dim]
        # As XLA does, what would reach beyond the end begins earlier.
        offsets = np.clip(offsets, 0, len(steps) - size)
        kept = [steps[at : at + size] - steps[at] for at in dict.fromkeys(offsets.tolist())]
        if any(not np.array_equal(kept[0], each) for each in kept):
            return None
        every = (*self.steps[:dim], kept[0], *self.steps[dim + 1 :])
        return Pieces(self.starts + steps[offsets], every)

    def reshaped(self, shape: Sequence[int]) -> Pieces | None:
        """The array in another shape; None where a dimension is then no row of equal steps."""
        steps: list[Numbers] = []
        own, other = list(self.shape), list(shape)
        at = 0
        while own or other:
            took, gave = own[:1], other[:1]
            del own[:1], other[:1]
            while math.prod(took) != math.prod(gave):
                side, rest = (took, own) if math.prod(took) < math.prod(gave) else (gave, other)
                if not rest:
                    return None
                side.append(rest.pop(0))
            merged = np.zeros((1, self.starts.shape[1]), np.int64)
            for each in self.steps[at : at + len(took)]:
                merged = (merged[:, None] + each[None]).reshape(-1, merged.shape[1])
            at += len(took)
            left = merged
            for size in gave:
                split = left.reshape(size, -1, merged.shape[1])
                if not np.array_equal(split, split[:, :1] + split[:1]):
                    return None
                steps.append(split[:, 0])
                left = split[0]
        return replace(self, steps=tuple(steps))

    def permuted(self, pairs: Sequence[Sequence[int]]) -> Pieces | None:
        """What devices have that were sent another's; None where one was sent nothing."""
        source = {target: source for source, target in pairs}
        if len(source) != len(self.starts):
            return None
        return replace(self, starts=self.starts[[source[at] for at in range(len(source))]])

    def exchanged(self, groups: Sequence[Sequence[int]], dim: int, *, whole: bool) -> Pieces | None:
        """What devices have that put together what those of their group have along a dimension.

        Args:
            groups: the devices that work together.
            dim: the dimension.
            whole: whether each is sent all of it, and not one of as many parts as there are
                devices.
        """
        steps, members = self.steps[dim], len(groups[0])
        size = len(steps) if whole else len(steps) // members
        starts = np.empty_like(self.starts)
        joined: Numbers | None = None
        for group in groups:
            for place, device in enumerate(group):
                first = 0 if whole else place * size
                part = steps[first : first + size]
                firsts = [self.starts[other] + part[0] for other in group]
                own = np.concatenate([each - firsts[0] + part - part[0] for each in firsts])
                if joined is not None and not np.array_equal(joined, own):
                    return None
                starts[device], joined = firsts[0], own
        if joined is None:
            return None
        return Pieces(starts, (*self.steps[:dim], joined, *self.steps[dim + 1 :]))


def local_shape(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Of the block that a device holds, padding included."""
    counts = [max(row[dim] for row in layout.blocks) + 1 for dim in range(len(shape))]
    return tuple(-(-size // count) for size, count in zip(shape, counts, strict=True))


class Moves:
    """Says what instructions do with the pieces that they are given.

    Args:
        module: the module behind XLA's partitioner.
        devices: how many devices run it.
    """

    def __init__(self, module: DumpedHlo, devices: int) -> None:
        self.module = module
        self.devices = devices

    def moved(self, instruction: DumpedInstruction, pieces: Pieces) -> Pieces | None:
        """The pieces behind an instruction; None where that is not known, or it is no move."""
        try:
            return self._moved(instruction, pieces)
        except (IndexError, ValueError):  # What it says does not fit what it is given.
            return None

    def _moved(self, instruction: DumpedInstruction, pieces: Pieces) -> Pieces | None:
        line = instruction.line
        (_, shape), *others = shapes(instruction.type)
        if others:
            return None
        match instruction.opcode:
            case opcode if opcode in _SAME:
                return pieces
            case "reshape":
                return pieces.reshaped(shape)
            case "transpose":
                return pieces.transposed(_integers(_DIMENSIONS, line))
            case "all-gather" | "all-to-all" as opcode:
                groups, (dim, *_) = (
                    groups_of_line(line, self.devices),
                    _integers(_DIMENSIONS, line),
                )
                return pieces.exchanged(groups, dim, whole=opcode == "all-gather")
            case "collective-permute":
                return pieces.permuted(groups_of_line(line, self.devices))
            case "slice":
                return self._sliced(line, pieces)
            case "dynamic-slice":
                cut: Pieces | None = pieces
                for dim, (name, size) in enumerate(
                    zip(instruction.operands[1:], shape, strict=True)
                ):
                    if cut is not None and size < cut.shape[dim]:
                        offsets = self.numbers(name)
                        cut = None if offsets is None else cut.cut(dim, offsets[:, 0], size)
                return cut
        return None

    def _sliced(self, line: str, pieces: Pieces) -> Pieces | None:
        (texts,) = _SLICES.findall(line)
        cut: Pieces | None = pieces
        for dim, text in enumerate(re.findall(r"\[([\d:]*)\]", texts)):
            first, end, *step = map(int, text.split(":"))
            if step and step != [1]:
                return None
            if cut is not None:
                cut = cut.cut(dim, np.full(self.devices, first), end - first)
        return cut

    def numbers(self, name: str) -> Numbers | None:
        """The integers that an instruction gives on each device, ``(devices, count)``.

        None where they are not computed from constants and the device's number alone.
        """
        instruction = self.module.instructions[name]
        match instruction.opcode:
            case "constant":
                text = _CONSTANT.search(instruction.line)
                values = [int(each) for each in re.findall(r"-?\d+", text[1])] if text else []
                return np.tile(np.array(values, np.int64), (self.devices, 1)) if values else None
            case "partition-id":
                return np.arange(self.devices, dtype=np.int64)[:, None]
            case "copy" | "convert" | "reshape":
                return self.numbers(instruction.operands[0])
            case "dynamic-slice":
                taken, at = map(self.numbers, instruction.operands[:2])
                if len(instruction.operands) != 2 or taken is None or at is None:
                    return None
                ((_, (size,)),) = shapes(instruction.type)
                first = np.clip(at[:, 0], 0, taken.shape[1] - size)
                return np.stack([row[at : at + size] for row, at in zip(taken, first, strict=True)])
            case opcode if opcode in _ARITHMETIC:
                left, right = map(self.numbers, instruction.operands)
                if left is None or right is None:
                    return None
                return _ARITHMETIC[opcode](left, right)
        return None


def _integers(pattern: re.Pattern[str], line: str) -> list[int]:
    match = pattern.search(line)
    return [int(part) for part in match[1].split(",") if part] if match else []
