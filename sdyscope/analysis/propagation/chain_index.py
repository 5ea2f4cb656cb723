"""Everything that chains are made of, value by value, for who follows them elsewhere.

`Chains` follows one chain at a time through the compiler's graph. The report has all values of a
program in it and can't ask Python: it gets what came to each value and what is annotated there, and
follows by the same rules (`reports/js/propagation/chains.js`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from sdyscope.analysis.propagation import rule_words
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.chain import Beginning, Direction
from sdyscope.analysis.propagation.chains import Chains
from sdyscope.analysis.propagation.flow import CONSTRAINTS, EDGE, REGIONS, Flow, Ref, Slot
from sdyscope.analysis.propagation.replay import Replay
from sdyscope.annotations import Annotation
from sdyscope.facts.propagated import PropagationStep
from sdyscope.graph import Sharding
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import OriginSharding

__all__ = ["Brought", "ChainIndex", "Linked", "Moved", "Result"]


@dataclass(frozen=True, slots=True)
class Brought:
    """A value that a step brought an axis to.

    Attributes:
        value: that value.
        source: the value that it came from.
        direction: which way it went.
        rule: what allowed it, in words.
    """

    value: Ref
    source: Ref
    direction: Direction
    rule: str


@dataclass(frozen=True, slots=True)
class Moved:
    """One move of one axis, as `Replay.steps` says it, and what it brought.

    Attributes:
        step: the step.
        part: the axis, or the part of one.
        source: where it came from: ``dim 1 of the left operand``.
        targets: where it went.
        brought: what came to which values.
    """

    step: PropagationStep
    part: AxisPart
    source: str
    targets: tuple[str, ...]
    brought: tuple[Brought, ...]


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
        self._axes: dict[AxisRef | str, AxisPart] = {}
        self._dimensions: dict[tuple[int, AxisPart], int | None] = {}
        self._sharded: dict[Ref, int] = {}
        self._slots: dict[tuple[object, ...], str] = {}
        self._rules: dict[tuple[object, ...], str] = {}

    def moves(self, replay: Replay) -> Iterator[Moved]:
        """Every move in order. What repeats from layer to layer is worked out once."""
        flow = self.flow
        for step in flow.propagated.steps:
            axis = step.axis.name if step.axis.sub_axis_info is None else step.axis
            part = self._axes.get(axis)
            if part is None:
                part = self._axes[axis] = part_of(step.axis, flow.mesh)
            source = flow.at(step.op, step.source)
            start = None if source is None else self._dimension(source, part)
            targets = []
            brought = []
            for slot in step.targets:
                ref = flow.at(step.op, slot)
                to = None if ref is None else self._dimension(ref, part)
                targets.append(self._slot_words(replay, step, slot, to))
                if ref is not None and source is not None and ref != source:
                    brought.append(Brought(ref, source, *self._how(step, start, slot, to)))
            said = self._slot_words(replay, step, step.source, start)
            yield Moved(step, part, said, tuple(targets), tuple(brought))

    def _dimension(self, ref: Ref, part: AxisPart) -> int | None:
        """`Flow.dimension_of`, once for all values that have one sharding."""
        number = self._sharded.get(ref)
        if number is None:
            number = self._sharded[ref] = id(self.flow.parts(ref))
        key = (number, part)
        if key not in self._dimensions:
            self._dimensions[key] = self.flow.dimension_of(ref, part)
        return self._dimensions[key]

    def _slot_words(
        self, replay: Replay, step: PropagationStep, slot: Slot, dimension: int | None
    ) -> str:
        op = self.flow.graph.ops[step.op]
        if op.kind == EDGE or op.kind == "func.return":
            return replay.words(step, slot)
        key = (op.kind, id(op.sharding_rule), len(op.types), slot, dimension)
        words = self._slots.get(key)
        if words is None:
            words = self._slots[key] = replay.words(step, slot)
        return words

    def _how(
        self, step: PropagationStep, start: int | None, slot: Slot, to: int | None
    ) -> tuple[Direction, str]:
        op = self.flow.graph.ops[step.op]
        if self._is_edge(op.id):
            return "data flow", rule_words.data_flow(self._around(op))
        key = (op.kind, id(op.sharding_rule), len(op.types), step.source, start, slot, to)
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = rule_words.moved(op, step.source, start, slot, to)
        return rule_words.direction(step.source, slot), rule

    def is_boundary(self, op: int) -> bool:
        """Whether a step through an op is about what enters or leaves a region."""
        return self._is_edge(op)

    def own(self, ref: Ref) -> list[AxisPart]:
        """What a value's own annotation shards it on."""
        return self._own(ref)

    def links(self) -> Iterator[tuple[Ref, list[Linked]]]:
        """The values that are sharded alike without a step, in the order in which to try them."""
        flow = self.flow
        found = dict.fromkeys(sorted(flow.crossing | flow.groups.keys()))
        for op in flow.graph.ops:
            if op.kind in CONSTRAINTS:
                found |= dict.fromkeys(flow.operands(op.id))
        for ref in found:
            linked = [Linked(*link) for link in self._links(ref)]
            if linked:
                yield ref, linked

    def origin(self, ref: Ref, part: AxisPart) -> OriginSharding | None:
        """Nothing: what Shardy says itself is not asked here, as it is read from text."""
        return None

    def beginnings(self, ref: Ref) -> list[tuple[AxisPart, Beginning]]:
        """Where chains begin at a value: for each part of what it is, or was, sharded on."""
        tried = [piece for _, part in self.flow.parts(ref) for piece in self.pieces(ref, part)]
        if ref in self._at_regions and self.flow.mesh is not None:
            # What is annotated there can be gone in the end, inside another shard_map.
            axes = [part_of(AxisRef(axis.name), self.flow.mesh) for axis in self.flow.mesh.axes]
            tried += [left for axis in axes for left in axis.without(tried)]
        found = []
        for piece in tried:
            beginning = self._beginning(ref, piece)
            if beginning is not None:
                found.append((piece, beginning))
        return found

    @cached_property
    def _at_regions(self) -> frozenset[Ref]:
        """The values on either side of the boundary of a shard_map, or of a called function."""
        flow = self.flow
        found: set[Ref] = set()
        for op in flow.graph.ops:
            if op.kind in REGIONS:
                found |= {flow.root((op.id, result)) for result in range(len(op.types))}
                found |= set(flow.operands(op.id))
            elif op.is_argument and flow.around((op.id, 0)).kind in REGIONS:
                found.add(flow.root((op.id, 0)))
        return frozenset(found)

    def candidates(self) -> dict[Ref, None]:
        """The values where chains can begin: all that something is annotated on or beside."""
        flow = self.flow
        found: dict[Ref, None] = {}
        main = flow.graph.main
        for op in flow.graph.ops:
            if (
                op.is_argument and main is not None and op.parent == main.op
            ) or op.kind in CONSTRAINTS:
                found[flow.root((op.id, 0))] = None
        found |= dict.fromkeys(sorted(self._at_regions))
        found |= dict.fromkeys(flow.returned)
        for node, kind, index in self._by_op:
            value = flow.propagated.values.get((node, index or 0)) if kind == "op" else None
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
            annotation = self._by_result.get(index)
            written = None if annotation is None else annotation.sharding
            if (
                annotation is not None
                and rule_words.dimension_in(written, part, self.flow.mesh) is not None
            ):
                own = self._annotated("result", ref, part, annotation, annotation.path, None)
                yield dimension, part, own, None
            elif self.flow.dimension_of(ref, part) is not None:
                yield dimension, part, None, ref
            else:
                yield dimension, part, None, None
