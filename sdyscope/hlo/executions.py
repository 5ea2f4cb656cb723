"""How often each computation of a module runs when the module runs once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sdyscope.errors import SdyscopeError
from sdyscope.hlo.loops import trip_count
from sdyscope.hlo.model import Computation, HloModule, Instruction

__all__ = ["Execution", "calls", "executions"]

#: Ops that run other computations, and the attributes that name these. Computations that only say
#: how to combine two numbers (``to_apply`` of a reduction) are not among them.
_CALLERS: Mapping[str, tuple[str, ...]] = {
    "call": ("to_apply", "calls", "called_computations"),
    "fusion": ("calls",),
    "while": ("body", "condition"),
    "conditional": ("branch_computations", "true_computation", "false_computation"),
    "async-start": ("calls", "called_computation"),
    "custom-call": ("called_computations", "calls", "to_apply"),
}


@dataclass(frozen=True, slots=True)
class Execution:
    """How often a computation runs.

    Attributes:
        times: how often, calls and loops included. A loop whose trip count the text does not tell
            counts once, a branch of a conditional as if it were always taken.
        unknown_trips: whether such a loop is among the callers.
        conditional: whether such a branch is.
        fused: whether it is (in) the computation of a fusion.
        asynchronous: whether an ``async-start`` runs it.
    """

    times: int = 0
    unknown_trips: bool = False
    conditional: bool = False
    fused: bool = False
    asynchronous: bool = False


def executions(module: HloModule) -> dict[str, Execution]:
    """How often each computation runs that runs at all, by name.

    Raises:
        SdyscopeError: a computation calls itself, or a loop's text is cut off.
    """
    order = _callers_first(module)
    found = {module.entry: Execution(1)}
    for name in order:
        own, computation = found[name], module.computations[name]
        for instruction, called in calls(computation):
            if called not in module.computations:
                continue
            here = _with_call(module, computation, instruction, called, own)
            before = found.get(called, Execution())
            found[called] = Execution(
                before.times + here.times,
                before.unknown_trips or here.unknown_trips,
                before.conditional or here.conditional,
                before.fused or here.fused,
                before.asynchronous or here.asynchronous,
            )
    return found


def _with_call(
    module: HloModule, caller: Computation, instruction: Instruction, called: str, own: Execution
) -> Execution:
    match instruction.opcode:
        case "while":
            trips = trip_count(module, caller, instruction)
            if trips is None:
                return replace(own, unknown_trips=True)
            is_condition = called in instruction.called("condition")
            return replace(own, times=own.times * (trips + is_condition))
        case "conditional":
            return replace(own, conditional=True)
        case "fusion":
            return replace(own, fused=True)
        case "async-start":
            return replace(own, asynchronous=True)
    return own


def calls(computation: Computation) -> Iterator[tuple[Instruction, str]]:
    """The computations that a computation runs: (instruction that does, name), in order."""
    for instruction in computation.instructions.values():
        names = _CALLERS.get(instruction.opcode)
        if names is not None:
            for called in instruction.called(*names):
                yield instruction, called


def _callers_first(module: HloModule) -> list[str]:
    """The computations that are reached from the entry, each after all that call it."""
    callees = {
        name: [called for _, called in calls(computation) if called in module.computations]
        for name, computation in module.computations.items()
    }
    done: dict[str, None] = {}
    opened: set[str] = set()
    stack = [(module.entry, iter(callees[module.entry]))]
    opened.add(module.entry)
    while stack:
        name, rest = stack[-1]
        called = next(rest, None)
        if called is None:
            stack.pop()
            opened.discard(name)
            done[name] = None
        elif called in opened:
            line = module.computations[called].line
            raise SdyscopeError(f"The computation {called} calls itself.", line=line)
        elif called not in done:
            opened.add(called)
            stack.append((called, iter(callees[called])))
    return list(done)[::-1]
