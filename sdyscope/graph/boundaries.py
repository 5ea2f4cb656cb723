"""Edges across region and function boundaries, once the ops and the SSA edges are there.

Which block arguments an op's operands become is known for these ops; the bodies of reductions,
sorts and scatters take elements, not operands, so their arguments have no edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.graph.model import Edge, EdgeKind, Op

if TYPE_CHECKING:
    from sdyscope.graph.op_graph import OpGraph

__all__ = ["boundary_edges"]

_Keyed: TypeAlias = tuple[int, int, str, Edge]
"""Producer, consumer, key and edge."""


#: Ops whose operands are the block arguments of each of their regions.
OPERANDS_ENTER = frozenset(
    {"stablehlo.while", "mhlo.while", "sdy.manual_computation", "sdy.named_computation"}
)
#: Of these, the ops whose (second) region runs again on what it returned.
LOOPS = frozenset({"stablehlo.while", "mhlo.while"})
#: Ops whose results are what the terminator of a region returns, and of which regions.
YIELD_REGIONS: dict[str, tuple[int, ...] | None] = {
    "stablehlo.while": (1,),
    "mhlo.while": (1,),
    "stablehlo.case": None,
    "mhlo.case": None,
    "stablehlo.if": None,
    "mhlo.if": None,
    "sdy.manual_computation": None,
    "sdy.named_computation": None,
}


def boundary_edges(graph: OpGraph) -> Iterator[_Keyed]:
    """Edges across boundaries, by kind `region`, `loop`, `yield`, `call` or `return`.

    Each has a key that is unique among those between its producer and its consumer.
    """
    terminators = _terminators(graph)
    for op in graph.ops:
        if op.kind in YIELD_REGIONS:
            yield from _region_edges(graph, op, terminators)
        elif op.attributes and op.callee is not None:
            yield from _call_edges(graph, op, terminators)


def _terminators(graph: OpGraph) -> dict[tuple[int, int], Op]:
    """The last op of each region that has edges out of it, by (id of the op with it, region)."""
    last: dict[tuple[int, int], Op] = {}
    for op in graph.ops:
        if op.parent is not None and op.argument < 0:
            last[op.parent, op.region] = op
    return last


def _region_edges(
    graph: OpGraph, op: Op, terminators: dict[tuple[int, int], Op]
) -> Iterator[_Keyed]:
    operands = graph.operands(op) if op.kind in OPERANDS_ENTER else []
    arguments = [child for child in graph.children(op) if child.is_argument]
    if operands:
        for argument in arguments:
            if argument.argument < len(operands):
                producer, use = operands[argument.argument]
                yield _entering(producer, argument, "region", use.result, argument.argument, op.id)
    regions = YIELD_REGIONS[op.kind]
    for region in sorted({child.region for child in graph.children(op)}):
        if regions is not None and region not in regions:
            continue
        end = terminators.get((op.id, region))
        if end is None:
            continue
        returned = graph.operands(end)
        for index in range(min(len(returned), len(op.types))):
            yield _leaving(graph, end, returned[index], op, "yield", index, None)
        if op.kind in LOOPS:
            for argument in arguments:
                if argument.argument < len(returned):
                    one = returned[argument.argument]
                    yield _leaving(graph, end, one, argument, "loop", argument.argument, op.id)


def _call_edges(
    graph: OpGraph, call: Op, terminators: dict[tuple[int, int], Op]
) -> Iterator[_Keyed]:
    function = graph.callee(call)
    if function is None:
        return
    for argument, (producer, use) in zip(function.arguments, graph.operands(call), strict=False):
        target = graph.ops[argument.node]
        yield _entering(producer, target, "call", use.result, argument.index, call.id)
    end = terminators.get((function.op, 0))
    if end is not None:
        returned = graph.operands(end)
        for index in range(min(len(returned), len(call.types))):
            yield _leaving(graph, end, returned[index], call, "return", index, None)


def _entering(
    producer: Op, consumer: Op, kind: EdgeKind, result: int, operand: int, via: int
) -> _Keyed:
    """An edge to the argument of a region or function, from the value that it is."""
    type_, sharding = producer.types[result], producer.shardings[result]
    edge = Edge(kind, result, operand, type_, sharding, via)
    return producer.id, consumer.id, f"{kind}:{via}:{operand}", edge


def _leaving(
    graph: OpGraph,
    end: Op,
    returned: tuple[Op, Edge],
    consumer: Op,
    kind: EdgeKind,
    index: int,
    via: int | None,
) -> _Keyed:
    """An edge from a terminator, for one of its operands."""
    source, use = returned
    type_, sharding = source.types[use.result], source.shardings[use.result]
    if graph.stage == "propagated":
        # What it becomes has a sharding of its own by then.
        result = 0 if consumer.is_argument else index
        sharding = consumer.shardings[result] if result < len(consumer.shardings) else None
    key = f"{kind}:{index}" if via is None else f"{kind}:{via}:{index}"
    return end.id, consumer.id, key, Edge(kind, index, index, type_, sharding, via)
