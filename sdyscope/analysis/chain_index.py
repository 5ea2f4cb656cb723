"""Everything that chains are made of, value by value, for who follows them elsewhere.

`Chains` follows one chain at a time through the compiler's graph. The report has all values of a
program in it and can't ask Python: it gets what came to each value and what is annotated there, and
follows by the same rules (`reports/js/propagation_chains.js`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.axis_parts import AxisPart
from sdyscope.analysis.chain import Beginning, Direction
from sdyscope.analysis.chains import Chains
from sdyscope.analysis.flow import CONSTRAINTS, REGIONS, Arrival, Flow, Ref
from sdyscope.annotations import Annotation
from sdyscope.graph import Sharding

__all__ = ["Brought", "ChainIndex", "Linked", "Result"]


@dataclass(frozen=True, slots=True)
class Brought:
    """An axis that a step brought to a value.

    Attributes:
        arrival: the step, and where it came from.
        direction: which way it went.
        rule: what allowed it, in words.
    """

    arrival: Arrival
    direction: Direction
    rule: str


@dataclass(frozen=True, slots=True)
class Linked:
    """A value that is sharded alike without a step.

    Attributes:
        value: that value.
        op: node of the op between the two.
        direction: which way an axis goes from there.
        rule: why they are alike, in words.
    """

    value: Ref
    op: int
    direction: Direction
    rule: str


Result: TypeAlias = tuple[int, AxisPart, Beginning | None, Ref | None]
"""A dimension and axis of a result of the program: its own annotation, else the returned value
whose chain is meant."""


class ChainIndex(Chains):
    """What chains are made of in one propagation.

    Args:
        flow: its index.
        annotations: what is written in the lowered module.
    """

    def __init__(self, flow: Flow, annotations: tuple[Annotation, ...] = ()) -> None:
        super().__init__(flow, annotations)
        flow.all_arrivals()

    def brought(self, ref: Ref) -> Iterator[Brought]:
        """What steps brought to a value, in order."""
        for arrival in self.flow.arrivals(ref):
            move = self._move(ref, arrival.part, arrival)
            yield Brought(arrival, move.direction, move.rule)

    def is_boundary(self, op: int) -> bool:
        """Whether a step through an op is about what enters or leaves a region."""
        return self._is_edge(op)

    def own(self, ref: Ref) -> list[AxisPart]:
        """What a value's own annotation shards it on."""
        return self._own(ref)

    def links(self, ref: Ref) -> list[Linked]:
        """The values that are sharded alike without a step, in the order in which to try them."""
        return [Linked(*link) for link in self._links(ref)]

    def beginnings(self, ref: Ref) -> list[tuple[AxisPart, Beginning]]:
        """Where chains begin at a value: for each part of what it is sharded on."""
        found = []
        for _, part in self.flow.parts(ref):
            for piece in self.pieces(ref, part):
                beginning = self._beginning(ref, piece)
                if beginning is not None:
                    found.append((piece, beginning))
        return found

    def candidates(self) -> dict[Ref, None]:
        """The values where chains can begin: all that something is annotated on or beside."""
        flow = self.flow
        found: dict[Ref, None] = {}
        main = flow.graph.main
        for op in flow.graph.ops:
            around = None if op.parent is None else flow.graph.ops[op.parent]
            if op.is_argument:
                is_main = main is not None and op.parent == main.op
                if is_main or (around is not None and around.kind in REGIONS):
                    found[flow.root((op.id, 0))] = None
            elif op.kind in CONSTRAINTS or op.kind in REGIONS:
                for result in range(len(op.types)):
                    found[flow.root((op.id, result))] = None
                if op.kind in REGIONS:
                    found |= dict.fromkeys(flow.operands(op.id))
        found |= dict.fromkeys(flow.returned)
        for node, kind, result in self._by_op:
            value = flow.propagated.values.get((node, result or 0)) if kind == "op" else None
            if value is not None and value.node is not None:
                found[flow.root((value.node, value.result))] = None
        return found

    def result(self, index: int, ref: Ref) -> Iterator[Result] | None:
        """What a result of main is sharded on, and where to follow each axis from.

        None where nothing is written on it: it is sharded as the value that is returned.

        Args:
            index: which result.
            ref: the value that is returned.
        """
        main = self.flow.graph.main
        sharding = main.results[index].sharding if main and index < len(main.results) else None
        return None if sharding is None else self._result(index, ref, sharding)

    def _result(self, index: int, ref: Ref, sharding: Sharding) -> Iterator[Result]:
        for dimension, part in self.flow.parts_in(sharding):
            own = self.annotated_result(index, part)
            if own is not None:
                yield dimension, part, own, None
            elif self.flow.dimension_of(ref, part) is not None:
                yield dimension, part, None, ref
            else:
                yield dimension, part, None, None
