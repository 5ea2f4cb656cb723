"""Arguments of which a step reads only a part: tables, caches that it writes to, what it slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from sdyscope.analysis.cost.counters import IndexPlaces
from sdyscope.graph import OpGraph, ValueId
from sdyscope.graph.op_kinds import BRANCHES, LOOPS, REGIONS, TERMINATORS
from sdyscope.walk import reached

#: Ops that write into their first operand; what they give is that, with some of it other.
_WRITERS: Final = frozenset({"stablehlo.dynamic_update_slice", "stablehlo.scatter"})
#: These, and ops that read of their first operand only as much as they give.
_PARTLY: Final = {*_WRITERS, "stablehlo.dynamic_slice", "stablehlo.gather"}
#: Ops that pass on what they are given to regions, functions, or whoever called.
_BOUNDARIES: Final = {"func.call", *LOOPS, *BRANCHES, *REGIONS, *TERMINATORS}


def looked_up(graph: OpGraph) -> tuple[str, ...]:
    """The paths of the arguments of which nothing reads all for certain, in order.

    A loop reads all of what it slices where it counts to the end of it, as a scan over layers.
    """
    if graph.main is None:
        return ()
    across: dict[ValueId, list[ValueId]] = {}
    for _, value, other in graph.crossings():
        across.setdefault(value, []).append(other)
    places = IndexPlaces(graph)

    def passed_on(value: ValueId) -> Iterator[ValueId]:
        yield from across.get(value, ())
        for user, operand in graph.users(value):
            op = graph.ops[user]
            if op.is_form:
                yield (user, operand if len(op.types) > 1 else 0)
            elif op.kind in _WRITERS and not operand:
                yield (user, 0)

    def is_read_whole(value: ValueId) -> bool:
        sliced = 0
        for user, operand in graph.users(value):
            op = graph.ops[user]
            match op.kind:
                case "stablehlo.slice":
                    sliced += _elements(graph, (user, 0))
                case "stablehlo.dynamic_slice" if not operand:
                    indices = graph.operand_values[user][1:]
                    sliced += _elements(graph, (user, 0)) * places(indices)
                case kind if kind in _PARTLY:
                    if operand:
                        return True
                case kind if not (op.is_form or kind in _BOUNDARIES):
                    return True
        # Layers that are sliced one by one are all read.
        return sliced >= _elements(graph, value) > 0

    return tuple(
        argument.name or f"argument {argument.index}"
        for argument in graph.main.arguments
        if graph.users((argument.node, 0))
        and not any(map(is_read_whole, reached([(argument.node, 0)], passed_on)))
    )


def _elements(graph: OpGraph, value: ValueId) -> int:
    """How many elements a value has; 0 where that is not known."""
    node, number = value
    return math.prod(size or 0 for size in graph.ops[node].types[number].shape or ())
