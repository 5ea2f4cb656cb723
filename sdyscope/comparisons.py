"""Two programs, or one under two partitioners, side by side at a stage."""

from __future__ import annotations

from sdyscope.analysis.diff import Diff, Side, diff
from sdyscope.analysis.propagated_diff import PropagatedSide
from sdyscope.errors import TargetError
from sdyscope.program import Partitioner, Program
from sdyscope.staged import Staged

__all__ = ["compared", "propagated_side", "propagated_sides"]


def compared(a: Staged, b: Staged | None = None) -> tuple[Diff, tuple[Side, Side]]:
    """Two lowered modules: what differs, and the two sides that were compared.

    Args:
        a: a program.
        b: another, which is compared under the first partitioner that both have; without one,
            ``a`` under its two partitioners.

    Raises:
        CompilerError: one of the modules can't be made.
        TargetError: there is only one module and nothing to compare it with.
    """
    if b is None:
        one, two = both_partitioners(a)
        sides = (_side(a, one, one), _side(a, two, two))
        return diff(*sides, across_partitioners=True), sides
    one, two = partitioner_of_both(a, b)
    labels = labels_of(a, b)
    sides = (_side(a, one, labels[0]), _side(b, two, labels[1]))
    return diff(*sides, across_partitioners=one != two), sides


def _side(program: Staged, partitioner: Partitioner, label: str) -> Side:
    return Side(label, program.graph(partitioner), program.annotations(partitioner))


def propagated_sides(
    a: Staged, b: Staged | None = None, partitioner: Partitioner | None = None
) -> tuple[PropagatedSide, PropagatedSide]:
    """Two propagations, to be compared.

    Args:
        a: a program.
        b: another; without one, ``a`` under its two partitioners.
        partitioner: for two programs, whose propagation; by default the first that both have.

    Raises:
        CompilerError: one of the two can't be propagated.
        TargetError: there is only one module and nothing to compare it with.
    """
    if b is None:
        one, two = both_partitioners(a)
        return propagated_side(a, one, one), propagated_side(a, two, two)
    one, two = partitioner_of_both(a, b)
    labels = labels_of(a, b)
    return (
        propagated_side(a, partitioner or one, labels[0]),
        propagated_side(b, partitioner or two, labels[1]),
    )


def propagated_side(
    program: Staged, partitioner: Partitioner, label: str, *, conservative: bool = False
) -> PropagatedSide:
    """One propagation as it is compared with others.

    Raises:
        CompilerError: there is no such propagation.
    """
    found = program.propagated(partitioner, conservative=conservative)
    return PropagatedSide(label, program.graph(partitioner), found)


def both_partitioners(program: Staged) -> tuple[Partitioner, Partitioner]:
    """The two that a program is looked at under.

    Raises:
        TargetError: there is only one.
    """
    if program.program is None or len(program.partitioners) < 2:
        raise TargetError(
            f"{program.name} is one module, so there is nothing to compare it with.",
            hint="Name a second target, or a program with --partitioner both.",
        )
    return program.partitioners[0], program.partitioners[1]


def partitioner_of_both(a: Staged, b: Staged) -> tuple[Partitioner, Partitioner]:
    """The first that both are lowered under, or the first of each."""
    shared = [p for p in a.lowered if p in b.lowered]
    if shared:
        return shared[0], shared[0]
    return next(iter(a.lowered)), next(iter(b.lowered))


def labels_of(a: Staged, b: Staged) -> tuple[str, str]:
    """What to call two things: a program's name, as much of a file's path as tells them apart."""
    paths = [
        (source.name,) if isinstance(source, Program) or source.path is None else source.path.parts
        for source in (a.source, b.source)
    ]
    for length in range(1, max(map(len, paths)) + 1):
        one, two = ["/".join(parts[-length:]).replace("//", "/") for parts in paths]
        if one != two:
            return one, two
    return f"{one} (a)", f"{two} (b)"
