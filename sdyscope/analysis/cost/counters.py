"""The places that indices of slices go to, where loops count them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from sdyscope.graph import Op, OpGraph, ValueId
from sdyscope.graph.attribute_values import Elements
from sdyscope.graph.op_kinds import LOOPS, REGIONS
from sdyscope.hlo.loops import MIRRORED, trips
from sdyscope.values.passing import FORMS

Path: TypeAlias = tuple[int, ...]
"""The calls that lead to where a value is, outermost first."""
_Numbers: TypeAlias = Any
"""An array of whole numbers or truths, with an axis for each loop that they are counted by."""

_CONSTANT: Final = "stablehlo.constant"
_COMPARISONS: Final[Mapping[str, Callable[..., _Numbers]]] = {
    "EQ": operator.eq,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
    "NE": operator.ne,
}


def _quotient(left: _Numbers, right: _Numbers) -> _Numbers:
    if not np.all(right):
        raise _UnknownError
    return np.sign(left) * np.sign(right) * (abs(left) // abs(right))


def _same(number: _Numbers) -> _Numbers:
    return number + 0  # truths are numbers, as in converts


#: What JAX makes indices of, as NumPy computes it.
_COMPUTED: Final[Mapping[str, Callable[..., _Numbers]]] = {
    "abs": abs,
    "add": operator.add,
    "and": operator.and_,
    "clamp": lambda low, number, high: np.minimum(np.maximum(number, low), high),
    "divide": _quotient,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": operator.mul,
    "negate": operator.neg,
    "or": operator.or_,
    "remainder": lambda left, right: left - right * _quotient(left, right),
    "select": np.where,
    "sign": np.sign,
    "subtract": operator.sub,
}
#: How many loops may count an index, and to how many places it may go.
_LOOPS, _PLACES = 6, 1 << 16
#: How deep what an index is made of may be.
_DEEP = 200


class _UnknownError(Exception):
    """A number is only known when the program runs."""


class IndexPlaces:
    """Counts out the places that indices of a graph's slices go to.

    Args:
        graph: an op graph.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph

    def __call__(self, indices: Sequence[ValueId], path: Path) -> Sequence[tuple[int, ...]] | None:
        """The different places that indices go to for certain; None where data say where.

        Args:
            indices: one for each dimension.
            path: the calls that lead to where they are.
        """
        try:
            counted = _Counted(self.graph)
            columns = [counted.numbers(index, path) for index in indices]
        except _UnknownError:
            return None
        broadcast = np.broadcast_arrays(*columns) if columns else []
        return sorted(set(zip(*(column.ravel().tolist() for column in broadcast), strict=True)))


