"""One program at every stage as a value: made by the JAX of its own environment, compared here.

What two JAX decide can only be asked in two processes, as each has its own compilers. Here is what
one of them hands over, and the comparison of what two did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sdyscope.analysis.account import account_of
from sdyscope.analysis.cost.cost import cost
from sdyscope.analysis.diff.compiled import CompiledSide, compiled_diff
from sdyscope.analysis.diff.lowered import LoweredSide, lowered_diff
from sdyscope.analysis.diff.propagated import PropagatedSide, propagated_diff
from sdyscope.analysis.diff.requested import RequestedDiff, requested_diff
from sdyscope.analysis.diff.sides import (
    CompiledEnd,
    compiled_side,
    lowered_side,
    propagated_side,
)
from sdyscope.analysis.figures import DECISIVE, Figures, figures_of
from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.facts.account import Account
from sdyscope.facts.differences import CompiledDiff, LoweredDiff, PropagatedDiff
from sdyscope.facts.program import Partitioner, RequestedTensor, Versions
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.staged import Staged


@dataclass(frozen=True)
class ProgramStages:
    """One program at each stage, as the JAX of one environment made it.

    Attributes:
        name: what to call it: of a recorded run, its label.
        versions: the JAX.
        partitioner: under which.
        requested: what its author asked for; None where that is not known.
        lowered: its module.
        propagated: its propagation; None where there is none.
        propagation_missing: why there is none; empty where there is one.
        compiled: what a device runs and holds, or why it was not compiled.
        figures: its figures.
        notes: what else is worth knowing.
        account: what is not known of it.
    """

    name: str
    versions: Versions
    partitioner: Partitioner
    requested: tuple[RequestedTensor, ...] | None
    lowered: LoweredSide
    propagated: PropagatedSide | None
    propagation_missing: str
    compiled: CompiledSide
    figures: Figures
    notes: tuple[Remark, ...] = ()
    account: Account = field(default_factory=Account)

    def labelled(self, label: str) -> ProgramStages:
        """The same, called so in what is compared with it."""
        return replace(
            self,
            lowered=replace(self.lowered, label=label),
            propagated=None if self.propagated is None else replace(self.propagated, label=label),
            compiled=replace(self.compiled, label=label),
        )


def stages_of(
    program: Staged, versions: Versions, on: Hardware | None = None, *, compiles: bool = True
) -> ProgramStages:
    """A program at each stage, by the JAX of this process.

    Of a program of a recorded run, what the run's own compiler made counts. It is compiled again
    for the causes of its collectives, which are told where both compiles communicate alike.

    Args:
        program: the program; the first partitioner that it is lowered under is looked at.
        versions: this JAX.
        on: what to compile for; by default virtual CPU devices, or what a recorded run was for.
        compiles: whether to compile it; otherwise nothing is known of that stage.

    Raises:
        CompilerError: it can't be lowered.
    """
    partitioner = program.chosen(None)
    compiled, notes = _compiled(program, partitioner, on) if compiles else (CompiledSide(""), ())
    compiled_program = compiled.compiled
    # Differences begin in the module that was compiled, which may be another for another platform.
    module = (None if compiled_program is None else program.lowered_of(compiled_program)) or program
    propagated, missing = None, ""
    try:
        propagated = _settled(propagated_side(module, partitioner, ""))
    except SdyscopeError as error:
        missing = error.message
    costs = None if compiled_program is None else cost(compiled_program, program.meshes.values())
    return ProgramStages(
        name=program.name,
        versions=versions,
        partitioner=partitioner,
        requested=_requested(program),
        lowered=lowered_side(module, partitioner, ""),
        propagated=propagated,
        propagation_missing=missing,
        compiled=_plain(compiled),
        figures=figures_of(compiled.collectives, compiled_program, costs),
        notes=notes,
        account=_account(program, module),
    )


def _account(program: Staged, module: Staged) -> Account:
    """What is not known of a program, and of its module for the hardware it is compiled for."""
    own = account_of(program)
    return own if module is program else account_of(module) + own.at({"compiled"})


def _requested(program: Staged) -> tuple[RequestedTensor, ...] | None:
    """What is requested, at the lines that tell the tensors of the module apart; None unknown."""
    rows = program.tensors.tensors
    return (
        tuple(
            replace(row.requested, source=row.source) for row in rows if row.requested is not None
        )
        or None
    )


def _settled(side: PropagatedSide) -> PropagatedSide:
    """The side as values alone, of a process that another one asks."""
    propagated = side.propagated.settled()
    if propagated.source.kind == "passes":
        elsewhere = replace(propagated.source, kind="passes elsewhere")
        propagated = replace(propagated, source=elsewhere)
    return replace(side, decisions=replace(side.decisions, propagated=propagated))


def _compiled(
    program: Staged, partitioner: Partitioner, on: Hardware | None
) -> tuple[CompiledSide, tuple[Remark, ...]]:
    recorded = program.recorded.get(partitioner) if on is None else None
    if recorded is None:
        return compiled_side(CompiledEnd(program, partitioner, on, "")), ()
    as_run = compiled_side(CompiledEnd(program.as_recorded(), partitioner, None, ""))
    if recorded.platform != "cpu":
        return as_run, ()  # What is compiled here is for something else.
    again = compiled_side(CompiledEnd(program, partitioner, None, ""))
    if again.error is not None or as_run.error is not None:
        return as_run, ()
    if _says(again) != _says(as_run):
        return as_run, (Remark("compiled otherwise"),)
    return again, ()


def _says(side: CompiledSide) -> tuple[object, ...]:
    """What two compiles of one program by one compiler have to agree in."""
    memory = None if side.compiled is None else side.compiled.memory
    return (
        None if side.collectives is None else side.collectives.by_kind_and_axes,
        None if memory is None else (memory.arguments, memory.results, memory.temporaries),
    )


def _plain(side: CompiledSide) -> CompiledSide:
    """The side with an error that is its sentence alone, whatever raised it."""
    if side.error is None:
        return side
    return replace(side, error=CompilerError(side.error.message))


# --- two of them ----------------------------------------------------------------------------------

Verdict: TypeAlias = Literal["worse", "better", "changed"]
"""``changed``: a figure that does not decide, see ``DECISIVE``, or whose one side is not known."""


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure that is not the same.

    Attributes:
        figure: its name.
        a: of the first program; None where it is not known.
        b: of the second; None likewise.
        verdict: what that means.
    """

    figure: str
    a: float | None
    b: float | None
    verdict: Verdict


