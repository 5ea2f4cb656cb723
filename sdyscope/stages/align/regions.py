"""Which value that a loop carries is which, in the lowered module and in a partitioner's.

XLA drops what a loop never changes and puts the rest into another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.graph.op_kinds import BRANCHES, LOOPS, REGIONS

#: Ops whose region becomes a part of what is around.
INLINED_REGIONS = frozenset({"sdy.named_computation"})
#: Ops whose regions hold values with shardings, and the kinds that they can be of later.
PARTITIONED_REGIONS: Mapping[str, frozenset[str]] = {
    kind: kinds for kinds in (LOOPS, BRANCHES, REGIONS - INLINED_REGIONS) for kind in kinds
}

_Source: TypeAlias = tuple[str, int]
"""Where a returned value comes from: ``("argument", 3)`` or ``("op", 17)``."""


@dataclass(frozen=True)
class Parts:
    """What goes into an op with regions, and what they return.

    Attributes:
        operands: the op's operands.
        arguments: node of each argument of each region that has some.
        returned: what each region returns.
        sources: where what the last region returns was made, calls looked through.
        unchanged: positions of arguments that the last region returns as they are.
        num_regions: how many regions there are.
    """

    operands: Sequence[ValueId]
    arguments: Mapping[int, Sequence[int]]
    returned: Sequence[Sequence[ValueId]]
    sources: Sequence[_Source]
    unchanged: frozenset[int]
    num_regions: int


@dataclass(frozen=True)
class AlignedLoop:
    """One side of a comparison: parts, operands' types, and where its operands are."""

    parts: Parts
    types: Sequence[TensorType]
    places: Sequence[ValueId | None]


def parts_of(graph: OpGraph, op: Op, operands: Sequence[ValueId]) -> Parts:
    """Takes an op with regions apart."""
    arguments: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for child in graph.children(op):
        if child.is_argument:
            arguments.setdefault(child.region, []).append(child.id)
        last[child.region] = child.id
    count = max(last, default=-1) + 1
    returned = [
        [(producer.id, use.result) for producer, use in graph.operands(last[region])]
        if region in last
        else []
        for region in range(count)
    ]
    final = returned[-1] if returned else []
    sources = [_source(graph, value) for value in final]
    inside = arguments.get(count - 1, [])
    unchanged = frozenset(
        position
        for position, (kind, node) in enumerate(sources)
        if kind == "argument" and position < len(inside) and inside[position] == node
    )
    return Parts(operands, arguments, returned, sources, unchanged, count)


def _source(graph: OpGraph, value: ValueId) -> _Source:
    """The op or region argument that a value comes from, into called functions and out of them."""
    calls: list[Op] = []
    node, result = value
    while True:
        op = graph.ops[node]
        callee = graph.callee(op)
        if callee is not None:
            last = graph.children(callee.op)[-1]
            calls.append(op)
            producer, use = graph.operands(last)[result]
        elif op.is_argument and calls and graph.ops[op.parent or 0].kind == "func.func":
            producer, use = graph.operands(calls.pop())[op.argument]
        else:
            return ("argument" if op.is_argument else "op", node)
        node, result = producer.id, use.result


def match_carried(
    mine: AlignedLoop, theirs: AlignedLoop, tags: Mapping[int, tuple[int, ...]]
) -> list[int | None]:
    """For each operand of one loop its position in the other; None where it has no such.

    Args:
        mine: the lowered module's.
        theirs: the partitioner's.
        tags: of an op of the partitioner's module, the ops that it was made from.
    """
    scores: list[tuple[int, int, int]] = []
    for i, type_ in enumerate(mine.types):
        for j, other in enumerate(theirs.types):
            if type_.shape == other.shape and type_.dtype == other.dtype:
                score = _likeness(mine, i, theirs, j, tags)
                if score >= 0:
                    scores.append((-score, i, j))
    indices: list[int | None] = [None] * len(mine.types)
    taken: set[int] = set()
    for negative, i, j in sorted(scores):
        # One that never changes and is like nothing there is gone.
        if indices[i] is None and j not in taken and (negative or i not in mine.parts.unchanged):
            indices[i] = j
            taken.add(j)
    return indices


def _likeness(
    mine: AlignedLoop, i: int, theirs: AlignedLoop, j: int, tags: Mapping[int, tuple[int, ...]]
) -> int:
    """How much speaks for one value being the other; negative when something speaks against."""
    place, score = mine.places[i], 0
    if place is not None:
        if place == theirs.places[j]:
            score += 2
        elif i in mine.parts.unchanged:
            return -1
    if i >= len(mine.parts.sources) or j >= len(theirs.parts.sources):
        return score
    if (i in mine.parts.unchanged) != (j in theirs.parts.unchanged):
        return -1
    (kind, node), (other_kind, other) = mine.parts.sources[i], theirs.parts.sources[j]
    if kind == "op" and other_kind == "op" and other in tags:
        return score + 4 if node in tags[other] else -1
    return score
