"""Memory over a step: what a device holds at each moment of the schedule, and at the peak.

Arguments and results have memory for the whole step. What is computed in between comes from the
live ranges of the scheduled program (``sdyscope.hlo.live``), and the sum is compared with the
compiler's own figure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.naming.next_values import next_values
from sdyscope.analysis.naming.paths import Leaf, mirrored, pattern
from sdyscope.analysis.naming.roles import Role, pass_arguments, roles, without_averages
from sdyscope.analysis.naming.scopes import is_differentiated, phase_of, scope_of
from sdyscope.analysis.naming.speakers import Speakers
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.annotations import folded_names, shared_name
from sdyscope.errors import SdyscopeError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.decided import DecidedValue
from sdyscope.facts.memory import Held
from sdyscope.facts.over_time import (
    CATEGORIES,
    Category,
    Counted,
    Holding,
    Loop,
    MemoryOverTime,
    Moment,
    OtherMemory,
    Phase,
    Stretch,
)
from sdyscope.facts.traffic import KINDS
from sdyscope.graph import OpGraph
from sdyscope.hardware.specs import chip_of
from sdyscope.hlo import Instruction, trip_count
from sdyscope.hlo.allocation import Allocation, Platform, allocate
from sdyscope.hlo.live import LiveRanges, elements, live_ranges
from sdyscope.staged import Staged
from sdyscope.values.entry_layout import HOST_MEMORY, read_entry_layout
from sdyscope.values.source import SourceLocation

#: At how many moments a step is looked at, at most.
_MOMENTS = 240

#: In how many parts it is asked which pass an instruction belongs to.
_STRETCHES = 60

#: Less than this part of a step, between two parts of another pass, is no pass of its own.
_SHORT = 20

#: Ops that say nothing about the value whose memory they begin or pass on.
_UNSPECIFIC = frozenset(
    {"broadcast", "constant", "copy", "copy-start", "custom-call", "parameter", "while"}
)
_ALLOCATES = 'custom_call_target="AllocateBuffer"'

#: How many positions back one with a scope is looked for.
_FAR = 8


def over_time_of(program: Staged, memory: Memory, *, origins: bool = True) -> MemoryOverTime:
    """Memory over a step of a program that is compiled.

    Args:
        program: the program.
        memory: what a device holds of it, compiled.
        origins: whether to look for where the shardings at the peak come from, which takes a
            propagation.

    Raises:
        CompilerError: the program can't be lowered for the hardware again.
        SdyscopeError: the compiled program's text is not scheduled, or is cut off.
    """
    compiled = memory.compiled
    lowered = None if program.is_compiled else program.lowered_of(compiled)
    decisions = None
    if lowered is not None and origins and compiled.recorded_by is None:
        try:
            decisions = Decisions.of(lowered, lowered.propagated(compiled.partitioner))
        except SdyscopeError:
            decisions = None  # Shardings are not known; the account says why.
    graph = None if lowered is None else lowered.graph()
    return _OverTime(memory, decisions, graph).over_time()


def platform_of(compiled: Compiled) -> Platform:
    """What a program was compiled for; of a text, as far as its layouts and ops tell."""
    platform = compiled.platform
    if platform is not None and platform != "any":
        return platform
    head = compiled.hlo[: compiled.hlo.find("\n")]
    if ":T(" in head:
        return "tpu"
    return "cuda" if "fingerprint_before_lhs" in head or "__triton" in compiled.hlo else "cpu"


class _OverTime:
    """What is known of one program."""

    def __init__(self, memory: Memory, decisions: Decisions | None, graph: OpGraph | None) -> None:
        self.memory = memory
        self.graph = graph
        self.in_passes = None if graph is None else pass_arguments(graph)
        self.compiled = memory.compiled
        self.decisions = decisions
        self.platform = platform_of(self.compiled)
        self.module = self.compiled.module
        layout = read_entry_layout(self.compiled.hlo)
        self.live: LiveRanges = live_ranges(self.module, layout)
        self.allocation: Allocation = allocate(self.live, self.platform)
        self._phases: dict[str, Phase] = {}
        self.speakers = Speakers(self.module)

    def over_time(self) -> MemoryOverTime:
        fixed = self.fixed
        categories = {buffer: self.category(buffer) for buffer in self.on_device}
        curves = self.curves(categories)
        length = len(self.live.schedule)
        base = sum(fixed.values())
        totals = [base + sum(column) for column in zip(*curves.values(), strict=True)] or [base]
        position = max(range(len(totals)), key=totals.__getitem__)
        at_peak = self.schedule_at(position)
        scope, op = ("", "") if at_peak is None else self.named(at_peak)
        return MemoryOverTime(
            compiled=self.compiled,
            instructions=length,
            peak=totals[position],
            position=position,
            scope=scope,
            op=op,
            phase="other" if at_peak is None else self.phase(at_peak),
            source=None if at_peak is None else self.line(at_peak),
            by_category=_by_category(fixed, curves, position),
            least=min(totals),
            held=self.held(position, categories),
            moments=tuple(
                Moment(at, totals[at], _by_category(fixed, curves, at))
                for at in _largest_in_each_part(totals)
            ),
            phases=tuple(self.stretches()),
            loops=tuple(self.loops()),
            other_memories=self.other_memories,
            counted=tuple(self.counted(base)),
            gaps=self.gaps(max(totals) - base),
            capacity=self.capacity,
            unfollowed=len(self.live.unfollowed),
        )

    # What is held from the start to the end.

    @cached_property
    def roles(self) -> Mapping[int, Role]:
        arguments = [tensor for tensor in self.memory.tensors if tensor.kind == "argument"]
        leaves = [Leaf(tensor.name, tensor.type[0], tensor.dtype) for tensor in arguments]
        in_passes = self.in_passes and {
            place for place, tensor in enumerate(arguments) if tensor.number in self.in_passes
        }
        pairs = carried_tensors(self.memory.tensors, self.graph)
        carried = {tensor.number for tensor, _ in pairs}
        kept = {place for place, tensor in enumerate(arguments) if tensor.number in carried}
        roles_of = roles(leaves, kept, in_passes, differentiated=self.differentiated)
        by_number = {tensor.number: role for tensor, role in zip(arguments, roles_of, strict=True)}
        if self.graph is None:
            return by_number
        following = [(tensor.number, each.number) for tensor, each in pairs]
        return without_averages(by_number, following, self.graph)

    @cached_property
    def differentiated(self) -> bool:
        return is_differentiated(instruction.rest for instruction in self.live.schedule)

    @cached_property
    def fixed(self) -> dict[Category, int]:
        """Bytes of arguments, results and constants."""
        sizes: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
        for tensor in self.memory.tensors:
            if self.is_here(tensor.stored.memory_space):
                if tensor.kind == "argument":
                    sizes[self.roles[tensor.number]] += tensor.stored.bytes
                elif not tensor.shares:
                    sizes["results"] += tensor.stored.bytes
        sizes["results"] += self.memory.results_table
        sizes["constants"] = self.allocation.constants
        return {category: count for category, count in sizes.items() if count}

    def is_here(self, space: int) -> bool:
        """Whether a memory space is in the device's main memory."""
        match self.platform:
            case "cpu":
                return True  # A CPU has one memory, whatever the arrays' kinds say.
            case "tpu":
                return space == 0
        return space != HOST_MEMORY

    # What is computed.

    @cached_property
    def on_device(self) -> list[int]:
        """The buffers in the heap of the device's main memory."""
        spaces = self.live.spaces
        return [buffer for buffer in self.allocation.heap_buffers if self.is_here(spaces[buffer])]

    def curves(self, categories: Mapping[int, Category]) -> dict[Category, list[int]]:
        """Bytes at each position of the schedule, by category."""
        length = len(self.live.schedule)
        changes: dict[Category, list[int]] = {}
        for buffer, category in categories.items():
            size = self.allocation.size(buffer)
            change = changes.setdefault(category, [0] * (length + 2))
            for start, end in self.allocation.held(buffer):
                change[start] += size
                change[end + 1] -= size
        return {
            category: list(accumulate(changes[category]))[:length]
            for category in CATEGORIES
            if category in changes
        }

    def category(self, buffer: int) -> Category:
        """What a buffer is held for."""
        if not self.differentiated:
            return "collectives" if self.is_collective(self.maker(buffer)) else "temporaries"
        values = self.live.in_buffer[buffer]
        makers = {self.phase(self.live.makers[value]) for value in values}
        read = {self.phases[at] for value in values for at in self.live.readers[value]}
        if "backward" in makers and "other" in read:
            return "gradients"
        # What neither pass makes, such as a parameter in another type, both may read.
        if "backward" in read and (
            "forward" in makers or ("backward" not in makers and "forward" in read)
        ):
            return "kept for backward"
        return "collectives" if self.is_collective(self.maker(buffer)) else "temporaries"

    @cached_property
    def phases(self) -> Sequence[Phase | None]:
        """The pass at each position of the schedule; None where nothing has a name."""
        return [
            self.phase(instruction) if self.speaker(instruction).op_name else None
            for instruction in self.live.schedule
        ]

    def phase(self, instruction: Instruction) -> Phase:
        if instruction.name not in self._phases:
            op_name = self.speaker(instruction).op_name
            self._phases[instruction.name] = phase_of(op_name, self.differentiated)
        return self._phases[instruction.name]

    def speaker(self, instruction: Instruction) -> Instruction:
        """The instruction that says what another makes; see ``Speakers``."""
        return self.speakers.of(instruction)

    def is_collective(self, instruction: Instruction) -> bool:
        """Whether an instruction communicates, or a fusion has one in it that does."""
        if instruction.base in KINDS:
            return True
        fused = self.module.fused(instruction)
        return fused is not None and any(
            inside.base in KINDS for inside in fused.instructions.values()
        )

    def maker(self, buffer: int, position: int | None = None) -> Instruction:
        """What makes the value in a buffer, at a position; what says most of those that do."""
        live, values = self.live, self.live.in_buffer[buffer]
        alive = values[0]
        for value in values:
            if position is None or live.starts[value] <= position <= live.ends[value]:
                alive = value
                break
        makers = [live.makers[alive], *(live.makers[value] for value in values)]
        # What is written into a part of it tells more than what it begins with.
        telling = [maker for maker in makers if self.speakers.updates(maker)]
        telling += [maker for maker in makers if self.is_specific(maker)]
        return next(iter(telling), makers[0])

    def is_specific(self, instruction: Instruction) -> bool:
        """Whether an instruction says what the value is that it makes."""
        if instruction.opcode == "custom-call":
            return _ALLOCATES not in instruction.rest
        return instruction.opcode not in _UNSPECIFIC and self.speakers.speaks(instruction)

    def named(self, instruction: Instruction) -> tuple[str, str]:
        """Its scope and JAX's primitive; of a parameter's copy its path, and HLO's opcode."""
        speaker = self.speaker(instruction)
        if speaker.opcode == "parameter":
            return speaker.op_name, instruction.opcode
        if "/" not in speaker.op_name:
            return "", self.speakers.opcode(instruction)
        scope, primitive = scope_of(speaker.op_name)
        return scope, primitive or instruction.opcode

    def line(self, instruction: Instruction) -> SourceLocation | None:
        return self.module.source(self.speaker(instruction))

    # The peak.

    def schedule_at(self, position: int) -> Instruction | None:
        """What runs at a position, or the first before it that has a name."""
        schedule = self.live.schedule
        for at in range(min(position, len(schedule) - 1), max(position - _FAR, -1), -1):
            if self.speakers.speaks(schedule[at]):
                return schedule[at]
        return schedule[position] if position < len(schedule) else None

    def held(self, position: int, categories: Mapping[int, Category]) -> tuple[Holding, ...]:
        """What is held at a position, what takes most first."""
        every = [*self.arguments(), *self.computed(position, categories)]
        scopes = folded_names(holding.name for holding in every if holding.op)
        groups: dict[tuple[object, ...], list[Holding]] = defaultdict(list)
        for holding in every:
            name = scopes[holding.name] if holding.op else pattern(holding.name)
            groups[holding.category, name, holding.op, holding.array, holding.source].append(
                holding
            )
        holdings = [
            replace(
                members[0],
                name=shared_name([member.name for member in members]),
                count=len(members),
                bytes=sum(member.bytes for member in members),
                start=min(member.start for member in members),
                end=max(member.end for member in members),
            )
            for members in groups.values()
        ]
        return tuple(sorted(holdings, key=lambda holding: -holding.bytes))

    def arguments(self) -> Iterator[Holding]:
        last = len(self.live.schedule)
        lines = {
            tensor.number: self.source_of_argument(tensor.number)
            for tensor in self.memory.tensors
            if tensor.kind == "argument"
        }
        for tensor in self.memory.tensors:
            if not self.is_here(tensor.stored.memory_space):
                continue
            if tensor.kind == "result" and tensor.shares:
                continue
            array = f"{tensor.stored.dtype}[{','.join(map(str, tensor.stored.shape))}]"
            if tensor.stored.layout:
                array += f"{{{tensor.stored.layout}}}"
            is_argument = tensor.kind == "argument"
            yield Holding(
                self.roles[tensor.number] if is_argument else "results",
                tensor.name,
                "",
                "",
                array,
                1,
                tensor.stored.bytes,
                0,
                last,
                lines.get(tensor.number) if is_argument else None,
                self.boundary(tensor.kind, tensor.number),
            )

    def source_of_argument(self, number: int) -> SourceLocation | None:
        if number >= len(self.live.parameters):
            return None
        return self.module.source(self.live.makers[self.live.parameters[number]])

    def boundary(self, kind: str, number: int) -> DecidedValue | None:
        """What was decided for an argument or a result."""
        if self.decisions is None or self.decisions.graph.main is None:
            return None
        main = self.decisions.graph.main
        places = main.arguments if kind == "argument" else main.results
        node = next((place.node for place in places if place.index == number), None)
        return None if node is None else self.decisions.decided((node, 0))

    def computed(self, position: int, categories: Mapping[int, Category]) -> Iterator[Holding]:
        for buffer in self.on_device:
            spans = list(self.allocation.held(buffer))
            inside = next(((s, e) for s, e in spans if s <= position <= e), None)
            if inside is None:
                continue
            maker = self.maker(buffer, position)
            scope, op = self.named(maker)
            yield Holding(
                categories[buffer],
                scope,
                op,
                maker.name,
                self.array(buffer, position),
                1,
                self.allocation.size(buffer),
                *inside,
                self.line(maker),
                self.decided(maker, self.array(buffer, position)),
            )

    def array(self, buffer: int, position: int) -> str:
        live = self.live
        for value in live.in_buffer[buffer]:
            if live.starts[value] <= position <= live.ends[value]:
                return live.shapes[value]
        return live.shapes[buffer]

    def decided(self, maker: Instruction, array: str) -> DecidedValue | None:
        """What was decided for the value that an instruction was made from.

        Only of one with as many elements on a device; a loop's stack of them has several times as
        many.
        """
        if self.decisions is None:
            return None
        speaker, count = self.speaker(maker), elements(array)
        stacked = speaker is not maker
        for path in self.compiled.tags.get(speaker.name, ()):
            for result in range(len(self.decisions.graph.ops[path[-1]].types)):
                decided = self.decisions.decided((path[-1], result))
                local = None if decided is None else decided.sharding.local_shape
                size = 0 if local is None else math.prod(local)
                if size and (count == size or (stacked and count % size == 0)):
                    return decided
        return None

    # The step.

    def stretches(self) -> Iterator[Stretch]:
        """The passes, as most instructions of each part of the schedule belong to them."""
        length = len(self.phases)
        phases: list[tuple[Phase, int, int]] = []
        for start, end in _parts(length, _STRETCHES):
            named = Counter(phase for phase in self.phases[start:end] if phase is not None)
            phase = named.most_common(1)[0][0] if named else (phases[-1][0] if phases else "other")
            if phases and phases[-1][0] == phase:
                phases[-1] = (phase, phases[-1][1], end)
            else:
                phases.append((phase, start, end))
        yield from _smoothed([Stretch(*phase) for phase in phases], length)

    def loops(self) -> Iterator[Loop]:
        callers = {
            instruction.name: computation
            for computation in self.module.computations.values()
            for instruction in computation.instructions.values()
            if instruction.opcode == "while"
        }
        last = -1
        for span in self.live.spans:
            loop = span.instruction
            if loop.opcode != "while" or span.computation not in loop.called("body"):
                continue
            if span.start < last:
                continue  # It is in another one.
            last = span.end
            scope, _ = self.named(loop)
            trips = trip_count(self.module, callers[loop.name], loop)
            yield Loop(scope, span.start, span.end, trips, self.line(loop))

    # The compiler's figures.

    @cached_property
    def other_memories(self) -> tuple[OtherMemory, ...]:
        memories = [
            OtherMemory(space, max(self.allocation.heap(space), default=0))
            for space in self.allocation.spaces
            if not self.is_here(space)
        ]
        return tuple(memory for memory in memories if memory.peak)

    def counted(self, base: int) -> Iterator[Counted]:
        """The figures that the compiler has."""
        said = self.compiled.memory
        if said is None:
            return
        heaps = {
            space: max(self.allocation.counted(space), default=0)
            for space in self.allocation.spaces
        }
        largest = max(heaps, key=lambda space: heaps[space], default=0)
        heap = heaps.get(largest, 0)
        if said.peak:
            if self.platform == "cpu":
                yield Counted("peak without temporaries", base, said.peak)
            elif self.is_here(largest):
                yield Counted("peak", base + heap, said.peak)
            else:
                yield Counted("peak of another memory", base + heap, said.peak)
        if said.temporaries and self.platform == "cpu":
            yield Counted("temporaries", heap, said.temporaries)

    def gaps(self, heap: int) -> int | None:
        said = self.compiled.memory
        if said is None or not said.temporaries:
            return None
        return max(said.temporaries - heap, 0)

    @property
    def capacity(self) -> int | None:
        chip = chip_of(self.compiled.device_kind)
        figure = None if chip is None else chip.figures.get("hbm_bytes")
        return None if chip is None or figure is None else int(figure.value / chip.devices)


