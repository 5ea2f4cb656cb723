"""What results are compared with: the step on one device, where XLA itself may be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sdyscope.analysis.naming.next_values import pairs_of_table
from sdyscope.analysis.run.numerics import element_dtype
from sdyscope.staged import Staged

if TYPE_CHECKING:
    from sdyscope.stages.executed.execute import Runner

_Compared = TypeVar("_Compared")


def compared_with_one_device(
    runner: Runner,
    compare: Callable[[], _Compared],
    differing: Callable[[_Compared], int | None],
) -> _Compared:
    """What comes of comparing with the step on one device.

    Where results differ, what XLA's algebraic simplifier makes of that step may be what is wrong:
    then it is compiled without, and taken so where fewer differ. Who runs it stays as it was taken.

    Args:
        runner: runs it.
        compare: runs the step on one device, and compares with it.
        differing: how many results differ; None where it did not run, or nothing was compared.
    """
    first = compare()
    count = differing(first)
    if not count:
        return first
    runner.simplifies = False
    plain = compare()
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
