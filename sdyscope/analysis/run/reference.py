"""What results are compared with: the step on one device, where XLA itself may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sdyscope.analysis.naming.next_values import pairs_of_table
from sdyscope.analysis.run.numerics import ROUNDOFF, coarsest, element_dtype
from sdyscope.facts.tensors import TensorTable
from sdyscope.staged import Staged

if TYPE_CHECKING:
    from sdyscope.stages.executed.execute import Runner

_Compared = TypeVar("_Compared")


def compared_with_one_device(
    runner: Runner,
    table: TensorTable,
    before: Sequence[Any],
    compare: Callable[[Sequence[float]], _Compared],
    differing: Callable[[_Compared], int | None],
    *,
    is_own: bool = True,
) -> _Compared:
    """What comes of comparing with the step on one device.

    Where results differ, it is measured how far rounding moves them. Where they differ by more,
    what XLA's algebraic simplifier makes of that step may be what is wrong: then it is compiled
    without, and taken so where fewer differ. Who runs it stays as it was taken.

    Args:
        runner: runs it.
        table: what its arguments and results are.
        before: of each result the argument that it may be the next value of; None for none.
        compare: runs the step on one device, and compares with it, knowing how far rounding its
            arguments moves each result; see ``Reference.moved``.
        differing: how many results differ; None where it did not run, or nothing was compared.
        is_own: whether that step is the program's own, not a function of the user's.
    """
    first = compare(())
    if not differing(first):
        return first
    moved = moved_by_rounding(runner, table, before)
    first = compare(moved)
    count = differing(first)
    if not count or not is_own:
        return first
    runner.simplifies = False
    plain = compare(moved)
    fewer = differing(plain)
    if fewer is not None and fewer < count:
        return plain
    runner.simplifies = True
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


def moved_by_rounding(
    runner: Runner, table: TensorTable, before: Sequence[Any]
) -> tuple[float, ...]:
    """How far results move on one device when arguments are rounded otherwise.

    Half of the floats, by chance, are a unit in the last place of what the step computes in larger.

    Args:
        runner: runs it.
        table: what its arguments and results are.
        before: of each result the argument that it may be the next value of; None for none.

    Returns:
        Of each result the norm of that, less what was done to the argument; empty where it can't be
        run so.
    """
    floats = {
        (row.kind, row.index): ROUNDOFF[coarsest(row.dtype, runner.compute_dtypes)]
        for row in table.tensors
        if element_dtype(row.dtype)
    }
    rounded = [
        _rounded(runner.value(number), floats["argument", number])
        if ("argument", number) in floats
        else value
        for number, value in enumerate(runner.values)
    ]
    try:
        own, others = runner.results_on_one_device(), runner.results_on_one_device(rounded)
    except Exception:  # what the step on one device raises is said where it is compared with
        return ()

    def moved(number: int, result: Any, other: Any) -> float:
        if result is None or other is None:
            return 0.0
        apart = _wide(other) - _wide(result)
        argument = before[number] if number < len(before) else None
        if argument is not None:
            after = _rounded(argument, floats["result", number])
            apart = apart - (_wide(after) - _wide(argument))
        return float(np.linalg.norm(np.where(np.isfinite(apart), apart, 0.0)))

    with np.errstate(all="ignore"):
        return tuple(map(moved, range(len(own)), own, others))


def _rounded(values: Any, roundoff: float) -> Any:
    """Floats that are rounded otherwise, each time in the same way."""
    # All in one direction: what is added to each by chance is lost in their sum.
    units = np.random.default_rng(0).choice([0.0, 1.0], values.shape)
    return (_wide(values) * (1 + 2 * roundoff * units)).astype(values.dtype)


def _wide(values: Any) -> Any:
    return np.asarray(values).astype(np.complex128 if np.iscomplexobj(values) else np.float64)
