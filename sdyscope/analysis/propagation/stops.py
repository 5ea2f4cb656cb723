"""What stops an axis: why a dimension does not have it although the op's rule has a place for it.

Propagation runs until nothing moves any more, so what is still different in the end was stopped by
something that can be seen in the end: the reasons are tried in the order in which Shardy would meet
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_size
from sdyscope.analysis.propagation.factors import dimension_with, on_factors
from sdyscope.analysis.propagation.flow import Flow, Ref, Slot
from sdyscope.analysis.propagation.openness import Openness
from sdyscope.analysis.propagation.pointers import HeldPart, Pointer, Pointers
from sdyscope.facts.moves import (
    Barrier,
    Blocked,
    ByWayOfResult,
    Conflict,
    FlowingTensor,
    Indivisible,
    InItsPlace,
    NotSeen,
    Reason,
    Stop,
    TensorDim,
    UsedByOp,
    UsedByValue,
)
from sdyscope.graph import Op
from sdyscope.values.sharding_rule import OpShardingRule


@dataclass(frozen=True, slots=True)
class Beside:
    """A dimension of a tensor beside a value, sharded on an axis.

    ``flowing``: what the tensor is to the value, where no op but a boundary is between the two.
    """

    op: Op
    own: Slot
    slot: Slot
    value: Ref
    dimension: int
    part: AxisPart
    rule: OpShardingRule | None
    flowing: FlowingTensor | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """An axis that a dimension of a value could have: the op's rule has a factor for it."""

    ref: Ref
    beside: Beside
    rule: OpShardingRule
    factor: int
    dimension: int
    part: AxisPart


WhyStopped: TypeAlias = tuple[Reason, Stop, HeldPart | None]
"""A reason, what stopped the axis, and what is in the way."""


