"""Arguments of which a step reads only a part: tables, caches that it writes to, what it slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from sdyscope.analysis.cost.counters import IndexPlaces, Path
from sdyscope.graph import Op, OpGraph, ValueId
from sdyscope.graph.op_kinds import BRANCHES, LOOPS, REGIONS, TERMINATORS, WRITERS
from sdyscope.walk import reached

#: These, and ops that read of their first operand only as much as they give.
_PARTLY: Final = {*WRITERS, "stablehlo.dynamic_slice", "stablehlo.gather"}
#: Ops that pass on what they are given to regions, functions, or whoever called.
_BOUNDARIES: Final = {"func.call", *LOOPS, *BRANCHES, *REGIONS, *TERMINATORS}

#: Of how many calls of a function it is looked at what each slices.
_PATHS: Final = 256
#: To how many parts of a value it is looked at whether they are read.
_CELLS: Final = 1 << 22

Box: TypeAlias = tuple[range, ...]
"""A part of a value: the indices of each dimension."""


def looked_up(graph: OpGraph) -> tuple[str, ...]:
    """The paths of the arguments of which nothing reads all for certain, in order.

    A loop reads all of what it slices where it counts to the end of it, as a scan over layers, and
    of what it slices reads all.
    """
    if graph.main is None:
        return ()
    across: dict[ValueId, list[ValueId]] = {}
    for _, value, other in graph.crossings():
        across.setdefault(value, []).append(other)
    readings = _Readings(graph, across)
    return tuple(
        argument.name or f"argument {argument.index}"
        for argument in graph.main.arguments
        if graph.users((argument.node, 0)) and not readings.is_whole((argument.node, 0))
    )


class _Readings:
    """What is read of values.

    Args:
        graph: an op graph.
        across: what values are on the other side of the boundaries of functions and regions.
    """

    def __init__(self, graph: OpGraph, across: Mapping[ValueId, Sequence[ValueId]]) -> None:
        self.graph = graph
        self.across = across
        self.places = IndexPlaces(graph)
        self.known: dict[ValueId, bool] = {}

    def is_whole(self, value: ValueId, *, is_new: bool = False) -> bool:
        """Whether all of a value is read for certain, in whatever form.

        Args:
            value: the value.
            is_new: whether it is a part of another, which is read to return it.
        """
        if value not in self.known:
            self.known[value] = False  # A loop hands it back.
            self.known[value] = any(
                self._is_read(each, is_new=is_new) for each in reached([value], self._passed_on)
            )
        return self.known[value]

    def _passed_on(self, value: ValueId) -> Iterator[ValueId]:
        yield from self.across.get(value, ())
        for user, operand in self.graph.users(value):
            op = self.graph.ops[user]
            if op.is_form:
                yield (user, operand if len(op.types) > 1 else 0)
            elif op.kind in WRITERS and not operand:
                yield (user, 0)

    def _is_read(self, value: ValueId, *, is_new: bool) -> bool:
        sliced: list[Op] = []
        for user, operand in self.graph.users(value):
            op = self.graph.ops[user]
            match op.kind:
                case "stablehlo.slice":
                    sliced.append(op)
                case "stablehlo.dynamic_slice" if not operand:
                    sliced.append(op)
                case kind if kind in _PARTLY:
                    if operand:
                        return True
                case "func.return" if is_new and op.parent == self._main:
                    return True
                case kind if kind in BRANCHES and not operand:
                    return True  # It says which.
                case kind if not (op.is_form or kind in _BOUNDARIES):
                    return True
        return bool(sliced) and self._covers(value, sliced)

    @cached_property
    def _main(self) -> int:
        return -1 if self.graph.main is None else self.graph.main.op

    def _covers(self, value: ValueId, sliced: Sequence[Op]) -> bool:
        """Whether slices are all of a value together, as of layers that are taken one by one.

        Of a function that is called several times, each call's.
        """
        op = self.graph.ops[value[0]]
        shape = op.types[value[1]].static_shape
        if not shape:
            return False
        read = [each for each in sliced if self.is_whole((each.id, 0), is_new=True)]
        paths = self.graph.call_paths(op.function)
        fixed = [each for each in read if each.kind == "stablehlo.slice"]
        if len(paths) > _PATHS or len(fixed) == len(read):
            read, paths = fixed, paths[:1]
        return bool(paths) and all(
            covers(shape, [box for each in read for box in self._boxes(each, shape, path)])
            for path in paths
        )

    def _boxes(self, op: Op, shape: Sequence[int], path: Path) -> Iterator[Box]:
        """The parts that a slice takes for certain."""
        if op.kind == "stablehlo.slice":
            names = ("start_indices", "limit_indices", "strides")
            yield tuple(itertools.starmap(range, zip(*map(op.integers, names), strict=True)))
            return
        sizes = op.types[0].static_shape or ()
        indices = self.graph.operand_values[op.id][1:]
        if len(indices) != len(shape) or len(sizes) != len(shape):
            return
        for place in self.places(indices, path) or ():
            clamped = [
                min(max(first, 0), whole - size)
                for first, size, whole in zip(place, sizes, shape, strict=True)
            ]
            yield tuple(range(at, at + size) for at, size in zip(clamped, sizes, strict=True))


def covers(shape: Sequence[int], boxes: Sequence[Box]) -> bool:
    """Whether boxes are all of a shape together.

    Args:
        shape: size of each dimension.
        boxes: the indices of each dimension that they have.

    Returns:
        False also where that takes too long to find out.
    """
    edges: list[list[int]] = []
    for number, size in enumerate(shape):
        # What no box ends or begins within is had by it whole, or not at all.
        own = {0, size}
        for taken in {box[number] for box in boxes}:
            own.update((taken.start, taken.stop) if taken.step == 1 else range(size))
        edges.append(sorted(own))
    if math.prod(len(own) - 1 for own in edges) > _CELLS:
        return False
    places = [{edge: place for place, edge in enumerate(own)} for own in edges]
    has = np.zeros([len(own) - 1 for own in edges], bool)
    for box in set(boxes):
        ranges = zip(box, places, strict=True)
        has[
            tuple(
                slice(place[taken.start], place[taken.stop])
                if taken.step == 1
                else slice(taken.start, taken.stop, taken.step)
                for taken, place in ranges
            )
        ] = True
    return bool(has.all())
