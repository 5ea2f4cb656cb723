"""What of a scheduled module's memory holds which values: XLA's buffer assignment, followed.

Arguments and results have buffers for the whole run. A value that is held only while a result's
buffer is free is put there; everything else is in the heap, where what is dead makes room. The
order is that of ``xla/service/buffer_assignment.cc``: the largest first.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal, TypeAlias

from sdyscope.hlo.live import LiveRanges, Overwriting, elements
from sdyscope.hlo.model import ELEMENTWISE, Computation
from sdyscope.values.dtypes import bit_width
from sdyscope.walk import reached

Platform: TypeAlias = Literal["cpu", "tpu", "cuda"]

#: Bytes of a constant on a TPU whose layout has no tiles, as the peaks of compiled programs show.
_LINEAR = 4096

#: The memory space of a TPU's vector memory.
_VECTOR_MEMORY = 1


@dataclass(frozen=True)
class Allocation:
    """Where the values of a module are.

    Attributes:
        live: its values.
        platform: what it was compiled for.
        within: of a buffer that is in the memory of an argument or result, that one's buffer; its
            own for these themselves.
        overwritten: values that end one position before the live range says, since what is made
            there is written over them.
    """

    live: LiveRanges
    platform: Platform
    within: Mapping[int, int]
    overwritten: frozenset[int]

    @cached_property
    def constants(self) -> int:
        """Bytes of the program's constants."""
        live = self.live
        return sum(
            _LINEAR if self.platform == "tpu" and "{" not in live.shapes[value] else size
            for value, size in enumerate(live.sizes)
            if live.is_constant(value)
        )

    @cached_property
    def spaces(self) -> tuple[int, ...]:
        """The memory spaces that there is a heap in."""
        return tuple(sorted({self.live.spaces[buffer] for buffer in self.heap_buffers}))

    @cached_property
    def heap_buffers(self) -> Sequence[int]:
        """The buffers in the heap."""
        return [buffer for buffer in self.live.in_buffer if buffer not in self.within]

    def size(self, buffer: int) -> int:
        """Bytes of a buffer."""
        return max(self.live.sizes[value] for value in self.live.in_buffer[buffer])

    def held(self, buffer: int) -> Iterator[tuple[int, int]]:
        """The first and last positions between which a buffer is held, in order."""
        live = self.live
        start = end = -2
        for first, last in sorted(
            (live.starts[value], self.end(value)) for value in live.in_buffer[buffer]
        ):
            if first <= end + 1:
                end = max(end, last)
                continue
            if start >= 0:
                yield start, end
            start, end = first, last
        if start >= 0:
            yield start, end

    def end(self, value: int) -> int:
        """The last position at which a value is held."""
        return self.live.ends[value] - (value in self.overwritten)

    def heap(self, space: int = 0) -> Sequence[int]:
        """Bytes in a heap at each position of the schedule."""
        changes = [0] * (len(self.live.schedule) + 2)
        for buffer in self.heap_buffers:
            if self.live.spaces[buffer] == space:
                size = self.size(buffer)
                for start, end in self.held(buffer):
                    changes[start] += size
                    changes[end + 1] -= size
        return list(accumulate(changes))[: len(self.live.schedule)]

    def counted(self, space: int = 0) -> Sequence[int]:
        """What the compiler counts in a heap at each position, for its peak.

        In the vector memory of a TPU, what an instruction writes over an operand counts beside that
        at the instruction itself, as its memory space assignment has an allocation for each.
        """
        if self.platform != "tpu" or space != _VECTOR_MEMORY:
            return self.heap(space)
        live = self.live
        heap = list(replace(self, overwritten=frozenset()).heap(space))
        for buffer in self.heap_buffers:
            if live.spaces[buffer] != space:
                continue
            values = live.in_buffer[buffer]
            ends = Counter(live.ends[value] for value in values)
            begun = {
                live.starts[value]: live.starts[value] == live.ends[value]
                for value in values
                if live.makers[value].opcode != "while"
            }
            for position, at_once in begun.items():
                if ends[position] > at_once:
                    heap[position] += self.size(buffer)
        return heap


@dataclass
class _Room:
    """The memory of an argument or result, and when it is taken."""

    buffer: int
    size: int
    space: int
    taken: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, live: LiveRanges, buffer: int) -> None:
        for value in live.in_buffer[buffer]:
            insort(self.taken, (live.starts[value], live.ends[value], value))


def allocate(live: LiveRanges, platform: Platform = "cpu") -> Allocation:
    """Puts values into the memory of results that is free, and the rest into the heap.

    Args:
        live: the values.
        platform: what it was compiled for. On GPUs more may be written over operands.
    """
    overwrites = Overwrites(live, gpu=platform == "cuda")
    within: dict[int, int] = {}
    arguments = {live.buffers[value] for value in live.parameters}
    results = {live.buffers[value] for value in live.results}
    rooms: list[_Room] = []
    for buffer in _largest_first(live, results):
        size, space = (
            max(live.sizes[value] for value in live.in_buffer[buffer]),
            live.spaces[buffer],
        )
        if buffer in results:
            room = _Room(buffer, size, space)
            room.add(live, buffer)
            rooms.append(room)
            within[buffer] = buffer
        elif buffer in arguments or live.is_constant(buffer):
            within[buffer] = buffer
        elif size:
            room_found = _room_for(live, overwrites, rooms, buffer, space)
            if room_found is not None:
                room_found.add(live, buffer)
                within[buffer] = room_found.buffer
        else:
            within[buffer] = buffer
    return Allocation(live, platform, within, frozenset(_overwritten(live, overwrites, within)))


