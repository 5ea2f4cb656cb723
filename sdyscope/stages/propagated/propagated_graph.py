"""The op graph of the lowered module, carrying the shardings that propagation decided."""

from __future__ import annotations

from dataclasses import replace

from sdyscope.facts.propagated import Propagated
from sdyscope.graph import Function, Op, OpGraph


def propagated_graph(graph: OpGraph, propagated: Propagated) -> OpGraph:
    """The same ops and edges, each value with its propagated sharding.

    A value that the compiler folded away, or that is not partitioned, has none. Attributes still
    say what was lowered.

    Args:
        graph: op graph of the lowered module.
        propagated: its propagation.
    """
    ops = [_op(op, propagated) for op in graph.ops]
    functions = {name: _function(function, ops) for name, function in graph.functions.items()}
    return replace(graph, ops=ops, functions=functions, stage="propagated", before=graph)


def _op(op: Op, propagated: Propagated) -> Op:
    values = [propagated.values.get((op.id, result)) for result in range(len(op.types))]
    shardings = tuple(None if value is None else value.sharding for value in values)
    return op if shardings == op.shardings else op._replace(shardings=shardings)


def _function(function: Function, ops: list[Op]) -> Function:
    arguments = tuple(
        replace(argument, sharding=ops[argument.node].shardings[0])
        for argument in function.arguments
    )
    results = tuple(
        result if result.node is None else replace(result, sharding=ops[result.node].shardings[0])
        for result in function.results
    )
    return replace(function, arguments=arguments, results=results)
