"""Live ranges: from when to when a device holds each value of a scheduled module.

The rules are XLA's: which results are buffers of their own and which are their operand's
(``xla/hlo/analysis/hlo_dataflow_analysis.cc``, ``hlo_alias_analysis.cc``, ``alias_info.cc``), and
how the schedules of called computations are flattened into one
(``xla/hlo/utils/hlo_live_range.cc``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from sdyscope.errors import SdyscopeError
from sdyscope.hlo.model import (
    BRANCHES,
    CALLED,
    ELEMENTWISE,
    IN_PLACE,
    Computation,
    HloModule,
    Instruction,
)
from sdyscope.hlo.shape import Shape, parse_shape
from sdyscope.values.entry_layout import EntryLayout, stored_array

#: Of those that are in place, and of tuples, no buffer is read.
_NOT_READING: Final = frozenset({"domain", "get-tuple-element", "tuple"})

#: Ops that take a whole computation in, and the attributes that name it.
_CALLS: Final = (*CALLED, "called_computation")

#: Ops whose result may be written over an operand of its shape.
_OVERWRITES: Final = ELEMENTWISE | {"fusion", "sort"}

#: So many times the instructions of the text are followed at most, in computations that several
#: instructions call.
_REPEATED = 20

#: ``"aliasing_operands":{"lists":[{"indices":["0","2"]}]}``
_LISTED_ALIASING = '"aliasing_operands":{"lists":['
_LISTS = re.compile(r'\{"indices":\[([^\]]*)\]\}')
_NUMBER = re.compile(r'"(\d+)"')
#: ``output_to_operand_aliasing={{1}: (0, {}), {}: (2, {})}``
_ALIASING = re.compile(r"\{\s*([\d, ]*)\}:\s*\((\d+),\s*\{\s*([\d, ]*)\}")

Leaves: TypeAlias = list[int]
"""The values in a result, in the order of its shape's arrays."""


@dataclass(frozen=True, slots=True)
class ShapeLeaf:
    """An array in a shape.

    Attributes:
        text: the array and its layout as it is written; its element type where it holds no data.
        bytes: what it takes, with the padding of its tiles.
        space: the memory space that it is in; 0 is the device's main memory.
    """

    text: str
    bytes: int
    space: int


@dataclass(frozen=True, slots=True)
class ScheduleSpan:
    """The part of the schedule that a called computation takes; of a loop's body one iteration.

    Attributes:
        instruction: what runs it.
        computation: its name.
        start: position of its first instruction.
        end: position behind its last.
    """

    instruction: Instruction
    computation: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Overwriting:
    """An instruction whose results might be written over its operands.

    Attributes:
        position: where it is in the schedule.
        results: its values; -1 for those that are in an operand's memory in any case.
        operands: of each operand that is a single array that, what it is called there, and the
            array's text; None of others.
        declared: where the compiler says what it has put in one place, as that for TPUs does, which
            results are written over which operands.
    """

    position: int
    results: tuple[int, ...]
    operands: tuple[tuple[int, str, str] | None, ...]
    declared: frozenset[tuple[int, int]] | None = None


