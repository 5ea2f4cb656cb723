"""Propagation, replayed: what each step moved, and how everything was sharded after it.

Shardy numbers its steps and only ever adds axes to a dimension, at its end. So what a value had
after step n is what it has at the end, less what later steps brought.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.analysis.propagation.flow import EDGE, Ref, Slot
from sdyscope.analysis.propagation.rules import op_tensor
from sdyscope.facts.moves import EdgeTensor, ReturnedTensor, TensorDim, TensorPlace
from sdyscope.facts.propagated import PropagatedValue, PropagationStep, ValueId
from sdyscope.graph import Op
from sdyscope.values.mesh import AxisRef
from sdyscope.values.sharding import DimSharding, TensorSharding
from sdyscope.values.sharding_rule import OpShardingRule


@dataclass(frozen=True, slots=True)
class Moved:
    """One move of one axis.

    Attributes:
        step: Shardy's number of the step.
        axis: the axis that moved.
        through: the op that it moved through, of the lowered module where it is known.
        source: where it came from, among the op's tensors.
        targets: where it went.
        priority: the user priority that was being propagated; 0 is the first, and all where the
            user gave none.
        node: the op in the propagated graph.
        came_from: the value of the propagated graph that it came from; None where it has none.
        came_to: the values that it went to.
    """

    step: int
    axis: AxisRef
    through: Op
    source: TensorDim
    targets: tuple[TensorDim, ...]
    priority: int
    node: int
    came_from: Ref | None
    came_to: tuple[Ref, ...]

    __document__ = ("step", "axis", "through", "source", "targets", "priority")


class Replay:
    """The steps of one propagation under Shardy.

    Args:
        decisions: its values.
    """

    def __init__(self, decisions: Decisions) -> None:
        self.flow = decisions.flow
        self.places = decisions.places
        self.graph = decisions.graph
        self.propagated = decisions.propagated
        self._firsts: dict[Ref, list[tuple[int, AxisPart]]] = {}

    @property
    def last(self) -> int | None:
        """The number of the last step; None where there are none."""
        return max((step.number for step in self.propagated.steps), default=None)

    @property
    def has_priorities(self) -> bool:
        """Whether the user ordered the propagation."""
        main = self.graph.main
        written = [
            s for op in self.graph.ops for s in (*op.shardings, op.attributes.get("sharding"))
        ]
        written += [result.sharding for result in main.results] if main else []
        return any(
            dim.priority
            for sharding in written
            if isinstance(sharding, TensorSharding)
            for dim in sharding.dim_shardings
        )

    def steps(self) -> Iterator[Moved]:
        """Every move, in order."""
        with_priorities = self.has_priorities
        priority = 0
        for step in self.propagated.steps:
            if with_priorities:
                # Priorities are propagated one after the other.
                priority = max(priority, self._priority(step))
            targets = (self.flow.at(step.op, slot) for slot in step.targets)
            yield Moved(
                step.number,
                step.axis,
                self.flow.written(self.flow.graph.ops[step.op]),
                self.tensor(step, step.source),
                tuple(self.tensor(step, target) for target in step.targets),
                priority,
                step.op,
                self.flow.at(step.op, step.source),
                tuple(ref for ref in targets if ref is not None),
            )

    def at(self, number: int) -> Mapping[ValueId, TensorSharding]:
        """How each value was sharded after step ``number``; before all steps with -1.

        A value without Shardy's sharding is left out.
        """
        shardings: dict[ValueId, TensorSharding] = {}
        for value in self.propagated.values.values():
            if isinstance(value.sharding, TensorSharding) and value.node is not None:
                shardings[value.id] = self._at(value, value.sharding, number)
        return shardings

    def history(self, value: PropagatedValue) -> list[tuple[int, TensorSharding]]:
        """How a value was sharded: before all steps, with -1, and after each that changed it.

        Nothing for a value without Shardy's sharding.
        """
        if not isinstance(value.sharding, TensorSharding) or value.node is None:
            return []
        numbers = dict.fromkeys(first for first, _ in self._brought(self._source(value)))
        changes = [(-1, self._at(value, value.sharding, -1))]
        for number in numbers:
            after = self._at(value, value.sharding, number)
            if after != changes[-1][1]:
                changes.append((number, after))
        return changes

    def _source(self, value: PropagatedValue) -> Ref:
        """The value that the steps moved axes to: of a result, what is returned."""
        assert value.node is not None
        op = self.flow.graph.ops[value.node]
        ref = (value.node, value.result)
        return self.flow.graph.returned.get(op.result, ref) if op.is_result else ref

    def _is_written(self, value: PropagatedValue) -> bool:
        """Whether a value is a result with a sharding of its own, which it has from the start."""
        assert value.node is not None
        own = self.flow.graph.ops[value.node].is_result
        written = self.graph.ops[value.id[0]].shardings
        return own and isinstance(written[0], TensorSharding)

    def _at(self, value: PropagatedValue, sharding: TensorSharding, number: int) -> TensorSharding:
        later = [part for first, part in self._brought(self._source(value)) if first > number]
        if not later or self._is_written(value):
            return sharding
        mesh = self.flow.mesh_of(sharding)
        dims = []
        for dim in sharding.dim_shardings:
            kept = [
                left.axis(mesh) for axis in dim.axes for left in part_of(axis, mesh).without(later)
            ]
            dims.append(DimSharding(tuple(kept), dim.is_closed, dim.priority))
        return replace(sharding, dim_shardings=tuple(dims))

    def _brought(self, ref: Ref) -> list[tuple[int, AxisPart]]:
        """(the step that first brought it, part of an axis) of all that came to a value."""
        root = self.flow.root(ref)
        if root not in self._firsts:
            seen: list[AxisPart] = []
            firsts: list[tuple[int, AxisPart]] = []
            arrivals = self.flow.arrivals(root)
            for arrival in sorted(arrivals, key=lambda arrival: arrival.step.number):
                fresh = arrival.part.without(seen)
                firsts += [(arrival.step.number, part) for part in fresh]
                seen += fresh
            self._firsts[root] = firsts
        return self._firsts[root]

    def _priority(self, step: PropagationStep) -> int:
        priority = 0
        for slot in step.targets:
            ref = self.flow.at(step.op, slot)
            for value in self.flow.lowered_ids.get(ref, ()) if ref is not None else ():
                for axis, origin in self.propagated.values[value].origins:
                    if axis.name == step.axis.name:
                        priority = max(priority, self.places.priority(axis, origin, value))
        return priority

    def tensor(self, step: PropagationStep, slot: Slot) -> TensorDim:
        """What a step means by an operand or result of its op."""
        ref = self.flow.at(step.op, slot)
        dim = None
        if ref is not None:
            dim = self.flow.dimension_of(ref, part_of(step.axis, self.flow.mesh))
        return TensorDim(dim, self._tensor(self.flow.graph.ops[step.op], slot))

    def _tensor(self, op: Op, slot: Slot) -> TensorPlace:
        if op.kind == EDGE:
            return EdgeTensor(*slot)
        main = self.graph.main
        if op.kind == "func.return" and main is not None and op.function == main.name:
            role, index = slot
            if role == "result" and index < len(main.results):
                return ReturnedTensor(main.name_of(main.results[index]))
            return ReturnedTensor("")
        rule = op.sharding_rule
        return op_tensor(op, slot, rule if isinstance(rule, OpShardingRule) else None)
