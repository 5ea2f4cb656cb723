"""What a step is estimated to cost, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.collectives.account import collectives_unknowns
from sdyscope.analysis.cost import cost as costing
from sdyscope.analysis.cost.links import Level
from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.hardware.specs import Chip
from sdyscope.inspection import Inspection
from sdyscope.values.mesh import Mesh
from sdyscope.views.cost_parts import (
    AxesTime,
    CollectiveTime,
    ComputeDocument,
    FigureDocument,
    KindAxesTime,
    LevelDocument,
    MatmulDocument,
    MemoryDocument,
    PhaseTime,
    RoofDocument,
    ScopeTime,
    SpanDocument,
    TimeDocument,
)
from sdyscope.views.failure import Failure, failures
from sdyscope.words.mesh import MeshDocument, axes_document, mesh_document

__all__ = ["ESTIMATE", "Cost", "CostProgram", "document"]

#: What every view of a cost says of it.
ESTIMATE = (
    "An estimate from models of the hardware and published peak figures, not a measurement; a real "
    "step takes longer."
)


@dataclass(frozen=True, slots=True)
class CostProgram:
    """The cost of the program under one partitioner.

    Attributes:
      partitioner: the partitioner; null for a compiled program's text.
      hardware: what was compiled for, such as `tpu:v5e:4x4`; null likewise.
      device_kind: what the compiler calls such a device; empty likewise.
      devices: how many devices run the program.
      chip: the chip in the table of hardware; null where it does not have it.
      figures: what is known of the chip, and from where.
      mesh: the mesh whose axes are named; null where none is known that fits.
      differentiated: whether the program has a backward pass.
      limit: what is busy the longest; null where nothing is known.
      roofs: how long each resource is busy, the longest first and the unknown last.
      overlapped: seconds of a step in which everything goes on at the same time.
      sequential: seconds of a step in which nothing is computed while something is sent.
      compute: the time of computing.
      memory: the time of reading and writing.
      communication: all collectives, one after the other.
      by_axes: times by mesh axes, longest first.
      by_kind_and_axes: times by kind and axes, longest first.
      by_phase: times of the forward and the backward pass, and of the rest.
      by_scope: times by scope, longest first.
      collectives: each of them, longest first.
      loops: loops in the program.
      unknown_trips: those of unknown trip count, whose body counts once.
      conditionals: conditionals, of which the dearest branch counts.
      not_counted: custom calls whose operations are not known, by target.
      not_understood_count: lines of HLO that could not be read.
      notes: what else is worth knowing.
    """

    partitioner: Partitioner | None
    hardware: str | None
    device_kind: str
    devices: int
    chip: str | None
    figures: tuple[FigureDocument, ...]
    mesh: MeshDocument | None
    differentiated: bool
    limit: RoofDocument | None
    roofs: tuple[RoofDocument, ...]
    overlapped: float | None
    sequential: float | None
    compute: ComputeDocument
    memory: MemoryDocument
    communication: TimeDocument
    by_axes: tuple[AxesTime, ...]
    by_kind_and_axes: tuple[KindAxesTime, ...]
    by_phase: tuple[PhaseTime, ...]
    by_scope: tuple[ScopeTime, ...]
    collectives: tuple[CollectiveTime, ...]
    loops: int
    unknown_trips: int
    conditionals: int
    not_counted: Mapping[str, int]
    not_understood_count: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What `sdyscope cost` finds: an estimate, no measurement.

    Attributes:
      schema: name and version of this document.
      estimate: what kind of numbers these are.
      name: the program's name, or the module's.
      programs: one a partitioner.
      failures: for which partitioners there is none, and why.
      account: what is not known.
    """

    schema: Literal["sdyscope.cost/2"] = "sdyscope.cost/2"
    estimate: str = ESTIMATE
    name: str
    programs: tuple[CostProgram, ...]
    failures: tuple[Failure, ...]
    account: Account


def document(
    inspection: Inspection,
    on: Hardware | None = None,
    bandwidths: Mapping[str, float] | None = None,
    latencies: Mapping[str, float] | None = None,
) -> Cost:
    """Compiles a program under each of its partitioners, and estimates what a step costs.

    Raises:
      CompilerError: it can't be compiled under any of them.
      TargetError: it can't be compiled for this hardware, or has no such mesh axis.
    """
    made, refused = inspection.under_each(
        lambda partitioner: inspection.cost(
            partitioner, on, bandwidths=bandwidths, latencies=latencies
        ),
        on,
    )
    return Cost(
        name=inspection.name,
        programs=tuple(map(_program, made)),
        failures=failures(refused),
        account=inspection.account
        + Account.of(
            unknown
            for one in made
            for unknown in collectives_unknowns(one.counted, one.compiled.partitioner)
        ),
    )