class _Counted:
    """Numbers that several indices are made of, counted together.

    Args:
        graph: an op graph.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.loops: dict[tuple[int, Path], int] = {}
        self.known: dict[tuple[ValueId, Path], _Numbers] = {}
        self.depth = 0

    def numbers(self, value: ValueId, path: Path) -> _Numbers:
        """What a value is, one after the other.

        Raises:
            _UnknownError: that is only known when the program runs.
        """
        key = value, path
        if key not in self.known:
            if self.depth > _DEEP:
                raise _UnknownError
            self.depth += 1
            self.known[key] = self._numbers(value, path)
            self.depth -= 1
        return self.known[key]

    def _numbers(self, value: ValueId, path: Path) -> _Numbers:
        op = self.graph.ops[value[0]]
        if op.is_argument:
            return self._given(op, path)
        if (callee := self.graph.callee(op)) is not None and op.id not in path:
            return self.numbers(self._returned(callee.op, 0, value[1]), (*path, op.id))
        type_ = op.types[value[1]]
        if type_.num_elements != 1 or not type_.dtype.lstrip("su").startswith("i"):
            raise _UnknownError
        if op.kind == _CONSTANT:
            return self._constant(op)
        compute = _COMPUTED.get(op.mnemonic)
        if op.kind == "stablehlo.compare":
            compute = _COMPARISONS.get(str(op.attributes.get("comparison_direction", "")))
        elif op.kind == "stablehlo.not" and type_.dtype == "i1":
            compute = np.logical_not
        elif op.passing in (*FORMS, "repeated") and len(op.types) == 1:
            compute = _same
        given = self.graph.operand_values[op.id]
        if compute is None or op.id in self.graph.operand_numbers:
            raise _UnknownError
        numbers = compute(*(self.numbers(operand, path) for operand in given))
        if type_.dtype.startswith("ui") and np.any(numbers < 0):
            raise _UnknownError  # It is a large one.
        return numbers

    @staticmethod
    def _constant(op: Op) -> _Numbers:
        constant = op.attributes.get("value")
        if not isinstance(constant, Elements) or not constant.is_splat:
            raise _UnknownError
        return np.asarray(constant.splat).reshape((1,) * _LOOPS)

    def _given(self, argument: Op, path: Path) -> _Numbers:
        """What a function's or a loop's argument is."""
        parent = None if argument.parent is None else self.graph.ops[argument.parent]
        if parent is None:
            raise _UnknownError
        if parent.kind in LOOPS:
            return self._of_loop(parent, argument.argument, path)
        if parent.kind in REGIONS:
            return self.numbers(self._operand(parent.id, argument.argument), path)
        if parent.kind != "func.func" or not path:
            raise _UnknownError
        return self.numbers(self._operand(path[-1], argument.argument), path[:-1])

    def _of_loop(self, loop: Op, number: int, path: Path) -> _Numbers:
        """A loop's argument: what it begins with, and what it has grown by since."""
        step = self._step(loop, number, path)
        begins = self.numbers(self._operand(loop.id, number), path)
        return begins if step == 0 else begins + step * self._rounds(loop, path)

    def _rounds(self, loop: Op, path: Path) -> _Numbers:
        """The numbers of a loop's rounds, from 0, along an axis of its own."""
        key = loop.id, path
        if key not in self.loops:
            self.loops[key] = self._trips(loop, path)
            if len(self.loops) > _LOOPS or math.prod(self.loops.values()) > _PLACES:
                raise _UnknownError
        shape = [1] * _LOOPS
        shape[[*self.loops].index(key)] = self.loops[key]
        return np.arange(self.loops[key]).reshape(shape)

    def _trips(self, loop: Op, path: Path) -> int:
        """How often a loop runs, where it counts from a constant to a constant."""
        compared, inside = self._behind(self._returned(loop.id, 0), path)
        op = self.graph.ops[compared[0]]
        if op.kind != "stablehlo.compare":
            raise _UnknownError
        direction = str(op.attributes.get("comparison_direction", ""))
        sides = self._operand(op.id, 0), self._operand(op.id, 1)
        for (counter, limit), words in (
            (sides, direction),
            (sides[::-1], MIRRORED.get(direction, "")),
        ):
            number = self._argument_of(loop, 0, counter, inside)
            if number is None:
                continue
            step = self._step(loop, number, path)
            first = self._single(self._operand(loop.id, number), path)
            count = trips(first, self._single(limit, inside), step, words) if step else None
            if count is not None:
                return count
        raise _UnknownError

    def _step(self, loop: Op, number: int, path: Path) -> int:
        """By how much an argument of a loop grows each time."""
        grown, inside = self._behind(self._returned(loop.id, 1, number), path)
        if self._argument_of(loop, 1, grown, inside) == number:
            return 0
        op = self.graph.ops[grown[0]]
        for at, by, sign in self._sums(op):
            if self._argument_of(loop, 1, at, inside) == number:
                return sign * self._single(by, inside)
        raise _UnknownError

    def _sums(self, op: Op) -> Iterator[tuple[ValueId, ValueId, int]]:
        if op.kind in ("stablehlo.add", "stablehlo.subtract"):
            left, right = self._operand(op.id, 0), self._operand(op.id, 1)
            if op.kind == "stablehlo.subtract":
                yield left, right, -1
            else:
                yield left, right, 1
                yield right, left, 1

    def _single(self, value: ValueId, path: Path) -> int:
        """A number that is the same each time."""
        numbers = self.numbers(value, path)
        if numbers.size != 1:
            raise _UnknownError
        return int(numbers.item())

    def _operand(self, node: int, number: int) -> ValueId:
        operand = self.graph.operand(node, number)
        if operand is None:
            raise _UnknownError
        return operand

    def _returned(self, node: int, region: int, number: int = 0) -> ValueId:
        """What the end of a region returns."""
        end = self.graph.terminators.get((node, region))
        if end is None:
            raise _UnknownError
        return self._operand(end.id, number)

    def _argument_of(self, loop: Op, region: int, value: ValueId, path: Path) -> int | None:
        """Which argument of a loop's region a value is; None where it is none of them."""
        behind = self.graph.ops[self._behind(value, path)[0][0]]
        is_its = behind.is_argument and (behind.parent, behind.region) == (loop.id, region)
        return behind.argument if is_its else None

    def _behind(self, value: ValueId, path: Path) -> tuple[ValueId, Path]:
        """What a value is, where it is what a function was given or returns, and where that is."""
        for _ in range(_DEEP):
            op = self.graph.ops[value[0]]
            parent = None if op.parent is None else self.graph.ops[op.parent]
            callee = self.graph.callee(op)
            if callee is not None:
                value, path = self._returned(callee.op, 0, value[1]), (*path, op.id)
            elif op.is_argument and path and parent is not None and parent.kind == "func.func":
                value, path = self._operand(path[-1], op.argument), path[:-1]
            else:
                return value, path
        raise _UnknownError
