"""Two compiled programs: what one device sends and holds, and what makes the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.diff.causes import Cause, Causes
from sdyscope.analysis.diff.collectives import (
    CollectiveDifference,
    KindAxesDifference,
    collective_differences,
    kind_axes_differences,
)
from sdyscope.analysis.diff.entries import compared_entries, memory_rows
from sdyscope.analysis.diff.propagated import PropagatedSide, propagated_diff
from sdyscope.analysis.memory.memory import Memory
from sdyscope.errors import CompilerError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.differences import Across, Entries, MemoryRow, TensorDifference
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.facts.traffic import Tally
from sdyscope.formatters import Summarized, in_place
from sdyscope.hardware.names import Hardware
from sdyscope.values.mesh import Mesh


@dataclass(frozen=True)
class CompiledSide:
    """One of the two.

    Attributes:
        label: what to call it: a partitioner, some hardware, a program.
        partitioner: under which it was compiled; None for the text of a compiled program.
        hardware: what it was compiled for; None likewise.
        device_kind: what the compiler calls such a device; None likewise.
        devices: how many run it; None where it could not be compiled.
        mesh: the mesh whose axes are named; None where none is known that fits.
        total: its collectives in one step of one device; None where it could not be compiled.
        dtypes: how many tensors of its collectives have which element type.
        rematerializations: how many values the partitioner resharded by making them whole on every
            device (involuntary full rematerialization).
        unread: how many lines of the compiled program could not be read.
        failure: why it could not be compiled; empty where it was.
        origins_missing: why it is not known why its collectives are there; empty where it is.
        memory_missing: why it is not known what a device holds of it; empty where it is, and where
            nobody looked.
        notes: what else the compile says.
        collectives: its collectives; None where it could not be compiled.
        compiled: the compiled program; None where only its collectives are known.
        memory: what a device holds of it; None where that is not known.
        error: why it could not be compiled.
    """

    label: str
    collectives: Collectives | None = None
    compiled: Compiled | None = None
    memory: Memory | None = None
    origins_missing: Remark | str = ""
    memory_missing: str = ""
    error: CompilerError | None = None

    __document__ = in_place(
        collectives=("partitioner", "hardware", "device_kind", "devices", "mesh"),
        compiled=("total", "dtypes", "rematerializations", "unread"),
        memory=("failure",),
        error=("notes",),
    )

    @property
    def partitioner(self) -> Partitioner | None:
        """Under which it was compiled; None for the text of a compiled program."""
        return None if self.compiled is None else self.compiled.partitioner

    @property
    def hardware(self) -> Hardware | None:
        """What it was compiled for; None likewise."""
        return None if self.compiled is None else self.compiled.hardware

    @property
    def device_kind(self) -> str | None:
        """What the compiler calls such a device; None likewise."""
        return None if self.compiled is None else self.compiled.device_kind or None

    @property
    def devices(self) -> int | None:
        """How many run it; None where it could not be compiled."""
        return None if self.collectives is None else self.collectives.devices

    @property
    def mesh(self) -> Mesh | None:
        """The mesh whose axes are named; None where none is known that fits."""
        return None if self.collectives is None else self.collectives.mesh

    @property
    def total(self) -> Tally | None:
        """Its collectives in one step of one device; None where it could not be compiled."""
        return None if self.collectives is None else self.collectives.total

    @property
    def dtypes(self) -> dict[str, int]:
        """How many tensors of its collectives have which element type."""
        counts: Counter[str] = Counter()
        for collective in () if self.collectives is None else self.collectives.collectives:
            for part in collective.parts:
                counts["/".join(sorted({leaf.dtype for leaf in part.shapes}))] += collective.count
        return dict(counts.most_common())

    @property
    def rematerializations(self) -> int:
        """How many values the partitioner resharded by making them whole on every device."""
        return 0 if self.compiled is None else len(self.compiled.rematerializations)

    @property
    def unread(self) -> int:
        """How many lines of the compiled program could not be read."""
        return 0 if self.collectives is None else self.collectives.not_understood_count

    @property
    def failure(self) -> str:
        """Why it could not be compiled; empty where it was."""
        return "" if self.error is None else self.error.message

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What else the compile says, and how its collectives were counted."""
        notes = () if self.compiled is None else self.compiled.notes
        collectives = () if self.collectives is None else self.collectives.collectives
        loops = sum(collective.unknown_trips for collective in collectives)
        return (*notes, Remark("counted once", count=loops)) if loops else notes


