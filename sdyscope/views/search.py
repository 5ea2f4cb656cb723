"""What `search` found, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.collectives.bytes import CollectiveKind
from sdyscope.analysis.search import values as searching
from sdyscope.analysis.search.cost import Prediction, Rates
from sdyscope.analysis.search.space import Decision, Kind, Part, spec_of
from sdyscope.facts.account import Account
from sdyscope.inspection import Inspection
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.mesh import MeshDocument, mesh_documents

__all__ = ["Search", "document"]


@dataclass(frozen=True, slots=True)
class TrafficDocument:
    """Collectives of one kind over the same mesh axes.

    Attributes:
      kind: HLO's opcode.
      axes: the mesh axes; empty where they are not known.
      count: how many a step runs, loops included.
      sent: bytes that a device sends for them in a step.
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    count: int
    sent: int


@dataclass(frozen=True, slots=True)
class FiguresDocument:
    """What a device sends, computes and holds.

    Attributes:
      traffic: its collectives by kind and axes, most bytes first.
      sent: bytes that it sends in a step.
      arguments: bytes of its arguments.
      results: bytes of its results.
      shared: bytes of results that lie in the buffers of donated arguments.
      held: arguments and results, what is shared counted once.
      flops: floating-point operations in matmuls in a step; null where not known.
      cost: bytes that would take as long as all of that; memory is no part of it.
      seconds: an estimate of the time of a step; null where no bandwidth was given.
    """

    traffic: tuple[TrafficDocument, ...]
    sent: int
    arguments: int
    results: int
    shared: int
    held: int
    flops: float | None
    cost: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class MemberDocument:
    """A tensor that is decided on.

    Attributes:
      kind: argument or result.
      name: its pytree path.
      part: `searched`, `follows` (an optimizer's state follows a parameter), or `result` (an
        argument's next value).
      now: its PartitionSpec in the program; empty where it is left open.
    """

    kind: Kind
    name: str
    part: Part
    now: str


@dataclass(frozen=True, slots=True)
class DecisionDocument:
    """Tensors that are sharded alike.

    Attributes:
      name: the path of the first, with `*` for the numbers in which others differ.
      shape: shape of each.
      dtype: MLIR element type.
      bytes: bytes of its arguments, whole.
      now: the PartitionSpec of all of them; empty where some are open, or they differ.
      options: how many there are.
      members: the tensors.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    now: str
    options: int
    members: tuple[MemberDocument, ...]


@dataclass(frozen=True, slots=True)
class ChangeDocument:
    """A change to make in the program.

    Attributes:
      name: the decision's name.
      before: the PartitionSpec in the program; empty where it is open, or not the same for all.
      after: the PartitionSpec to write.
    """

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class CandidateDocument:
    """One way to shard the program.

    Attributes:
      predicted: what Shardy's reshards predict.
      partitioned: the same with the collectives that XLA's partitioner makes; null where it was not
        asked.
      changes: what is other than in the program, the largest first.
    """

    predicted: FiguresDocument
    partitioned: FiguresDocument | None
    changes: tuple[ChangeDocument, ...]


@dataclass(frozen=True, slots=True)
class CompiledDocument:
    """What the compiler made of one way to shard the program.

    Attributes:
      hardware: what it was compiled for.
      compiled: its collectives, and its memory as the compiler counts it; FLOPs are predicted.
      temporaries: bytes that a device needs besides; null where the compiler does not say.
      total: bytes that it needs in all; null likewise.
      comparable: whether its collectives cost what they do elsewhere; a CPU's do not.
      seconds: how long the compile took.
    """

    hardware: str
    compiled: FiguresDocument
    temporaries: int | None
    total: int | None
    comparable: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialDocument:
    """A candidate that was compiled.

    Attributes:
      candidate: the candidate.
      compiled: what the compiler made of it; null where it refused.
      better: whether it is better than the program as it is.
      why: why not; empty where it is.
    """

    candidate: CandidateDocument
    compiled: CompiledDocument | None
    better: bool
    why: str


Outcome = Literal["confirmed", "not confirmed", "not compiled", "nothing better"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The document of `sdyscope search --json`.

    Attributes:
      schema: name and version of this form.
      name: the program's name, or the module's.
      jax_version: version of JAX that lowered it.
      meshes: the meshes that its shardings are on.
      axes: the axes that were placed.
      outcome: `confirmed`: the best is better when it is compiled, too; `not confirmed`: nothing
        that was compiled is; `not compiled`: something is better, and none was to be compiled;
        `nothing better`: the program's own shardings are the best.
      decisions: what was decided, the largest first.
      candidates: how many candidates there are.
      predicted: how many were predicted.
      partitioned: how many of them XLA partitioned, the program itself included.
      refused: how many Shardy or XLA refused.
      refusal: why, of the first; empty for none.
      seconds: how long predicting took.
      partition_seconds: how long partitioning took.
      seed: of the random numbers.
      max_memory: bytes of arguments and results that a device may hold; null for any number.
      bandwidths: bytes a second over an axis, as given.
      flops_per_byte: FLOPs that count as a byte; null where arithmetic does not count.
      start: the program as it is.
      best: the best that was confirmed, or else the best that there is; null for none.
      front: those to which no other is better in both cost and memory, the least cost first.
      compiled_start: what the compiler makes of the program as it is; null where it was not asked.
      trials: what was compiled, in order.
      notes: what else there is to know.
      account: what is not known.
    """

    schema: Literal["sdyscope.search/2"] = "sdyscope.search/2"
    name: str
    jax_version: str
    meshes: tuple[MeshDocument, ...]
    axes: tuple[str, ...]
    outcome: Outcome
    decisions: tuple[DecisionDocument, ...]
    candidates: int
    predicted: int
    partitioned: int
    refused: int
    refusal: str
    seconds: float
    partition_seconds: float
    seed: int
    max_memory: int | None
    bandwidths: dict[str, float]
    flops_per_byte: float | None
    start: CandidateDocument
    best: CandidateDocument | None
    front: tuple[CandidateDocument, ...]
    compiled_start: CompiledDocument | None
    trials: tuple[TrialDocument, ...]
    account: Account
    notes: tuple[str, ...]


