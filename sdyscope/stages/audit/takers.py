"""Which ops of the program take what a collective moves, in the module that XLA just partitioned.

There every op still is an instruction with its name, and what XLA put in between only moves or lays
out a value. Later XLA fuses, and its libraries' calls have no names.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from sdyscope.stages.audit.facts import AuditedMove
from sdyscope.stages.audit.hlo_dump import (
    SHIFTING,
    DumpedHlo,
    DumpedInstruction,
    groups_of_line,
    shapes,
)
from sdyscope.stages.audit.names import TAGGED, named_ops
from sdyscope.stages.audit.ways import DumpedValue, Ways
from sdyscope.walk import reached

_CHANNEL = re.compile(r", channel_id=(\d+)")

#: Opcodes that leave a value what it is: whole or a block of it, laid out or rounded otherwise.
_FORMS = frozenset(
    {"bitcast", "convert", "copy", "dynamic-slice", "reshape", "slice", "transpose", *SHIFTING}
)
#: Those that are such whatever they are named after: a constraint is a copy.
_ALWAYS = frozenset({"copy", "opt-barrier"})


class Takers:
    """Follows what collectives give, instruction by instruction.

    Args:
        module: the module behind XLA's partitioner.
        devices: how many devices run it.
        ways: follows what they move, too; None where that is not asked for.
    """

    def __init__(self, module: DumpedHlo, devices: int, ways: Ways | None = None) -> None:
        self.module = module
        self.devices = devices
        self.ways = ways
        self.by_kind: dict[str, list[DumpedInstruction]] = defaultdict(list)
        for instruction in module.instructions.values():
            self.by_kind[_kind(instruction)].append(instruction)

    def moves(self, compiled: DumpedInstruction) -> list[AuditedMove]:
        """What takes what a collective of the compiled program gives.

        Of each collective that it can have been before XLA combined, copied and renamed it; nothing
        where none is known.
        """
        own = named_ops(compiled.op_name)
        return [self.move(each, own) for each in self.before(compiled)]

    def before(self, compiled: DumpedInstruction) -> list[DumpedInstruction]:
        """What a collective of the compiled program can have been.

        XLA keeps its channel, where it is one of a module's, and mostly its name.
        """
        channel = _channel(compiled)
        groups = groups_of_line(compiled.line, self.devices)
        alike = [
            each
            for each in self.by_kind[_kind(compiled)]
            if _elements(each) == _elements(compiled)
            and groups_of_line(each.line, self.devices) == groups
        ]
        on_channel = [each for each in alike if channel and _channel(each) == channel]
        named = [
            each
            for each in on_channel or alike
            # What is in a loop or a function has the name of that before its own.
            if each.op_name == compiled.op_name
            or (each.op_name and compiled.op_name.endswith(f"/{each.op_name}"))
        ]
        same = [each for each in named if each.name == compiled.name]
        return same or named or on_channel

    def move(self, collective: DumpedInstruction, own: Collection[int]) -> AuditedMove:
        """What takes what a collective gives.

        Args:
            collective: one of this module.
            own: the ops that XLA names it after.
        """
        takers: dict[str, DumpedInstruction] = {}
        start = DumpedValue(collective.name)
        places = list(reached([start], lambda place: self.further(place, own, takers)))
        makers = self.module.behind(collective)
        return AuditedMove(
            # What is in a loop or a function is taken by that, too.
            takers=sorted(
                {int(tag) for each in takers.values() for tag in TAGGED.findall(each.op_name)}
            ),
            is_returned=any(map(self.is_result, places)),
            is_named_as_maker=any(_is_of(each, own) for each in makers),
            is_named_as_taker=any(_is_of(each, own) for each in takers.values()),
            is_generated='is_spmd_generated="true"' in collective.line,
            way=None if self.ways is None else self.ways.way(collective),
        )

    def is_result(self, place: DumpedValue) -> bool:
        """Whether a value is one that the program returns."""
        instruction = self.module.instructions[place.name]
        return instruction.is_root and instruction.computation == self.module.entry

    def further(
        self, place: DumpedValue, own: Collection[int], takers: dict[str, DumpedInstruction]
    ) -> Iterator[DumpedValue]:
        """What a value goes on as; adds the instructions that take it to ``takers``."""
        instruction = self.module.instructions[place.name]
        if instruction.is_root:
            for caller in self.module.callers[instruction.computation]:
                if caller.opcode in ("call", "conditional"):
                    yield DumpedValue(caller.name, place.element)
                elif caller.opcode == "while":
                    takers[caller.name] = caller
                    yield DumpedValue(caller.name, place.element)
                    yield from self.within(caller, place.element)
        for user, operand in self.module.users[place.name]:
            match user.opcode:
                case "get-tuple-element":
                    if place.element in (None, user.index):
                        yield DumpedValue(user.name)
                case "tuple":
                    yield DumpedValue(user.name, operand)
                case "while":
                    takers[user.name] = user
                    yield from self.within(user, place.element)
                case "call" | "conditional":
                    takers[user.name] = user
                    yield from self.into(user, operand, place.element)
                case opcode:
                    takers[user.name] = user
                    is_own = set(named_ops(user.op_name)) <= set(own)
                    if opcode in _ALWAYS or (_kind(user) in _FORMS and is_own):
                        yield DumpedValue(
                            user.name, place.element if opcode == "opt-barrier" else None
                        )

    def within(self, loop: DumpedInstruction, element: int | None) -> Iterator[DumpedValue]:
        """What a loop carries, in each run of it."""
        for name, _ in self.module.called(loop):
            for parameter in self.module.given[name].values():
                yield DumpedValue(parameter, element)

    def into(
        self, caller: DumpedInstruction, operand: int, element: int | None
    ) -> Iterator[DumpedValue]:
        """What a function or branch is given."""
        called = [name for name, _ in self.module.called(caller)]
        if caller.opcode == "conditional":  # Its first operand says which branch is taken.
            called, operand = called[operand - 1 : operand] if operand else [], 0
        for name in called:
            if operand in self.module.given[name]:
                yield DumpedValue(self.module.given[name][operand], element)


def _is_of(instruction: DumpedInstruction, ops: Collection[int]) -> bool:
    return any(op in ops for op in named_ops(instruction.op_name))


def _kind(instruction: DumpedInstruction) -> str:
    return instruction.opcode.removesuffix("-start")


def _channel(collective: DumpedInstruction) -> str:
    channel = _CHANNEL.search(collective.line)
    return channel[1] if channel else ""


def _elements(collective: DumpedInstruction) -> int:
    """How many it gives: XLA later turns and reshapes it, or cuts it into several."""
    return sum(math.prod(dims) for _, dims in shapes(collective.type))