def _largest_first(live: LiveRanges, results: set[int]) -> list[int]:
    sizes = {
        buffer: max(live.sizes[value] for value in values)
        for buffer, values in live.in_buffer.items()
    }
    return sorted(
        live.in_buffer,
        key=lambda buffer: (-sizes[buffer], buffer not in results, live.starts[buffer]),
    )


def _room_for(
    live: LiveRanges, overwrites: Overwrites, rooms: Sequence[_Room], buffer: int, space: int
) -> _Room | None:
    """The smallest room that is free whenever a buffer is held."""
    values = live.in_buffer[buffer]
    for room in reversed(rooms):
        if room.space == space and all(_is_free(live, overwrites, room, value) for value in values):
            return room
    return None


def _is_free(live: LiveRanges, overwrites: Overwrites, room: _Room, value: int) -> bool:
    start, end = live.starts[value], live.ends[value]
    at = bisect_right(room.taken, (end, 1 << 62, 0))
    while at:
        at -= 1
        first, last, other = room.taken[at]
        if last < start:
            # What is before it in the list ended before this one began.
            return True
        if (last == start and overwrites.may(value, other)) or (
            first == end and overwrites.may(other, value)
        ):
            continue
        return False
    return True


def _overwritten(
    live: LiveRanges, overwrites: Overwrites, within: Mapping[int, int]
) -> Iterator[int]:
    """Values in the heap over which an instruction writes its result."""
    gone: set[int] = set()

    def is_free(site: Overwriting, value: int, name: str = "") -> bool:
        """Whether a value is in the heap, alone in its buffer and not passed on before."""
        buffer = live.buffers[value]
        if buffer in within or site.declared is not None:
            return buffer not in within
        return len(live.in_buffer[buffer]) == 1 and name in ("", live.makers[value].name)

    for site in live.overwriting:
        for number, result in enumerate(site.results):
            if result < 0 or not is_free(site, result):
                continue
            for at, operand in enumerate(site.operands):
                if operand is None:
                    continue
                value, name, _ = operand
                if (
                    live.ends[value] == site.position
                    and value not in gone
                    and live.spaces[value] == live.spaces[result]
                    and is_free(site, value, name)
                    and overwrites.allowed(site, number, at)
                ):
                    gone.add(value)
                    yield value
                    break


# --- What is written over an operand --------------------------------------------------------------
# Which results XLA may write over an operand that nothing needs any more. The rules are those of
# ``CanShareOperandBufferWithUser`` (``xla/hlo/analysis/hlo_dataflow_analysis.cc``) and, for fusions
# on GPUs, of ``xla/backends/gpu/transforms/alias_info.cc``.

_OR_BITCAST = ELEMENTWISE | {"bitcast"}
_REDUCTIONS = frozenset({"reduce"})


class Overwrites:
    """Tells of the instructions of a module.

    Args:
        live: its values.
        gpu: whether it is for GPUs.
    """

    def __init__(self, live: LiveRanges, *, gpu: bool) -> None:
        self.live = live
        self.gpu = gpu
        self._sites: dict[int, Overwriting] = {
            result: site for site in live.overwriting for result in site.results if result >= 0
        }

    def may(self, result: int, value: int) -> bool:
        """Whether a value may be written over another that its maker reads."""
        site = self._sites.get(result)
        if site is None:
            return False
        number = site.results.index(result)
        return any(
            operand is not None and operand[0] == value and self.allowed(site, number, at)
            for at, operand in enumerate(site.operands)
        )

    def allowed(self, site: Overwriting, result: int, operand: int) -> bool:
        """Whether an instruction may write one of its results over one of its operands."""
        given = site.operands[operand]
        if site.declared is not None:
            return given is not None and (result, operand) in site.declared
        if given is None or self.live.is_constant(given[0]):
            return False
        text = self.live.shapes[site.results[result]]
        instruction = self.live.schedule[site.position]
        match instruction.opcode:
            case "fusion":
                fused = self.live.module.fused(instruction)
                if fused is None:
                    return False
                if not self.gpu:
                    return (
                        given[2] == text and _derived_from(fused, operand, ELEMENTWISE) is not None
                    )
                # The emitter of reductions is through with them before it writes anything else.
                ends = _REDUCTIONS if "kind=kInput" in instruction.rest else frozenset[str]()
                derived = _derived_from(fused, operand, _OR_BITCAST, ends) or frozenset()
                return _size(given[2]) == _size(text) and fused.results[result] in derived
            case "sort":
                return given[2] == text and result == operand
        return given[2] == text


def _derived_from(
    fused: Computation, parameter: int, through: frozenset[str], ends: frozenset[str] = frozenset()
) -> frozenset[str] | None:
    """What is made of a parameter by some ops; None where others are, but for those at ends."""
    key = parameter, through | ends
    return fused.once(key, lambda: _followed(fused, parameter, through, ends | {"tuple"}))


def _followed(
    fused: Computation, parameter: int, through: frozenset[str], ends: frozenset[str]
) -> frozenset[str] | None:
    if parameter not in fused.parameters:
        return None
    start, names = fused.parameters[parameter].name, set[str]()

    def further(name: str) -> Iterator[str]:
        return (user.name for user in fused.users.get(name, ()) if user.opcode not in ends)

    for name in reached([start], further):
        if name != start and fused.instructions[name].opcode not in through:
            return None
        names.add(name)
    return frozenset(names)


def _size(text: str) -> tuple[int, int]:
    """How many elements an array has, and the bits of one."""
    return elements(text), bit_width(text.partition("[")[0])
