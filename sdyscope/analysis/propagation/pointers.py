"""Where each part of an axis on a value comes from: pointers from value to value.

A pointer is found once and kept. It says which move brought a part of an axis to a value, and leads
to the pointer of the value that it came from; the last one is where the user's annotation is. At
each value the move is: the step that brought the axis there; else none, where the value itself is
annotated with it; else a rule of Shardy's that moves shardings without a step (data flow across
regions and calls, sharding groups, constraints that act on their operand).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.analysis.propagation.beginnings import Beginnings
from sdyscope.analysis.propagation.flow import EDGE, Arrival, Flow, Ref, Slot
from sdyscope.annotations import Annotation
from sdyscope.facts.moves import (
    Allowed,
    Beginning,
    ByConstraint,
    ByDataFlow,
    ByGroup,
    ByRule,
    Chain,
    Direction,
    Move,
)
from sdyscope.facts.propagated import PropagatedValue, PropagationStep, ValueId
from sdyscope.graph import Op
from sdyscope.graph.op_kinds import BARRIERS, CONSTRAINTS, LOOPS, REGIONS, TERMINATORS

_EDGES = LOOPS | REGIONS | BARRIERS | TERMINATORS


class HeldPart(NamedTuple):
    """A part of an axis that a value is sharded on.

    Attributes:
        dimension: the dimension that it shards.
        pointer: the number of the pointer that says where it comes from.
    """

    dimension: int
    pointer: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a part of an axis on a value comes from.

    Attributes:
        value: the value, in the propagated graph.
        part: the axis, or the part of one.
        dimension: the dimension of the value that it shards; None when it has it no longer.
        op: node in the propagated graph that it moved through; None where nothing moved it.
        moved: what moved, which can be less than ``part``.
        number: Shardy's number of the step; None when a rule moved it that no step stands for.
        direction: which way it went.
        rule: what allowed it; None where nothing moved it.
        source: number of the pointer of the value it came from; None where nothing moved it.
        beginning: the annotation that all of this leads to; None when none was found.
    """

    value: Ref
    part: AxisPart
    dimension: int | None
    op: int | None = None
    moved: AxisPart | None = None
    number: int | None = None
    direction: Direction = "forward"
    rule: Allowed | None = None
    source: int | None = None
    beginning: Beginning | None = None


class _Link(NamedTuple):
    """How an axis came to a value without a step: from which, through which op, which way."""

    source: Ref
    op: int
    direction: Direction
    rule: Allowed


class _Nearest(NamedTuple):
    """The nearest step or annotation that explains a part of an axis, and the way back to it."""

    arrival: Arrival | None
    links: list[_Link]
    beginning: Beginning | None


#: A value, a part of an axis, and the step that it is asked before; None asks of the end.
_State: TypeAlias = tuple[Ref, AxisPart, int | None]


