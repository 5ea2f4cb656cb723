"""Which value of a module an annotation is about."""

from __future__ import annotations

from sdyscope.annotations.model import Annotation
from sdyscope.graph import OpGraph, ValueId
from sdyscope.graph.op_kinds import REGIONS


def annotated_value(graph: OpGraph, annotation: Annotation) -> ValueId | None:
    """The value that an annotation is written on, as node and number of its result.

    Of a result of main it is the node of what main returns, and of an input of a ``shard_map`` the
    value that goes in, which other ops may use without that sharding.

    Args:
        graph: op graph of the module.
        annotation: one of ``read_annotations``, of the same module.

    Returns:
        None where the module has no such value, as where an operand was not understood.
    """
    node, index = annotation.op, annotation.index
    if annotation.kind == "result":
        return None if index is None else (graph.results()[index].id, 0)
    # GSPMD has an op for each input and output of a shard_map, Shardy one for all.
    number = (index or 0) if graph.ops[node].kind in REGIONS else 0
    if annotation.kind == "shard_map input":
        operands = graph.operands(node)
        if number >= len(operands):
            return None
        producer, edge = operands[number]
        return producer.id, edge.result
    return node, number if annotation.kind == "shard_map output" else 0
