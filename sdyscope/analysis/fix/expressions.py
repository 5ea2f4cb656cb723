"""The expressions of a program's source, and the values of the lowered module that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.naming.evaluations import results_and_cotangents
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.patches.source import Span


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
            results, back = results_and_cotangents(graph, ops)
            values += results
            cotangents += back
        types = {graph.ops[node].types[result] for node, result in values}
        first = next(iter(types), None)
        if len(types) != 1 or first is None or not first.shape or None in first.shape:
            continue
        shape = tuple(size or 0 for size in first.shape)
        yield Expression(span, tuple(values), tuple(cotangents), shape, first.dtype)
