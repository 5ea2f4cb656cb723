"""The collectives of a program, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.collectives import read as counting
from sdyscope.analysis.collectives.account import collectives_unknowns
from sdyscope.analysis.collectives.rematerializations import Rematerialization
from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.inspection import Inspection
from sdyscope.values.mesh import Mesh
from sdyscope.views.comms_parts import (
    AnnotationTally,
    AxesTally,
    CollectiveDocument,
    KindAxesTally,
    KindTally,
    PartDocument,
    PhaseTally,
    RematerializationDocument,
    ScopeTally,
    TallyDocument,
    UnreadLine,
)
from sdyscope.views.failure import Failure
from sdyscope.words.mesh import MeshDocument, axes_document, mesh_document

__all__ = ["Comms", "CommsProgram", "document", "of_programs", "predicted", "program"]


@dataclass(frozen=True, slots=True)
class CommsProgram:
    """The collectives of the program under one partitioner.

    Attributes:
      partitioner: the partitioner; null for a file of HLO.
      predicted: whether these are predicted from Shardy's reshards; false where they were read from
        a program that was compiled.
      devices: how many devices run the program.
      mesh: the mesh whose axes are named; null where none is known that fits.
      differentiated: whether the program has a backward pass.
      total: all collectives.
      by_kind: totals by kind.
      by_axes: totals by mesh axes, most bytes first.
      by_kind_and_axes: totals by both, most bytes first.
      by_phase: totals of the forward and the backward pass, and of the rest.
      by_scope: totals by scope, most bytes first.
      by_annotation: totals by the annotations that they come from, most bytes first.
      collectives: each of them, most bytes first.
      with_source: how many of the tensors have a source line.
      with_origin: how many of the tensors have an origin.
      origins_missing: why no origins were looked for; empty where they were.
      rematerializations: reshardings that the partitioner called inefficient.
      not_understood: the first of the lines of HLO that could not be read.
      not_understood_count: how many there are.
      notes: what else is worth knowing.
    """

    partitioner: Partitioner | None
    predicted: bool
    devices: int
    mesh: MeshDocument | None
    differentiated: bool
    total: TallyDocument
    by_kind: tuple[KindTally, ...]
    by_axes: tuple[AxesTally, ...]
    by_kind_and_axes: tuple[KindAxesTally, ...]
    by_phase: tuple[PhaseTally, ...]
    by_scope: tuple[ScopeTally, ...]
    by_annotation: tuple[AnnotationTally, ...]
    collectives: tuple[CollectiveDocument, ...]
    with_source: int
    with_origin: int
    origins_missing: str
    rematerializations: tuple[RematerializationDocument, ...]
    not_understood: tuple[UnreadLine, ...]
    not_understood_count: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comms:
    """What `sdyscope comms` finds.

    Bytes are those of bandwidth-optimal algorithms, counted from the program, not measured.

    Attributes:
      schema: name and version of this document.
      name: the program's name, or the module's.
      file: the file that it was read from; null for a program.
      hardware: what was compiled for, such as `cpu:8`; null for a file of HLO, and for a
        prediction.
      device_kind: what the compiler calls such a device; null likewise.
      programs: one a partitioner.
      failures: for which partitioners there is none, and why.
      account: what is not known.
    """

    schema: Literal["sdyscope.comms/2"] = "sdyscope.comms/2"
    name: str
    file: str | None
    hardware: str | None
    device_kind: str | None
    programs: tuple[CommsProgram, ...]
    failures: tuple[Failure, ...]
    account: Account


def document(inspection: Inspection, on: Hardware | None = None) -> Comms:
    """Compiles a program under each of its partitioners, and lists what a step communicates.

    Raises:
      CompilerError: it can't be compiled under any of them.
      TargetError: it can't be compiled for this hardware.
    """
    compiled, refused = inspection.under_each(
        lambda partitioner: inspection.compiled(partitioner, on), on
    )
    first = compiled[0]
    found = [inspection.collectives(made.partitioner, on) for made in compiled]
    return of_programs(
        inspection.name,
        [
            program(collectives, made.partitioner, notes=made.notes)
            for made, collectives in zip(compiled, found, strict=True)
        ],
        account=inspection.account
        + Account.of(
            unknown
            for made, collectives in zip(compiled, found, strict=True)
            for unknown in collectives_unknowns(collectives, made.partitioner)
        ),
        file=inspection.file,
        hardware=None if first.hardware is None else str(first.hardware),
        device_kind=first.device_kind or None,
        failures={partitioner: error.message for partitioner, error in refused.items()},
    )


def predicted(inspection: Inspection) -> Comms:
    """Predicts what a step communicates from Shardy's reshards; nothing is compiled.

    Raises:
      CompilerError: the module has no shardings that Shardy propagates, or it refuses it.
    """
    found = inspection.predicted_collectives()
    made = program(found.collectives, "shardy", notes=found.notes)
    unknowns = Account.of(collectives_unknowns(found.collectives, "shardy"))
    return of_programs(
        inspection.name, [made], file=inspection.file, account=inspection.account + unknowns
    )


def of_programs(
    name: str,
    programs: Sequence[CommsProgram],
    *,
    file: str | None = None,
    hardware: str | None = None,
    device_kind: str | None = None,
    failures: Mapping[Partitioner, str] | None = None,
    account: Account | None = None,
) -> Comms:
    """The whole document; of each partitioner's program see ``program``."""
    return Comms(
        name=name,
        file=file,
        hardware=hardware,
        device_kind=device_kind,
        programs=tuple(programs),
        failures=tuple(Failure(*failure) for failure in (failures or {}).items()),
        account=account or Account(),
    )