def document(inspection: Inspection, found: searching.Search) -> Search:
    """A search as a document."""
    best = found.confirmed or (None if found.best is found.start else found.best)
    per_byte = found.rates.flops_per_byte
    return Search(
        account=inspection.account,
        name=inspection.name,
        jax_version=inspection.lowered["shardy"].jax_version,
        meshes=mesh_documents(inspection.meshes),
        axes=found.space.axes,
        outcome=_outcome(found),
        decisions=tuple(map(_decision, found.space.decisions)),
        candidates=found.space.size,
        predicted=found.tried,
        partitioned=len(found.partitioned),
        refused=found.refused,
        refusal=found.refusal,
        seconds=found.seconds,
        partition_seconds=found.check_seconds,
        seed=found.seed,
        max_memory=found.limit,
        bandwidths=dict(found.rates.bandwidths),
        flops_per_byte=per_byte if per_byte < float("inf") else None,
        start=_candidate(found.start, found.rates),
        best=None if best is None else _candidate(best, found.rates),
        front=tuple(_candidate(one, found.rates) for one in found.front),
        compiled_start=None
        if found.compiled_start is None
        else _compiled(found.compiled_start, found.start, found.rates),
        trials=tuple(_trial(one, found.rates) for one in found.trials),
        notes=found.notes,
    )


def _outcome(found: searching.Search) -> Outcome:
    if found.confirmed is not None:
        return "confirmed"
    if found.best is found.start:
        return "nothing better"
    return "not confirmed" if found.trials else "not compiled"


def _decision(one: Decision) -> DecisionDocument:
    start = one.options[0]
    return DecisionDocument(
        one.name,
        one.shape,
        one.dtype,
        one.bytes,
        "" if start is None else str(spec_of(start)),
        len(one.options),
        tuple(
            MemberDocument(member.kind, member.name, member.part, _text(member.spec))
            for member in one.members
        ),
    )


def _text(spec: PartitionSpec | None) -> str:
    return "" if spec is None else str(spec)


def _figures(found: Prediction, rates: Rates, flops: float | None = None) -> FiguresDocument:
    known = found if flops is None else _with(found, flops)
    return FiguresDocument(
        tuple(TrafficDocument(one.kind, one.axes, one.count, one.sent) for one in found.traffic),
        found.sent,
        found.arguments,
        found.results,
        found.shared,
        found.held,
        known.flops,
        rates.cost(known),
        rates.seconds(known),
    )


def _with(found: Prediction, flops: float) -> Prediction:
    return Prediction(found.traffic, found.arguments, found.results, found.shared, flops)


def _candidate(one: searching.Candidate, rates: Rates) -> CandidateDocument:
    return CandidateDocument(
        _figures(one.prediction, rates),
        None if one.partitioned is None else _figures(one.partitioned, rates),
        _changes(one.changes),
    )


def _changes(changes: Sequence[searching.Change]) -> tuple[ChangeDocument, ...]:
    return tuple(
        ChangeDocument(change.decision.name, _text(change.before), str(change.after))
        for change in changes
    )


def _compiled(
    one: searching.Compiled, candidate: searching.Candidate, rates: Rates
) -> CompiledDocument:
    return CompiledDocument(
        one.hardware,
        _figures(one.measured, rates, candidate.prediction.flops),
        one.temporaries,
        one.total,
        one.comparable,
        one.seconds,
    )


def _trial(one: searching.Trial, rates: Rates) -> TrialDocument:
    return TrialDocument(
        _candidate(one.candidate, rates),
        None if one.compiled is None else _compiled(one.compiled, one.candidate, rates),
        one.better,
        one.why,
    )
