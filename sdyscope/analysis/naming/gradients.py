"""Which results of a program are gradients, and no next values, though their paths are alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sdyscope.analysis.naming.scopes import is_differentiated, is_recomputed, is_transposed
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.model import ValueId
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.walk import reached

#: What devices do with gradients before they are returned.
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
#: What holds no tensor of its own: a scale, zeros that gradients are added to.
_FILLED: Final = frozenset({"stablehlo.constant", "stablehlo.iota"})


def gradients(graph: OpGraph) -> frozenset[int]:
    """Numbers of main's results that are gradients: what the backward pass made, and no more.

    ``jax.value_and_grad(loss)(params, batch)[1]`` has the paths of ``params``, and is no next value
    of it: a caller still needs ``params``. The ops of a backward pass are told by their scopes, in
    which JAX writes ``transpose``. Gradients that are scaled, clipped, cast, constrained, summed
    over devices or over the iterations of a loop stay gradients; what an argument goes into as well
    is its next value. What can't be followed is none.
    """
    if not is_differentiated(op.scope for op in graph.operations()):
        return frozenset()
    within: dict[ValueId, list[ValueId]] = {}
    for _, value, other in graph.crossings():
        within.setdefault(other, []).append(value)

    def made_of(value: ValueId) -> Sequence[ValueId]:
        op = graph.ops[value[0]]
        if _is_of_backward_pass(op) or _is_filled(graph, op):
            return ()
        if value in within:
            return within[value]
        operands = graph.operand_values[op.id]
        if op.passing is not None:
            return operands[value[1] : value[1] + 1]
        return operands if op.kind in _COLLECTIVES or is_elementwise(op.kind) else ()

    def is_gradient(value: ValueId) -> bool:
        ends = [end for end in reached([value], made_of) if not made_of(end)]
        backward = [_is_of_backward_pass(graph.ops[node]) for node, _ in ends]
        filled = [_is_filled(graph, graph.ops[node]) for node, _ in ends]
        return any(backward) and all(map(max, backward, filled))

    return frozenset(number for number, value in _returned(graph) if is_gradient(value))


def _returned(graph: OpGraph) -> Iterator[tuple[int, ValueId]]:
    """What main returns; a scalar, such as a loss, is nothing's gradient by its path."""
    for number, (node, result) in graph.returned.items():
        if graph.ops[node].types[result].shape:
            yield number, (node, result)


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
