"""The collectives of a program, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis import collectives as counting
from sdyscope.analysis.collective_bytes import CollectiveKind
from sdyscope.analysis.rematerializations import Rematerialization
from sdyscope.analysis.scopes import Phase
from sdyscope.mesh import AxisRef, Mesh
from sdyscope.program import Partitioner
from sdyscope.views.comms_origins import (
    OriginAnnotationDocument,
    OriginDocument,
    origin_annotation_document,
    origin_document,
)
from sdyscope.views.shardings import MeshDocument, SourceDocument, mesh_document, source_document
from sdyscope.views.show import Failure

__all__ = ["Comms", "CommsProgram", "axes_text", "document", "program"]


@dataclass(frozen=True, slots=True)
class AxisDocument:
    """A mesh axis, or a part of one.

    Attributes:
      name: the axis.
      size: devices along it, or along the part.
      pre_size: of a part, the size of what is more major in the axis; null for a whole axis.
    """

    name: str
    size: int
    pre_size: int | None


@dataclass(frozen=True, slots=True)
class TallyDocument:
    """Some collectives taken together, in one step of one device.

    Attributes:
      count: how many are run, loops included.
      tensors: how many tensors they communicate.
      bytes: bytes of these tensors on one device.
      sent: bytes that a device sends.
      received: bytes that a device receives.
    """

    count: int
    tensors: int
    bytes: int
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class KindTally:
    """Those of one kind.

    Attributes:
      kind: HLO's opcode.
      tally: what they come to.
    """

    kind: CollectiveKind
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class AxesTally:
    """Those over the same axes.

    Attributes:
      axes: the mesh axes, in the order of the mesh; null where no set of axes has their groups.
      tally: what they come to.
    """

    axes: tuple[AxisDocument, ...] | None
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class KindAxesTally:
    """Those of one kind over the same axes.

    Attributes:
      kind: HLO's opcode.
      axes: the mesh axes, in the order of the mesh; null where no set of axes has their groups.
      tally: what they come to.
    """

    kind: CollectiveKind
    axes: tuple[AxisDocument, ...] | None
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class PhaseTally:
    """Those of one pass.

    Attributes:
      phase: forward; backward, which is what JAX transposed; other, such as an optimizer.
      tally: what they come to.
    """

    phase: Phase
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class ScopeTally:
    """Those of one scope.

    Attributes:
      scope: the scope path, without the program's own name; empty for none.
      tally: what they come to.
    """

    scope: str
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class AnnotationTally:
    """Those that come from one annotation; what comes from several counts with each of them.

    Attributes:
      annotation: what is annotated, and how; its `axes` are empty.
      tally: what they come to.
    """

    annotation: OriginAnnotationDocument
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class PartDocument:
    """One tensor of a collective.

    Attributes:
      shapes: shapes of its pieces on one device, such as `f32[4,128]`; mostly one.
      bytes: bytes of it on one device: of an all-gather after it, of all else before it.
      sent: bytes that a device sends for it in one run.
      received: bytes that a device receives for it in one run.
      scope: scope path of the op that needs it, without the program's own name.
      primitive: the JAX primitive that the op is.
      phase: forward, backward or other.
      source: line of user code; null where the compiler kept none.
      origin: why it is communicated; null where that was not looked for.
    """

    shapes: tuple[str, ...]
    bytes: int
    sent: int
    received: int
    scope: str
    primitive: str
    phase: Phase
    source: SourceDocument | None
    origin: OriginDocument | None


@dataclass(frozen=True, slots=True)
class CollectiveDocument:
    """One collective.

    Attributes:
      name: name of the HLO instruction.
      kind: what it does.
      axes: mesh axes that it runs over; null where no set of axes has its groups.
      group_size: devices that work together; null where groups differ or are not known.
      count: how often a step runs it.
      unknown_trips: whether a loop around it counts once since its trip count is not known.
      conditional: whether it is in a branch, which counts as if it were taken.
      asynchronous: whether the device does other work meanwhile.
      channel_id: HLO's channel.
      groups: replica groups, or source-target pairs, as HLO writes them.
      sent: bytes that a device sends in a step.
      received: bytes that a device receives in a step.
      parts: its tensors.
      line: line in the HLO text.
    """

    name: str
    kind: CollectiveKind
    axes: tuple[AxisDocument, ...] | None
    group_size: int | None
    count: int
    unknown_trips: bool
    conditional: bool
    asynchronous: bool
    channel_id: int | None
    groups: str
    sent: int
    received: int
    parts: tuple[PartDocument, ...]
    line: int


@dataclass(frozen=True, slots=True)
class RematerializationDocument:
    """A resharding that the partitioner could only do by making a tensor whole on every device.

    Attributes:
      operation: name of the HLO instruction.
      shape: block of the tensor that a device has before; null where it is not known.
      before: HLO sharding that it has.
      after: HLO sharding that it is to have.
      scope: scope path of the op.
      primitive: JAX primitive of the op.
      source: line of user code; null where it is not known.
      message: what the partitioner logged.
      cut: whether it was cut short there, so that shape, scope or line may be missing.
    """

    operation: str
    shape: str | None
    before: str
    after: str
    scope: str
    primitive: str
    source: SourceDocument | None
    message: str
    cut: bool


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line of the HLO text that could not be read.

    Attributes:
      line: its number, from 1.
      text: the line, or why it could not be read.
    """

    line: int
    text: str


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
    """

    schema: Literal["sdyscope.comms/1"] = "sdyscope.comms/1"
    name: str
    file: str | None
    hardware: str | None
    device_kind: str | None
    programs: tuple[CommsProgram, ...]
    failures: tuple[Failure, ...]


def document(
    name: str,
    programs: Sequence[CommsProgram],
    *,
    file: str | None = None,
    hardware: str | None = None,
    device_kind: str | None = None,
    failures: Mapping[Partitioner, str] | None = None,
) -> Comms:
    """The whole document; of each partitioner's program see ``program``."""
    return Comms(
        name=name,
        file=file,
        hardware=hardware,
        device_kind=device_kind,
        programs=tuple(programs),
        failures=tuple(Failure(*failure) for failure in (failures or {}).items()),
    )