@dataclass(frozen=True)
class LiveRanges:
    """The values of a scheduled module, and when a device holds them.

    A value is an array that an instruction makes; what only passes arrays on (tuples, bitcasts)
    makes none. Sequences are by value.

    Attributes:
        schedule: the instructions in the order in which they run, those of called computations
            before the instruction that calls them, of loops once.
        spans: the computations that are called, in the order in which they begin.
        makers: what makes each value; of one that a loop carries the loop.
        elements: which array of its maker's result it is.
        shapes: the array and its layout as text.
        sizes: bytes, with the padding of tiles.
        spaces: memory spaces.
        starts: position at which it begins to be held.
        ends: last position at which it is.
        readers: positions of the instructions that read it.
        buffers: a number that values have in common which must be in the same memory.
        parameters: values of the program's parameters, those in a tuple one by one.
        results: likewise of its results.
        overwriting: instructions whose results might be written over their operands.
        unfollowed: instructions that call computations in a way that is not known, or whose
            operands are not there: their results are taken for new arrays.
    """

    module: HloModule
    schedule: Sequence[Instruction]
    spans: Sequence[ScheduleSpan]
    makers: Sequence[Instruction]
    elements: Sequence[int]
    shapes: Sequence[str]
    sizes: Sequence[int]
    spaces: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    readers: Sequence[Sequence[int]]
    buffers: Sequence[int]
    parameters: Sequence[int]
    results: Sequence[int]
    overwriting: Sequence[Overwriting]
    unfollowed: Sequence[Instruction]

    @cached_property
    def in_buffer(self) -> Mapping[int, Sequence[int]]:
        """The values of each buffer, by its number."""
        values: dict[int, list[int]] = {}
        for value, buffer in enumerate(self.buffers):
            values.setdefault(buffer, []).append(value)
        return values

    def is_constant(self, value: int) -> bool:
        """Whether it is a constant of the program, which is there from the start."""
        return self.makers[value].opcode == "constant"


def is_scheduled(module: HloModule) -> bool:
    """Whether the module's text is in the order in which its instructions run."""
    return module.attributes.get("is_scheduled") == "true"


def live_ranges(module: HloModule, layout: EntryLayout) -> LiveRanges:
    """The values of a module and when they are held.

    Args:
        module: a scheduled module.
        layout: which of its parameters and results share a buffer.

    Raises:
        SdyscopeError: the module is not scheduled, its text is cut off or a shape in it can't be
            read; or its computations are called too often to be followed.
    """
    if not is_scheduled(module):
        raise SdyscopeError(
            "The module is not scheduled: its text does not say in which order it runs.",
            hint="Give the text after optimization, such as compiled.as_text().",
        )
    return _Walk(module).ranges(layout)


@lru_cache(1 << 15)
def leaves_of(text: str) -> tuple[ShapeLeaf, ...]:
    """The arrays in a shape.

    Raises:
        SdyscopeError: the text is no shape.
    """
    return tuple(map(_leaf, parse_shape(text).leaves))


def _leaf(shape: Shape) -> ShapeLeaf:
    if shape.dtype in ("token", "opaque"):
        return ShapeLeaf(shape.dtype, 0, 0)
    text = f"{shape}{shape.layout}"
    stored = stored_array(text)
    return ShapeLeaf(text, stored.bytes, stored.memory_space)


@lru_cache(1 << 15)
def elements(text: str) -> int:
    """How many elements the array has whose text this is; of a dynamic dimension its bound."""
    sizes = text.partition("[")[2].partition("]")[0]
    return math.prod(int(size.lstrip("<=")) for size in sizes.split(",") if size)


@lru_cache(1 << 15)
def _offsets(text: str) -> tuple[int, ...]:
    """Of the elements of a tuple's shape the number of the first array in each, and their end."""
    offsets = [0]
    for element in parse_shape(text).elements:
        offsets.append(offsets[-1] + len(element.leaves))
    return tuple(offsets)


@lru_cache(1 << 15)
def _begins_with_operands(text: str, count: int) -> bool:
    """Whether a shape is ``((operands), results, ...)``, as that of what is asynchronous."""
    elements = parse_shape(text).elements
    return bool(elements) and elements[0].is_tuple and len(elements[0].leaves) == count