class Stops:
    """Finds what stopped axes in one propagation.

    Args:
        flow: its index.
        pointers: where what is in the way comes from.
        openness: knows what the user closed.
    """

    def __init__(self, flow: Flow, pointers: Pointers, openness: Openness) -> None:
        self.flow = flow
        self.pointers = pointers
        self.openness = openness

    def why(self, case: Case) -> WhyStopped:
        """What stopped an axis."""
        for test in (
            self._barrier,
            self._blocked,
            self._used_by_value,
            self._set_aside,
            self._closed,
            self._in_its_place,
            self._not_divisible,
            self._by_way_of_result,
            self._used_by_op,
        ):
            stop = test(case)
            if stop is not None:
                return stop
        return "unknown", NotSeen(), None

    def _barrier(self, case: Case) -> WhyStopped | None:
        if case.beside.op.kind == "sdy.propagation_barrier":
            return "barrier", Barrier(), None
        return None

    def _blocked(self, case: Case) -> WhyStopped | None:
        if case.factor not in case.rule.blocked_propagation_factors:
            return None
        return "blocked", Blocked(rules.factor_of(case.rule, case.factor)), None

    def _used_by_value(self, case: Case) -> WhyStopped | None:
        """The value has the axis on another dimension."""
        for other, own in self.flow.parts(case.ref):
            shared = own.shared(case.part)
            if other != case.dimension and shared is not None:
                where = UsedByValue(other, shared.axis(self.flow.mesh))
                return self._against(where, case.ref, other, shared, case.beside, case.part)
        return None

    def _set_aside(self, case: Case) -> WhyStopped | None:
        by = self.openness.set_aside_by(case.ref, case.part)
        return None if by is None else ("replicated", by, None)

    def _closed(self, case: Case) -> WhyStopped | None:
        by = self.openness.closed_by(case.ref, case.dimension)
        return None if by is None else ("closed", by, None)

    def _in_its_place(self, case: Case) -> WhyStopped | None:
        """The dimension is sharded on other axes where the other tensor has this one."""
        mesh = self.flow.mesh
        held = self._on_factor(case, case.beside.own, case.ref, case.dimension)
        theirs = self._on_factor(case, case.beside.slot, case.beside.value, case.beside.dimension)
        for own, other in zip(held, theirs, strict=False):
            if own != other and not (own is held[-1] and own == other.shared(own)):
                where = InItsPlace(case.dimension, own.axis(mesh), other.axis(mesh))
                return self._against(where, case.ref, case.dimension, own, case.beside, case.part)
        if len(held) > len(theirs):
            own = held[len(theirs)]
            where = InItsPlace(case.dimension, own.axis(mesh), case.part.axis(mesh))
            return self._against(where, case.ref, case.dimension, own, case.beside, case.part)
        return None

    def _not_divisible(self, case: Case) -> WhyStopped | None:
        held = part_size(self._on_factor(case, case.beside.own, case.ref, case.dimension))
        size = case.rule.factor_sizes[case.factor]
        left = size // math.gcd(size, held)
        if left % case.part.size == 0:
            return None
        factor = rules.factor_of(case.rule, case.factor)
        return "not divisible", Indivisible(factor, held, case.part.size), None

    def _on_factor(self, case: Case, slot: Slot, value: Ref, dimension: int) -> list[AxisPart]:
        """What a dimension of a tensor is sharded on, as far as that is about the case's factor."""
        parts = [part for dim, part in self.flow.parts(value) if dim == dimension]
        tensor = rules.mapping(case.rule, slot)
        if tensor is None or dimension >= len(tensor.dim_mappings):
            return parts
        laid_out = on_factors(case.rule, tensor.dim_mappings[dimension], parts)
        return [part for factor, part in laid_out if factor == case.factor]

    def _by_way_of_result(self, case: Case) -> WhyStopped | None:
        """From operand to operand an axis goes only where a result of that factor takes it, too."""
        beside = case.beside
        if beside.own[0] != "operand" or beside.slot[0] != "operand":
            return None
        for index, tensor in enumerate(case.rule.result_mappings):
            dimension = dimension_with(tensor, case.factor)
            result = self.flow.root((beside.op.id, index))
            held = [part for dim, part in self.flow.parts(result) if dim == dimension]
            if dimension is None or not case.part.without(held):
                continue
            slot: Slot = ("result", index)
            why, stop, rival = self.why(
                replace(case, ref=result, dimension=dimension, beside=replace(beside, own=slot))
            )
            return why, ByWayOfResult(rules.op_tensor(beside.op, slot), stop), rival
        return None

    def _used_by_op(self, case: Case) -> WhyStopped | None:
        """Another tensor of the op has the axis for another factor, or others for this one."""
        mesh = self.flow.mesh
        for slot, value in self.flow.slots(case.beside.op):
            tensor = rules.mapping(case.rule, slot)
            if tensor is None or value == case.ref:
                continue
            parts = self.flow.parts(value)
            for dim, tensor_dim in enumerate(tensor.dim_mappings):
                on_dim = [p for d, p in parts if d == dim]
                for other, own in on_factors(case.rule, tensor_dim, on_dim):
                    place = TensorDim(dim, rules.op_tensor(case.beside.op, slot, case.rule))
                    if other != case.factor and own.shared(case.part) is not None:
                        where = UsedByOp(place, own.axis(mesh), is_same_factor=False)
                        return self._against(where, value, dim, own, case.beside, case.part)
                    if (
                        other == case.factor
                        and own.name != case.part.name
                        and value != case.beside.value
                    ):
                        where = UsedByOp(place, own.axis(mesh), is_same_factor=True)
                        return self._against(where, value, dim, own, case.beside, case.part)
        return None

    def _against(
        self,
        where: UsedByValue | InItsPlace | UsedByOp,
        value: Ref,
        dimension: int,
        own: AxisPart,
        beside: Beside,
        part: AxisPart,
    ) -> WhyStopped | None:
        """A conflict with what is in the way, and where that comes from."""
        held = HeldPart(dimension, self.pointers.pointer(value, own))
        rival = self.pointers.table[held.pointer]
        began = None if rival.beginning is None else rival.beginning.written
        theirs = self.pointers.table[self.pointers.pointer(beside.value, part)]
        first, second = _priority(rival), _priority(theirs)
        if first < second:
            return "priority", Conflict(where, began, rival.number, (first, second)), held
        return "conflict", Conflict(where, began, rival.number, None), held


def _priority(pointer: Pointer) -> int:
    return (pointer.beginning.priority or 0) if pointer.beginning is not None else 0