class Pointers:
    """Finds pointers in one propagation, each once.

    Args:
        flow: its index.
        annotations: what is written in the lowered module, to name where they end.

    Attributes:
        table: the pointers that were found, by their numbers; a pointer's source is before it.
    """

    def __init__(self, flow: Flow, annotations: tuple[Annotation, ...] = ()) -> None:
        self.flow = flow
        self.beginnings = Beginnings(flow, annotations)
        self.table: list[Pointer] = []
        self._numbers: dict[_State, int] = {}
        self._nearest: dict[_State, _Nearest] = {}
        self._pieces: dict[tuple[Ref, AxisPart], list[AxisPart]] = {}
        self._rules: dict[tuple[object, ...], ByRule] = {}

    # What a value is sharded on.

    def held(self, value: PropagatedValue) -> tuple[HeldPart, ...]:
        """Everything that a value is sharded on.

        A result of main has what is written on it, and all else from the value that is returned.
        """
        if value.node is None:
            return ()
        op = self.flow.graph.ops[value.node]
        if op.is_result:
            return tuple(self._of_result(op, value))
        return tuple(self.of((value.node, value.result)))

    def of(self, ref: Ref) -> Iterator[HeldPart]:
        """Everything that a value of the propagated graph is sharded on."""
        for dimension, part in self.flow.parts(ref):
            for piece in self.pieces(ref, part):
                yield HeldPart(dimension, self.pointer(ref, piece))

    def _of_result(self, op: Op, value: PropagatedValue) -> Iterator[HeldPart]:
        ref = self.flow.graph.returned.get(op.result)
        for dimension, part in self.flow.parts_in(value.sharding):
            own = self.beginnings.of_result(op.result, part)
            if own is None and ref is not None and self.flow.dimension_of(ref, part) is not None:
                for piece in self.pieces(ref, part):
                    yield HeldPart(dimension, self.pointer(ref, piece))
                continue
            state = ((op.id, 0), part, None)
            if state not in self._numbers:
                pointer = Pointer((op.id, 0), part, dimension, beginning=own)
                self._numbers[state] = self._add(pointer)
            yield HeldPart(dimension, self._numbers[state])

    def pieces(self, ref: Ref, part: AxisPart) -> list[AxisPart]:
        """``part`` cut where different steps brought different parts of it."""
        root = self.flow.root(ref)
        axis_parts = self._pieces.get((root, part))
        if axis_parts is None:
            axis_parts = self._pieces[root, part] = self._cut(root, part)
        return axis_parts

    def _cut(self, root: Ref, part: AxisPart) -> list[AxisPart]:
        own = [
            shared
            for start in self.beginnings.own(root)
            if (shared := start.shared(part)) is not None
        ]
        brought = [
            shared
            for arrival in self.flow.arrivals(root)
            if (shared := arrival.part.shared(part)) is not None
        ]
        # The longest first, so that what several steps brought alike is one piece.
        pieces: list[AxisPart] = []
        for piece in [*own, *sorted(brought, key=lambda axis_part: -axis_part.size)]:
            pieces += piece.without(pieces)
        return sorted([*pieces, *part.without(pieces)])

    # Following.

    def chain(self, held: HeldPart) -> Chain:
        """A part of an axis on a dimension of a value, with every move from its annotation."""
        last = self.table[held.pointer]
        way = list(self.back(held.pointer))
        moves = [
            self._move(pointer, pointer.op, pointer.moved)
            for pointer in way
            if pointer.op is not None and pointer.moved is not None
        ]
        beginning = last.beginning
        if beginning is not None:
            origin = self.beginnings.origin(way[-1].value, last.part)
            beginning = replace(beginning, origin=origin)
        axis = last.part.axis(self.flow.mesh)
        return Chain(held.dimension, axis, beginning, tuple(reversed(moves)))

    def back(self, number: int) -> Iterator[Pointer]:
        """A pointer and all that it leads to, back to where the axis comes from."""
        at: int | None = number
        while at is not None:
            pointer = self.table[at]
            yield pointer
            at = pointer.source

    def _move(self, pointer: Pointer, node: int, moved: AxisPart) -> Move:
        op = self.flow.graph.ops[node]
        assert pointer.rule is not None
        return Move(
            pointer.number,
            moved.axis(self.flow.mesh),
            self.flow.written(op),
            pointer.direction,
            pointer.rule,
            pointer.dimension,
            pointer.value,
            self._lowered(pointer.value),
        )

    def _lowered(self, ref: Ref) -> ValueId | None:
        for member in self.flow.same(ref):
            for value in self.flow.lowered_ids.get(member, ()):
                return value
        return None

    # Finding.

    def pointer(self, ref: Ref, part: AxisPart) -> int:
        """The number of the pointer of ``part`` of an axis on a value."""
        way: dict[_State, tuple[Ref, _Nearest]] = {}
        at, before = self.flow.root(ref), None
        source: int | None = None
        while True:
            state, nearest = self._state(at, part, before)
            source = self._numbers.get(state)
            if source is not None or state in way:
                break
            way[state] = at, nearest
            arrival = nearest.arrival
            if arrival is None:
                break
            at, before = arrival.source, arrival.step.number
            if arrival.step.source[0] == "result" and self._is_edge(arrival.step.op):
                # An axis that enters a loop goes to what its body yields in the same step.
                before += 1
        for state, (here, nearest) in reversed(way.items()):
            source = self._numbers[state] = self._added(here, part, nearest, source)
        assert source is not None
        return source

    def _state(self, at: Ref, part: AxisPart, before: int | None) -> tuple[_State, _Nearest]:
        """What explains ``part`` before a step, which mostly is what does in the end."""
        state: _State = (at, part, None)
        nearest = self._nearest.get(state)
        if nearest is None:
            nearest = self._nearest[state] = self._find(at, part, None)
        if before is None or nearest.arrival is None or nearest.arrival.step.number < before:
            return state, nearest
        state = (at, part, before)
        nearest = self._nearest.get(state)
        if nearest is None:
            nearest = self._nearest[state] = self._find(at, part, before)
        return state, nearest

    def _find(self, at: Ref, part: AxisPart, before: int | None) -> _Nearest:
        """The nearest step or annotation along values that are alike without a step.

        By hand: NetworkX takes twice as long (benchmarks/walks.py), as all links have to be made
        for it, of which few are looked at.
        """
        came: dict[Ref, tuple[Ref, _Link] | None] = {at: None}
        queue = deque([at])
        while queue:
            here = queue.popleft()
            own = any(part.shared(start) == part for start in self.beginnings.own(here))
            arrival = None if own else self._arrival(here, part, before)
            start = self.beginnings.at(here, part) if arrival is None else None
            if arrival is not None or start is not None:
                links: list[_Link] = []
                back = came[here]
                while back is not None:
                    links.append(back[1])
                    back = came[back[0]]
                return _Nearest(arrival, links[::-1], start)
            for link in self._links(here):
                other = link.source
                if other not in came and self.flow.dimension_of(other, part) is not None:
                    came[other] = (here, link)
                    queue.append(other)
        return _Nearest(None, [], None)

    def _arrival(self, ref: Ref, part: AxisPart, before: int | None) -> Arrival | None:
        latest: Arrival | None = None
        largest = 0
        for arrival in self.flow.arrivals(ref):
            shared = arrival.part.shared(part)
            if shared is None or (before is not None and arrival.step.number >= before):
                continue
            if shared.size > largest:
                latest, largest = arrival, shared.size
        return latest

    def _links(self, ref: Ref) -> Iterator[_Link]:
        """Values that Shardy keeps sharded alike without a step, and how."""
        flow = self.flow
        for source in flow.sources(ref):
            around = flow.around(ref)
            yield _Link(source, around.id, "data flow", ByDataFlow(around.kind))
        for target in flow.targets(ref):
            around = flow.around(target)
            yield _Link(target, around.id, "data flow", ByDataFlow(around.kind))
        for other in flow.groups.get(ref, ()):
            if other != ref:
                yield _Link(other, ref[0], "group", ByGroup())
        for op, _ in flow.uses(ref):
            if op.kind in CONSTRAINTS:
                yield _Link(flow.root((op.id, 0)), op.id, "backward", ByConstraint())

    # Making.

    def _add(self, pointer: Pointer) -> int:
        self.table.append(pointer)
        return len(self.table) - 1

    def _added(self, at: Ref, part: AxisPart, nearest: _Nearest, source: int | None) -> int:
        """Adds the pointers from the nearest step or annotation to ``at``: the last's number."""
        arrival, links, beginning = nearest
        values = [at, *(link.source for link in links)]
        dimension = self.flow.dimension_of(values[-1], part)
        if arrival is None:
            source = self._add(Pointer(values[-1], part, dimension, beginning=beginning))
        else:
            beginning = None if source is None else self.table[source].beginning
            start = self.flow.dimension_of(arrival.source, part)
            direction, rule = self.how(arrival.step, start, arrival.slot, dimension)
            source = self._add(
                Pointer(
                    values[-1],
                    part,
                    dimension,
                    arrival.step.op,
                    arrival.part.shared(part) or part,
                    arrival.step.number,
                    direction,
                    rule,
                    source,
                    beginning,
                )
            )
        for value, link in zip(values[-2::-1], links[::-1], strict=True):
            to = self.flow.dimension_of(value, part)
            way, rule = link.direction, link.rule
            source = self._add(
                Pointer(value, part, to, link.op, part, None, way, rule, source, beginning)
            )
        return source

    def how(
        self, step: PropagationStep, start: int | None, slot: Slot, to: int | None
    ) -> tuple[Direction, Allowed]:
        """Which way an axis went in a step, and what allowed it.

        Args:
            step: the step.
            start: the dimension that it came from.
            slot: operand or result of the step's op that it went to.
            to: the dimension of that.
        """
        op = self.flow.graph.ops[step.op]
        if self._is_edge(op.id):
            return "data flow", ByDataFlow(self._around(op).kind)
        # Layers repeat: their ops share rules.
        key = (op.kind, id(op.sharding_rule), len(op.types), step.source, start, slot, to)
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = rules.moved(op, step.source, start, slot, to)
        return rules.direction(step.source, slot), rule

    def _is_edge(self, op: int) -> bool:
        """Whether steps through an op are about values that enter or leave a region."""
        kind = self.flow.graph.ops[op].kind
        return kind == EDGE or kind in _EDGES

    def _around(self, op: Op) -> Op:
        """The op whose boundary a step through ``op`` is about."""
        if op.kind == EDGE:
            return self.flow.graph.ops[self.flow.root((op.id, 0))[0]]
        if op.kind in TERMINATORS and op.parent is not None:
            return self.flow.graph.ops[op.parent]
        return op
