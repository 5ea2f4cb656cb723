"""Figures of ops as Model Explorer shows them on a graph: shardings, bytes and collectives.

Each is a file of Model Explorer's node data (`model_explorer/node_data_builder.py` of the package
`ai-edge-model-explorer`, `ModelNodeData`): for each graph, here a function, a value for each node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import Op, OpGraph
from sdyscope.words.sharding import NONE, short

#: Backgrounds of shardings, the most frequent first; what is replicated has none.
_COLOURS = (
    "#aecbfa", "#fdcfb4", "#b7e1cd", "#e3c4f3", "#f6dc9a", "#a9dee4", "#f8bfd6", "#d3dda0",
)  # fmt: skip

_FEW = "#ffffff"
_MUCH = {"bytes": "#6ea8fe", "sent": "#f28b82"}

NodeData = dict[str, dict[str, Any]]


def shardings(graph: OpGraph, decided: Callable[[ValueId], Sharded | None]) -> NodeData:
    """The sharding of each op's first result, by the function that it is in.

    Args:
        graph: the graph, as `graph_model_explorer` writes it.
        decided: what was decided for a value; None where nothing was.
    """
    texts = {op.id: short(sharded) for op, sharded in _first(graph, decided)}
    counts = Counter(text for text in texts.values() if text not in (NONE, "replicated"))
    colours = dict(zip((text for text, _ in counts.most_common()), _COLOURS, strict=False))
    values = {
        op: {"value": text, **({"bgColor": colours[text]} if text in colours else {})}
        for op, text in texts.items()
        if text != NONE
    }
    return _by_function(
        graph,
        "sharding",
        values,
        showExpandedSummaryOnGroupNode=True,
        hideInAggregatedStatsTable=True,  # minima and sums, which texts have not
        hideInChildrenStatsTable=True,
    )


def held(graph: OpGraph, decided: Callable[[ValueId], Sharded | None]) -> NodeData:
    """The bytes of each op's first result that one device holds."""
    values = {
        op.id: {"value": sharded.bytes_per_device}
        for op, sharded in _first(graph, decided)
        if sharded.bytes_per_device is not None
    }
    return _by_function(graph, "bytes per device", values, gradient=_gradient("bytes"))


def sent(graph: OpGraph, collectives: Collectives) -> NodeData:
    """The bytes that a device sends per step in the collectives that were made for each op."""
    totals: Counter[int] = Counter()
    for collective in collectives.collectives:
        for part in collective.parts:
            path = next(filter(None, part.tags), None)
            if path is not None:
                totals[path[-1]] += collective.count * part.sent
    values = {op: {"value": total} for op, total in totals.items()}
    return _by_function(graph, "bytes sent per step", values, gradient=_gradient("sent"))


def _first(
    graph: OpGraph, decided: Callable[[ValueId], Sharded | None]
) -> Iterator[tuple[Op, Sharded]]:
    for op in graph.ops:
        sharded = decided((op.id, 0)) if op.types else None
        if sharded is not None:
            yield op, sharded


def _gradient(name: str) -> list[dict[str, Any]]:
    return [{"stop": 0, "bgColor": _FEW}, {"stop": 1, "bgColor": _MUCH[name]}]


def _by_function(
    graph: OpGraph, name: str, values: Mapping[int, dict[str, Any]], **more: Any
) -> NodeData:
    data: NodeData = {}
    for op in graph.ops:
        if op.function and op.id in values:
            own = data.setdefault(op.function, {"name": name, "results": {}, **more})
            own["results"][str(op.id)] = values[op.id]
    return data