class _Walk:
    """What has been walked through so far."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.schedule: list[Instruction] = []
        self.spans: list[ScheduleSpan] = []
        self.makers: list[Instruction] = []
        self.elements: list[int] = []
        self.leaves: list[ShapeLeaf] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.readers: list[list[int]] = []
        self.parents: list[int] = []
        self.parameters: dict[int, Leaves] = {}
        self.overwriting: list[Overwriting] = []
        self.unfollowed: list[Instruction] = []
        self.in_place: dict[str, dict[int, int]] = {}
        self.invariant: dict[str, list[bool]] = {}
        self.most = _REPEATED * max(
            sum(len(c.instructions) for c in module.computations.values()), 1
        )

    def ranges(self, layout: EntryLayout) -> LiveRanges:
        results = self.computation(self.module.computations[self.module.entry], None)
        end = len(self.schedule)
        for value in results:
            self.ends[value] = end
        parameters = [value for _, leaves in sorted(self.parameters.items()) for value in leaves]
        given_up = layout.donors.union(layout.aliases.values())
        for number, value in enumerate(parameters):
            if number not in given_up:
                self.ends[value] = end
        for result, parameter in layout.aliases.items():
            if result < len(results) and parameter < len(parameters):
                self.join(results[result], parameters[parameter])
        return LiveRanges(
            self.module,
            self.schedule,
            self.spans,
            self.makers,
            self.elements,
            [leaf.text for leaf in self.leaves],
            [leaf.bytes for leaf in self.leaves],
            [leaf.space for leaf in self.leaves],
            self.starts,
            self.ends,
            self.readers,
            [self.buffer(value) for value in range(len(self.leaves))],
            parameters,
            results,
            self.overwriting,
            self.unfollowed,
        )

    # Values.

    def new(self, instruction: Instruction, leaves: Iterable[ShapeLeaf], first: int = 0) -> Leaves:
        """Values that an instruction makes now."""
        values = []
        now = len(self.schedule)
        for element, leaf in enumerate(leaves, first):
            value = len(self.leaves)
            self.makers.append(instruction)
            self.elements.append(element)
            self.leaves.append(leaf)
            self.starts.append(now)
            self.ends.append(now)
            self.readers.append([])
            self.parents.append(value)
            values.append(value)
        return values

    def buffer(self, value: int) -> int:
        """The first of the values that are in the same memory."""
        parents = self.parents
        while parents[value] != value:
            parents[value] = parents[parents[value]]
            value = parents[value]
        return value

    def join(self, value: int, other: int) -> None:
        """Puts two values into the same memory."""
        value, other = self.buffer(value), self.buffer(other)
        if value != other:
            self.parents[max(value, other)] = min(value, other)

    def held(self, values: Iterable[int], position: int) -> None:
        """Notes that values are still held."""
        ends = self.ends
        for value in values:
            if position > ends[value]:
                ends[value] = position

    # Instructions.

    def computation(self, computation: Computation, arguments: list[Leaves] | None) -> Leaves:
        """Walks through a computation that is called with arguments, the program's with None."""
        if len(self.schedule) > self.most:
            raise SdyscopeError(
                f"{computation.name} and others are called so often that the schedule has more "
                f"than {self.most:,} instructions.",
                line=computation.line,
            )
        values: dict[str, Leaves] = {}
        schedule, ends, readers = self.schedule, self.ends, self.readers
        for name, instruction in computation.instructions.items():
            opcode = instruction.opcode
            if opcode == "parameter":
                values[name] = self.parameter(instruction, arguments)
                schedule.append(instruction)
                continue
            if opcode == "constant":
                values[name] = self.new(instruction, leaves_of(instruction.shape_text))
                schedule.append(instruction)
                continue
            operands = [values.get(operand) for operand in instruction.operands]
            if None in operands:
                self.unfollowed.append(instruction)
            known = [operand or [] for operand in operands]
            defined = self.defined_by(computation, instruction, known)
            now = len(schedule)
            # What is called reads its operands itself, and may have ended with them.
            followed = opcode == "while" or (
                opcode == "call" and self.called(instruction) is not None
            )
            if opcode not in _NOT_READING and not followed:
                reads = opcode not in IN_PLACE
                for operand in known:
                    for value in operand:
                        if now > ends[value]:
                            ends[value] = now
                        if reads:
                            readers[value].append(now)
            values[name] = defined
            schedule.append(instruction)
        root = computation.root
        results = [] if root is None else values.get(root.name, [])
        self.held(results, len(schedule) - 1)
        return results

    def parameter(self, instruction: Instruction, arguments: list[Leaves] | None) -> Leaves:
        text = instruction.rest.partition(")")[0].strip()
        number = int(text) if text.isdecimal() else 0
        if arguments is not None and number < len(arguments):
            self.held(arguments[number], len(self.schedule))
            return arguments[number]
        values = self.new(instruction, leaves_of(instruction.shape_text))
        if arguments is None:
            for value in values:
                self.starts[value] = 0
            self.parameters[number] = values
        return values

    def defined_by(
        self, computation: Computation, instruction: Instruction, operands: list[Leaves]
    ) -> Leaves:
        """The values in the result of an instruction."""
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            return self.element(computation, instruction, operands)
        if opcode == "tuple":
            return [value for operand in operands for value in operand]
        if opcode in IN_PLACE:
            return operands[0] if operands else []
        leaves = leaves_of(instruction.shape_text)
        match opcode:
            case "while":
                defined = self.loop(instruction, operands[0] if operands else [])
            case "conditional":
                defined = self.branches(instruction, leaves, operands)
            case "call":
                defined = self.call(instruction, operands)
            case _ if opcode.endswith("-start") or opcode == "send":
                defined = self.start(computation, instruction, leaves, operands)
            case "recv-done" | "send-done":
                passed = operands[0][: len(leaves) - 1] if opcode == "recv-done" else []
                defined = [*passed, *self.new(instruction, leaves[len(passed) :], len(passed))]
            case _ if opcode.endswith("-done"):
                defined = self.done(computation, instruction, operands)
            case "async-update":
                defined = operands[0] if operands else []
            case "copy" if len(leaves) != 1 and operands:
                defined = operands[0]  # Of a tuple only the table of addresses is copied.
            case _:
                defined = self.computed(computation, instruction, leaves, operands)
        if len(defined) == len(leaves):
            return defined
        self.unfollowed.append(instruction)
        return self.new(instruction, leaves)

    def element(
        self, computation: Computation, instruction: Instruction, operands: list[Leaves]
    ) -> Leaves:
        index = instruction.element
        whole = computation.instructions.get(instruction.operands[0])
        if index is None or whole is None:
            self.unfollowed.append(instruction)
            return self.new(instruction, leaves_of(instruction.shape_text))
        offsets = _offsets(whole.shape_text)
        return operands[0][offsets[index] : offsets[index + 1]]

    def called(self, instruction: Instruction) -> Computation | None:
        """The computation that an instruction takes in."""
        return next(iter(self.module.called(instruction, *_CALLS)), None)

    def inside(
        self, instruction: Instruction, computation: Computation, arguments: list[Leaves]
    ) -> Leaves:
        """Walks through a computation that an instruction runs."""
        at, start = len(self.spans), len(self.schedule)
        span = ScheduleSpan(instruction, computation.name, start, start)
        self.spans.append(span)
        results = self.computation(computation, arguments)
        self.spans[at] = ScheduleSpan(instruction, computation.name, start, len(self.schedule))
        return results

    def call(self, instruction: Instruction, operands: list[Leaves]) -> Leaves:
        computation = self.called(instruction)
        return [] if computation is None else self.inside(instruction, computation, operands)

    def branches(
        self, instruction: Instruction, leaves: Sequence[ShapeLeaf], operands: list[Leaves]
    ) -> Leaves:
        """A conditional: whichever branch is taken leaves its results in the same memory."""
        names = instruction.called(*BRANCHES)
        ended = []
        for name, operand in zip(names, operands[1:], strict=False):
            computation = self.module.computations.get(name)
            if computation is not None:
                ended.append(self.inside(instruction, computation, [operand]))
        defined = self.new(instruction, leaves)
        for results in ended:
            for result_value, other in zip(defined, results, strict=False):
                self.join(result_value, other)
        return defined

    def loop(self, instruction: Instruction, initial: Leaves) -> Leaves:
        """A loop: what it carries is in the same memory before, in and after it.

        What it starts with is held until the body begins, then what is carried.
        """
        (body,) = self.computations(instruction, "body")
        (condition,) = self.computations(instruction, "condition")
        if body is None or condition is None:
            return []
        unchanged = self.unchanged(body, len(initial))
        self.held(initial, len(self.schedule))
        now = len(self.schedule)
        carried = []
        for number, value in enumerate(initial):
            self.readers[value].append(now)
            if not unchanged[number]:
                (phi,) = self.new(instruction, (self.leaves[value],), number)
                self.join(phi, value)
                value = phi
            carried.append(value)
        self.inside(instruction, condition, [carried])
        ended = self.inside(instruction, body, [carried])
        now = len(self.schedule)
        values = []
        for number, (value, result) in enumerate(zip(carried, ended, strict=False)):
            self.held((value,) if unchanged[number] else (result,), now)
            if not unchanged[number]:
                self.join(value, result)
                (last,) = self.new(instruction, (self.leaves[value],), number)
                self.join(last, value)
                value = last
            values.append(value)
        return values

    def computations(self, instruction: Instruction, *names: str) -> tuple[Computation | None, ...]:
        called = instruction.called(*names)
        return tuple(map(self.module.computations.get, called)) or (None,) * len(names)

    def unchanged(self, body: Computation, count: int) -> list[bool]:
        """Which of the arrays that a loop carries its body only passes on."""
        if body.name in self.invariant:
            return self.invariant[body.name]
        places: dict[str, list[int]] = {}
        for name, instruction in body.instructions.items():
            match instruction.opcode:
                case "parameter":
                    places[name] = list(range(count))
                case "get-tuple-element":
                    whole, index = instruction.operands[0], instruction.element
                    if whole in places and index is not None:
                        offsets = _offsets(body.instructions[whole].shape_text)
                        places[name] = places[whole][offsets[index] : offsets[index + 1]]
                case "tuple":
                    places[name] = [
                        place
                        for operand in instruction.operands
                        for place in places.get(operand)
                        or [-1] * len(leaves_of(body.instructions[operand].shape_text))
                    ]
                case opcode if opcode in IN_PLACE and instruction.operands[0] in places:
                    places[name] = places[instruction.operands[0]]
        root = body.root
        last = [] if root is None else places.get(root.name, [])
        invariant = [number < len(last) and last[number] == number for number in range(count)]
        self.invariant[body.name] = invariant
        return invariant

    def start(
        self,
        caller: Computation,
        instruction: Instruction,
        leaves: Sequence[ShapeLeaf],
        operands: list[Leaves],
    ) -> Leaves:
        """What begins something asynchronous: its operands, then what it makes, then its state."""
        given = [value for operand in operands for value in operand]
        match instruction.opcode:
            case "copy-start":  # (copy, original, state)
                return [
                    *self.new(instruction, leaves[:1]),
                    *given[:1],
                    *self.new(instruction, leaves[2:], 2),
                ]
            case "send":
                return [*given[:1], *self.new(instruction, leaves[1:], 1)]
            case "all-reduce-start":
                return self.computed(caller, instruction, leaves, operands)
        computation = self.called(instruction)
        if computation is not None and instruction.opcode != "fusion-start":
            results = self.inside(instruction, computation, operands)
            passed = [*given, *results]
        elif instruction.opcode in ("all-gather-start", "collective-permute-start") or (
            _begins_with_operands(instruction.shape_text, len(given))
        ):
            passed = given
        else:
            passed = []
        return [*passed, *self.new(instruction, leaves[len(passed) :], len(passed))]

    def done(
        self, computation: Computation, instruction: Instruction, operands: list[Leaves]
    ) -> Leaves:
        """The results of what was begun."""
        begun = computation.instructions.get(instruction.operands[0])
        if begun is None:
            return []
        if instruction.opcode == "copy-done":
            return operands[0][:1]
        offsets = _offsets(begun.shape_text)
        if instruction.opcode == "all-reduce-done" or len(offsets) < 3:
            return operands[0]
        return operands[0][offsets[1] : offsets[2]]

    def computed(
        self,
        computation: Computation,
        instruction: Instruction,
        leaves: Sequence[ShapeLeaf],
        operands: list[Leaves],
    ) -> Leaves:
        """New arrays, those that are written over an operand in its memory."""
        defined = self.new(instruction, leaves)
        opcode = instruction.opcode
        pairs: Mapping[int, int] = {}
        match opcode:
            case "dynamic-update-slice":
                pairs = {0: 0}
            case "scatter" | "all-reduce-start":
                pairs = {number: number for number in range(len(defined))}
            case "ragged-all-to-all":
                pairs = {0: 1}
            case "fusion":
                pairs = self.updates(instruction)
        for result, operand in pairs.items():
            if result < len(defined) and operand < len(operands) and operands[operand]:
                self.join(defined[result], operands[operand][0])
        if "output_to_operand_aliasing" in instruction.rest:
            pairs = {**pairs, **self.aliasing(instruction, defined, operands)}
        declared = _declared(instruction, len(operands))
        if opcode in _OVERWRITES if declared is None else declared:
            inside = computation.instructions
            self.overwriting.append(
                Overwriting(
                    len(self.schedule),
                    tuple(-1 if number in pairs else value for number, value in enumerate(defined)),
                    tuple(
                        (operand[0], name, leaves_of(inside[name].shape_text)[0].text)
                        if len(operand) == 1
                        else None
                        for operand, name in zip(operands, instruction.operands, strict=True)
                    ),
                    declared,
                )
            )
        return defined

    def aliasing(
        self, instruction: Instruction, defined: Leaves, operands: list[Leaves]
    ) -> dict[int, int]:
        """Results that the compiler says are in an operand's memory."""
        offsets = _offsets(instruction.shape_text)
        aliases: dict[int, int] = {}
        text = instruction.attributes.get("output_to_operand_aliasing", "")
        for output, operand, _ in _ALIASING.findall(text):
            index = int(output.split(",")[0]) if output.strip() else 0
            result = offsets[index] if index < len(offsets) else 0
            number = int(operand)
            if result < len(defined) and number < len(operands) and operands[number]:
                self.join(defined[result], operands[number][0])
                aliases[result] = number
        return aliases

    def updates(self, instruction: Instruction) -> Mapping[int, int]:
        """Which results of a fusion are written over which parameter: updates of a part of it."""
        computation = self.module.fused(instruction)
        if computation is None:
            return {}
        if computation.name not in self.in_place:
            self.in_place[computation.name] = _updates(computation)
        return self.in_place[computation.name]


def _declared(instruction: Instruction, operands: int) -> frozenset[tuple[int, int]] | None:
    """Which results the compiler says that it has put over which operands; None where it does not.

    Operands and results are numbered together, in lists of what is in one place.
    """
    if _LISTED_ALIASING not in instruction.rest:
        return None
    pairs = set()
    for numbers in _LISTS.findall(instruction.rest):
        places = [int(number) for number in _NUMBER.findall(numbers)]
        pairs |= {
            (result - operands, operand)
            for result in places
            for operand in places
            if result >= operands > operand
        }
    return frozenset(pairs)


def _updates(computation: Computation) -> dict[int, int]:
    updated_operands: dict[int, int] = {}
    for number, name in enumerate(computation.results):
        producer = computation.behind(name, ("bitcast",))
        if producer is not None and producer.opcode in ("dynamic-update-slice", "scatter"):
            updated = computation.behind(producer.operands[0], ("bitcast",))
            if updated is not None and updated.parameter is not None:
                updated_operands[number] = updated.parameter
    return updated_operands
