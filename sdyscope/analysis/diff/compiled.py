"""Two compiled programs: what one device sends and holds, and what makes the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.diff.causes import Causes, cause_from
from sdyscope.analysis.diff.collectives import (
    Differing,
    collective_differences,
    kind_axes_differences,
)
from sdyscope.analysis.diff.entries import compared_entries, memory_rows
from sdyscope.analysis.diff.propagated import PropagatedSide, propagated_diff
from sdyscope.analysis.memory.memory import Memory
from sdyscope.errors import CompilerError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.differences import Across, CompiledDiff, ProgramSide, TensorDifference
from sdyscope.facts.remarks import Remark


@dataclass(frozen=True)
class CompiledSide:
    """A compiled program as it is compared with another.

    Attributes:
        label: what to call it: a partitioner, some hardware, a program.
        collectives: its collectives; None where it could not be compiled.
        compiled: the compiled program; None where only its collectives are known.
        memory: what a device holds of it; None where that is not known.
        origins_missing: why it is not known why its collectives are there; empty where it is.
        memory_missing: why it is not known what a device holds of it; empty where it is, and where
            nobody looked.
        error: why it could not be compiled.
    """

    label: str
    collectives: Collectives | None = None
    compiled: Compiled | None = None
    memory: Memory | None = None
    origins_missing: Remark | str = ""
    memory_missing: str = ""
    error: CompilerError | None = None

    @property
    def failure(self) -> str:
        """Why it could not be compiled; empty where it was."""
        return "" if self.error is None else self.error.message

    def fact(self) -> ProgramSide:
        """What a comparison says of it."""
        compiled, collectives = self.compiled, self.collectives
        every = () if collectives is None else collectives.collectives
        loops = sum(collective.unknown_trips for collective in every)
        dtypes: Counter[str] = Counter()
        for collective in every:
            for part in collective.parts:
                dtypes["/".join(sorted({leaf.dtype for leaf in part.shapes}))] += collective.count
        return ProgramSide(
            self.label,
            partitioner=None if compiled is None else compiled.partitioner,
            hardware=None if compiled is None else compiled.hardware,
            device_kind=None if compiled is None else compiled.device_kind or None,
            is_text=compiled is not None and compiled.is_text,
            devices=None if collectives is None else collectives.devices,
            mesh=None if collectives is None else collectives.mesh,
            total=None if collectives is None else collectives.total,
            dtypes=dict(dtypes.most_common()),
            rematerializations=0 if compiled is None else len(compiled.rematerializations),
            unread=0 if collectives is None else collectives.not_understood_count,
            failure=self.failure,
            origins_missing=self.origins_missing,
            memory_missing=self.memory_missing,
            notes=(
                *(() if compiled is None else compiled.notes),
                *([Remark("counted once", count=loops)] if loops else ()),
            ),
        )


def compiled_diff(
    name: str,
    a: CompiledSide,
    b: CompiledSide,
    across: Across,
    propagated: tuple[PropagatedSide, PropagatedSide] | None = None,
    *,
    annotations: Sequence[TensorDifference] = (),
    causes_missing: Remark | str = "",
    across_versions: bool = False,
    same_types: bool = False,
    devices_reordered: bool = False,
) -> CompiledDiff:
    """Compares two compiled programs. A side that was refused is told as such, and not compared.

    Args:
        name: what to call what is compared.
        a: the first.
        b: the second.
        across: what the two are; see ``propagated_diff``.
        propagated: their propagations, to trace differences to where they begin.
        annotations: what differs in their lowered modules, to trace differences to that.
        causes_missing: why there are no propagations, where there could be.
        across_versions: they may be of two JAX; see ``collective_differences``.
        same_types: whether what has another type is another value; see ``propagated_diff``.
        devices_reordered: whether the devices of two programs are in another order.
    """
    sides = a.fact(), b.fact()
    if a.collectives is None or b.collectives is None:
        return CompiledDiff(name=name, across=across, a=sides[0], b=sides[1])
    finder, same_shardings = None, None
    if propagated is not None:
        values = propagated_diff(name, *propagated, across, same_types=same_types)
        same_shardings = values.same
        finder = Causes(values, propagated, annotations)
    differences, moved = collective_differences(
        a.collectives,
        b.collectives,
        finder or (lambda *_: None),
        across_versions=across_versions,
    )
    due: dict[int, list[Differing]] = {}
    for difference in differences:
        if difference.cause is not None:
            due.setdefault(difference.cause, []).append(difference)
    ordered = sorted(
        due, key=lambda number: -sum(abs(difference.sent) for difference in due[number])
    )
    numbers = {number: index for index, number in enumerate(ordered)}
    entries = None
    if a.memory is not None and b.memory is not None:
        entries = compared_entries(a.memory, b.memory, by_name=across == "programs")
    return CompiledDiff(
        name=name,
        across=across,
        a=sides[0],
        b=sides[1],
        by_kind_and_axes=kind_axes_differences(a.collectives, b.collectives),
        memory=memory_rows(a.memory, b.memory),
        entries=entries,
        causes=()
        if finder is None
        else tuple(cause_from(finder.causes[number], due[number]) for number in ordered),
        causes_missing=causes_missing,
        same_shardings=same_shardings,
        collectives=tuple(
            difference.fact(None if difference.cause is None else numbers[difference.cause])
            for difference in differences
        ),
        moved=moved,
        devices_reordered=devices_reordered,
    )