@dataclass(frozen=True)
class ComparedStages:
    """One program as two JAX, or two commits, make it.

    Attributes:
        name: its name, in the second.
        name_before: its name in the first.
        requested: what was requested; None where a side does not say it.
        lowered: the modules.
        propagated: the propagations; None where a side has none.
        compiled: what a device runs and holds.
        changes: figures that are not the same.
        missing: which stages were not compared, and why.
        notes: what else is worth knowing of either.
    """

    name: str
    name_before: str
    requested: RequestedDiff | None
    lowered: LoweredDiff
    propagated: PropagatedDiff | None
    compiled: CompiledDiff
    changes: tuple[FigureChange, ...]
    missing: Mapping[str, Remark | str] = field(default_factory=dict)
    notes: tuple[Remark, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing of what was compared differs, ops of the lowered module aside.

        Each JAX writes some functions with other ops.
        """
        return not (self.has_details or self.changes)

    @property
    def has_details(self) -> bool:
        """Whether more than figures differs."""
        return not (
            (self.requested is None or not self.requested.different)
            and not (self.lowered.tensors or self.lowered.meshes)
            and (self.propagated is None or not self.propagated.beginnings)
            and self.compiled.same
        )

    @property
    def worse(self) -> bool:
        """Whether a figure got worse, or only the second is not compiled."""
        return self.fails_now or any(change.verdict == "worse" for change in self.changes)

    @property
    def fails_now(self) -> bool:
        """Whether the first was compiled and the second is refused."""
        return bool(self.compiled.b.failure) and not self.compiled.a.failure


def compared(a: ProgramStages, b: ProgramStages, labels: tuple[str, str]) -> ComparedStages:
    """Compares a program as two JAX, or two commits, make it.

    Args:
        a: the first.
        b: the second.
        labels: what to call them.
    """
    first, second = a.labelled(labels[0]), b.labelled(labels[1])
    # Of two commits an author changes types; of one program no JAX does.
    same_types = a.versions != b.versions
    lowered = lowered_diff(
        second.name,
        first.lowered,
        second.lowered,
        "programs",
        across_partitioners=a.partitioner != b.partitioner,
        across_versions=True,
    )
    sides = None
    if first.propagated is not None and second.propagated is not None:
        sides = first.propagated, second.propagated
    not_propagated = _not_propagated(zip(labels, (a, b), strict=True))
    missing: dict[str, Remark | str] = {}
    if not (a.requested and b.requested):
        missing["requested"] = Remark("request unknown")
    if not_propagated is not None:
        missing["propagated"] = not_propagated
    return ComparedStages(
        name=second.name,
        name_before=first.name,
        requested=requested_diff(a.requested, b.requested) if a.requested and b.requested else None,
        lowered=lowered,
        propagated=None
        if sides is None
        else replace(
            propagated_diff(second.name, *sides, "programs", same_types=same_types),
            devices_reordered=lowered.devices_reordered,
        ),
        compiled=compiled_diff(
            second.name,
            first.compiled,
            second.compiled,
            "programs",
            sides,
            annotations=lowered.tensors,
            causes_missing=not_propagated or "",
            across_versions=True,
            same_types=same_types,
            devices_reordered=lowered.devices_reordered,
        ),
        changes=figure_changes(a.figures, b.figures),
        missing=missing,
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
    )


def _not_propagated(sides: Iterable[tuple[str, ProgramStages]]) -> Remark | None:
    """Which sides are not propagated, and why; None where both are."""
    missing = [(label, side) for label, side in sides if side.propagation_missing]
    if not missing:
        return None
    said, *others = (side.propagation_missing for _, side in missing)
    names = tuple((label, 0) for label, _ in missing)
    return Remark("sides not propagated", said, names=names, other="".join(others))


def figure_changes(a: Figures, b: Figures) -> tuple[FigureChange, ...]:
    """The figures that are not the same, in order."""
    changes = []
    for name in dict.fromkeys((*a, *b)):
        before, after = a.get(name), b.get(name)
        if before == after:
            continue
        verdict: Verdict = "changed"
        if name in DECISIVE and before is not None and after is not None:
            verdict = "worse" if after > before else "better"
        changes.append(FigureChange(name, before, after, verdict))
    return tuple(changes)
