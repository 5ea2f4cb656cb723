"""What the collectives of a module move, and in which layout that arrives where it is taken.

In the module that XLA just partitioned, between what makes a value and what takes it there are only
instructions that move it, whatever these are named after. What they do is worked out device by
device; what they begin with is in the dump before partitioning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from sdyscope.stages.audit.facts import SUMS, AuditedOp, AuditedWay, Blocks, Layout
from sdyscope.stages.audit.hlo_dump import DumpedHlo, DumpedInstruction, shapes
from sdyscope.stages.audit.names import TAGGED, named_ops, opcodes_of, types_of
from sdyscope.stages.audit.pieces import Moves, Pieces, local_shape
from sdyscope.walk import reached

#: Instructions that move a value, cut it or lay it out otherwise, where they are no op themselves.
_MOVING: Final = frozenset(
    {
        "all-gather",
        "all-to-all",
        "bitcast-convert",
        "collective-permute",
        "convert",
        "copy",
        "dynamic-slice",
        "reshape",
        "slice",
        "transpose",
    }
)
#: Stands for the program's return among the ops.
RETURN: Final = -1


class DumpedValue(NamedTuple):
    """A value: what an instruction makes, or one element of that."""

    name: str
    element: int | None = None


class Laid(NamedTuple):
    """What the dump before partitioning says.

    Attributes:
        ops: those of the lowered module.
        layouts: by op with one result the layout of that, where it is known.
        arguments: those of the program's arguments.
    """

    ops: Sequence[AuditedOp]
    layouts: Mapping[int, Layout]
    arguments: Sequence[Layout]


@dataclass(frozen=True)
class _Traced:
    """A value, followed back.

    Attributes:
        makers: the ops that make it.
        arguments: the arguments that it is.
        calls: the ops around these: functions that were called, and loops.
        given: its layout there.
        constrained: those that constraints gave it on the way.
        pieces: what devices hold of it here.
    """

    makers: frozenset[int] = frozenset()
    arguments: frozenset[int] = frozenset()
    calls: frozenset[int] = frozenset()
    given: Blocks | None = None
    constrained: tuple[Blocks | None, ...] = ()
    pieces: Pieces | None = None

    @property
    def blocks(self) -> Blocks | None:
        """The layout of what devices hold here."""
        return None if self.pieces is None else self.pieces.blocks()


_UNKNOWN: Final = _Traced()


class Ways:
    """Follows values through a module.

    Args:
        module: the module behind XLA's partitioner.
        devices: how many devices run it.
        laid: how its values were laid out before.
    """

    def __init__(self, module: DumpedHlo, devices: int, laid: Laid) -> None:
        self.module = module
        self.devices = devices
        self.laid = laid
        self.moves = Moves(module, devices)
        self._traced: dict[DumpedValue, _Traced] = {}

    def way(self, collective: DumpedInstruction) -> AuditedWay:
        """What a collective moves, and how that arrives."""
        begin = self.traced(DumpedValue(collective.operands[0]))
        arrived: list[tuple[int, Blocks | None]] = []
        passed: list[Blocks | None] = []

        def onward(place: DumpedValue) -> Iterator[DumpedValue]:
            for further, taker in self.further(place):
                if taker is not None:
                    tags = dict.fromkeys(TAGGED.findall(taker.op_name))
                    arrived.extend((int(tag), self.traced(place).blocks) for tag in tags)
                if further is not None:
                    yield further

        for place in reached([DumpedValue(collective.name)], onward):
            instruction = self.module.instructions[place.name]
            blocks = self.traced(place).blocks
            if instruction.opcode in _MOVING:
                passed.append(blocks)
            if instruction.is_root and instruction.computation == self.module.entry:
                arrived.append((RETURN, blocks))
        return AuditedWay(
            makers=sorted(begin.makers),
            arguments=sorted(begin.arguments),
            calls=sorted(begin.calls),
            given=begin.given,
            constrained=list(begin.constrained),
            arrived=arrived,
            passed=passed,
        )

    def further(
        self, place: DumpedValue
    ) -> Iterator[tuple[DumpedValue | None, DumpedInstruction | None]]:
        """What a value goes on as, and the instructions that take it."""
        instruction = self.module.instructions[place.name]
        if instruction.is_root:
            for caller in self.module.callers[instruction.computation]:
                if caller.opcode in ("call", "conditional", "while"):
                    yield DumpedValue(caller.name, place.element), None
                if caller.opcode == "while":
                    yield None, caller
                    for name, _ in self.module.called(caller):
                        for parameter in self.module.given[name].values():
                            yield DumpedValue(parameter, place.element), None
        for user, operand in self.module.users[place.name]:
            match user.opcode:
                case "get-tuple-element":
                    if place.element in (None, user.index):
                        yield DumpedValue(user.name), None
                case "tuple":
                    yield DumpedValue(user.name, operand), None
                case "opt-barrier":
                    yield DumpedValue(user.name, place.element), None
                case "while":
                    for name, _ in self.module.called(user):
                        for parameter in self.module.given[name].values():
                            yield DumpedValue(parameter, place.element), None
                    yield None, user
                case "call" | "conditional":
                    called = [name for name, _ in self.module.called(user)]
                    number = operand
                    if user.opcode == "conditional":  # Its first operand says which is taken.
                        called, number = called[operand - 1 : operand] if operand else [], 0
                    for name in called:
                        if number in self.module.given[name]:
                            yield DumpedValue(self.module.given[name][number], place.element), None
                    yield None, user
                case opcode if opcode in _MOVING and operand == 0 and self.op_of(user) is None:
                    yield DumpedValue(user.name), None
                case _:
                    yield None, user

    def traced(self, place: DumpedValue) -> _Traced:
        """A value, followed back to what makes it."""
        if place not in self._traced:
            self._traced[place] = _UNKNOWN  # What comes back to itself says nothing.
            self._traced[place] = self._trace(place)
        return self._traced[place]

    def _trace(self, place: DumpedValue) -> _Traced:
        instruction = self.module.instructions[place.name]
        operands = instruction.operands
        match instruction.opcode:
            case "parameter":
                return self._parameter(instruction, place.element)
            case "get-tuple-element":
                return self.traced(DumpedValue(operands[0], instruction.index))
            case "tuple":
                at = place.element
                return _UNKNOWN if at is None else self.traced(DumpedValue(operands[at]))
            case "opt-barrier":
                return self.traced(DumpedValue(operands[0], place.element))
            case "while":
                # What it begins with is laid out as what it carries.
                begins = self.traced(DumpedValue(operands[0], place.element))
                body = self.module.body(instruction)
                ends = self.traced(DumpedValue(self.module.root(body).name, place.element))
                own = begins if begins.pieces is not None else ends
                itself = [op for op in named_ops(instruction.op_name) if op < len(self.laid.ops)]
                return replace(
                    own,
                    makers=begins.makers.union(ends.makers, itself),
                    arguments=begins.arguments | ends.arguments,
                    calls=begins.calls | ends.calls,
                    given=own.blocks,
                    constrained=(),
                )
            case "call":
                ((called, _),) = self.module.called(instruction)
                return self.traced(DumpedValue(self.module.root(called).name, place.element))
        op = self.op_of(instruction)
        if op is not None:
            return self._result_of(op, instruction)
        if instruction.opcode in _MOVING:
            before = self.traced(DumpedValue(operands[0]))
            pieces = before.pieces and self.moves.moved(instruction, before.pieces)
            moved = replace(before, pieces=pieces)
            if self.is_constraint(instruction):
                moved = replace(moved, constrained=(*moved.constrained, moved.blocks))
            return moved
        named = named_ops(instruction.op_name)
        if instruction.opcode in SUMS and len(named) == 1 and named[0] < len(self.laid.ops):
            return self._result_of(named[0], instruction)
        return _UNKNOWN

    def _parameter(self, instruction: DumpedInstruction, element: int | None) -> _Traced:
        number = instruction.parameter
        assert number is not None
        if instruction.computation == self.module.entry:
            if number >= len(self.laid.arguments):
                return _UNKNOWN
            pieces = self._pieces(self.laid.arguments[number], instruction)
            return _Traced(
                arguments=frozenset([number]),
                given=None if pieces is None else pieces.blocks(),
                pieces=pieces,
            )
        callers = self.module.callers[instruction.computation]
        if len(callers) != 1:
            return _UNKNOWN
        caller = callers[0]
        match caller.opcode:
            case "while":
                return self.traced(DumpedValue(caller.name, element))
            case "call":
                return self.traced(DumpedValue(caller.operands[number], element))
        return _UNKNOWN

    def _result_of(self, op: int, instruction: DumpedInstruction) -> _Traced:
        layout = self.laid.layouts.get(op)
        ((_, shape),) = types_of(self.laid.ops[op]) if layout is not None else [("", ())]
        pieces = None
        if layout is not None and local_shape(layout, shape) == _shape(instruction):
            pieces = self._pieces(layout, instruction)
        return _Traced(
            makers=frozenset([op]),
            calls=frozenset(map(int, TAGGED.findall(instruction.op_name))),
            given=None if pieces is None else pieces.blocks(),
            pieces=pieces,
        )

    def _pieces(self, layout: Layout, instruction: DumpedInstruction) -> Pieces | None:
        shape = _shape(instruction)
        if shape is None or any(len(row) != len(shape) for row in layout.blocks):
            return None
        return Pieces.of(layout, shape, self.devices)

    def is_constraint(self, instruction: DumpedInstruction) -> bool:
        """Whether it is what XLA leaves of a constraint: a copy in the layout that this gives."""
        named = [op for op in named_ops(instruction.op_name) if op < len(self.laid.ops)]
        is_copy = instruction.opcode == "copy" and bool(named)
        return is_copy and all(self.laid.ops[op].is_constraint for op in named)

    def op_of(self, instruction: DumpedInstruction) -> int | None:
        """The op that an instruction is; None where XLA put it in between."""
        for number in named_ops(instruction.op_name):
            if number >= len(self.laid.ops):
                continue
            op = self.laid.ops[number]
            if op.is_constraint or instruction.opcode not in opcodes_of(op):
                continue
            layout = self.laid.layouts.get(number)
            if instruction.opcode not in _MOVING or layout is None:
                return number
            # What is cut or laid out on the way to an op of the same kind is named after it, too.
            (_, shape), *_ = types_of(op)
            if local_shape(layout, shape) == _shape(instruction):
                return number
        return None


def _shape(instruction: DumpedInstruction) -> tuple[int, ...] | None:
    arrays = shapes(instruction.type)
    return arrays[0][1] if len(arrays) == 1 else None