def _smoothed(stretches: Sequence[Stretch], length: int) -> list[Stretch]:
    """The same without what is short and between two of one pass, as what is moved about is."""
    smoothed: list[Stretch] = []
    for number, stretch in enumerate(stretches):
        after = stretches[number + 1].phase if number + 1 < len(stretches) else None
        is_short = (stretch.end - stretch.start) * _SHORT < length
        if smoothed and (
            smoothed[-1].phase == stretch.phase or (is_short and after == smoothed[-1].phase)
        ):
            smoothed[-1] = replace(smoothed[-1], end=stretch.end)
        else:
            smoothed.append(stretch)
    return smoothed


def _by_category(
    fixed: Mapping[Category, int], curves: Mapping[Category, Sequence[int]], position: int
) -> dict[Category, int]:
    counts = {
        category: fixed.get(category, 0) + (curves[category][position] if category in curves else 0)
        for category in CATEGORIES
    }
    return {category: count for category, count in counts.items() if count}


def _parts(length: int, most: int) -> Iterator[tuple[int, int]]:
    parts = min(length, most)
    for number in range(parts):
        yield number * length // parts, (number + 1) * length // parts


def _largest_in_each_part(totals: Sequence[int]) -> Iterator[int]:
    for start, end in _parts(len(totals), _MOMENTS):
        yield max(range(start, end), key=totals.__getitem__)


def carried_tensors(tensors: Sequence[Held], graph: OpGraph | None) -> list[tuple[Held, Held]]:
    """Arguments with the results that may be their next values, or are their gradients.

    Args:
        tensors: arguments and results.
        graph: op graph of their module; None where there is none, and paths alone tell.
    """
    arguments, results = (
        [tensor for tensor in tensors if tensor.kind == kind] for kind in ("argument", "result")
    )
    given, returned = (
        [(Leaf(each.name, each.type[0], each.dtype), each.number) for each in rows]
        for rows in (arguments, results)
    )
    if graph is None:
        pairs = mirrored([leaf for leaf, _ in returned], [leaf for leaf, _ in given])
    else:
        known = next_values(returned, given, graph)
        pairs = {result: value.argument for result, value in known.items()}
    return [(arguments[argument], results[result]) for result, argument in pairs.items()]
