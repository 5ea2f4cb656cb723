"""What the arguments of a program are to it: parameters, optimizer state, or what it works on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from sdyscope.analysis.naming.paths import Leaf, kept_for
from sdyscope.analysis.naming.scopes import is_differentiated, phase_of
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor
from sdyscope.graph.model import ValueId
from sdyscope.graph.op_graph import OpGraph
from sdyscope.walk import reached

Role: TypeAlias = Literal["parameters", "optimizer state", "state", "inputs"]
"""``parameters`` and ``optimizer state`` of a program that is differentiated; ``state`` is what
another program returns the next value of, such as a cache, and what such a one keeps beside its
parameters and does not update them by, such as their averages; ``inputs`` is everything else."""

_FLOATS = ("f", "bf", "tf")


def roles(
    arguments: Sequence[Leaf],
    kept: Collection[int],
    in_passes: Collection[int] | None,
    *,
    differentiated: bool,
) -> tuple[Role, ...]:
    """The role of each argument.

    An argument is kept from step to step where a result is its next value. Of these, parameters are
    the floats that the forward or backward pass uses, or that something is kept of (``kept_for``).

    Args:
        arguments: all arguments, in order.
        kept: numbers of those that a result is the next value of.
        in_passes: which arguments the forward or backward pass uses; None where that is not known.
        differentiated: whether the program has a backward pass.
    """
    of_parameters = kept_for(arguments, in_passes, kept)

    def role(number: int, argument: Leaf) -> Role:
        if number not in kept:
            return "inputs"
        if not differentiated:
            return "state"
        if not argument.dtype.startswith(_FLOATS) or number in of_parameters:
            return "optimizer state"
        if in_passes is None or number in in_passes or number in of_parameters.values():
            return "parameters"
        return "optimizer state"  # Adafactor's rows and columns have shapes of their own.

    return tuple(role(number, argument) for number, argument in enumerate(arguments))


def without_averages(
    role_of: Mapping[int, Role], following: Sequence[tuple[int, int]], graph: OpGraph
) -> dict[int, Role]:
    """The roles of main's arguments, by number, with those of averages of parameters.

    What an optimizer keeps the next parameters are made from; an average of parameters is made from
    these, and none is made from it: it is ``state``.

    Args:
        role_of: what each argument is by what is kept of what.
        following: numbers of arguments, and of the results that are their next values.
        graph: op graph of the module.
    """
    updated = {result for argument, result in following if role_of[argument] == "parameters"}
    used = _arguments_behind(graph, updated) if updated else role_of
    return {
        number: "state" if role == "optimizer state" and number not in used else role
        for number, role in role_of.items()
    }


def _arguments_behind(graph: OpGraph, results: Collection[int]) -> frozenset[int]:
    """Numbers of main's arguments that some of its results are made from."""
    if graph.main is None:
        return frozenset()
    inside: dict[ValueId, list[ValueId]] = {}
    for _, value, other in graph.crossings():
        inside.setdefault(other, []).append(value)

    def behind(value: ValueId) -> Iterator[ValueId]:
        # What a call or loop gives is what ends its body, which takes what that is given.
        yield from inside.get(value) or graph.operand_values[value[0]]

    starts = [value for index, value in graph.returned.items() if index in results]
    nodes = {node for node, _ in reached(starts, behind)}
    return frozenset(argument.index for argument in graph.main.arguments if argument.node in nodes)


def pass_rows(
    graph: OpGraph, rows: Sequence[Tensor], partitioner: Partitioner
) -> frozenset[int] | None:
    """Which of these arguments the passes use, counted as they are given."""
    used = pass_arguments(graph)
    if used is None:
        return None
    return frozenset(
        number for number, row in enumerate(rows) if row.lowered[partitioner].index in used
    )


def pass_arguments(graph: OpGraph) -> frozenset[int] | None:
    """Numbers of main's arguments that the forward or backward pass uses.

    None for a program that is not differentiated, as JAX's scopes tell.
    """
    if graph.main is None or not is_differentiated(op.scope for op in graph.operations()):
        return None
    across: dict[ValueId, list[ValueId]] = {}
    for kind, value, other in graph.crossings():
        # Of a function that several call, the ops have the scope of one of the calls.
        if kind != "call" or len(graph.callers(graph.ops[other[0]].function)) == 1:
            across.setdefault(value, []).append(other)

    def passed_on(value: ValueId) -> Iterator[ValueId]:
        yield from across.get(value, ())
        for user, operand in graph.users(value):
            op = graph.ops[user]
            if op.passing is not None:
                yield user, operand if len(op.types) > 1 else 0

    def is_used(argument: ValueId) -> bool:
        return any(
            phase_of(graph.ops[user].scope, differentiated=True) != "other"
            for value in reached([argument], passed_on)
            for user, _ in graph.users(value)
        )

    return frozenset(
        argument.index for argument in graph.main.arguments if is_used((argument.node, 0))
    )