@dataclass(frozen=True, kw_only=True, repr=False)
class CompiledDiff(Summarized):
    """Two compiled programs.

    Attributes:
        name: what is compared: the program's name, or the first module's.
        across: what the two sides are.
        same: whether a device sends the same and holds the same in both, and the devices of two
            programs are in one order.
        a: the first side.
        b: the second side.
        by_kind_and_axes: totals that differ, by kind and axes.
        memory: bytes a device on both sides, alike or not; none where one side does not know them.
        entries: arguments and results that are sharded or stored differently, and those that were
            not compared; None where one side does not know them.
        causes: where the differences begin, the most bytes first.
        causes_missing: why it is not known where they begin, as the compiler says; empty where
            that was found, or nobody could look.
        same_shardings: whether both have the same values, each sharded the same way after
            propagation, so that nothing begins there; None where that is not known.
        collectives: what differs, what makes the largest difference in bytes first.
        moved: how many tensors both communicate alike, for ops of other scopes.
        devices_reordered: whether the devices of two programs are in another order.
    """

    name: str
    across: Across
    a: CompiledSide
    b: CompiledSide
    by_kind_and_axes: tuple[KindAxesDifference, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    entries: Entries | None = None
    causes: tuple[Cause, ...] = ()
    causes_missing: Remark | str = ""
    same_shardings: bool | None = None
    collectives: tuple[CollectiveDifference, ...] = ()
    moved: int = 0
    devices_reordered: bool = False

    __document__ = in_place(across=("across", "same"))

    @property
    def same(self) -> bool:
        """Whether a device sends and holds the same, and the devices are in one order."""
        return self.is_alike and not self.devices_reordered

    @property
    def is_alike(self) -> bool:
        """Whether a device sends the same and holds the same, arguments and results alike.

        ``entries.not_compared`` says of which of these it is not known.
        """
        return (
            not (self.a.failure or self.b.failure)
            and not self.collectives
            and self.a.total == self.b.total
            and not any(row.differs for row in self.memory)
            and not (self.entries is not None and self.entries.different)
        )

    @property
    def is_memory_compared(self) -> bool | None:
        """Whether what both hold is known; None where one of them was not compiled."""
        return None if self.a.failure or self.b.failure else bool(self.memory)

    @property
    def has_text(self) -> bool:
        """Whether one side is the text of a compiled program, which says less."""
        sides = (side.compiled for side in (self.a, self.b))
        return any(compiled is not None and compiled.is_text for compiled in sides)


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
        devices_reordered: whether the devices of two programs are in another order.
    """
    if a.collectives is None or b.collectives is None:
        return CompiledDiff(name=name, across=across, a=a, b=b)
    finder, same_shardings = None, None
    if propagated is not None:
        values = propagated_diff(name, *propagated, across)
        same_shardings = values.same
        finder = Causes(values, propagated, annotations)
    differences, moved = collective_differences(
        a.collectives,
        b.collectives,
        finder or (lambda *_: None),
        across_versions=across_versions,
    )
    due: dict[int, list[CollectiveDifference]] = {}
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
        a=a,
        b=b,
        by_kind_and_axes=kind_axes_differences(a.collectives, b.collectives),
        memory=memory_rows(a.memory, b.memory),
        entries=entries,
        causes=()
        if finder is None
        else tuple(Cause.of(finder.causes[number], due[number]) for number in ordered),
        causes_missing=causes_missing,
        same_shardings=same_shardings,
        collectives=tuple(
            replace(
                difference, cause=None if difference.cause is None else numbers[difference.cause]
            )
            for difference in differences
        ),
        moved=moved,
        devices_reordered=devices_reordered,
    )
