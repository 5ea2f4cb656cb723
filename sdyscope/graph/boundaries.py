"""Edges across region and function boundaries, once the ops and the SSA edges are there.

Which block arguments an op's operands become is known for these ops; the bodies of reductions,
sorts and scatters take elements, not operands, so their arguments have no edges.
"""

from __future__ import annotations

from sdyscope.graph.model import Edge, EdgeKind, Op, OpGraph

__all__ = ["add_boundary_edges"]

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


def add_boundary_edges(graph: OpGraph) -> None:
    """Adds the edges of kind `region`, `loop`, `yield`, `call` and `return`."""
    terminators = _terminators(graph)
    for op in graph.ops:
        if op.kind in YIELD_REGIONS:
            _region_edges(graph, op, terminators)
        elif op.attributes and op.callee is not None:
            _call_edges(graph, op, terminators)


def _terminators(graph: OpGraph) -> dict[tuple[int, int], Op]:
    """The last op of each region that has edges out of it, by (id of the op with it, region)."""
    last: dict[tuple[int, int], Op] = {}
    for op in graph.ops:
        if op.parent is not None and op.argument < 0:
            last[op.parent, op.region] = op
    return last


def _region_edges(graph: OpGraph, op: Op, terminators: dict[tuple[int, int], Op]) -> None:
    operands = graph.operands(op) if op.kind in OPERANDS_ENTER else []
    arguments = [child for child in graph.children(op) if child.is_argument]
    if operands:
        for argument in arguments:
            if argument.argument < len(operands):
                producer, use = operands[argument.argument]
                _add(graph, producer, argument, "region", use.result, argument.argument, op.id)
    regions = YIELD_REGIONS[op.kind]
    for region in sorted({child.region for child in graph.children(op)}):
        if regions is not None and region not in regions:
            continue
        end = terminators.get((op.id, region))
        if end is None:
            continue
        count = len(graph.operands(end))
        for index in range(min(count, len(op.types))):
            _add(graph, end, op, "yield", index, index, None)
        if op.kind in LOOPS:
            for argument in arguments:
                if argument.argument < count:
                    _add(graph, end, argument, "loop", argument.argument, argument.argument, op.id)


def _call_edges(graph: OpGraph, call: Op, terminators: dict[tuple[int, int], Op]) -> None:
    function = graph.callee(call)
    if function is None:
        return
    for argument, (producer, use) in zip(function.arguments, graph.operands(call), strict=False):
        target = graph.ops[argument.node]
        _add(graph, producer, target, "call", use.result, argument.index, call.id)
    end = terminators.get((function.op, 0))
    if end is not None:
        for index in range(min(len(graph.operands(end)), len(call.types))):
            _add(graph, end, call, "return", index, index, None)


def _add(
    graph: OpGraph,
    producer: Op,
    consumer: Op,
    kind: EdgeKind,
    result: int,
    operand: int,
    via: int | None,
) -> None:
    if kind in ("loop", "yield", "return"):
        # The producer is a terminator: the value is its operand's.
        source, use = graph.operands(producer)[result]
        type_, sharding = source.types[use.result], source.shardings[use.result]
    else:
        type_, sharding = producer.types[result], producer.shardings[result]
    key = f"{kind}:{operand}" if via is None else f"{kind}:{via}:{operand}"
    edge = Edge(kind, result, operand, type_, sharding, via)
    graph.nx.add_edge(producer.id, consumer.id, key, edge=edge)
