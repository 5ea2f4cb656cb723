"""Where values go and come from in a compiled program, from instruction to instruction.

Fusions, calls and what runs asynchronously are looked into, and elements of tuples are kept apart.
Loops and branches are ends: values that enter one have reached it. So is not, going back, a loop of
XLA's own that hands blocks round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from sdyscope.hlo import CallSites, Computation, HloModule, Instruction
from sdyscope.walk import reached

#: Ops that are one with their computation, which is what has a say first.
INLINE = ("fusion", "fusion-start", "call", "async-start", "call-start", "custom-call-start")
#: Values that are the same for whatever they are used with.
_NOTHING = ("constant", "iota", "partition-id", "replica-id", "rng-get-and-update-state")
#: Ops whose other operands are places, sizes or paddings.
_FIRST = ("dynamic-slice", "pad", "gather", "slice")
#: Collectives that communicate several values at once, each of which they give back by itself.
_JOINING = ("all-gather", "all-reduce", "collective-permute", "reduce-scatter")
#: Values that are looked at from one.
_MOST = 200


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """A value of a compiled program.

    Attributes:
        computation: name of the computation it is in.
        name: the instruction that it is the result of.
        element: which element of a tuple; None for all of it.
    """

    computation: str
    name: str
    element: int | None = None


@dataclass(frozen=True, slots=True)
class WalkEnds:
    """The ends of a walk, nearest first.

    Attributes:
        instructions: instructions that were not gone through.
        boundary: going on, results of the program; going back, its parameters.
    """

    instructions: tuple[Instruction, ...]
    boundary: tuple[int, ...]


class InstructionFlow:
    """Walks along the values of a module.

    Args:
        module: the program of one device.
        sites: which computations its instructions run.
    """

    def __init__(self, module: HloModule, sites: CallSites) -> None:
        self.module = module
        self.sites = sites

    @cached_property
    def callers(self) -> dict[str, tuple[str, Instruction]]:
        """By computation the first instruction that runs it, and where that is."""
        callers: dict[str, tuple[str, Instruction]] = {}
        for name, sites in self.sites.items():
            for instruction, called in sites:
                callers.setdefault(called, (name, instruction))
        return callers

    def users(self, place: ValuePlace) -> list[Instruction]:
        """The instructions that have the value, or the tuple it is in, as an operand."""
        return self.module.computations[place.computation].users.get(place.name, [])

    def forward(self, start: ValuePlace, passes: Callable[[Instruction], bool]) -> WalkEnds:
        """The nearest users of a value.

        Args:
            start: the value.
            passes: whether a user's result stands for the value, so that its users count instead.
        """
        ends: dict[str, Instruction] = {}
        results: dict[int, None] = {}

        def step(place: ValuePlace) -> Iterator[ValuePlace]:
            computation = self.module.computations[place.computation]
            if _is_root(computation, place.name):
                if computation.is_entry:
                    results[place.element or 0] = None
                elif (caller := self.callers.get(computation.name)) is not None:
                    around, instruction = caller
                    if not passes(instruction):
                        ends[instruction.name] = instruction
                    elif instruction.opcode in INLINE:
                        yield ValuePlace(around, instruction.name, place.element)
            for user in self.users(place):
                if user.opcode == "get-tuple-element":
                    if place.element in (None, user.element):
                        yield ValuePlace(place.computation, user.name)
                    continue
                at = [number for number, name in enumerate(user.operands) if name == place.name]
                inside = self.inside(user)
                if user.opcode == "tuple":
                    yield from (ValuePlace(place.computation, user.name, number) for number in at)
                elif inside is not None:
                    yield from (
                        parameter for number in at if (parameter := _parameter(inside, number))
                    )
                elif passes(user):
                    yield ValuePlace(place.computation, user.name)
                else:
                    ends[user.name] = user

        for _ in reached([start], step, _MOST):
            pass
        return WalkEnds(tuple(ends.values()), tuple(results))

    def backward(
        self,
        start: Iterable[ValuePlace],
        passes: Callable[[Instruction], bool],
        is_round: Callable[[Instruction], bool] | None = None,
    ) -> WalkEnds:
        """The nearest instructions that make values; constants are none.

        Args:
            start: the values.
            passes: whether what an instruction is given stands for what it makes.
            is_round: whether a loop only hands values round: in its body they are then what it
                begins with, or what the iteration before it hands on. None where none does.

        What takes one of several values out that are communicated at once is an end before what
        communicates them: it has the name of that value alone.
        """
        ends: dict[str, Instruction] = {}
        parameters: dict[int, None] = {}

        def step(place: ValuePlace) -> Iterator[ValuePlace]:
            computation = self.module.computations[place.computation]
            maker = computation.instructions.get(place.name)
            if maker is None or maker.opcode in _NOTHING:
                return
            if maker.opcode == "parameter":
                number = maker.parameter or 0
                caller = self.callers.get(computation.name)
                if computation.is_entry:
                    parameters[number] = None
                elif caller is not None:
                    around, instruction = caller
                    operands = instruction.operands
                    root = computation.root if instruction.opcode == "while" else None
                    if is_round is not None and root is not None and is_round(instruction):
                        yield ValuePlace(around, operands[0], place.element)
                        yield ValuePlace(computation.name, root.name, place.element)
                    elif not passes(instruction):
                        ends[instruction.name] = instruction
                    elif instruction.opcode in INLINE and number < len(operands):
                        yield ValuePlace(around, operands[number], place.element)
                return
            operands = maker.operands
            inside = self.inside(maker)
            if maker.opcode == "get-tuple-element":
                joined = computation.instructions.get(operands[0])
                if joined is not None and is_joined(joined) and not passes(joined):
                    ends[maker.name] = maker
                yield ValuePlace(place.computation, operands[0], maker.element)
            elif maker.opcode == "tuple":
                at = place.element
                chosen = operands if at is None else operands[at : at + 1]
                yield from (ValuePlace(place.computation, name) for name in chosen)
            elif inside is not None and (root := inside.root) is not None:
                yield ValuePlace(inside.name, root.name, place.element)
            elif passes(maker):
                taken = operands[:1] if maker.opcode in _FIRST else operands
                if (at := place.element) is not None and is_joined(maker):
                    taken = operands[at : at + 1]
                yield from (ValuePlace(place.computation, name) for name in taken)
            else:
                ends[maker.name] = maker

        for _ in reached(start, step, _MOST):
            pass
        return WalkEnds(tuple(ends.values()), tuple(parameters))

    def inside(self, instruction: Instruction) -> Computation | None:
        """The computation that is one with what is around the instruction."""
        if instruction.opcode not in INLINE:
            return None
        called = instruction.called("calls", "to_apply", "called_computation")
        return self.module.computations.get(called[0]) if called else None


def is_joined(instruction: Instruction) -> bool:
    """Whether an instruction communicates several values at once."""
    return instruction.base in _JOINING and len(instruction.operands) > 1


def _is_root(computation: Computation, name: str) -> bool:
    instruction = computation.instructions.get(name)
    return instruction is not None and (instruction.is_root or instruction is computation.root)


def _parameter(computation: Computation, number: int) -> ValuePlace | None:
    parameter = computation.parameters.get(number)
    return None if parameter is None else ValuePlace(computation.name, parameter.name)
