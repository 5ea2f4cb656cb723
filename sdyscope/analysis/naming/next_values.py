"""Which results are next values of arguments, by what they are made from.

A path alone does not tell: ``jax.value_and_grad(loss)(params, batch)[1]`` has the paths of
``params``, and so has an average of two trees that both have them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdyscope.analysis.naming.paths import Leaf, alike, mirrored
from sdyscope.analysis.naming.scopes import is_recomputed, is_transposed
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.model import ValueId
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.walk import reached

#: What devices do with a tensor before it is returned.
_COLLECTIVES: Final = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_permute",
        "reduce_scatter",
    )
)
#: What writes an operand into a part of another, as into a cache, or into what a scan stacks.
_WRITERS: Final = frozenset({"stablehlo.dynamic_update_slice", "stablehlo.scatter"})
#: What holds no tensor of its own: a scale, zeros that gradients are added to.
_FILLED: Final = frozenset({"stablehlo.constant", "stablehlo.iota"})


@dataclass(frozen=True, slots=True)
class Continuing:
    """What a result of main is made from, element by element.

    Attributes:
        arguments: numbers of main's arguments that go into it so.
        is_gradient: whether the backward pass made it: cotangents and numbers, and nothing else, go
            into it. Who is given it still needs the argument, whose path it has.
    """

    arguments: frozenset[int]
    is_gradient: bool


def continuing(graph: OpGraph) -> Mapping[int, Continuing]:
    """Of each result of main what it is made from.

    Elementwise ops are followed, those that pass their operand on in another form or cut it, those
    that write one operand into another, collectives, and the boundaries of functions, loops,
    branches and ``shard_map``. Ops of a backward pass are told by their scopes, in which JAX writes
    ``transpose``: gradients that are scaled, clipped, cast, constrained, summed over devices or
    over the iterations of a loop stay gradients.
    """
    within: dict[ValueId, list[ValueId]] = {}
    for _, value, other in graph.crossings():
        within.setdefault(other, []).append(value)
    numbers = {} if graph.main is None else {a.node: a.index for a in graph.main.arguments}

    def made_of(value: ValueId) -> Sequence[ValueId]:
        op = graph.ops[value[0]]
        if op.id in numbers or _is_of_backward_pass(op) or _is_filled(graph, op):
            return ()
        if value in within:
            return within[value]
        operands = graph.operand_values[op.id]
        if op.passing is not None:
            return operands[value[1] : value[1] + 1]
        if op.kind in _WRITERS:
            written = 1 if op.kind == "stablehlo.dynamic_update_slice" else len(op.types) + 1
            return operands[value[1] :: written][:2]
        if op.kind in _COLLECTIVES:
            return operands
        if not is_elementwise(op.kind):
            return ()
        shape = op.types[value[1]].shape
        return [each for each in operands if graph.ops[each[0]].types[each[1]].shape == shape]

    def of(value: ValueId) -> Continuing:
        ends = {node for node, result in reached([value], made_of) if not made_of((node, result))}
        backward = {node for node in ends if _is_of_backward_pass(graph.ops[node])}
        filled = {node for node in ends if _is_filled(graph, graph.ops[node])}
        return Continuing(
            frozenset(numbers[node] for node in ends if node in numbers),
            bool(backward) and ends == backward | filled,
        )

    return {number: of(value) for number, value in graph.returned.items()}


def gradients(graph: OpGraph) -> frozenset[int]:
    """Numbers of main's results that are gradients."""
    return frozenset(number for number, source in continuing(graph).items() if source.is_gradient)


def certain(
    results: Sequence[Leaf],
    arguments: Sequence[Leaf],
    numbers: Sequence[int],
    sources: Mapping[int, Continuing],
) -> Collection[int]:
    """Which of these results are their arguments' next values by what they are made from as well.

    They are made from the argument element by element, and from no other that has the same place in
    its tree and no next value of its own: of ``average(params, averaged)`` paths do not tell whose
    next value is returned.

    Args:
        results: all results, in order.
        arguments: the arguments.
        numbers: which of main's each of them is.
        sources: what each result is made from, see ``continuing``.
    """
    pairs = mirrored(results, arguments)
    claimed, by_path = set(pairs.values()), alike(results, arguments)

    def is_certain(result: int, argument: int) -> bool:
        of = sources.get(result)
        if of is None or of.is_gradient or numbers[argument] not in of.arguments:
            return False
        return not any(
            numbers[other] in of.arguments and other not in claimed
            for other in by_path[result]
            if other != argument
        )

    return {result for result, argument in pairs.items() if is_certain(result, argument)}


def _is_of_backward_pass(op: Op) -> bool:
    return is_transposed(op.scope) and not is_recomputed(op.scope)


def _is_filled(graph: OpGraph, op: Op) -> bool:
    """Whether it is a constant, or one number everywhere."""
    if op.kind in _FILLED:
        return True
    given = graph.operand_values[op.id]
    if op.kind != "stablehlo.broadcast_in_dim" or not given:
        return False
    (node, result), *_ = given
    return graph.ops[node].types[result].shape == ()


def only_moves(graph: OpGraph) -> bool:
    """Whether a program computes nothing: it is there to place its arguments otherwise."""
    return all(_moves(op) for op in graph.operations())


def _moves(op: Op) -> bool:
    return op.passing is not None or not op.types
