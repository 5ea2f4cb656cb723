"""What a piece of source gives each time that it is evaluated while JAX traces."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph

#: What JAX calls ops of a backward pass, and forward ops that it computes once more for that.
_BACKWARD, _AGAIN = "transpose(", "rematted_computation"


def is_backward(op: Op) -> bool:
    """Whether an op is of a backward pass, and not of the forward pass computed once more."""
    return _BACKWARD in op.scope and _AGAIN not in op.scope


def results_and_cotangents(
    graph: OpGraph, ops: Sequence[Op]
) -> tuple[list[ValueId], list[ValueId]]:
    """What the ops of one evaluation give, and the cotangents of that where they are known."""
    own = {op.id for op in ops}
    top = [op for op in ops if op.parent not in own]
    forward = [op for op in top if _BACKWARD not in op.scope]
    again = [op for op in top if _AGAIN in op.scope]
    backward = [op for op in top if is_backward(op)]
    values = [
        value for part in (forward, again) if (value := _leaving(graph, part, own)) is not None
    ]
    if not values:
        return [], []
    node, result = values[0]
    wanted = graph.ops[node].types[result]
    entering = {
        (producer.id, edge.result)
        for op in backward
        for producer, edge in graph.operands(op)
        if producer.id not in own and edge.type == wanted and _BACKWARD in producer.scope
    }
    return values, list(entering) if len(entering) == 1 else []


def _leaving(graph: OpGraph, ops: Sequence[Op], own: set[int]) -> ValueId | None:
    """The last value of some ops that others of the same pass use."""
    last: ValueId | None = None
    for op in ops:
        for user, edge in graph.uses(op):
            outside = user.id not in own and edge.kind in ("data", "capture")
            if outside and (_BACKWARD not in user.scope or _AGAIN in op.scope):
                last = (op.id, edge.result)
    return last
