"""Collectives of a program as values, and their totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from sdyscope.analysis.collectives.made_for import Moved, NamedAfter, is_partial, leaves_out
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.facts.over_time import PHASES, Phase
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import NOT_PREDICTED, Remark
from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.facts.traffic import KINDS, CollectiveKind, Tally
from sdyscope.formatters import Summarized, in_place
from sdyscope.hlo import Shape, UnreadLine
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.replica_groups import ReplicaGroups
from sdyscope.values.source import SourceLocation

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a collective; XLA joins several in one.

    Attributes:
        shape: what a device has after an all-gather, or before anything else.
        shapes: the arrays in it, such as `f32[4,128]`; mostly one.
        bytes: its size.
        sent: bytes that a device sends for it in one run; see ``collective_bytes``.
        received: bytes that it receives.
        scope: scope of the op it was made for, without the program and the primitive; where none
            is known, of the op whose value it moves.
        primitive: JAX's primitive, as the scope ends with it.
        phase: forward, backward or other.
        source: the innermost line of user code of the same op; None where there is none.
        callers: the lines behind it, two at most, each in another file than the one before.
        tags: the ops that it was made for: of each the calls that it was inlined from, then the op
            itself, as nodes in the op graph of the lowered module. Empty where none is known, or
            the program was compiled without tags.
        makers: the ops that make the value, likewise, where these are others and are known.
        argument: the parameter of the program that the value is; None where it is none.
        result: where no op is known that it was made for, the result of the program that the
            communicated value becomes; None where it becomes none.
        named_after: what XLA names it after: the op that needs it, one that needs or makes it, what
            makes its value, nothing.
        own: whether it was made under the name that it is moved under, by the op itself.
        single: whether it is one value, to which nothing but a constant was joined under that name.
        pairs: of a permutation, which device sends its block to which, and of an all-gather, that
            of the permutation right before it; empty where XLA also cuts the blocks or moves them
            otherwise, and of any other.
        before: how devices gave each other their blocks of it right before it is gathered.
        dimension: along which dimension of its shape an all-gather puts the blocks together.
        moved_on: whether what is gathered is cut again, or exchanged.
        gathered_too: the other all-gathers that gather the same value for the same op, each over
            axes of its own: one gathers what the one before has gathered.
        origin: why it is there; None where that was not looked for.
    """

    shape: Shape
    bytes: int
    sent: int
    received: int
    scope: str
    primitive: str
    phase: Phase
    source: SourceLocation | None
    callers: tuple[SourceLocation, ...] = ()
    tags: tuple[tuple[int, ...], ...] = ()
    makers: tuple[tuple[int, ...], ...] = ()
    argument: int | None = None
    result: int | None = None
    named_after: NamedAfter = "op"
    own: bool = False
    single: bool = False
    pairs: tuple[tuple[int, int], ...] = ()
    before: Moved = ""
    dimension: int | None = None
    moved_on: bool = False
    gathered_too: tuple[str, ...] = ()
    origin: CollectiveOrigin | None = None

    __document__ = (
        "shapes",
        "bytes",
        "sent",
        "received",
        "scope",
        "primitive",
        "phase",
        "source",
        "callers",
        "origin",
    )

    @property
    def path(self) -> str:
        """Its scope and the op: `layer0/mlp/dot_general`; empty without either."""
        return "/".join(filter(None, (self.scope, self.primitive)))

    @property
    def annotations(self) -> tuple[OriginAnnotation, ...]:
        """The annotations that it is there for; none where that is not known."""
        return () if self.origin is None else self.origin.annotations

    @property
    def is_followed(self) -> bool:
        """Whether XLA names no op that it is for: that was followed to in the compiled program."""
        return self.named_after in ("value", "nothing")

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays in its shape."""
        return self.shape.leaves


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of the program.

    Attributes:
        name: the instruction's, without ``%``.
        kind: what it does.
        axes: mesh axes that it runs over, in the order of the mesh; empty where every device is
            alone; None where no set of axes has these groups.
        group_size: devices that work together; of a permutation the devices along ``axes``; None
            where groups differ or are not known.
        count: how often a step runs it, loops included.
        unknown_trips: whether a loop around it has an unknown trip count, and counts once.
        conditional: whether it is in a branch, which counts as if it were always taken.
        at_most: whether its bytes are an upper bound: those of a ragged all-to-all are data.
        asynchronous: whether other work goes on meanwhile.
        channel_id: the channel; None without one.
        groups: its replica groups, or source-target pairs, as they are written.
        sent: bytes that a device sends in a step.
        received: bytes that a device receives in a step.
        parts: its tensors, at least one.
        line: its line in the HLO text, counted from 1.
        devices: the devices that work together, each by its number in the program; None of a
            permutation, of a send, and where no program was compiled.
    """

    name: str
    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    group_size: int | None
    count: int
    unknown_trips: bool
    conditional: bool
    asynchronous: bool
    channel_id: int | None
    groups: str
    parts: tuple[Part, ...]
    line: int
    devices: ReplicaGroups | None = None

    __document__ = in_place(
        conditional=("conditional", "at_most"), groups=("groups", "sent", "received"), devices=()
    )

    def resized(self, shapes: Iterable[Shape], moved: Iterable[tuple[int, int]]) -> Collective:
        """The same of tensors of other shapes.

        Args:
            shapes: of each tensor.
            moved: bytes that a device sends and receives for each.
        """
        parts = tuple(
            replace(part, shape=shape, bytes=shape.bytes, sent=sent, received=received)
            for part, shape, (sent, received) in zip(self.parts, shapes, moved, strict=True)
        )
        return replace(self, parts=parts)

    @property
    def is_partial(self) -> bool:
        """Whether it is a permutation that gives some devices nothing."""
        return self.kind == "collective-permute" and is_partial(str(self.groups))

    def leaves_out(self, devices: int) -> bool:
        """Whether it is a permutation in which some of so many devices send or receive nothing."""
        return self.kind == "collective-permute" and leaves_out(self.groups, devices)

    @property
    def bytes(self) -> int:
        """Bytes of its tensors on one device, in one run."""
        return sum(part.bytes for part in self.parts)

    @property
    def sent(self) -> int:
        """Bytes that a device sends in a step."""
        return self.count * sum(part.sent for part in self.parts)

    @property
    def received(self) -> int:
        """Bytes that a device receives in a step."""
        return self.count * sum(part.received for part in self.parts)

    @property
    def at_most(self) -> bool:
        """Whether its bytes are an upper bound."""
        return self.kind == "ragged-all-to-all"

    @property
    def largest(self) -> Part:
        """The part with the most bytes."""
        return max(self.parts, key=lambda part: part.bytes)


