"""The expressions of a program's source, and the values of the lowered module that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.patches.source import Span

#: What JAX calls ops of a backward pass, and forward ops that it computes once more for that.
_BACKWARD, _AGAIN = "transpose(", "rematted_computation"


@dataclass(frozen=True)
class Expression:
    """One expression, and what it makes each time that it is evaluated while JAX traces.

    Attributes:
        span: where it is.
        values: what it makes, one a time.
        cotangents: what the backward pass has for these values, where that is known: a constraint
            of a value constrains its cotangent alike.
        shape: shape of the values.
        dtype: their MLIR element type.
    """

    span: Span
    values: tuple[ValueId, ...]
    cotangents: tuple[ValueId, ...]
    shape: tuple[int, ...]
    dtype: str


def expressions(
    graph: OpGraph,
    spans: Mapping[int, Sequence[Span]],
    editable: Callable[[str], bool],
) -> Iterator[Expression]:
    """The expressions that make one array of one shape each time.

    Args:
        graph: op graph of the lowered module.
        spans: the frames of each op, innermost first.
        editable: whether a file is one to edit.
    """
    evaluated: dict[Span, dict[tuple[Span, ...], list[Op]]] = {}
    for op in graph.operations():
        frames = spans.get(op.id, ())
        if op.id in graph.inside_shard_maps:
            continue
        for depth, span in enumerate(frames):
            if editable(span.file):
                outer = tuple(frames[depth + 1 :])
                evaluated.setdefault(span, {}).setdefault(outer, []).append(op)
    for span, each in evaluated.items():
        values: list[ValueId] = []
        cotangents: list[ValueId] = []
        for ops in each.values():
            results, back = _results_and_cotangents(graph, ops)
            values += results
            cotangents += back
        types = {graph.ops[node].types[result] for node, result in values}
        first = next(iter(types), None)
        if len(types) != 1 or first is None or not first.shape or None in first.shape:
            continue
        shape = tuple(size or 0 for size in first.shape)
        yield Expression(span, tuple(values), tuple(cotangents), shape, first.dtype)


def _results_and_cotangents(
    graph: OpGraph, ops: Sequence[Op]
) -> tuple[list[ValueId], list[ValueId]]:
    """What an expression makes when it is evaluated once, and the cotangents of that."""
    own = {op.id for op in ops}
    top = [op for op in ops if op.parent not in own]
    forward = [op for op in top if _BACKWARD not in op.scope]
    again = [op for op in top if _AGAIN in op.scope]
    backward = [op for op in top if _BACKWARD in op.scope and _AGAIN not in op.scope]
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
