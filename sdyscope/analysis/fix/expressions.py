"""The expressions of a program's source, and the values of the lowered module that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.naming.evaluations import evaluated, results_and_cotangents
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph
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
    framed = (
        (op, spans.get(op.id, ()))
        for op in graph.operations()
        if op.id not in graph.inside_shard_maps
    )
    every: dict[Span, tuple[list[ValueId], list[ValueId]]] = {}
    for span, _, place in evaluated(framed, lambda span: span):
        if editable(span.file):
            known = every.setdefault(span, ([], []))
            for sofar, more in zip(known, results_and_cotangents(graph, place), strict=True):
                sofar += more
    for span, (values, cotangents) in every.items():
        types = {graph.ops[node].types[result] for node, result in values}
        first = next(iter(types), None)
        if len(types) != 1 or first is None or not first.shape or None in first.shape:
            continue
        shape = tuple(size or 0 for size in first.shape)
        yield Expression(span, tuple(values), tuple(cotangents), shape, first.dtype)