def _program(found: costing.Cost) -> CostProgram:
    made, mesh = found.compiled, found.mesh
    arithmetic, memory = found.arithmetic, found.memory
    roofs = tuple(_roof(roof, found) for roof in found.roofs)
    ordered = sorted(found.collectives, key=lambda one: -(one.seconds or 0.0))
    return CostProgram(
        partitioner=made.partitioner,
        hardware=None if made.hardware is None else str(made.hardware),
        device_kind=made.device_kind,
        devices=made.devices,
        chip=None if found.chip is None else found.chip.name,
        figures=() if found.chip is None else _figures(found.chip),
        mesh=None if mesh is None else mesh_document("", mesh),
        differentiated=found.counted.differentiated,
        limit=roofs[0] if roofs and roofs[0].seconds is not None else None,
        roofs=roofs,
        overlapped=found.overlapped,
        sequential=found.sequential,
        compute=ComputeDocument(
            arithmetic.flops,
            arithmetic.by_xla,
            tuple(
                MatmulDocument(kind, flops, arithmetic.peaks[kind])
                for kind, flops in arithmetic.matmuls.items()
            ),
            arithmetic.seconds,
        ),
        memory=MemoryDocument(
            memory.bytes, memory.by_xla, memory.hbm, memory.bandwidth, memory.seconds
        ),
        communication=_time(found.communication),
        by_axes=tuple(
            AxesTime(axes_document(axes, mesh), _time(tally))
            for axes, tally in found.by_axes.items()
        ),
        by_kind_and_axes=tuple(
            KindAxesTime(kind, axes_document(axes, mesh), _time(tally))
            for (kind, axes), tally in found.by_kind_and_axes.items()
        ),
        by_phase=tuple(PhaseTime(phase, _time(one)) for phase, one in found.by_phase.items()),
        by_scope=tuple(ScopeTime(scope, _time(one)) for scope, one in found.by_scope.items()),
        collectives=tuple(_collective(one, mesh) for one in ordered),
        loops=found.work.loops,
        unknown_trips=found.work.unknown_trips,
        conditionals=found.work.conditionals,
        not_counted=dict(found.work.not_counted),
        not_understood_count=found.counted.not_understood_count,
        notes=made.notes,
    )


def _figures(chip: Chip) -> tuple[FigureDocument, ...]:
    return tuple(
        FigureDocument(name, one.value, one.source.title, one.source.url, one.source.date)
        for name, one in chip.figures.items()
    )


def _roof(roof: costing.Roof, found: costing.Cost) -> RoofDocument:
    levels = found.axes.get(roof.axis) if roof.axis else ()
    size = 1 if found.mesh is None or not roof.axis else found.mesh.shape[roof.axis]
    return RoofDocument(roof.resource, roof.axis, size, roof.seconds, _levels(levels))


def _levels(levels: Sequence[Level] | None) -> tuple[LevelDocument, ...] | None:
    if levels is None:
        return None
    return tuple(
        LevelDocument(
            level.name,
            level.size,
            tuple(
                SpanDocument(span.dimension, span.size, span.ring, span.bandwidth, span.apart)
                for span in level.spans
            ),
            level.bandwidth,
            level.latency,
        )
        for level in levels
    )


def _time(tally: costing.TimeTally) -> TimeDocument:
    return TimeDocument(tally.count, tally.tensors, tally.sent, tally.seconds, tally.unknown)


def _collective(one: costing.CollectiveCost, mesh: Mesh | None) -> CollectiveTime:
    collective = one.collective
    largest = collective.largest
    return CollectiveTime(
        name=collective.name,
        kind=collective.kind,
        axes=axes_document(collective.axes, mesh),
        count=collective.count,
        unknown_trips=collective.unknown_trips,
        conditional=collective.conditional,
        bytes=collective.bytes,
        levels=_levels(one.levels),
        each=one.each,
        seconds=one.seconds,
        scope=largest.scope,
        source=largest.source,
    )
