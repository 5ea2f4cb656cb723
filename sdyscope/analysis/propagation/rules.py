"""How shardings can move, as facts: what op sharding rules and annotations say."""

from __future__ import annotations

from typing import Literal

from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.facts.moves import ByRule, Factor, OpTensor, TensorDim
from sdyscope.graph import Op, Sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.propagation_edges import EdgeNodeType
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.sharding_rule import OpShardingRule, TensorMapping


def direction(
    source: tuple[EdgeNodeType, int], target: tuple[EdgeNodeType, int]
) -> Literal["forward", "backward", "sideways"]:
    """Which way an axis went through an op."""
    match source[0], target[0]:
        case "operand", "result":
            return "forward"
        case "result", "operand":
            return "backward"
    return "sideways"


def op_tensor(
    op: Op, slot: tuple[EdgeNodeType, int], rule: OpShardingRule | None = None
) -> OpTensor:
    """An operand or result of an op, and how many there are."""
    role, index = slot
    operands = 0 if rule is None else len(rule.operand_mappings)
    return OpTensor(role, index, op.kind, len(op.types) if role == "result" else operands)


def mapping(rule: OpShardingRule, slot: tuple[EdgeNodeType, int]) -> TensorMapping | None:
    """The factors of an operand or result; None where the rule has no such one."""
    kind, index = slot
    mappings = rule.operand_mappings if kind == "operand" else rule.result_mappings
    return mappings[index] if index < len(mappings) else None


def common_factor(
    rule: OpShardingRule,
    source: tuple[EdgeNodeType, int],
    source_dim: int | None,
    target: tuple[EdgeNodeType, int],
    target_dim: int | None,
) -> int | None:
    """The factor that a dimension of one tensor shares with one of another; None without one."""
    source_factors, target_factors = mapping(rule, source), mapping(rule, target)
    if source_factors is None or target_factors is None:
        return None
    left = _factors(source_factors, source_dim)
    right = _factors(target_factors, target_dim)
    return next((factor for factor in left if factor in right), None)


def _factors(tensor: TensorMapping, dimension: int | None) -> tuple[int, ...]:
    if dimension is None:
        return tuple(factor for dim in tensor.dim_mappings for factor in dim.factor_indices)
    if dimension >= len(tensor.dim_mappings):
        return ()
    return tensor.dim_mappings[dimension].factor_indices


def factor_of(rule: OpShardingRule, factor: int) -> Factor:
    """A factor of a rule, by its number."""
    size = rule.factor_sizes[factor] if factor < len(rule.factor_sizes) else 0
    return Factor(factor, size, rule.factor_type(factor))


def moved(
    op: Op,
    source: tuple[EdgeNodeType, int],
    source_dim: int | None,
    target: tuple[EdgeNodeType, int],
    target_dim: int | None,
) -> ByRule:
    """What allowed an axis to go from one tensor of an op to another."""
    rule = op.sharding_rule
    known = rule if isinstance(rule, OpShardingRule) else None
    factor = None
    if known is not None:
        common = common_factor(known, source, source_dim, target, target_dim)
        factor = None if common is None else factor_of(known, common)
    return ByRule(
        TensorDim(source_dim, op_tensor(op, source, known)),
        TensorDim(target_dim, op_tensor(op, target, known)),
        factor,
    )


def dimension_in(sharding: Sharding | None, part: AxisPart, mesh: Mesh | None) -> int | None:
    """The dimension that a sharding shards on (some of) an axis; None when none is."""
    if not isinstance(sharding, TensorSharding):
        return None
    for dimension, dim in enumerate(sharding.dim_shardings):
        if any(part_of(axis, mesh).shared(part) for axis in dim.axes):
            return dimension
    return None


def priority_in(sharding: Sharding | None, dimension: int | None) -> int | None:
    """The priority of a dimension; None where nothing is written, which is the highest, 0."""
    if dimension is None or not isinstance(sharding, TensorSharding):
        return None
    return sharding.dim_shardings[dimension].priority