def program(
    found: counting.Collectives,
    partitioner: Partitioner | None,
    remade: Sequence[Rematerialization] = (),
    notes: Sequence[str] = (),
) -> CommsProgram:
    """The document of the collectives of one partitioned program."""
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
            AxesTally(_axes(axes, mesh), _tally(tally)) for axes, tally in found.by_axes.items()
        ),
        by_kind_and_axes=tuple(
            KindAxesTally(kind, _axes(axes, mesh), _tally(tally))
            for (kind, axes), tally in found.by_kind_and_axes.items()
        ),
        by_phase=tuple(PhaseTally(phase, _tally(tally)) for phase, tally in found.by_phase.items()),
        by_scope=tuple(ScopeTally(scope, _tally(tally)) for scope, tally in found.by_scope.items()),
        by_annotation=tuple(
            AnnotationTally(origin_annotation_document(one), _tally(tally))
            for one, tally in found.by_annotation.items()
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


def axes_text(axes: Sequence[AxisDocument] | None) -> str:
    """`data=4 x model=2`; of a part of an axis `data:(1)2`."""
    if axes is None:
        return "no single axis"
    return " x ".join(
        f"{axis.name}={axis.size}"
        if axis.pre_size is None
        else f"{axis.name}:({axis.pre_size}){axis.size}"
        for axis in axes
    )


def _tally(tally: counting.Tally) -> TallyDocument:
    return TallyDocument(tally.count, tally.tensors, tally.bytes, tally.sent, tally.received)


def _axes(axes: tuple[AxisRef, ...] | None, mesh: Mesh | None) -> tuple[AxisDocument, ...] | None:
    if axes is None or mesh is None:
        return None
    return tuple(
        AxisDocument(
            axis.name,
            mesh.axis_size(axis),
            None if axis.sub_axis_info is None else axis.sub_axis_info.pre_size,
        )
        for axis in axes
    )


def _collective(one: counting.Collective, mesh: Mesh | None) -> CollectiveDocument:
    return CollectiveDocument(
        name=one.name,
        kind=one.kind,
        axes=_axes(one.axes, mesh),
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
        source=source_document(part.source),
        origin=origin_document(part.origin),
    )


def _rematerialization(one: Rematerialization) -> RematerializationDocument:
    return RematerializationDocument(
        operation=one.operation,
        shape=None if one.shape is None else str(one.shape),
        before=one.before,
        after=one.after,
        scope=one.scope,
        primitive=one.primitive,
        source=source_document(one.source),
        message=one.message,
        cut=one.is_cut,
    )
