"""Why a value is not sharded on an axis, although a tensor beside it is.

Beside a value are the operands of the op that makes it, the results and other operands of the ops
that use it, and what it becomes across regions and as a result of the program. Propagation runs
until nothing moves any more, so what is still different in the end was stopped by something that
can be seen in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.analysis.propagation.factors import dimension_with, identity_rule, on_factors, rule_of
from sdyscope.analysis.propagation.flow import EDGE, Flow, Ref, Slot
from sdyscope.analysis.propagation.openness import Openness
from sdyscope.analysis.propagation.pointers import HeldPart, Pointers
from sdyscope.analysis.propagation.stops import Beside, Case, Stops
from sdyscope.annotations import Annotation
from sdyscope.facts.moves import (
    Absence,
    Closed,
    FlowingTensor,
    NoFactor,
    NoRule,
    Reason,
    Stop,
    TensorDim,
)
from sdyscope.graph import Op
from sdyscope.graph.op_kinds import BARRIERS, BRANCHES, CONSTRAINTS, LOOPS, REGIONS, TERMINATORS
from sdyscope.values.propagation_edges import EdgeNodeType
from sdyscope.values.sharding_rule import OpShardingRule

#: An axis that was stopped, and what is in its way.
_Stopped: TypeAlias = tuple[Absence, HeldPart | None]


#: A factor, the dimension of the value that is made of it, and what of an axis is not there.
_Missing: TypeAlias = list[tuple[int, int | None, AxisPart]]

#: A dimension of a tensor, a part of an axis that it is sharded on, and what is missing beside it.
_NotShared: TypeAlias = list[tuple[int, AxisPart, _Missing]]

_Parts: TypeAlias = list[tuple[int, AxisPart]]


class Obstacles:
    """Finds what stopped axes in one propagation.

    Args:
        flow: its index.
        pointers: where what is in the way comes from.
        annotations: what is written in the lowered module.
    """

    def __init__(
        self, flow: Flow, pointers: Pointers, annotations: tuple[Annotation, ...] = ()
    ) -> None:
        self.flow = flow
        self.pointers = pointers
        self.stops = Stops(flow, pointers, Openness(flow, annotations))
        # By identity of rules and of what values are sharded on, all of which `flow` keeps: ops of
        # repeated layers have the same.
        self._known: dict[tuple[int, Slot, Slot, int, int], _NotShared] = {}

    def absences(self, value: Ref, *, rivals: bool = True) -> tuple[Absence, ...]:
        """The axes that a value of the propagated graph does not have, each reason once.

        Args:
            value: the value.
            rivals: whether to follow what is in the way to its annotation.
        """
        absences: dict[tuple[object, ...], Absence] = {}
        ref = self.flow.root(value)
        for beside, missing in self._beside(ref):
            for absence, rival in self._absences(ref, beside, missing):
                key = (absence.dimension, absence.axis, absence.reason)
                before = absences.get(key)
                if before is not None:
                    absences[key] = replace(before, repeated=before.repeated + 1)
                elif rival is not None and rivals:
                    absences[key] = replace(absence, rival=self.pointers.chain(rival))
                else:
                    absences[key] = absence
        return tuple(absences.values())

    def closed(self, value: Ref) -> tuple[Closed, ...]:
        """Of each dimension of a value that has no axis what closes it, where something does."""
        ref = self.flow.root(value)
        held = {dimension for dimension, _ in self.flow.parts(ref)}
        whole = (each for each in range(self._rank(ref)) if each not in held)
        closing = (self.stops.openness.closed_by(ref, each) for each in whole)
        return tuple(each for each in closing if each is not None)

    def _rank(self, ref: Ref) -> int:
        return len(self.flow.graph.ops[ref[0]].types[ref[1]].shape or ())

    # What is beside a value.

    def _beside(self, ref: Ref) -> Iterator[tuple[Beside, _Missing]]:
        flow = self.flow
        for node, result in flow.same(ref):
            op = flow.graph.ops[node]
            if not op.is_argument and op.kind != EDGE:
                yield from self._around(ref, op, ("result", result), producer=True)
        for op, operand in flow.uses(ref):
            if op.kind not in TERMINATORS:
                yield from self._around(ref, op, ("operand", operand), producer=False)
        for source in flow.sources(ref):
            yield from self._flowing(flow.around(ref), ref, source, ("operand", 0))
        for target in flow.targets(ref):
            yield from self._flowing(flow.around(target), ref, target, ("result", 0))

    def _around(
        self, ref: Ref, op: Op, own: Slot, *, producer: bool
    ) -> Iterator[tuple[Beside, _Missing]]:
        flow = self.flow
        rule = rule_of(op, _IDENTITIES)
        if rule is None and (not producer or op.kind in _DATA_FLOW or op.callee is not None):
            return
        own_value = flow.at(op.id, own)
        results = [] if producer else flow.result_slots(op)
        for slot, value in (*results, *flow.operand_slots(op)):
            if value == own_value:
                continue
            for dimension, part, missing in self._not_shared(rule, ref, own, value, slot):
                yield Beside(op, own, slot, value, dimension, part, rule), missing

    def _flowing(
        self, op: Op, ref: Ref, other: Ref, slot: Slot
    ) -> Iterator[tuple[Beside, _Missing]]:
        kind: EdgeNodeType = "result" if slot[0] == "operand" else "operand"
        own: Slot = (kind, 0)
        rule = identity_rule(self._rank(ref))
        for dimension, part, missing in self._not_shared(rule, ref, own, other, slot):
            if part.name in op.manual_axes:
                continue  # the program itself decides about it inside, and a boundary outside
            flowing = FlowingTensor(is_source=kind == "result")
            yield Beside(op, own, slot, other, dimension, part, rule, flowing), missing

    # What stopped it.

    def _not_shared(
        self, rule: OpShardingRule | None, ref: Ref, own: Slot, value: Ref, slot: Slot
    ) -> _NotShared:
        """What a tensor of an op is sharded on that the rule gives no place, or another, here."""
        ours, theirs = self.flow.parts(ref), self.flow.parts(value)
        if rule is None:
            return [(dimension, part, []) for dimension, part in theirs]
        key = (id(rule), own, slot, id(ours), id(theirs))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = [
                (dimension, part, missing)
                for dimension, part in theirs
                if (missing := list(_missing(rule, own, ours, slot, theirs, dimension, part)))
            ]
        return known

    def _absences(self, ref: Ref, beside: Beside, missing: _Missing) -> Iterator[_Stopped]:
        rule = beside.rule
        if rule is None:
            if beside.op.types and self.flow.graph.ops[ref[0]].types[ref[1]].shape:
                yield self._stopped(beside, beside.part, None, "no rule", NoRule())
            return
        for factor, dimension, part in missing:
            if dimension is not None:
                case = Case(ref, beside, rule, factor, dimension, part)
                yield self._stopped(beside, part, dimension, *self.stops.why(case))
            else:
                yield self._no_factor(beside, rule, factor, part)

    def _no_factor(
        self, beside: Beside, rule: OpShardingRule, factor: int, part: AxisPart
    ) -> _Stopped:
        stop = NoFactor(rules.factor_of(rule, factor), rules.op_tensor(beside.op, beside.own))
        return self._stopped(beside, part, None, "no factor", stop)

    def _stopped(
        self,
        beside: Beside,
        part: AxisPart,
        dimension: int | None,
        reason: Reason,
        stop: Stop,
        rival: HeldPart | None = None,
    ) -> _Stopped:
        op = beside.op
        tensor = beside.flowing or rules.op_tensor(op, beside.slot, beside.rule)
        absence = Absence(
            part.axis(self.flow.mesh),
            dimension,
            self.flow.written(op),
            TensorDim(beside.dimension, tensor),
            beside.value,
            reason,
            stop,
        )
        return absence, rival


_IDENTITIES = CONSTRAINTS | {"sdy.propagation_barrier"}


#: Ops whose results are values from inside their regions, or operands that pass through.
_DATA_FLOW = LOOPS | REGIONS | BARRIERS | BRANCHES


def _missing(
    rule: OpShardingRule,
    own: Slot,
    ours: _Parts,
    slot: Slot,
    theirs: _Parts,
    dimension: int,
    part: AxisPart,
) -> Iterator[tuple[int, int | None, AxisPart]]:
    """By factor, what of a part of an axis on a dimension of one tensor another has not."""
    tensor, other = rules.mapping(rule, own), rules.mapping(rule, slot)
    if tensor is None or other is None or dimension >= len(other.dim_mappings):
        return
    on_dimension = [there for dim, there in theirs if dim == dimension]
    for factor, laid_out in on_factors(rule, other.dim_mappings[dimension], on_dimension):
        shared = laid_out.shared(part)
        if shared is None:
            continue
        here = dimension_with(tensor, factor)
        if here is None:
            if own[0] == "result":
                yield factor, None, shared
            continue
        held = [there for dim, there in ours if dim == here]
        for each in shared.without(held):
            yield factor, here, each
