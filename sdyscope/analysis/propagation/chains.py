"""The chain of an axis: from the user's annotation, step by step, to the value that it is on.

A chain is found backwards. At each value: the step that brought the axis there; else what the value
itself was annotated with; else a rule of Shardy's that moves shardings without a step (data flow
across regions and calls, sharding groups, constraints that act on their operand).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from sdyscope.analysis.propagation import rule_words
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.chain import Beginning, BeginningKind, Chain, Direction, Move
from sdyscope.analysis.propagation.flow import (
    BARRIERS,
    CONSTRAINTS,
    EDGE,
    LOOPS,
    REGIONS,
    TERMINATORS,
    Arrival,
    Flow,
    Ref,
)
from sdyscope.annotations import Annotation
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.source import SourceLocation

__all__ = ["Chains"]

_EDGES = LOOPS | REGIONS | BARRIERS | TERMINATORS

#: How an axis came to a value without a step: through which op, which way, by what rule.
_Link: TypeAlias = tuple[Ref, int, Direction, str]


class Chains:
    """Finds chains in one propagation.

    Args:
        flow: its index.
        annotations: what is written in the lowered module, to name where chains begin.
    """

    def __init__(self, flow: Flow, annotations: tuple[Annotation, ...] = ()) -> None:
        self.flow = flow
        self._by_argument = {a.index: a for a in annotations if a.kind == "argument"}
        self._by_result = {a.index: a for a in annotations if a.kind == "result"}
        self._by_op = {
            (a.op, a.kind, a.index if a.kind != "constraint" else 0): a for a in annotations
        }
        self._owned: dict[Ref, list[AxisPart]] = {}
        self._good: set[tuple[int, Ref, AxisPart]] = set()

    def chains(self, ref: Ref) -> tuple[Chain, ...]:
        """The chains of everything that a value of the propagated graph is sharded on."""
        return tuple(
            self.chain(ref, dimension, piece)
            for dimension, part in self.flow.parts(ref)
            for piece in self.pieces(ref, part)
        )

    def pieces(self, ref: Ref, part: AxisPart) -> list[AxisPart]:
        """``part`` cut where different steps brought different parts of it."""
        root = self.flow.root(ref)
        own = [shared for one in self._own(root) if (shared := one.shared(part)) is not None]
        brought = [
            shared
            for arrival in self.flow.arrivals(root)
            if (shared := arrival.part.shared(part)) is not None
        ]
        # The longest first, so that what several steps brought alike is one piece.
        pieces: list[AxisPart] = []
        for piece in [*own, *sorted(brought, key=lambda one: -one.size)]:
            pieces += piece.without(pieces)
        return sorted([*pieces, *part.without(pieces)])

    def chain(self, ref: Ref, dimension: int, part: AxisPart) -> Chain:
        """The chain of ``part`` of an axis on a dimension of a value."""
        moves: list[Move] = []
        beginning = None
        at, before = self.flow.root(ref), None
        for arrival, links, start in self._walk(at, part, before):
            for link in links:
                moves.append(self._unnumbered(at, part, link))
                at = link[0]
            if arrival is not None:
                moves.append(self._move(at, part, arrival))
                at = arrival.source
            beginning = start
        axis = part.axis(self.flow.mesh)
        return Chain(dimension, axis, beginning, tuple(reversed(moves)))

    def is_explained(self, ref: Ref, part: AxisPart) -> bool:
        """Whether the chain of ``part`` on a value has a beginning. Remembers what it found."""
        seen: list[tuple[int, Ref, AxisPart]] = []
        explained = False
        for arrival, _, start in self._walk(self.flow.root(ref), part, None):
            explained = start is not None
            if arrival is None:
                continue
            state = (arrival.step.number, arrival.source, part)
            if state in self._good:
                explained = True
                break
            seen.append(state)
        if explained:
            self._good.update(seen)
        return explained

    # Searching.

    def _walk(
        self, at: Ref, part: AxisPart, before: int | None
    ) -> Iterator[tuple[Arrival | None, list[_Link], Beginning | None]]:
        """Backwards from a value: each time a step, the links before it, and where it ends."""
        while True:
            arrival, links, start = self._before(at, part, before)
            yield arrival, links, start
            if arrival is None:
                return
            at, before = arrival.source, arrival.step.number
            if arrival.step.source[0] == "result" and self._is_edge(arrival.step.op):
                # An axis that enters a loop goes to what its body yields in the same step.
                before += 1

    def _before(
        self, at: Ref, part: AxisPart, before: int | None
    ) -> tuple[Arrival | None, list[_Link], Beginning | None]:
        """The nearest step or annotation that explains ``part`` at ``at``, and the way there."""
        came: dict[Ref, tuple[Ref, _Link] | None] = {at: None}
        queue = deque([at])
        while queue:
            here = queue.popleft()
            own = any(part.shared(one) == part for one in self._own(here))
            arrival = None if own else self._arrival(here, part, before)
            start = self._beginning(here, part) if arrival is None else None
            if arrival is not None or start is not None:
                links: list[_Link] = []
                back = came[here]
                while back is not None:
                    links.append(back[1])
                    back = came[back[0]]
                return arrival, links[::-1], start
            for link in self._links(here):
                if link[0] not in came and self.flow.dimension_of(link[0], part) is not None:
                    came[link[0]] = (here, link)
                    queue.append(link[0])
        return None, [], None

    def _arrival(self, ref: Ref, part: AxisPart, before: int | None) -> Arrival | None:
        found: Arrival | None = None
        largest = 0
        for arrival in self.flow.arrivals(ref):
            shared = arrival.part.shared(part)
            if shared is None or (before is not None and arrival.step.number >= before):
                continue
            if shared.size > largest:
                found, largest = arrival, shared.size
        return found

    def _is_edge(self, op: int) -> bool:
        """Whether steps through an op are about values that enter or leave a region."""
        kind = self.flow.graph.ops[op].kind
        return kind == EDGE or kind in _EDGES

    def _links(self, ref: Ref) -> Iterator[_Link]:
        """Values that Shardy keeps sharded alike without a step, and how."""
        flow = self.flow
        for source in flow.sources(ref):
            around = flow.around(ref)
            yield source, around.id, "data flow", rule_words.data_flow(around)
        for target in flow.targets(ref):
            around = flow.around(target)
            yield target, around.id, "data flow", rule_words.data_flow(around)
        for other in flow.groups.get(ref, ()):
            if other != ref:
                yield other, ref[0], "group", rule_words.GROUP
        for op, _ in flow.uses(ref):
            if op.kind in CONSTRAINTS:
                yield flow.root((op.id, 0)), op.id, "backward", rule_words.CONSTRAINT

    # Where chains begin.

    def _own(self, ref: Ref) -> list[AxisPart]:
        """What the user's own annotation of a value shards it on."""
        if ref not in self._owned:
            found: list[AxisPart] = []
            main = self.flow.graph.main
            for node, _ in self.flow.same(ref):
                op = self.flow.graph.ops[node]
                annotation = None
                if op.is_argument and main is not None and op.parent == main.op:
                    annotation = self._by_argument.get(op.argument)
                elif op.kind in CONSTRAINTS:
                    annotation = self._written_on("constraint", op, 0)
                if annotation is not None:
                    found += [part for _, part in self.flow.parts_in(annotation.sharding)]
            self._owned[ref] = found
        return self._owned[ref]

    def _beginning(self, ref: Ref, part: AxisPart) -> Beginning | None:
        main = self.flow.graph.main
        for node, result in self.flow.same(ref):
            op = self.flow.graph.ops[node]
            around = None if op.parent is None else self.flow.graph.ops[op.parent]
            found = None
            if op.is_argument and main is not None and op.parent == main.op:
                annotation = self._by_argument.get(op.argument)
                found = self._annotated("argument", ref, part, annotation, op.scope, op.source)
            elif op.kind in CONSTRAINTS:
                found = self._on_op("constraint", ref, part, node, 0)
            elif op.kind in REGIONS:
                found = self._on_op("shard_map output", ref, part, node, result)
            elif op.is_argument and around is not None and around.kind in REGIONS:
                found = self._on_op("shard_map input", ref, part, around.id, op.argument)
            if found is not None and found.dimension is not None:
                return found
        return self._as_result(ref, part) or self._entering(ref, part) or self._as_op(ref, part)

    def _as_result(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """A value that is returned takes the sharding that its result is annotated with."""
        main = self.flow.graph.main
        for index in self.flow.returned.get(self.flow.root(ref), []) if main is not None else []:
            annotation = self._by_result.get(index)
            assert main is not None
            written = annotation.sharding if annotation else main.results[index].sharding
            if rule_words.dimension_in(written, part, self.flow.mesh) is None:
                continue
            name = main.results[index].name or f"result {index}"
            return self._annotated("result", ref, part, annotation, name, None)
        return None

    def _entering(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """A value that enters a shard_map takes the sharding that is annotated there."""
        for op, operand in self.flow.uses(ref):
            if op.kind in REGIONS:
                found = self._on_op("shard_map input", ref, part, op.id, operand)
                if found.dimension is not None and found.annotation is not None:
                    return found
        return None

    def annotated_result(self, index: int, part: AxisPart) -> Beginning | None:
        """The annotation of a result of main, if that has ``part``."""
        annotation = self._by_result.get(index)
        main = self.flow.graph.main
        if annotation is None or main is None:
            return None
        if rule_words.dimension_in(annotation.sharding, part, self.flow.mesh) is None:
            return None
        ref = self.flow.operands(self.flow.graph.children(main.op)[-1].id)[index]
        return self._annotated("result", ref, part, annotation, annotation.path, None)

    def farthest(self, ref: Ref, part: AxisPart) -> str:
        """As far back as an axis of a value can be followed, in words."""
        at, back = self.flow.root(ref), 0
        for arrival, _, _ in self._walk(at, part, None):
            if arrival is not None:
                at, back = arrival.source, back + 1
        op = self.flow.graph.ops[at[0]]
        return f"{op.names[at[1]]} = {op.kind} in {op.scope or 'no scope'}, {back} steps back"

    def _as_op(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """Any other op that the lowered module has a sharding on."""
        for member in self.flow.same(ref):
            for node, result in self.flow.lowered_ids.get(member, ()):
                annotation = self._by_op.get((node, "op", result))
                if annotation is None:
                    continue
                if rule_words.dimension_in(annotation.sharding, part, self.flow.mesh) is not None:
                    op = self.flow.graph.ops[member[0]]
                    return self._annotated(
                        "op", ref, part, annotation, self.flow.scope(op), op.source
                    )
        return None

    def _on_op(
        self, kind: BeginningKind, ref: Ref, part: AxisPart, node: int, index: int
    ) -> Beginning:
        op = self.flow.graph.ops[node]
        annotation = self._written_on(kind, op, index)
        return self._annotated(kind, ref, part, annotation, self.flow.scope(op), op.source)

    def _written_on(self, kind: BeginningKind, op: Op, index: int) -> Annotation | None:
        """The annotation of an op of the lowered module that became ``op``."""
        for lowered in self.flow.lowered_ops(op):
            if (annotation := self._by_op.get((lowered.id, kind, index))) is not None:
                return annotation
        return None

    def _annotated(
        self,
        kind: BeginningKind,
        ref: Ref,
        part: AxisPart,
        annotation: Annotation | None,
        name: str,
        source: SourceLocation | None,
    ) -> Beginning:
        if annotation is not None:
            name, source = annotation.path, annotation.source or source
        sharding = annotation.sharding if annotation else self.flow.sharding(ref)
        dimension = rule_words.dimension_in(sharding, part, self.flow.mesh)
        return Beginning(
            kind,
            name,
            rule_words.beginning(kind, name, sharding, dimension),
            dimension,
            rule_words.priority_in(sharding, dimension),
            source,
            annotation,
            self.origin(ref, part),
        )

    def origin(self, ref: Ref, part: AxisPart) -> OriginSharding | None:
        """What Shardy itself says where an axis of a value comes from."""
        for member in self.flow.same(ref):
            for value in self.flow.lowered_ids.get(member, ()):
                for axis, origin in self.flow.propagated.values[value].origins:
                    if part_of(axis, self.flow.mesh).shared(part) is not None:
                        return origin
        return None

    # Moves.

    def _move(self, at: Ref, part: AxisPart, arrival: Arrival) -> Move:
        step = arrival.step
        op = self.flow.graph.ops[step.op]
        shared = arrival.part.shared(part) or part
        to = self.flow.dimension_of(at, part)
        source = arrival.source
        start = self.flow.dimension_of(source, part)
        if self._is_edge(op.id):
            direction: Direction = "data flow"
            rule = rule_words.data_flow(self._around(op))
        else:
            direction = rule_words.direction(step.source, arrival.slot)
            rule = rule_words.moved(op, step.source, start, arrival.slot, to)
        return Move(
            step.number,
            shared.axis(self.flow.mesh),
            op.id,
            op.kind,
            self.flow.scope(op),
            op.source,
            direction,
            rule,
            at,
            to,
            self._lowered(at),
        )

    def _lowered(self, ref: Ref) -> ValueId | None:
        for member in self.flow.same(ref):
            for value in self.flow.lowered_ids.get(member, ()):
                return value
        return None

    def _around(self, op: Op) -> Op:
        """The op whose boundary a step through ``op`` is about."""
        if op.kind == EDGE:
            return self.flow.graph.ops[self.flow.root((op.id, 0))[0]]
        if op.kind in TERMINATORS and op.parent is not None:
            return self.flow.graph.ops[op.parent]
        return op

    def _unnumbered(self, at: Ref, part: AxisPart, link: _Link) -> Move:
        _, node, direction, rule = link
        op = self.flow.graph.ops[node]
        return Move(
            None,
            part.axis(self.flow.mesh),
            op.id,
            op.kind,
            self.flow.scope(op),
            op.source,
            direction,
            rule,
            at,
            self.flow.dimension_of(at, part),
            self._lowered(at),
        )
