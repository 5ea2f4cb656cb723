"""Why a value is not sharded on an axis, although a tensor beside it is.

Beside a value are the operands of the op that makes it, the results and other operands of the ops
that use it, and what it becomes across regions and as a result of the program. Propagation runs
until nothing moves any more, so what is still different in the end was stopped by something that
can be seen in the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from sdyscope.analysis import rule_words
from sdyscope.analysis.axis_parts import AxisPart, part_of, part_size
from sdyscope.analysis.chains import Chain, Chains
from sdyscope.analysis.flow import BARRIERS, CONSTRAINTS, EDGE, LOOPS, REGIONS, Flow, Ref, Slot
from sdyscope.analysis.openness import Openness
from sdyscope.annotations import Annotation
from sdyscope.graph import Op
from sdyscope.mesh import AxisRef
from sdyscope.propagation import EdgeNodeType
from sdyscope.sharding_rule import DimMapping, OpShardingRule, TensorMapping, factor_symbol
from sdyscope.source import SourceLocation

__all__ = ["Absence", "Obstacles", "Reason"]

Reason: TypeAlias = Literal[
    "conflict",
    "priority",
    "closed",
    "replicated",
    "not divisible",
    "no factor",
    "blocked",
    "no rule",
    "barrier",
    "unknown",
]
"""What stopped an axis. ``conflict``: the value or the op already uses it, or others in its place;
``priority``: so, and those had a higher priority; ``closed``: an annotation lets the dimension take
no more axes; ``replicated``: an annotation keeps the axis from every dimension; ``not divisible``:
the size does not divide; ``no factor``: the op's rule has no dimension for it; ``blocked``: the rule
has one and nothing propagates along it; ``no rule``: the op has no rule; ``barrier``: a propagation
barrier; ``unknown``: nothing in the final shardings shows it."""


@dataclass(frozen=True, slots=True)
class Absence:
    """An axis that a value does not have although a tensor beside it has.

    Attributes:
        axis: the axis, or the part of it that is missing.
        dimension: the dimension that could have had it; None when the op's rule has none for it.
        op: node in the propagated graph of the op between the two.
        kind: that op's kind.
        scope: that op's scope.
        source: that op's source line.
        neighbour: the tensor that has the axis, in words: ``dim 1 of the left operand``.
        value: that tensor in the propagated graph; None for a result of the program.
        reason: what stopped it.
        words: the same in one sentence.
        rival: the chain of what is in the way, where something is.
        repeated: how many more tensors beside the value have it and were stopped alike.
    """

    axis: AxisRef
    dimension: int | None
    op: int
    kind: str
    scope: str
    source: SourceLocation | None
    neighbour: str
    value: Ref | None
    reason: Reason
    words: str
    rival: Chain | None = None
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class _Beside:
    """A dimension of a tensor beside a value, sharded on an axis."""

    op: Op
    own: Slot
    slot: Slot
    value: Ref
    dimension: int
    part: AxisPart
    rule: OpShardingRule | None


_WITHOUT_RULES: Final = frozenset({"func.return", "stablehlo.return", "sdy.return", "mhlo.return"})


class Obstacles:
    """Finds what stopped axes in one propagation.

    Args:
        flow: its index.
        chains: finds where what is in the way comes from.
        annotations: what is written in the lowered module.
    """

    def __init__(
        self, flow: Flow, chains: Chains, annotations: tuple[Annotation, ...] = ()
    ) -> None:
        self.flow = flow
        self.chains = chains
        self.openness = Openness(flow, annotations)

    def absences(self, value: Ref) -> tuple[Absence, ...]:
        """The axes that a value of the propagated graph does not have, each reason once."""
        found: dict[tuple[object, ...], Absence] = {}
        ref = self.flow.root(value)
        for beside in self._beside(ref):
            for absence in self._absences(ref, beside):
                key = (absence.dimension, absence.axis, absence.reason)
                before = found.get(key)
                found[key] = (
                    absence
                    if before is None
                    else replace(before, repeated=before.repeated + 1)
                )
        return tuple(found.values())

    # What is beside a value.

    def _beside(self, ref: Ref) -> Iterator[_Beside]:
        flow = self.flow
        for node, result in flow.same(ref):
            op = flow.graph.ops[node]
            if not op.is_argument and op.kind != EDGE:
                yield from self._around(op, ("result", result), producer=True)
        for op, operand in flow.uses(ref):
            if op.kind not in _WITHOUT_RULES:
                yield from self._around(op, ("operand", operand), producer=False)
        for source in flow.sources(ref):
            yield from self._flowing(flow.graph.ops[ref[0]], ref, source, ("operand", 0))
        for target in flow.targets(ref):
            yield from self._flowing(flow.graph.ops[target[0]], ref, target, ("result", 0))

    def _around(self, op: Op, own: Slot, *, producer: bool) -> Iterator[_Beside]:
        flow = self.flow
        rule = op.sharding_rule if isinstance(op.sharding_rule, OpShardingRule) else None
        if rule is None and op.kind in _IDENTITIES:
            rule = _identity(len(op.types[0].shape or ()))
        if rule is None and (not producer or op.kind in _DATA_FLOW or op.callee is not None):
            return
        operands: list[tuple[Slot, Ref]] = [
            (("operand", index), ref) for index, ref in enumerate(flow.operands(op.id))
        ]
        results: list[tuple[Slot, Ref]] = [
            (("result", index), flow.root((op.id, index))) for index in range(len(op.types))
        ]
        own_value = flow.at(op.id, own)
        for slot, value in operands if producer else [*results, *operands]:
            if value == own_value:
                continue
            for dimension, part in flow.parts(value):
                yield _Beside(op, own, slot, value, dimension, part, rule)

    def _flowing(self, op: Op, ref: Ref, other: Ref, slot: Slot) -> Iterator[_Beside]:
        kind: EdgeNodeType = "result" if slot[0] == "operand" else "operand"
        rank = len(self.flow.graph.ops[ref[0]].types[ref[1]].shape or ())
        for dimension, part in self.flow.parts(other):
            yield _Beside(op, (kind, 0), slot, other, dimension, part, _identity(rank))

    # What stopped it.

    def _absences(self, ref: Ref, beside: _Beside) -> Iterator[Absence]:
        rule = beside.rule
        if rule is None:
            if beside.op.types and self.flow.graph.ops[ref[0]].types[ref[1]].shape:
                yield self._made(
                    beside,
                    beside.part,
                    None,
                    "no rule",
                    f"{_op_words(beside.op)} has no sharding rule, so nothing propagates through "
                    "it",
                )
            return
        own, other = rule_words.mapping(rule, beside.own), rule_words.mapping(rule, beside.slot)
        if own is None or other is None or beside.dimension >= len(other.dim_mappings):
            return
        dims = [part for dim, part in self.flow.parts(beside.value) if dim == beside.dimension]
        for factor, part in _on_factors(rule, other.dim_mappings[beside.dimension], dims):
            shared = part.shared(beside.part)
            if shared is None:
                continue
            dimension = _dimension_with(own, factor)
            if dimension is None:
                if beside.own[0] == "result":
                    yield self._no_factor(beside, rule, factor, shared)
                continue
            held = [p for dim, p in self.flow.parts(ref) if dim == dimension]
            for missing in shared.without(held):
                yield self._stopped(ref, beside, rule, factor, dimension, missing)

    def _no_factor(
        self, beside: _Beside, rule: OpShardingRule, factor: int, part: AxisPart
    ) -> Absence:
        what = rule_words.factor_words(rule, factor)
        return self._made(
            beside,
            part,
            None,
            "no factor",
            f"it is {what}, and no dimension of {rule_words.slot_words(beside.op, beside.own)} "
            f"has factor {factor_symbol(factor)}",
        )

    def _stopped(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> Absence:
        for test in (
            self._barrier,
            self._blocked,
            self._used_by_value,
            self._set_aside,
            self._closed,
            self._in_its_place,
            self._not_divisible,
            self._used_by_op,
        ):
            found = test(ref, beside, rule, factor, dimension, part)
            if found is not None:
                reason, words, rival = found
                return self._made(beside, part, dimension, reason, words, rival)
        return self._made(
            beside,
            part,
            dimension,
            "unknown",
            "nothing in the final shardings shows what stopped it",
        )

    def _barrier(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        if beside.op.kind == "sdy.propagation_barrier":
            return "barrier", "a propagation barrier stands between the two", None
        return None

    def _blocked(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        if factor not in rule.blocked_propagation_factors:
            return None
        words = f"nothing propagates along {rule_words.factor_words(rule, factor)}"
        return "blocked", f"{words}, by the rule of {_op_words(beside.op)}", None

    def _used_by_value(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        """The value has the axis on another dimension."""
        for other, own in self.flow.parts(ref):
            shared = own.shared(part)
            if other != dimension and shared is not None:
                axis = shared.axis(self.flow.mesh)
                where = f"dim {other} of the value already has {axis}"
                return self._against(where, ref, other, shared, beside, part)
        return None

    def _set_aside(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        sharding = self.flow.sharding(ref)
        if sharding is None:
            return None
        mesh = self.flow.mesh
        for axes, what in (
            (sharding.replicated_axes, "replicated along"),
            (sharding.unreduced_axes, "unreduced along"),
        ):
            if any(part_of(axis, mesh).shared(part) for axis in axes):
                words = f"the value is said to be {what} {part.axis(mesh)}"
                return "replicated", words, None
        return None

    def _closed(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        by = self.openness.closed_by(ref, dimension)
        return None if by is None else ("closed", f"dim {dimension} is closed by {by}", None)

    def _in_its_place(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        """The dimension is sharded on other axes where the other tensor has this one."""
        mesh = self.flow.mesh
        held = [p for dim, p in self.flow.parts(ref) if dim == dimension]
        theirs = [p for dim, p in self.flow.parts(beside.value) if dim == beside.dimension]
        for own, other in zip(held, theirs, strict=False):
            if own != other:
                where = f"dim {dimension} has {own.axis(mesh)} where {other.axis(mesh)} would go"
                return self._against(where, ref, dimension, own, beside, part)
        if len(held) > len(theirs):
            own = held[len(theirs)]
            where = f"dim {dimension} has {own.axis(mesh)} where {part.axis(mesh)} would go"
            return self._against(where, ref, dimension, own, beside, part)
        return None

    def _not_divisible(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        held = part_size(p for dim, p in self.flow.parts(ref) if dim == dimension)
        size = rule.factor_sizes[factor]
        left = size // math.gcd(size, held)
        if left % part.size == 0:
            return None
        pieces = f"{part.size}" if held == 1 else f"{held} x {part.size}"
        return (
            "not divisible",
            f"{rule_words.factor_words(rule, factor)} does not divide into {pieces} blocks",
            None,
        )

    def _used_by_op(
        self,
        ref: Ref,
        beside: _Beside,
        rule: OpShardingRule,
        factor: int,
        dimension: int,
        part: AxisPart,
    ) -> _Found:
        """Another tensor of the op has the axis for another factor, or others for this one."""
        mesh = self.flow.mesh
        for slot, value in self._tensors(beside.op):
            tensor = rule_words.mapping(rule, slot)
            if tensor is None or value == ref:
                continue
            parts = self.flow.parts(value)
            for dim, tensor_dim in enumerate(tensor.dim_mappings):
                on_dim = [p for d, p in parts if d == dim]
                for other, own in _on_factors(rule, tensor_dim, on_dim):
                    words = f"dim {dim} of {rule_words.slot_words(beside.op, slot, rule)}"
                    if other != factor and own.shared(part) is not None:
                        where = f"{words} has {own.axis(mesh)}, for another factor of the op"
                        return self._against(where, value, dim, own, beside, part)
                    if other == factor and own.name != part.name and value != beside.value:
                        where = f"{words}, the same factor, has {own.axis(mesh)}"
                        return self._against(where, value, dim, own, beside, part)
        return None

    def _tensors(self, op: Op) -> Iterator[tuple[Slot, Ref]]:
        for index, ref in enumerate(self.flow.operands(op.id)):
            yield ("operand", index), ref
        for index in range(len(op.types)):
            yield ("result", index), self.flow.root((op.id, index))

    def _against(
        self, where: str, value: Ref, dimension: int, own: AxisPart, beside: _Beside, part: AxisPart
    ) -> _Found:
        """A conflict with what is in the way, and where that comes from."""
        rival = self.chains.chain(value, dimension, own)
        words = where
        if rival.beginning is not None:
            words += f", from {rival.beginning.words}"
        if rival.moves and rival.moves[-1].number is not None:
            words += f", since step {rival.moves[-1].number}"
        theirs = self.chains.chain(beside.value, beside.dimension, part)
        first, second = _priority(rival), _priority(theirs)
        if first < second:
            return "priority", f"{words}, and has priority {first} before {second}", rival
        return "conflict", words, rival

    def _made(
        self,
        beside: _Beside,
        part: AxisPart,
        dimension: int | None,
        reason: Reason,
        words: str,
        rival: Chain | None = None,
    ) -> Absence:
        op = beside.op
        axis = part.axis(self.flow.mesh)
        tensor = rule_words.slot_words(op, beside.slot, beside.rule)
        neighbour = f"dim {beside.dimension} of {tensor}"
        could = "" if dimension is None else f", which could be on dim {dimension}"
        sentence = f"{neighbour} of {_op_words(op)} has {axis}{could}: {words}."
        return Absence(
            axis,
            dimension,
            op.id,
            op.kind,
            op.scope,
            op.source,
            neighbour,
            beside.value,
            reason,
            sentence,
            rival,
        )


_Found: TypeAlias = tuple[Reason, str, Chain | None] | None

_IDENTITIES = CONSTRAINTS | {"sdy.propagation_barrier"}


#: Ops whose results are values from inside their regions, or operands that pass through.
_DATA_FLOW = LOOPS | REGIONS | BARRIERS | {"stablehlo.case", "stablehlo.if"}


def _identity(rank: int) -> OpShardingRule:
    """The rule of an op that is its operand. Sizes do not matter: equal dimensions divide alike."""
    tensor = TensorMapping(tuple(DimMapping((dim,)) for dim in range(rank)))
    return OpShardingRule((0,) * rank, (tensor,), (tensor,))


def _priority(chain: Chain) -> int:
    return (chain.beginning.priority or 0) if chain.beginning is not None else 0


def _dimension_with(tensor: TensorMapping, factor: int) -> int | None:
    dims = enumerate(tensor.dim_mappings)
    return next((dim for dim, own in dims if factor in own.factor_indices), None)


def _on_factors(
    rule: OpShardingRule, dim: DimMapping, parts: list[AxisPart]
) -> Iterator[tuple[int, AxisPart]]:
    """The axes of a dimension laid out over its factors, major to minor, as Shardy does it."""
    factors = list(dim.factor_indices)
    if not factors:
        return
    left = rule.factor_sizes[factors[0]] if len(factors) > 1 else 0
    for part in parts:
        rest: AxisPart | None = part
        while rest is not None:
            while left == 1 and len(factors) > 1:
                factors.pop(0)
                left = rule.factor_sizes[factors[0]] if len(factors) > 1 else 0
            taken = math.gcd(left, rest.size) if left else rest.size
            if taken == 1:
                taken, left = rest.size, 0  # it does not fit: all of it is on this factor
            yield factors[0], AxisPart(rest.name, rest.start, rest.start * taken)
            stop, start = rest.stop, rest.start * taken
            rest = AxisPart(rest.name, start, stop) if start < stop else None
            left = left // taken if left else 0


def _op_words(op: Op) -> str:
    """``dot_general at model.py:42``."""
    name = op.kind.rpartition(".")[2]
    return f"{name} at {op.source}" if op.source is not None else name