@dataclass(frozen=True, slots=True)
class AxesTally:
    """Those over the same axes.

    Attributes:
        axes: the mesh axes, in the order of the mesh; None where no set of axes has their groups.
        tally: what they come to.
    """

    axes: tuple[AxisRef, ...] | None
    tally: Tally


@dataclass(frozen=True, slots=True)
class KindAxesTally:
    """Those of one kind over the same axes.

    Attributes:
        kind: HLO's opcode.
        axes: the mesh axes, in the order of the mesh; None where no set of axes has their groups.
        tally: what they come to.
    """

    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    tally: Tally


@dataclass(frozen=True, slots=True)
class AnnotationTally:
    """Those that come from one annotation; what comes from several counts with each of them.

    Attributes:
        annotation: what is annotated, and how; its `axes` are empty.
        tally: what they come to.
    """

    annotation: OriginAnnotation
    tally: Tally


@dataclass(frozen=True, repr=False)
class Collectives(Summarized):
    """The collectives of one program.

    Attributes:
        partitioner: under which it was compiled; None for a compiled program's text.
        predicted: whether they are what Shardy's reshards predict, and not read from a program that
            was compiled.
        devices: how many devices run the program.
        mesh: the mesh whose axes are named; None where none fits.
        differentiated: whether the program has a backward pass.
        total: all of them.
        by_kind: totals by kind.
        by_axes: totals by mesh axes, most bytes first.
        by_kind_and_axes: totals by both, most bytes first.
        by_phase: totals of the forward and the backward pass, and of the rest.
        by_scope: totals by scope, without the program's own name, most bytes first.
        by_annotation: totals by the annotations that they come from, most bytes first.
        collectives: each of them, in the order of the text; in a document most bytes first.
        with_source: how many of the tensors have a source line.
        with_origin: how many of the tensors have an origin.
        origins_missing: why no origins are there; empty where they were looked for.
        rematerializations: reshardings that the partitioner itself called inefficient.
        not_understood: the first of the lines that could not be read, the reader's own included.
        not_understood_count: how many there are.
        notes: what else is worth knowing.
    """

    collectives: tuple[Collective, ...]
    devices: int
    mesh: Mesh | None
    differentiated: bool
    origins_missing: Remark | str = ""
    rematerializations: tuple[Rematerialization, ...] = ()
    not_understood: tuple[UnreadLine, ...] = ()
    not_understood_count: int = 0
    notes: tuple[Remark | str, ...] = ()
    predicted: bool = False
    partitioner: Partitioner | None = None

    __document__ = in_place(
        collectives=("partitioner", "predicted"),
        differentiated=(
            *("differentiated", "total", "by_kind", "by_axes", "by_kind_and_axes", "by_phase"),
            *("by_scope", "by_annotation", "collectives", "with_source", "with_origin"),
        ),
        predicted=(),
        partitioner=(),
    )

    def with_parts(self, changed: Callable[[Collective, Part], Part]) -> Collectives:
        """The same collectives, with what each tensor of them is changed to."""
        return replace(
            self,
            collectives=tuple(
                replace(each, parts=tuple(changed(each, part) for part in each.parts))
                for each in self.collectives
            ),
        )

    @property
    def counted_once(self) -> bool:
        """Whether some are in loops of unknown trip count, and count once."""
        return any(collective.unknown_trips for collective in self.collectives)

    @property
    def at_most(self) -> bool:
        """Whether what some send is an upper bound: of ragged ones, and of those in branches."""
        return any(each.at_most or each.conditional for each in self.collectives)

    @property
    def in_branches(self) -> bool:
        """Whether some are in branches, which count as if they were always taken."""
        return any(collective.conditional for collective in self.collectives)

    @property
    def some_idle(self) -> bool:
        """Whether some are permutations in which a device sends or receives nothing."""
        return any(collective.leaves_out(self.devices) for collective in self.collectives)

    @property
    def is_partly_predicted(self) -> bool:
        """Whether XLA may send more for ops that its notes name, of which nothing is predicted."""
        return any(isinstance(note, Remark) and note.kind in NOT_PREDICTED for note in self.notes)

    @cached_property
    def total(self) -> Tally:
        """All of them."""
        return self.tallied(lambda *_: None).get(None, Tally())

    @cached_property
    def by_kind(self) -> dict[CollectiveKind, Tally]:
        """By kind, in the order of ``KINDS``."""
        tallies = self.tallied(lambda collective, _: collective.kind)
        return {kind: tallies[kind] for kind in KINDS if kind in tallies}

    @cached_property
    def by_axes(self) -> tuple[AxesTally, ...]:
        """By axes, most bytes first."""
        tallies = _largest_first(self.tallied(lambda collective, _: collective.axes))
        return tuple(AxesTally(axes, tally) for axes, tally in tallies.items())

    @cached_property
    def by_kind_and_axes(self) -> tuple[KindAxesTally, ...]:
        """By kind and axes, most bytes first."""
        tallies = _largest_first(
            self.tallied(lambda collective, _: (collective.kind, collective.axes))
        )
        return tuple(KindAxesTally(*key, tally) for key, tally in tallies.items())

    @cached_property
    def by_phase(self) -> dict[Phase, Tally]:
        """By pass; a collective of several counts where most of its bytes are."""
        tallies = self.tallied(lambda _, part: part.phase)
        return {phase: tallies[phase] for phase in PHASES if phase in tallies}

    @cached_property
    def by_scope(self) -> dict[str, Tally]:
        """By scope, most bytes first; what has none is under the empty one."""
        return _largest_first(self.tallied(lambda _, part: part.scope))

    @cached_property
    def by_annotation(self) -> tuple[AnnotationTally, ...]:
        """By annotation that they come from, most bytes first.

        What comes from several annotations counts with each of them.
        """
        names: dict[tuple[object, ...], OriginAnnotation] = {}
        tallies: dict[OriginAnnotation, Tally] = {}
        for collective in self._in_order():
            counted: set[OriginAnnotation] = set()
            for part in collective.parts:
                written = (
                    names.setdefault(annotation.key, annotation.written())
                    for annotation in part.annotations
                )
                for annotation in dict.fromkeys(written):
                    first = annotation not in counted
                    counted.add(annotation)
                    tallies[annotation] = with_part(
                        tallies.get(annotation, Tally()), collective, part, first
                    )
        return tuple(AnnotationTally(*entry) for entry in _largest_first(tallies).items())

    @property
    def remarks(self) -> tuple[Remark | str, ...]:
        """What is not certain of them, then the notes; but for what the account has."""
        tensors, remade = self.tensors, self.rematerializations
        cut = sum(rematerialization.is_cut for rematerialization in remade)
        remarks: list[Remark | str] = []
        if self.mesh is None and self.collectives:
            remarks.append(Remark("no fitting mesh"))
        if missing := tensors - self.with_source:
            remarks.append(Remark("no source lines", count=missing, of=tensors))
        if cut:
            remarks.append(Remark("log cut", count=cut, of=len(remade)))
        if self.origins_missing:
            remarks.append(self.origins_missing)
        elif (missing := tensors - self.with_origin) and not self.predicted:
            remarks.append(Remark("some without origin", count=missing, of=tensors))
        remarks += (
            note
            for note in self.notes
            if not (isinstance(note, Remark) and note.kind in NOT_PREDICTED)
        )
        return tuple(remarks)

    @property
    def with_source(self) -> int:
        """How many of the tensors have a source line."""
        return sum(
            part.source is not None for collective in self.collectives for part in collective.parts
        )

    @property
    def with_origin(self) -> int:
        """How many of the tensors have an origin."""
        parts = [part for collective in self.collectives for part in collective.parts]
        return sum(part.origin is not None and part.origin.known for part in parts)

    @property
    def tensors(self) -> int:
        """How many tensors they have, each once."""
        return sum(len(collective.parts) for collective in self.collectives)

    def tallied(self, key: Callable[[Collective, Part], _Key]) -> dict[_Key, Tally]:
        """Tallies by any key of a collective and one of its tensors, in the order of the text."""
        tallies: dict[_Key, Tally] = {}
        for collective in self._in_order():
            largest = collective.largest
            for part in collective.parts:
                name = key(collective, part)
                before = tallies.get(name, Tally())
                tallies[name] = with_part(before, collective, part, part is largest)
        return tallies

    def _in_order(self) -> list[Collective]:
        """In the order of the text, so that what sends as much stands in that order everywhere."""
        return sorted(self.collectives, key=lambda collective: collective.line)


def with_part(tally: Tally, collective: Collective, part: Part, first: bool) -> Tally:
    """A tally with one more tensor; the collective itself is counted with its first."""
    times = collective.count
    return Tally(
        tally.count + times * first,
        tally.tensors + times,
        tally.bytes + times * part.bytes,
        tally.sent + times * part.sent,
        tally.received + times * part.received,
    )


def _largest_first(tallies: dict[_Key, Tally]) -> dict[_Key, Tally]:
    return dict(sorted(tallies.items(), key=lambda item: -item[1].sent))
