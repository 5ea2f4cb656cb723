"""Words for how shardings move: op sharding rules, data flow, annotations."""

from __future__ import annotations

from typing import Final, Literal

from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.graph import Op, Sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.propagation_edges import EdgeNodeType
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.sharding_rule import OpShardingRule, TensorMapping, factor_symbol

__all__ = [
    "CONSTRAINT",
    "GROUP",
    "beginning",
    "common_factor",
    "data_flow",
    "dimension_in",
    "direction",
    "factor_words",
    "mapping",
    "moved",
    "op_words",
    "priority_in",
    "slot_words",
]

GROUP: Final = "both are in one sharding group, whose values are sharded alike"
CONSTRAINT: Final = "the constraint is applied to the value that it constrains"

_DATA_FLOW: Final = {
    "while": "what a loop starts with, carries, yields and returns is sharded alike",
    "case": "what each branch yields is sharded as the result is",
    "if": "what each branch yields is sharded as the result is",
    "optimization_barrier": "a barrier's operand and its result are sharded alike",
    "manual_computation": "the boundary of the shard_map passes on what it is not manual on",
    "named_computation": "the operands and results of a called function are those inside it",
    "call": "the operands and results of a called function are those inside it",
    "return": "a result of the function is sharded as the value that is returned",
}


def data_flow(op: Op) -> str:
    """Why two values on either side of the boundary that ``op`` stands for are sharded alike."""
    words = _DATA_FLOW.get(op.kind.rpartition(".")[2])
    return words or "the value is the same on both sides of the boundary"


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


def op_words(op: Op) -> str:
    """``dot_general at model.py:42``."""
    name = op.kind.rpartition(".")[2]
    return f"{name} at {op.source}" if op.source is not None else name


def slot_words(op: Op, slot: tuple[EdgeNodeType, int], rule: OpShardingRule | None = None) -> str:
    """``the left operand``, ``operand 2``, ``the result``, ``result 1``."""
    kind, index = slot
    if kind == "result":
        return "the result" if len(op.types) == 1 else f"result {index}"
    count = len(rule.operand_mappings) if rule is not None else 0
    if count == 1:
        return "the operand"
    if count == 2 and op.kind.rpartition(".")[2] not in _NOT_SYMMETRIC:
        return ("the left operand", "the right operand")[index]
    return f"operand {index}"


#: Ops whose two operands are no left and right.
_NOT_SYMMETRIC = frozenset({"reduce", "gather", "reduce_window", "pad", "dynamic_slice", "sort"})


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
    one, two = mapping(rule, source), mapping(rule, target)
    if one is None or two is None:
        return None
    left = _factors(one, source_dim)
    right = _factors(two, target_dim)
    return next((factor for factor in left if factor in right), None)


def _factors(tensor: TensorMapping, dimension: int | None) -> tuple[int, ...]:
    if dimension is None:
        return tuple(factor for dim in tensor.dim_mappings for factor in dim.factor_indices)
    if dimension >= len(tensor.dim_mappings):
        return ()
    return tensor.dim_mappings[dimension].factor_indices


_TYPES: Final = {
    "reduction": ", which is reduced over",
    "need_replication": ", which every device needs whole",
    "permutation": ", which is permuted",
    "pass-through": "",
}


def factor_words(rule: OpShardingRule, factor: int) -> str:
    """``factor k of size 128, which is summed over``."""
    size = rule.factor_sizes[factor] if factor < len(rule.factor_sizes) else 0
    kind = _TYPES[rule.factor_type(factor)]
    return f"factor {factor_symbol(factor)} of size {size}{kind}"


def moved(
    op: Op,
    source: tuple[EdgeNodeType, int],
    source_dim: int | None,
    target: tuple[EdgeNodeType, int],
    target_dim: int | None,
) -> str:
    """What allowed an axis to go from one tensor of an op to another."""
    rule = op.sharding_rule
    known = rule if isinstance(rule, OpShardingRule) else None
    one, two = slot_words(op, source, known), slot_words(op, target, known)
    of_one = one if source_dim is None else f"dim {source_dim} of {one}"
    of_two = two if target_dim is None else f"dim {target_dim} of {two}"
    words = f"{of_one} is {of_two}"
    if known is None:
        return words
    factor = common_factor(known, source, source_dim, target, target_dim)
    if factor is None:
        return words
    return f"{words} ({factor_words(known, factor)})"


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


_ON: Final = {
    "argument": "the argument",
    "result": "the result",
    "constraint": "the constraint in",
    "shard_map input": "an input of the shard_map",
    "shard_map output": "an output of the shard_map",
    "op": "the op",
}


def beginning(kind: str, name: str, sharding: Sharding | None, dimension: int | None) -> str:
    """``the annotation {"model"} on dim 1 of the argument params['w1']``."""
    on = f"{_ON[kind]} {name}".strip()
    if dimension is None or not isinstance(sharding, TensorSharding):
        return f"the annotation on {on}"
    return f"the annotation {sharding.dim_shardings[dimension]} on dim {dimension} of {on}"
