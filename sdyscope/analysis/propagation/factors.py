"""Axes of a tensor's dimensions laid out over the factors of an op's sharding rule."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from functools import lru_cache

from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.graph import Op
from sdyscope.graph.op_kinds import CONSTRAINTS
from sdyscope.values.sharding_rule import DimMapping, OpShardingRule, TensorMapping


@lru_cache(1 << 8)
def identity_rule(rank: int) -> OpShardingRule:
    """The rule of an op that is its operand. Sizes do not matter: equal dimensions divide alike."""
    tensor = TensorMapping(tuple(DimMapping((dim,)) for dim in range(rank)))
    return OpShardingRule((0,) * rank, (tensor,), (tensor,))


def rule_of(op: Op, identities: Container[str] = CONSTRAINTS) -> OpShardingRule | None:
    """The rule that Shardy has for an op; None where it has none.

    Args:
        op: the op.
        identities: kinds of ops whose result is their operand.
    """
    if isinstance(op.sharding_rule, OpShardingRule):
        return op.sharding_rule
    return identity_rule(len(op.types[0].shape or ())) if op.kind in identities else None


def dimension_with(tensor: TensorMapping, factor: int) -> int | None:
    """The dimension of a tensor that is made of a factor; None when none is."""
    dims = enumerate(tensor.dim_mappings)
    return next((dim for dim, own in dims if factor in own.factor_indices), None)


def on_factors(
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
