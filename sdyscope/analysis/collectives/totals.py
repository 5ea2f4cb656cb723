"""Collectives of a program as values, and their totals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sdyscope.analysis.collectives.bytes import KINDS, CollectiveKind
from sdyscope.analysis.collectives.made_for import NamedAfter
from sdyscope.analysis.collectives.rematerializations import Rematerialization
from sdyscope.analysis.naming.scopes import Phase
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.hlo import NotUnderstood, Shape
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation

__all__ = ["Collective", "Collectives", "Part", "Tally"]

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a collective; XLA joins several in one.

    Attributes:
        shape: what a device has after an all-gather, or before anything else.
        bytes: its size.
        sent: bytes that a device sends for it in one run; see ``collective_bytes``.
        received: bytes that it receives.
        scope: scope of the op it was made for, without the program and the primitive; where none
            is known, of the op whose value it moves.
        primitive: JAX's primitive, as the scope ends with it.
        phase: forward, backward or other.
        source: the innermost line of user code of the same op; None where there is none.
        tags: the ops that it was made for: of each the calls that it was inlined from, then the op
            itself, as nodes in the op graph of the lowered module. Empty where none is known, or
            the program was compiled without tags.
        makers: the ops that make the value, likewise, where these are others and are known.
        argument: the parameter of the program that the value is; None where it is none.
        result: where no op is known that it was made for, the result of the program that the
            communicated value becomes; None where it becomes none.
        named_after: what XLA names it after: the op that needs it, what makes its value, nothing.
            If it is not the op, ``tags`` were found along the value in the compiled program.
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
    tags: tuple[tuple[int, ...], ...] = ()
    makers: tuple[tuple[int, ...], ...] = ()
    argument: int | None = None
    result: int | None = None
    named_after: NamedAfter = "op"
    origin: CollectiveOrigin | None = None


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
        asynchronous: whether other work goes on meanwhile.
        channel_id: the channel; None without one.
        groups: its replica groups, or source-target pairs, as they are written.
        parts: its tensors, at least one.
        line: its line in the HLO text, counted from 1.
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
    def largest(self) -> Part:
        """The part with the most bytes."""
        return max(self.parts, key=lambda part: part.bytes)


@dataclass(frozen=True, slots=True)
class Tally:
    """Some collectives taken together.

    Attributes:
        count: how many a step runs.
        tensors: of how many tensors.
        bytes: bytes of these tensors on one device.
        sent: bytes that a device sends.
        received: bytes that it receives.
    """

    count: int = 0
    tensors: int = 0
    bytes: int = 0
    sent: int = 0
    received: int = 0

    def with_part(self, collective: Collective, part: Part, first: bool) -> Tally:
        """With one more tensor; the collective itself is counted with the first of its parts."""
        times = collective.count
        return Tally(
            self.count + times * first,
            self.tensors + times,
            self.bytes + times * part.bytes,
            self.sent + times * part.sent,
            self.received + times * part.received,
        )


@dataclass(frozen=True)
class Collectives:
    """The collectives of one program.

    Attributes:
        collectives: each of them, in the order of the text.
        num_devices: how many devices run the program.
        mesh: the mesh whose axes are named; None where none fits.
        differentiated: whether the program has a backward pass.
        not_understood: lines that could not be read, the reader's own included.
        not_understood_count: how many there are.
        rematerializations: reshardings that the partitioner itself called inefficient.
        origins_missing: why no origins are there; empty where they were looked for.
        predicted: whether they are what Shardy's reshards predict, and not read from a program that
            was compiled.
    """

    collectives: tuple[Collective, ...]
    num_devices: int
    mesh: Mesh | None
    differentiated: bool
    not_understood: tuple[NotUnderstood, ...] = ()
    not_understood_count: int = 0
    predicted: bool = False
    rematerializations: tuple[Rematerialization, ...] = ()
    origins_missing: str = ""

    @property
    def total(self) -> Tally:
        """All of them."""
        return self.tallied(lambda *_: None).get(None, Tally())

    @property
    def by_kind(self) -> dict[CollectiveKind, Tally]:
        """By kind, in the order of ``KINDS``."""
        found = self.tallied(lambda collective, _: collective.kind)
        return {kind: found[kind] for kind in KINDS if kind in found}

    @property
    def by_axes(self) -> dict[tuple[AxisRef, ...] | None, Tally]:
        """By axes, most bytes first."""
        return _largest_first(self.tallied(lambda collective, _: collective.axes))

    @property
    def by_kind_and_axes(
        self,
    ) -> dict[tuple[CollectiveKind, tuple[AxisRef, ...] | None], Tally]:
        """By kind and axes, most bytes first."""
        return _largest_first(self.tallied(lambda one, _: (one.kind, one.axes)))

    @property
    def by_phase(self) -> dict[Phase, Tally]:
        """By pass; a collective of several counts where most of its bytes are."""
        return self.tallied(lambda _, part: part.phase)

    @property
    def by_scope(self) -> dict[str, Tally]:
        """By scope, most bytes first; what has none is under the empty one."""
        return _largest_first(self.tallied(lambda _, part: part.scope))

    @property
    def by_annotation(self) -> dict[OriginAnnotation, Tally]:
        """By annotation that they come from, most bytes first.

        What comes from several annotations counts with each of them.
        """
        names: dict[tuple[object, ...], OriginAnnotation] = {}
        found: dict[OriginAnnotation, Tally] = {}
        for collective in self.collectives:
            counted: set[OriginAnnotation] = set()
            for part in collective.parts:
                named = part.origin.annotations if part.origin is not None else ()
                written = (names.setdefault(one.key, one.written()) for one in named)
                for one in dict.fromkeys(written):
                    first = one not in counted
                    counted.add(one)
                    found[one] = found.get(one, Tally()).with_part(collective, part, first)
        return _largest_first(found)

    @property
    def with_origin(self) -> int:
        """How many of the tensors have an origin."""
        parts = [part for one in self.collectives for part in one.parts]
        return sum(part.origin is not None and part.origin.is_known for part in parts)

    @property
    def tensors(self) -> int:
        """How many tensors they have, each once."""
        return sum(len(one.parts) for one in self.collectives)

    def tallied(self, key: Callable[[Collective, Part], _Key]) -> dict[_Key, Tally]:
        """Tallies by any key of a collective and one of its tensors."""
        found: dict[_Key, Tally] = {}
        for collective in self.collectives:
            largest = collective.largest
            for part in collective.parts:
                name = key(collective, part)
                before = found.get(name, Tally())
                found[name] = before.with_part(collective, part, part is largest)
        return found


def _largest_first(found: dict[_Key, Tally]) -> dict[_Key, Tally]:
    return dict(sorted(found.items(), key=lambda item: -item[1].sent))
