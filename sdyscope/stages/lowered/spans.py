"""The expressions that each op of a module stands in: its call stack, each frame to its end.

The op graph keeps where a frame begins, which tells lines apart; an edit needs to know where an
expression ends, too. JAX writes both: ``"model.py":204:29 to :56``.
"""

from __future__ import annotations

from typing import Any

from sdyscope.graph import OpGraph
from sdyscope.patches.source import Span
from sdyscope.stages.align.tags import operations


def frame_spans(module: Any, graph: OpGraph) -> dict[int, tuple[Span, ...]]:
    """The frames of every op that has some, innermost first, by its node in the graph.

    Args:
        module: an ``ir.Module``.
        graph: its op graph.

    Raises:
        CompilerError: the graph is not that of the module.
    """
    known: dict[Any, tuple[Span, ...]] = {}
    by_node: dict[int, tuple[Span, ...]] = {}
    for node, operation in operations(module, graph).items():
        spans = _spans(operation.location, known)
        if spans:
            by_node[node] = spans
    return by_node


def _spans(location: Any, known: dict[Any, tuple[Span, ...]]) -> tuple[Span, ...]:
    attribute = location.attr
    spans = known.get(attribute)
    if spans is None:
        spans = known[attribute] = _read(location, known)
    return spans


def _read(location: Any, known: dict[Any, tuple[Span, ...]]) -> tuple[Span, ...]:
    if _is(location, "file"):
        return (
            Span(
                str(location.filename),
                location.start_line,
                location.start_col,
                location.end_line,
                location.end_col,
            ),
        )
    if _is(location, "name"):
        child = location.child_loc
        inside = _spans(child, known)
        if len(inside) == 1 and _is(child, "file"):
            name = str(location.name_str)
            if "/" not in name and not name.endswith(")"):
                innermost = inside[0]
                return (
                    Span(
                        innermost.file,
                        innermost.line,
                        innermost.column,
                        innermost.end_line,
                        innermost.end_column,
                        name,
                    ),
                )
        return inside
    if _is(location, "callsite"):
        return _spans(location.callee, known) + _spans(location.caller, known)
    if _is(location, "fused"):
        return next((spans for part in location.locations if (spans := _spans(part, known))), ())
    return ()


_CLASSES = {
    "name": "NameLoc",
    "callsite": "CallSiteLoc",
    "file": "FileLineColLoc",
    "fused": "FusedLoc",
}


def _is(location: Any, kind: str) -> bool:
    """Up to JAX 0.9 there is one class of locations, which is asked; then one a kind."""
    ask = getattr(location, f"is_a_{kind}", None)
    return bool(ask()) if ask is not None else type(location).__name__ == _CLASSES[kind]
