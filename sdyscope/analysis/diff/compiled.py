"""Two compiled programs: what one device sends and holds, and what makes the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.diff.causes import Cause, Causes
from sdyscope.analysis.diff.collectives import CollectiveDifference, collective_differences
from sdyscope.analysis.diff.entries import Entries, compared_entries
from sdyscope.analysis.diff.lowered import Difference
from sdyscope.analysis.diff.memory import MemoryRow, memory_rows
from sdyscope.analysis.diff.propagated import PropagatedSide, propagated_diff
from sdyscope.analysis.memory.memory import Memory
from sdyscope.facts.compiled import Compiled

__all__ = ["CompiledDiff", "CompiledSide", "compiled_diff"]


@dataclass(frozen=True)
class CompiledSide:
    """One of the two.

    Attributes:
        label: what to call it: a partitioner, some hardware, a program.
        collectives: its collectives.
        compiled: the compiled program; None where only its collectives are known.
        memory: what a device holds of it; None where the program does not say.
        notes: what else there is to know.
    """

    label: str
    collectives: Collectives
    compiled: Compiled | None = None
    memory: Memory | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompiledDiff:
    """What two compiled programs do differently.

    Attributes:
        a: the first.
        b: the second.
        collectives: collectives that differ, what makes the largest difference in bytes first.
        moved: how many tensors both communicate alike, for ops of other scopes.
        causes: where propagation begins to differ, and constraints that only one side has;
            ``cause`` of a difference is a number here.
        propagated: the two propagations; None where they are not compared.
        memory: bytes a device on both sides; none where one side does not know them.
        entries: arguments and results; None where one side does not know them.
        notes: what else there is to know about the comparison.
    """

    a: CompiledSide
    b: CompiledSide
    collectives: tuple[CollectiveDifference, ...]
    moved: int
    causes: tuple[Cause, ...]
    propagated: tuple[PropagatedSide, PropagatedSide] | None
    memory: tuple[MemoryRow, ...]
    entries: Entries | None
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether a device sends the same and holds the same, arguments and results alike.

        ``entries.not_compared`` says of which of these it is not known.
        """
        return (
            not self.collectives
            and self.a.collectives.total == self.b.collectives.total
            and not any(row.differs for row in self.memory)
            and not (self.entries is not None and self.entries.different)
        )


def compiled_diff(
    a: CompiledSide,
    b: CompiledSide,
    propagated: tuple[PropagatedSide, PropagatedSide] | None = None,
    *,
    annotations: Sequence[Difference] = (),
    by_name: bool = False,
    notes: tuple[str, ...] = (),
) -> CompiledDiff:
    """Compares two compiled programs.

    Args:
        a: the first.
        b: the second.
        propagated: their propagations, to trace differences to where they begin.
        annotations: what differs in their lowered modules, to trace differences to that.
        by_name: the two are different programs; see ``propagated_diff``.
        notes: what there is to say about the comparison.
    """
    every: tuple[Cause, ...] = ()
    if propagated is None:
        found, moved = collective_differences(a.collectives, b.collectives)
    else:
        compared = propagated_diff(*propagated, by_name=by_name)
        causes = Causes(compared, propagated, annotations)
        every = causes.causes
        found, moved = collective_differences(a.collectives, b.collectives, causes)
    rows = memory_rows(a.memory, b.memory)
    entries = None
    if a.memory is not None and b.memory is not None:
        entries = compared_entries(a.memory, b.memory, by_name=by_name)
    return CompiledDiff(a, b, found, moved, every, propagated, rows, entries, notes)
