"""How many places of a tensor an index goes to: those that the loops count which it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from sdyscope.graph import Op, OpGraph, ValueId
from sdyscope.graph.attribute_values import Elements
from sdyscope.graph.op_kinds import LOOPS
from sdyscope.hlo.loops import MIRRORED, trips
from sdyscope.walk import reached

_CONSTANT: Final = "stablehlo.constant"
#: Ops that give other numbers for other numbers: what an index is made of where JAX counts.
_KEEPING: Final = frozenset(
    f"stablehlo.{name}" for name in ("add", "compare", "multiply", "negate", "select", "subtract")
)


class IndexPlaces:
    """Counts the places that indices of a graph's slices go to.

    Args:
        graph: an op graph.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self._counts: dict[int, int] = {}

    def __call__(self, indices: Iterable[ValueId]) -> int:
        """How many different places indices go to for certain; 0 where data say where.

        Args:
            indices: one for each dimension.
        """
        counted: set[int] = set()
        for node, _ in reached([*indices], self._made_of):
            op = self.graph.ops[node]
            if op.is_argument:
                if not self._across((node, 0)):
                    counted.add(node)
            elif not (op.kind == _CONSTANT or self._is_keeping(op) or self.graph.callee(op)):
                return 0
        return math.prod(map(self._count, counted))

    def _made_of(self, value: ValueId) -> Sequence[ValueId]:
        op = self.graph.ops[value[0]]
        behind = self._across(value)
        return behind or (self.graph.operand_values[op.id] if self._is_keeping(op) else ())

    def _across(self, value: ValueId) -> Sequence[ValueId]:
        """What a call's result is inside, and an argument outside; nothing for others."""
        op = self.graph.ops[value[0]]
        if op.is_argument:
            return self._given_once(op) or self._handed_on(op)
        callee = self.graph.callee(op)
        end = None if callee is None else self.graph.terminators.get((callee.op, 0))
        return () if end is None else [self.graph.operand_values[end.id][value[1]]]

    def _behind(self, value: ValueId) -> ValueId:
        """What a value is, where it is what a function was given or returns."""
        seen: set[ValueId] = set()
        while (across := self._across(value)) and value not in seen:
            seen.add(value)
            (value,) = across
        return value

    @staticmethod
    def _is_keeping(op: Op) -> bool:
        return op.kind in _KEEPING or op.is_form

    def _given_once(self, argument: Op) -> Sequence[ValueId]:
        """What a function's argument is, where there is one call of it."""
        given = self._given.get(argument.parent, [])
        return [given[0][argument.argument]] if len(given) == 1 else ()

    def _handed_on(self, argument: Op) -> Sequence[ValueId]:
        """What a loop's argument is before the loop, where the loop never changes it."""
        loop = None if argument.parent is None else self.graph.ops[argument.parent]
        if loop is None or loop.kind not in LOOPS:
            return ()
        end, number = self.graph.terminators.get((loop.id, 1)), argument.argument
        back = None if end is None else self.graph.ops[self.graph.operand_values[end.id][number][0]]
        if back is None or back.argument != number or (back.parent, back.region) != (loop.id, 1):
            return ()
        return [self.graph.operand_values[loop.id][number]]

    @cached_property
    def _given(self) -> dict[int | None, list[Sequence[ValueId]]]:
        """The operands of each call of a function, by the function's node."""
        graph = self.graph
        return {
            function.op: [graph.operand_values[call.id] for call in graph.callers(name)]
            for name, function in graph.functions.items()
        }

    def _count(self, node: int) -> int:
        """How many numbers a block argument is, one after the other."""
        if node not in self._counts:
            self._counts[node] = 0  # what a function hands itself is not known
            op = self.graph.ops[node]
            if op.parent in self._given:
                given = self._given[op.parent]
                each = (self([operands[op.argument]]) for operands in given)
                self._counts[node] = min(each, default=0)
            else:
                self._counts[node] = self._trips_of(op)
        return self._counts[node]

    def _trips_of(self, argument: Op) -> int:
        """How often the loop runs of which an argument grows by a constant each time; else 0."""
        loop = None if argument.parent is None else self.graph.ops[argument.parent]
        if loop is None or loop.kind not in LOOPS or not self._step(loop, argument.argument):
            return 0
        return self._trips(loop) or 0

    def _trips(self, loop: Op) -> int | None:
        """How often a loop runs, where it counts from a constant to a constant."""
        end = self.graph.terminators.get((loop.id, 0))
        compared = None if end is None else self._op(end, 0)
        if compared is None or compared.kind != "stablehlo.compare":
            return None
        left, right = self.graph.operand_values[compared.id]
        direction = str(compared.attributes.get("comparison_direction", ""))
        if self._number(left) is not None:
            left, right, direction = right, left, MIRRORED.get(direction, "")
        counter, limit = self.graph.ops[self._behind(left)[0]], self._number(right)
        if limit is None or counter.parent != loop.id or counter.argument < 0:
            return None
        first = self._number(self.graph.operand_values[loop.id][counter.argument])
        step = self._step(loop, counter.argument)
        return trips(first, limit, step, direction) if first is not None and step else None

    def _step(self, loop: Op, argument: int) -> int:
        """By how much an argument of a loop grows each time; 0 where that is no constant."""
        end = self.graph.terminators.get((loop.id, 1))
        if end is None:
            return 0
        grown = self._op(end, argument)
        for sign, kind in ((1, "stablehlo.add"), (-1, "stablehlo.subtract")):
            if grown.kind == kind:
                for at, by in self._orders(grown):
                    before, number = self.graph.ops[self._behind(at)[0]], self._number(by)
                    is_it = (before.parent, before.region) == (loop.id, 1)
                    if number is not None and is_it and before.argument == argument:
                        return sign * number
        return 0

    def _orders(self, op: Op) -> Iterator[tuple[ValueId, ValueId]]:
        left, right = self.graph.operand_values[op.id]
        yield left, right
        if op.kind == "stablehlo.add":
            yield right, left

    def _op(self, user: Op, operand: int) -> Op:
        """What makes an operand of an op."""
        return self.graph.ops[self._behind(self.graph.operand_values[user.id][operand])[0]]

    def _number(self, value: ValueId) -> int | None:
        """The number that a value is; None where it is no integer constant."""
        op = self.graph.ops[self._behind(value)[0]]
        constant = op.attributes.get("value") if op.kind == _CONSTANT else None
        if not isinstance(constant, Elements) or not constant.is_splat:
            return None
        number = constant.splat
        return number if isinstance(number, int) else None