def program(
    found: counting.Collectives,
    partitioner: Partitioner | None,
    remade: Sequence[Rematerialization] = (),
    notes: Sequence[str] = (),
) -> CommsProgram:
    """The document of the collectives of one compiled program."""
    mesh = found.mesh
    ordered = sorted(found.collectives, key=lambda one: -one.sent)
    return CommsProgram(
        partitioner=partitioner,
        predicted=found.predicted,
        devices=found.num_devices,
        mesh=None if mesh is None else mesh_document("", mesh),
        differentiated=found.differentiated,
        total=_tally(found.total),
        by_kind=tuple(KindTally(kind, _tally(tally)) for kind, tally in found.by_kind.items()),
        by_axes=tuple(
            AxesTally(axes_document(axes, mesh), _tally(tally))
            for axes, tally in found.by_axes.items()
        ),
        by_kind_and_axes=tuple(
            KindAxesTally(kind, axes_document(axes, mesh), _tally(tally))
            for (kind, axes), tally in found.by_kind_and_axes.items()
        ),
        by_phase=tuple(PhaseTally(phase, _tally(tally)) for phase, tally in found.by_phase.items()),
        by_scope=tuple(ScopeTally(scope, _tally(tally)) for scope, tally in found.by_scope.items()),
        by_annotation=tuple(
            AnnotationTally(one, _tally(tally)) for one, tally in found.by_annotation.items()
        ),
        collectives=tuple(_collective(one, mesh) for one in ordered),
        with_source=sum(part.source is not None for one in ordered for part in one.parts),
        with_origin=found.with_origin,
        origins_missing=found.origins_missing,
        rematerializations=tuple(map(_rematerialization, remade or found.rematerializations)),
        not_understood=tuple(UnreadLine(one.line, one.text) for one in found.not_understood),
        not_understood_count=found.not_understood_count,
        notes=tuple(notes),
    )


def _tally(tally: counting.Tally) -> TallyDocument:
    return TallyDocument(tally.count, tally.tensors, tally.bytes, tally.sent, tally.received)


def _collective(one: counting.Collective, mesh: Mesh | None) -> CollectiveDocument:
    return CollectiveDocument(
        name=one.name,
        kind=one.kind,
        axes=axes_document(one.axes, mesh),
        group_size=one.group_size,
        count=one.count,
        unknown_trips=one.unknown_trips,
        conditional=one.conditional,
        asynchronous=one.asynchronous,
        channel_id=one.channel_id,
        groups=one.groups,
        sent=one.sent,
        received=one.received,
        parts=tuple(map(_part, one.parts)),
        line=one.line,
    )


def _part(part: counting.Part) -> PartDocument:
    return PartDocument(
        shapes=tuple(map(str, part.shape.leaves)),
        bytes=part.bytes,
        sent=part.sent,
        received=part.received,
        scope=part.scope,
        primitive=part.primitive,
        phase=part.phase,
        source=part.source,
        origin=part.origin,
    )


def _rematerialization(one: Rematerialization) -> RematerializationDocument:
    return RematerializationDocument(
        operation=one.operation,
        shape=None if one.shape is None else str(one.shape),
        before=one.before,
        after=one.after,
        scope=one.scope,
        primitive=one.primitive,
        source=one.source,
        message=one.message,
        cut=one.is_cut,
    )
