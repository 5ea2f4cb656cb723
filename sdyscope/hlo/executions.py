"""How often each computation of a module runs when the module runs once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sdyscope.errors import SdyscopeError
from sdyscope.hlo.loops import trip_count
from sdyscope.hlo.model import BRANCHES, CALLED, Computation, HloModule, Instruction

#: Ops that run other computations, and the attributes that name these. Computations that only say
#: how to combine two numbers (``to_apply`` of a reduction) are not among them.
_CALLERS: Mapping[str, tuple[str, ...]] = {
    "call": CALLED,
    "fusion": ("calls",),
    "while": ("body", "condition"),
    "conditional": BRANCHES,
    "async-start": ("calls", "called_computation"),
    # What async-start is written as where it wraps just one such op: on TPUs what SparseCores do.
    "call-start": CALLED,
    "fusion-start": ("calls",),
    "custom-call-start": CALLED,
    "custom-call": CALLED,
}


@dataclass(frozen=True, slots=True)
class ExecutionCount:
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


#: For each computation the (instruction, computation that it runs), in order.
CallSites: TypeAlias = Mapping[str, Sequence[tuple[Instruction, str]]]


def call_sites(module: HloModule) -> CallSites:
    """Which computations each computation runs, by which instruction; only those that are there."""
    return module.once(
        call_sites,
        lambda: {
            name: [
                (instruction, called)
                for instruction in computation.instructions.values()
                if (attributes := _CALLERS.get(instruction.opcode)) is not None
                for called in instruction.called(*attributes)
                if called in module.computations
            ]
            for name, computation in module.computations.items()
        },
    )


def caller_of(module: HloModule) -> Mapping[str, tuple[Computation, Instruction]]:
    """By which instruction of which computation each is run; of several, the last."""
    return module.once(
        caller_of,
        lambda: {
            called: (module.computations[caller], instruction)
            for caller, sites in call_sites(module).items()
            for instruction, called in sites
        },
    )


def loops_around(module: HloModule, computation: Computation) -> Iterator[Computation]:
    """The bodies of loops that a computation is, or is run by, the innermost first."""
    callers, at = caller_of(module), computation
    while at.name in callers:
        caller, site = callers[at.name]
        if site.opcode == "while" and at.name in site.called("body"):
            yield at
        at = caller


def executions(module: HloModule) -> Mapping[str, ExecutionCount]:
    """How often each computation runs that runs at all, by name.

    Args:
        module: the module.

    Raises:
        SdyscopeError: a computation calls itself, or the text of a call is cut off.
    """
    return module.once(executions, lambda: _executions(module, call_sites(module)))


def _executions(module: HloModule, sites: CallSites) -> dict[str, ExecutionCount]:
    counts = {module.entry: ExecutionCount(1)}
    for name in _callers_first(module, sites):
        own, computation = counts[name], module.computations[name]
        for instruction, called in sites[name]:
            here = _with_call(module, computation, instruction, called, own)
            before = counts.get(called, ExecutionCount())
            counts[called] = ExecutionCount(
                before.times + here.times,
                before.unknown_trips or here.unknown_trips,
                before.conditional or here.conditional,
                before.fused or here.fused,
                before.asynchronous or here.asynchronous,
            )
    return counts


def _with_call(
    module: HloModule,
    caller: Computation,
    instruction: Instruction,
    called: str,
    own: ExecutionCount,
) -> ExecutionCount:
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
        case "fusion-start":
            return replace(own, fused=True, asynchronous=True)
        case "async-start" | "call-start" | "custom-call-start":
            return replace(own, asynchronous=True)
    return own


def _callers_first(module: HloModule, sites: CallSites) -> list[str]:
    """The computations that are reached from the entry, each after all that call it.

    By hand: NetworkX's `topological_sort` takes 5 times as long (benchmarks/walks.py), and does not
    say which of them calls itself.
    """
    done: dict[str, None] = {}
    opened = {module.entry}
    stack = [(module.entry, iter(sites[module.entry]))]
    while stack:
        name, rest = stack[-1]
        site = next(rest, None)
        if site is None:
            stack.pop()
            opened.discard(name)
            done[name] = None
        elif site[1] in opened:
            line = module.computations[site[1]].line
            raise SdyscopeError(f"The computation {site[1]} calls itself.", line=line)
        elif site[1] not in done:
            opened.add(site[1])
            stack.append((site[1], iter(sites[site[1]])))
    return list(done)[::-1]
