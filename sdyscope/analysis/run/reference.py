"""What results are compared with: the step on one device, where XLA itself may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sdyscope.analysis.naming.next_values import pairs_of_table
from sdyscope.analysis.run.numerics import ROUNDOFF, coarsest, element_dtype
from sdyscope.facts.tensors import TensorTable
from sdyscope.staged import Staged

if TYPE_CHECKING:
    from sdyscope.stages.executed.execute import Runner

_Compared = TypeVar("_Compared")

#: How often, and by how many units in the last place, arguments are rounded to see what jumps.
_RUNS_OF_JUMPS, _UNITS_OF_JUMPS = 8, 4


@dataclass(frozen=True, slots=True)
class Movement:
    """How far rounding its arguments moves each result of a step.

    Attributes:
        norms: see ``Reference.moved``.
        jumps: see ``Reference.jumps``.
    """

    norms: tuple[float, ...] = ()
    jumps: tuple[Any, ...] = ()


def compared_with_one_device(
    rounding: Rounding,
    compare: Callable[[Movement], _Compared],
    differing: Callable[[_Compared], int | None],
    *,
    is_own: bool = True,
) -> _Compared:
    """What comes of comparing with the step on one device.

    Where results differ, it is measured how far rounding moves them. Where they differ by more,
    what XLA's algebraic simplifier makes of that step may be what is wrong: then it is compiled
    without, and taken so where fewer differ. Who runs it stays as it was taken.

    Args:
        rounding: of the step.
        compare: runs the step on one device, and compares with it, knowing how far rounding its
            arguments moves each result.
        differing: how many results differ; None where it did not run, or nothing was compared.
        is_own: whether that step is the program's own, not a function of the user's.
    """
    known = rounding.movements()
    moved = next(known)
    first = compare(moved)
    while (count := differing(first)) and (more := next(known, None)) is not None:
        moved = more
        first = compare(moved)
    if not count or not is_own:
        return first
    rounding.runner.simplifies = False
    plain = compare(moved)
    fewer = differing(plain)
    if fewer is not None and fewer < count:
        return plain
    rounding.runner.simplifies = True
    return first


def arguments_before(lowered: Staged, runner: Runner) -> tuple[Any, ...]:
    """Of each result the argument that it may be the next value of, on the host; None for none."""
    under = lowered.chosen(None)
    pairs = pairs_of_table(lowered.tensors, (under, lowered.graph(under)))
    # What has its type alone may be computed in a narrower one, whose rounding is not known here.
    named = {
        result: argument
        for result, (argument, relation) in pairs.items()
        if relation in ("next value", "path")
    }
    dtypes = {row.index: row.dtype for row in lowered.tensors.tensors if row.kind == "result"}
    return tuple(
        runner.value(named[number]) if number in named and element_dtype(dtypes[number]) else None
        for number in range(max(named, default=-1) + 1)
    )


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far results of a step move on one device when its arguments are rounded otherwise.

    Attributes:
        runner: runs it.
        table: what its arguments and results are.
        before: of each result the argument that it may be the next value of; None for none.
    """

    runner: Runner
    table: TensorTable
    before: Sequence[Any]

    def movements(self) -> Iterator[Movement]:
        """What is known of it: nothing; how far each result moves; how far its elements do.

        Each is measured once it is asked for, as where results differ by more than the last one
        allows.
        """
        yield Movement()
        norms = self.norms()
        yield Movement(norms)
        yield Movement(norms, self._jumps())

    def norms(self) -> tuple[float, ...]:
        """How far results move.

        Half of the floats, by chance, are a unit in the last place of what the step computes in
        larger.

        Returns:
            Of each result the norm of that, less what was done to the argument; empty where it
            can't be run so.
        """
        moved = next(self._moved(((0, 1),)), ())
        return tuple(0.0 if each is None else float(np.linalg.norm(each)) for each in moved)

    def _jumps(self) -> tuple[Any, ...]:
        """How far each element of results moves.

        The sign of a gradient that is nearly zero jumps, and of many only a few do in each run: the
        furthest that it moves in eight runs in which arguments are four units in the last place
        larger.

        Returns:
            Of each result that; None for what is no number; empty where it can't be run so.
        """
        furthest: list[Any] = []
        runs = [(seed, _UNITS_OF_JUMPS) for seed in range(1, 1 + _RUNS_OF_JUMPS)]
        for moved in self._moved(runs):
            sizes = [None if each is None else np.abs(each).astype(np.float32) for each in moved]
            furthest = [
                size if size is None or most is None else np.maximum(most, size)
                for most, size in zip(furthest or sizes, sizes, strict=True)
            ]
        return tuple(furthest)

    def _moved(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
        """What each result is more; nothing where that fails.

        Args:
            runs: of each run the seed of what is rounded, and by how many units in the last place.
        """
        runner = self.runner
        floats = {
            (row.kind, row.index): ROUNDOFF[coarsest(row.dtype, runner.compute_dtypes)]
            for row in self.table.tensors
            if element_dtype(row.dtype)
        }

        def moved(number: int, result: Any, other: Any, seed: int, units: int) -> Any:
            if result is None or other is None:
                return None
            apart = _wide(other) - _wide(result)
            argument = self.before[number] if number < len(self.before) else None
            if argument is not None:
                after = _rounded(argument, floats["result", number], seed, units)
                apart = apart - (_wide(after) - _wide(argument))
            return np.where(np.isfinite(apart), apart, 0.0)

        try:
            own = runner.results_on_one_device()
            for seed, units in runs:
                rounded = [
                    _rounded(runner.value(number), floats["argument", number], seed, units)
                    if ("argument", number) in floats
                    else value
                    for number, value in enumerate(runner.values)
                ]
                others = runner.results_on_one_device(rounded)
                with np.errstate(all="ignore"):
                    yield tuple(
                        moved(number, result, other, seed, units)
                        for number, (result, other) in enumerate(zip(own, others, strict=True))
                    )
        except Exception:  # what the step on one device raises is said where it is compared with
            return


def _rounded(values: Any, roundoff: float, seed: int, units: int) -> Any:
    """Floats that are rounded otherwise, for each seed in the same way."""
    # All in one direction: what is added to each by chance is lost in their sum.
    more = np.random.default_rng(seed).choice([0.0, float(units)], values.shape)
    return (_wide(values) * (1 + 2 * roundoff * more)).astype(values.dtype)


def _wide(values: Any) -> Any:
    return np.asarray(values).astype(np.complex128 if np.iscomplexobj(values) else np.float64)
