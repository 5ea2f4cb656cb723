"""Edges across region and function boundaries, once the ops and the SSA edges are there.

Which block arguments an op's operands become is known for these ops; the bodies of reductions,
sorts and scatters take elements, not operands, so their arguments have no edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.graph.model import Edge, EdgeKind, Op
from sdyscope.graph.op_kinds import BRANCHES, LOOPS, REGIONS

if TYPE_CHECKING:
    from sdyscope.graph.op_graph import OpGraph

_Keyed: TypeAlias = tuple[int, int, str, Edge]
"""Producer, consumer, key and edge."""


#: Ops whose operands are the block arguments of each of their regions.
OPERANDS_ENTER = LOOPS | REGIONS
#: Ops whose results are what the terminator of a region returns, and of which regions.
YIELD_REGIONS: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(LOOPS, (1,)),
    **dict.fromkeys(BRANCHES | REGIONS),
}


def boundary_edges(graph: OpGraph) -> Iterator[_Keyed]:
    """Edges across boundaries, by kind `region`, `loop`, `yield`, `call` or `return`.

    Each has a key that is unique among those between its producer and its consumer.
    """
    for op in graph.operations():
        if op.kind in YIELD_REGIONS:
            yield from _region_edges(graph, op)
        elif op.attributes and op.callee is not None:
            yield from _call_edges(graph, op)
    for result in graph.results():
        end = graph.terminators.get((result.parent or 0, 0))
        yield from _leaving(graph, end, result.result, result, "return", 0)


def _region_edges(graph: OpGraph, op: Op) -> Iterator[_Keyed]:
    arguments = [child for child in graph.children(op) if child.is_argument]
    if op.kind in OPERANDS_ENTER:
        for argument in arguments:
            yield from _entering(graph, op, argument.argument, argument, "region")
    regions = YIELD_REGIONS[op.kind]
    for region in sorted({child.region for child in graph.children(op)}):
        if regions is not None and region not in regions:
            continue
        end = graph.terminators.get((op.id, region))
        for index in range(len(op.types)):
            yield from _leaving(graph, end, index, op, "yield", index)
        for argument in arguments if op.kind in LOOPS else ():
            number = argument.argument
            yield from _leaving(graph, end, number, argument, "loop", number, op.id)


def _call_edges(graph: OpGraph, call: Op) -> Iterator[_Keyed]:
    function = graph.callee(call)
    if function is None:
        return
    for argument in function.arguments:
        yield from _entering(graph, call, argument.index, graph.ops[argument.node], "call")
    end = graph.terminators.get((function.op, 0))
    for index in range(len(call.types)):
        yield from _leaving(graph, end, index, call, "return", index)


def _entering(
    graph: OpGraph, op: Op, number: int, argument: Op, kind: EdgeKind
) -> Iterator[_Keyed]:
    """The edge to an argument of a region or function, from an operand of the op that has it."""
    value = graph.operand(op, number)
    if value is not None:
        producer, result = graph.ops[value[0]], value[1]
        type_, sharding = producer.types[result], producer.shardings[result]
        edge = Edge(kind, result, number, type_, sharding, op.id)
        yield producer.id, argument.id, f"{kind}:{op.id}:{number}", edge


def _leaving(
    graph: OpGraph,
    end: Op | None,
    number: int,
    consumer: Op,
    kind: EdgeKind,
    index: int,
    via: int | None = None,
) -> Iterator[_Keyed]:
    """The edge from an operand of a terminator to what it becomes: the consumer's value `index`."""
    value = None if end is None else graph.operand(end, number)
    if end is None or value is None:
        return
    source, result = graph.ops[value[0]], value[1]
    type_, sharding = source.types[result], source.shardings[result]
    if graph.stage == "propagated":
        # What it becomes has a sharding of its own by then.
        becomes = 0 if consumer.is_argument else index
        sharding = consumer.shardings[becomes] if becomes < len(consumer.shardings) else None
    key = f"{kind}:{number}" if via is None else f"{kind}:{via}:{number}"
    yield end.id, consumer.id, key, Edge(kind, number, index, type_, sharding, via)
