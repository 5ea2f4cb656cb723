"""The op graph of the lowered module, carrying the shardings that propagation decided."""

from __future__ import annotations

from dataclasses import replace

from sdyscope.graph import Edge, Function, Op, OpGraph, Sharding
from sdyscope.propagated import Propagated

__all__ = ["propagated_graph"]

#: Edges whose producer is a terminator: what they carry is known by their consumer.
_FROM_TERMINATORS = ("loop", "yield", "return")


def propagated_graph(graph: OpGraph, propagated: Propagated) -> OpGraph:
    """The same ops and edges, each value with its propagated sharding.

    A value that the compiler folded away, or that is not partitioned, has none. Attributes still
    say what was lowered.

    Args:
        graph: op graph of the lowered module.
        propagated: its propagation.
    """
    ops = [_op(op, propagated) for op in graph.ops]
    nx = graph.nx.copy()
    for node, data in nx.nodes(data=True):
        data["op"] = ops[node]
    for producer, consumer, data in nx.edges(data=True):
        edge: Edge = data["edge"]
        data["edge"] = replace(edge, sharding=_carried(edge, ops[producer], ops[consumer]))
    functions = {
        name: _function(function, ops, propagated) for name, function in graph.functions.items()
    }
    return replace(graph, nx=nx, ops=ops, functions=functions, stage="propagated")


def _op(op: Op, propagated: Propagated) -> Op:
    found = [propagated.values.get((op.id, result)) for result in range(len(op.types))]
    shardings = tuple(None if value is None else value.sharding for value in found)
    return op if shardings == op.shardings else replace(op, shardings=shardings)


def _carried(edge: Edge, producer: Op, consumer: Op) -> Sharding | None:
    if edge.kind in _FROM_TERMINATORS:
        index = 0 if consumer.is_argument else edge.operand
        shardings = consumer.shardings
    else:
        index, shardings = edge.result, producer.shardings
    return shardings[index] if index < len(shardings) else None


def _function(function: Function, ops: list[Op], propagated: Propagated) -> Function:
    arguments = tuple(
        replace(argument, sharding=ops[argument.node].shardings[0])
        for argument in function.arguments
    )
    after = propagated.graph.main
    results = function.results
    # XLA calls the entry main, whatever its name was; other functions are gone.
    if after is not None and function.name == "main" and len(after.results) == len(results):
        results = tuple(
            replace(result, sharding=found.sharding)
            for result, found in zip(results, after.results, strict=True)
        )
    return replace(function, arguments=arguments, results=results)
