"""Where values go on at the boundaries of functions, loops and `shard_map`s."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property, partial
from typing import Final

from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import BRANCHES
from sdyscope.walk import reached

#: The op of a `shard_map`, without its dialect.
SHARD_MAP: Final = "manual_computation"


class Boundaries:
    """What values are on the other side of the boundaries of functions and regions.

    Args:
        graph: op graph of the lowered module.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self._within: dict[int, frozenset[int]] = {}
        self._capturing: dict[int, frozenset[int]] = {}

    @cached_property
    def invariant(self) -> set[ValueId]:
        """The arguments of loops that are passed on as they are."""
        return {
            target
            for kind, source, target in self.graph.crossings()
            if kind == "loop" and source == target
        }

    @cached_property
    def carries(self) -> dict[int, list[ValueId]]:
        """By loop, the arguments of its body."""
        arguments: dict[int, list[ValueId]] = {}
        for kind, _, target in self.graph.crossings():
            loop = self.graph.ops[target[0]].parent
            if kind == "loop" and loop is not None:
                arguments.setdefault(loop, []).append(target)
        return arguments

    def are_within(self, around: Op, ops: Sequence[Op]) -> bool:
        """Whether there are some ops, and all of them are in the body of a loop, or in branches."""
        if not ops or not (around.id in self.carries or around.kind in BRANCHES):
            return False
        if around.id not in self._within:
            self._within[around.id] = frozenset(op.id for op in self.graph.inside([around]))
        return all(op.id in self._within[around.id] for op in ops)

    def is_looped(self, op: Op) -> bool:
        """Whether an op is in a loop, or in a function that is called in one."""
        return any(self.are_within(self.graph.ops[loop], [op]) for loop in self.carries)

    def taken_within(self, op: Op) -> list[ValueId]:
        """What the body of a `shard_map` takes, and what the loops in it carry."""
        taken = [(inner.id, 0) for inner in self.graph.children(op) if inner.is_argument]
        loops = [inner.id for inner in self.graph.inside([op]) if inner.id in self.carries]
        return [*taken, *(carry for loop in loops for carry in self.carries[loop])]

    def capturing(self, around: Op) -> frozenset[int]:
        """The ops in branches that take a tensor from outside of them."""
        if around.id not in self._capturing:
            inside = {op.id for op in self.graph.inside([around])}
            given = partial(self._given, inside)
            self._capturing[around.id] = frozenset(
                op
                for op in inside
                for producer, _ in reached(self.graph.operand_values[op], given)
                if producer not in inside
            )
        return self._capturing[around.id]

    def _given(self, inside: Container[int], value: ValueId) -> list[ValueId]:
        """What the calls among some ops give a function as an argument of it."""
        op = self.graph.ops[value[0]]
        calls = self.graph.callers(op.function) if op.id in inside and op.is_argument else []
        given = (self.graph.operand(call, op.argument) for call in calls if call.id in inside)
        return [each for each in given if each is not None]

    @cached_property
    def manual_axes(self) -> dict[int, frozenset[str]]:
        """By op in the body of a `shard_map`, the axes that it is manual on there."""
        manual: dict[int, frozenset[str]] = {}
        for op in self.graph.operations():
            if op.manual_axes:
                for inner in self.graph.inside([op]):
                    manual[inner.id] = manual.get(inner.id, frozenset()) | {*op.manual_axes}
        return manual

    @cached_property
    def bodies(self) -> dict[int, list[tuple[int, ValueId]]]:
        """By `shard_map` or loop, what its body returns, each with the number of the result."""
        returned: dict[int, list[tuple[int, ValueId]]] = {}
        for kind, source, (op, result) in self.graph.crossings():
            if kind == "yield" and self.graph.ops[op].mnemonic in (SHARD_MAP, "while"):
                returned.setdefault(op, []).append((result, source))
        return returned

    @cached_property
    def passed(self) -> dict[ValueId, list[ValueId]]:
        """By value, what it is on the other side of a boundary of a function or region."""
        targets: dict[ValueId, list[ValueId]] = {}
        for kind, source, target in self.graph.crossings():
            if kind != "loop" and not self.graph.ops[target[0]].is_result:
                targets.setdefault(source, []).append(target)
        return targets
