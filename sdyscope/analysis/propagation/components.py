"""Dimensions that hold an axis together: where one of them gets it, propagation takes it to all.

Two dimensions are joined where both are sharded on the axis and an op's sharding rule makes them of
one factor, or where a value continues across the boundary of a region or function, in a sharding
group or behind a constraint. Every annotation that says the axis on a dimension of such a component
can be where the others have it from; Shardy keeps the first alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.factors import on_factors, rule_of
from sdyscope.analysis.propagation.flow import Flow, Ref
from sdyscope.graph import Op
from sdyscope.values.sharding_rule import OpShardingRule

if TYPE_CHECKING:
    from networkx.utils import UnionFind


class HeldAxis(NamedTuple):
    """A dimension of a value that is sharded on an axis, whole or in part."""

    value: Ref
    dimension: int
    axis: str


class AxisComponents:
    """Which dimensions hold an axis together.

    Args:
        pairs: dimensions that are joined.
    """

    def __init__(self, pairs: Iterable[tuple[HeldAxis, HeldAxis]]) -> None:
        # Not above: importing NetworkX takes long, and nearly every command gets to this module.
        from networkx.utils import UnionFind

        self._sets: UnionFind[HeldAxis] = UnionFind()
        for value, other in pairs:
            if value is not other:
                self._sets.union(value, other)

    def of(self, held: HeldAxis) -> HeldAxis:
        """The dimension that stands for all that hold the axis together with this one."""
        component: HeldAxis = self._sets[held]
        return component


def joined_by_shardy(flow: Flow) -> Iterator[tuple[HeldAxis, HeldAxis]]:
    """The dimensions that Shardy's propagation joins, pair by pair.

    Args:
        flow: the index of the propagation.
    """
    for op in flow.graph.operations():
        rule = rule_of(op)
        if rule is not None:
            yield from _by_rule(flow, op, rule)
    for target in flow.crossing:
        for source in flow.sources(target):
            yield from _alike(flow, source, target)
    for ref, group in flow.groups.items():
        yield from _alike(flow, ref, group[0])


def _by_rule(flow: Flow, op: Op, rule: OpShardingRule) -> Iterator[tuple[HeldAxis, HeldAxis]]:
    first: dict[tuple[int, str], HeldAxis] = {}
    for slot, value in flow.slots(op):
        parts = flow.parts(value)
        tensor = rules.mapping(rule, slot) if parts else None
        if tensor is None:
            continue
        for dimension, mapped in enumerate(tensor.dim_mappings):
            own = [part for dim, part in parts if dim == dimension]
            for factor, part in on_factors(rule, mapped, own):
                held = HeldAxis(value, dimension, part.name)
                yield first.setdefault((factor, part.name), held), held


def _alike(flow: Flow, ref: Ref, other: Ref) -> Iterator[tuple[HeldAxis, HeldAxis]]:
    """What two values that are one tensor hold on the same dimensions."""
    theirs = {(dimension, part.name) for dimension, part in flow.parts(other)}
    for dimension, part in flow.parts(ref):
        if (dimension, part.name) in theirs:
            yield HeldAxis(ref, dimension, part.name), HeldAxis(other, dimension, part.name)
