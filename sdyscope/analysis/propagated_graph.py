"""The op graph of the lowered module, carrying the shardings that propagation decided."""

from __future__ import annotations

from dataclasses import replace

from sdyscope.graph import Function, Op, OpGraph
from sdyscope.propagated import Propagated

__all__ = ["propagated_graph"]


def propagated_graph(graph: OpGraph, propagated: Propagated) -> OpGraph:
    """The same ops and edges, each value with its propagated sharding.

    A value that the compiler folded away, or that is not partitioned, has none. Attributes still
    say what was lowered.

    Args:
        graph: op graph of the lowered module.
        propagated: its propagation.
    """
    ops = [_op(op, propagated) for op in graph.ops]
    functions = {
        name: _function(function, ops, propagated) for name, function in graph.functions.items()
    }
    return replace(graph, ops=ops, functions=functions, stage="propagated")


def _op(op: Op, propagated: Propagated) -> Op:
    found = [propagated.values.get((op.id, result)) for result in range(len(op.types))]
    shardings = tuple(None if value is None else value.sharding for value in found)
    return op if shardings == op.shardings else op._replace(shardings=shardings)


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
