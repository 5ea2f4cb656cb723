"""What the picture of a program marks: values that an op needs otherwise, sums, and collectives.

Where a program was compiled its collectives are known. What an op's sharding rule says is there for
any program, and is a prediction: XLA partitions by its own rules, which mostly come to the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated, PropagatedValue, ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.inspection import Inspection
from sdyscope.values.placement import Digits
from sdyscope.values.sharding_rule import OpShardingRule

MarkKind: TypeAlias = Literal["moves", "sums"]
"""``moves``: an operand is needed in other blocks; ``sums``: each device sums a part only."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark on an op, or on one of its operands.

    Attributes:
        op: the op in the lowered module's op graph.
        kind: what is marked.
        operand: which operand it is about; -1 for the op itself.
        dims: dimensions of that operand that are sharded otherwise than the op needs them.
    """

    op: int
    kind: MarkKind
    operand: int
    dims: tuple[int, ...]


class Rules:
    """Shardy's sharding rules of the ops of a lowered module.

    Args:
        graph: op graph of the lowered module.
        propagated: its propagation under Shardy, whose module has the rules; without one an op is
            known to be elementwise or not at all.
    """

    def __init__(self, graph: OpGraph, propagated: Propagated | None) -> None:
        self.graph = graph
        self.propagated = propagated

    def rule(self, op: Op) -> OpShardingRule | None:
        """The rule of an op; None where it has none, or is another op after propagation."""
        if self.propagated is None or not op.types:
            return None
        value = self.propagated.values.get((op.id, 0))
        if value is None or value.node is None:
            return None
        after = self.propagated.graph.ops[value.node]
        rule = after.sharding_rule
        if after.kind != op.kind or not isinstance(rule, OpShardingRule):
            return None
        return rule


def marks(inspection: Inspection, first: Partitioner) -> dict[Partitioner, list[Mark]]:
    """The marks under each partitioner that has a propagation, on ops of the first one's module.

    Args:
        inspection: the program.
        first: the partitioner whose module is drawn.
    """
    propagations: dict[Partitioner, Propagated] = {
        partitioner: inspection.propagated(partitioner) for partitioner in inspection.lowered
    }
    graph = inspection.graph(first)
    rules = Rules(graph, propagations.get("shardy") if first == "shardy" else None)
    marks: dict[Partitioner, list[Mark]] = {}
    for partitioner, propagated in propagations.items():
        pairs: Mapping[ValueId, ValueId] | None = None
        if partitioner != first:
            pairs = value_pairs(graph, inspection.graph(partitioner))
        marks[partitioner] = list(_Marker(graph, propagated, pairs, rules).marks())
    return marks


_Dims: TypeAlias = tuple[Digits, ...]

_MarkAt: TypeAlias = tuple[MarkKind, int, tuple[int, ...]]
"""What a mark says, but for its op."""


class _Marker:
    def __init__(
        self,
        graph: OpGraph,
        propagated: Propagated,
        pairs: Mapping[ValueId, ValueId] | None,
        rules: Rules,
    ) -> None:
        self.graph = graph
        self.values = propagated.values
        self.pairs = pairs
        self.rules = rules
        self._known: dict[tuple[int, tuple[_Dims | None, ...], _Dims], tuple[_MarkAt, ...]] = {}

    def marks(self) -> Iterator[Mark]:
        for op in self.graph.operations():
            if op.types:
                yield from self._op(op)

    def _dims(self, value: ValueId, rank: int) -> _Dims | None:
        """Where a value is cut, by dimension; None where that is not known."""
        if self.pairs is not None:
            paired = self.pairs.get(value)
            if paired is None:
                return None
            value = paired
        propagated_value: PropagatedValue | None = self.values.get(value)
        if (
            propagated_value is None
            or propagated_value.node is None
            or propagated_value.fate == "not partitioned"
        ):
            return None
        if propagated_value.placement is None:
            return ((),) * rank if propagated_value.sharding is None else None
        return (
            propagated_value.placement.dims
            if len(propagated_value.placement.dims) == rank
            else None
        )

    def _op(self, op: Op) -> Iterator[Mark]:
        operand_values = self.graph.operand_values[op.id]
        if not operand_values:
            return
        result = self._dims((op.id, 0), len(op.types[0].shape or ()))
        if result is None:
            return
        operands = [
            self._dims(value, len(self.graph.ops[value[0]].types[value[1]].shape or ()))
            for value in operand_values
        ]
        rule = self.rules.rule(op)
        if op.is_constraint:
            yield from self._like_result(op, operands, result)
            return
        if rule is None:
            return
        if not any(map(any, (result, *(dims for dims in operands if dims)))):
            return
        # Layers repeat; equal rules are one object.
        key = (id(rule), tuple(operands), result)
        if key not in self._known:
            self._known[key] = tuple(self._by_rule(rule, operands, result))
        for mark in self._known[key]:
            yield Mark(op.id, *mark)

    def _like_result(self, op: Op, operands: list[_Dims | None], result: _Dims) -> Iterator[Mark]:
        for number, own in enumerate(operands):
            if own is not None and len(own) == len(result):
                dims = tuple(
                    d for d, (a, b) in enumerate(zip(own, result, strict=True)) if not _within(a, b)
                )
                if dims:
                    yield Mark(op.id, "moves", number, dims)

    def _by_rule(
        self, rule: OpShardingRule, operands: list[_Dims | None], result: _Dims
    ) -> Iterator[_MarkAt]:
        wanted: dict[int, Digits] = {}
        mapped = rule.result_mappings[0].dim_mappings if rule.result_mappings else ()
        if len(mapped) != len(result) or len(rule.operand_mappings) != len(operands):
            return
        for mapping, digits in zip(mapped, result, strict=True):
            if len(mapping.factor_indices) == 1:
                wanted[mapping.factor_indices[0]] = digits
        taken = {digit for digits in result for digit in digits}
        summed = False
        inside: list[list[tuple[int, int, Digits]]] = []
        for tensor, own in zip(rule.operand_mappings, operands, strict=True):
            dims = []
            if own is not None and len(tensor.dim_mappings) == len(own):
                for dim, (mapping, digits) in enumerate(zip(tensor.dim_mappings, own, strict=True)):
                    if len(mapping.factor_indices) == 1:
                        dims.append((dim, mapping.factor_indices[0], digits))
            inside.append(dims)
        for dims in inside:
            for _, factor, digits in dims:
                if factor in wanted or not digits:
                    continue
                # A dimension that is summed stays in pieces, unless its axes are used otherwise.
                if factor in rule.reduction_factors and taken.isdisjoint(digits):
                    wanted[factor] = digits
                    summed = True
        for number, dims in enumerate(inside):
            moved = tuple(
                dim
                for dim, factor, digits in dims
                if digits and not _within(digits, wanted.get(factor, ()))
            )
            if moved:
                yield "moves", number, moved
        if summed:
            yield "sums", -1, ()


def _within(digits: Digits, wanted: Digits) -> bool:
    """Whether blocks are made of these by cutting them further, which moves nothing."""
    return wanted[: len(digits)] == digits
