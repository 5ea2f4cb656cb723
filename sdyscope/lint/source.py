"""The author's lines with all that is known of each: the document of `sdyscope source`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.comms import CommsDocument, comms_document
from sdyscope.analysis.diff.sides import propagated_between
from sdyscope.analysis.propagation.propagate import PropagateDocument, propagate_document
from sdyscope.analysis.source.lines import (
    SourceFile,
    lowered_values,
    propagated_values,
    source_files,
)
from sdyscope.errors import CompilerError, MissingStageError
from sdyscope.facts.account import Account
from sdyscope.facts.failures import Failure, failures
from sdyscope.facts.program import CompiledUnder
from sdyscope.facts.propagated import Propagated
from sdyscope.facts.source import LineCollectives
from sdyscope.formatters import Summarized
from sdyscope.hardware.names import Hardware
from sdyscope.lint import Linted
from sdyscope.staged import Staged
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import FilePath
from sdyscope.words.account import NOT_COMPILED
from sdyscope.words.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SourceDocument(Summarized):
    """The document of `sdyscope source --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        file: the file that it was read from; null for a program.
        hardware: what was compiled for, such as `cpu:8`; null where nothing was compiled,
            or a recorded run did it.
        device_kind: what the compiler calls such a device; null where nothing was compiled.
        meshes: the meshes that its shardings are on.
        collective_meshes: the mesh whose axes collectives are named by, by partitioner (by an empty
            text for a compiled program's text, which names none); null where none fits.
        propagations: by whom it was propagated, and how much that is worth; nobody did where the
            shardings of values are those that the lowered modules say, and in a compiled program's
            text, which has no shardings of values.
        failures: which partitioners did not, and why.
        not_compiled: why nothing is known of collectives; empty where the program was compiled.
        files: the files that its ops come from, those of libraries last.
        without_line: how many values of the module have no line, arguments and results left out.
        sent_without_line: bytes that a device sends per step for collectives without a line, by
            partitioner as `collective_meshes`.
        findings: what `sdyscope lint` finds, errors first; its `source` is one of the lines, or
            null.
        account: what is not known of the program, at the stages that were looked at.
        compiled_by: the JAX that compiled it, such as `JAX 0.10.2`; null where nothing was
            compiled.
    """

    schema: Literal["sdyscope.source/1"] = "sdyscope.source/1"
    name: str
    file: FilePath | None
    hardware: Hardware | None
    device_kind: str | None
    meshes: dict[str, Mesh]
    collective_meshes: dict[CompiledUnder, Mesh | None]
    propagations: tuple[Propagated, ...]
    failures: tuple[Failure, ...]
    not_compiled: str
    files: tuple[SourceFile, ...]
    without_line: int
    sent_without_line: dict[CompiledUnder, int]
    findings: tuple[Finding, ...]
    account: Account
    compiled_by: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is of a compiled program's text, in which values have no shardings."""
        return "" in self.collective_meshes

    @property
    def collectives(self) -> Iterator[LineCollectives]:
        """What each line makes necessary."""
        for file in self.files:
            for line in file.lines:
                yield from line.collectives

    @property
    def findings_by_line(self) -> Mapping[tuple[str, int], tuple[Finding, ...]]:
        """The findings of each line that has any."""
        by_line: dict[tuple[str, int], tuple[Finding, ...]] = {}
        for finding in self.findings:
            if finding.source is not None:
                place = finding.source.file, finding.source.line
                by_line[place] = (*by_line.get(place, ()), finding)
        return by_line


def source_document(
    program: Staged,
    linted: Linted,
    on: Hardware | str | None = None,
    *,
    compiled: bool = True,
    context: int = 1,
) -> SourceDocument:
    """What each line of the author's files does.

    Args:
        program: the program.
        linted: what the rules found in it.
        on: what to compile for, as ``Staged.compiled`` takes it.
        compiled: whether the program may be compiled, without which no collectives are known.
        context: how many lines to add above and below each.

    Raises:
        CompilerError: the program can't be lowered under any partitioner.
        TargetError: it can't be compiled for this hardware.
    """
    propagated: PropagateDocument | None = None
    with suppress(CompilerError, MissingStageError):  # The account says why.
        propagated = propagate_document(program)
    comms: CommsDocument | None = None
    not_compiled = "" if compiled else NOT_COMPILED
    if compiled:
        try:
            comms = comms_document(program, on)
        except CompilerError as error:
            not_compiled = error.message
    return source_of(
        program, propagated, comms, linted.findings, not_compiled=not_compiled, context=context
    )


def source_of(
    program: Staged,
    propagated: PropagateDocument | None,
    comms: CommsDocument | None,
    findings: tuple[Finding, ...],
    *,
    not_compiled: str = "",
    context: int = 1,
    text: bool = True,
) -> SourceDocument:
    """The same of documents that are there.

    Args:
        program: the program.
        propagated: its values; None where nobody propagates it.
        comms: its collectives; None where it was not compiled.
        findings: what was found in it.
        not_compiled: why it was not, a clause.
        context: how many lines to add above and below each.
        text: whether the text of the lines may be in it.
    """
    begins = []
    if propagated is not None and len(propagated.propagations) > 1:
        begins = [begun.begins.value.id for begun in propagated_between(program).beginnings]
    programs = () if comms is None else comms.programs
    if propagated is not None:
        values, under = [*propagated_values(propagated.values)], propagated.partitioners
    elif program.is_compiled:
        values, under = [], ()
    else:
        values, under = [*lowered_values(program)], tuple(program.lowered)
    return SourceDocument(
        name=program.name,
        file=program.file,
        hardware=None if comms is None else comms.hardware,
        device_kind=None if comms is None else comms.device_kind,
        compiled_by=None if comms is None else comms.compiled_by,
        meshes=program.meshes,
        collective_meshes={each.partitioner or "": each.mesh for each in programs},
        propagations=() if propagated is None else propagated.propagations,
        failures=_failures(program) if propagated is None else propagated.failures,
        not_compiled=not_compiled,
        files=source_files(
            values,
            {partitioner: program.graph(partitioner) for partitioner in under},
            programs,
            begins,
            (finding.source for finding in findings if finding.source is not None),
            context,
            text,
        ),
        without_line=sum(value.source is None and value.needs_line for value in values),
        sent_without_line={
            each.partitioner or "": tally.sent
            for each in programs
            for has_line, tally in each.tallied(
                lambda _, part: part.source is not None and part.source.line > 0
            ).items()
            if not has_line
        },
        findings=findings,
        account=account_of(program) if comms is None else comms.account,
    )


def _failures(program: Staged) -> tuple[Failure, ...]:
    """Why nobody propagates a program."""
    refused = {
        partitioner: error
        for partitioner, error in program.propagations()
        if isinstance(error, CompilerError)
    }
    return failures({**program.failures, **refused})
