"""Collectives of two compiled programs: which tensors only one of them communicates.

Tensors are matched by pass, scope, primitive, kind of collective and axes; their order, the names
of instructions and how XLA joins several tensors in one collective make no difference. What then
has no partner, but the same lines, the same number and the same bytes under another scope, was
moved: a loop that is written out has its layers' scopes, and the same loop has its body's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.routes import route_of
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.scopes import without_inner
from sdyscope.facts.differences import Change
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.over_time import Phase
from sdyscope.facts.traffic import CollectiveKind, Tally
from sdyscope.values.mesh import AxisRef, renamed_axes
from sdyscope.values.source import SourceLocation, named_line_of

CauseOf: TypeAlias = Callable[["Communicated", "Communicated"], int | None]
"""The number of what two lists of communicated tensors differ because of, where it is known."""

Otherwise: TypeAlias = Literal["", "types", "devices"]
"""What differs of collectives that send as much."""

#: The number in a scope that tells layers apart: ``jvp(layer12)/mlp``.
_NUMBER = re.compile(r"(?<=[A-Za-z_])\d+(?![A-Za-z\d])")


def folded_layers(scope: str) -> str:
    """A scope with ``*`` for the numbers that tell layers apart: ``jvp(layer*)/mlp``."""
    return _NUMBER.sub("*", scope)


@dataclass(frozen=True, slots=True)
class DifferenceKey:
    """What tensors of collectives are matched by.

    Attributes:
        phase: forward, backward or other.
        scope: scope of the op that they are communicated for, without the program and primitive.
        primitive: JAX's primitive.
        kind: what is done.
        axes: mesh axes that it is done over; None where no set of axes has the groups, or where
            one of the two programs has no mesh.
        group_size: devices that work together, where ``axes`` is None; None where it varies.
    """

    phase: Phase
    scope: str
    primitive: str
    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    group_size: int | None


@dataclass(slots=True)
class Communicated:
    """Tensors that one program communicates in a step.

    Attributes:
        parts: each with its collective.
        tensors: how many, loops included.
        bytes: their bytes on one device.
        sent: bytes that a device sends for them.
        received: bytes that it receives.
        shapes: how many have which type and local shape.
        origins: why: what leads to an annotation, or to a line of the program that says it itself.
    """

    parts: list[tuple[Collective, Part]] = field(default_factory=list)

    __document__ = ("tensors", "bytes", "sent", "received", "shapes", "origins")

    @property
    def tensors(self) -> int:
        """How many, loops included."""
        return sum(collective.count for collective, _ in self.parts)

    @property
    def bytes(self) -> int:
        """Their bytes on one device."""
        return sum(collective.count * part.bytes for collective, part in self.parts)

    @property
    def sent(self) -> int:
        """Bytes that a device sends for them."""
        return sum(collective.count * part.sent for collective, part in self.parts)

    @property
    def received(self) -> int:
        """Bytes that it receives."""
        return sum(collective.count * part.received for collective, part in self.parts)

    @property
    def amount(self) -> Hashable:
        """What has to be equal for two to be the same: types, bytes, and from where to where."""
        tensors: Counter[Hashable] = Counter()
        for collective, part in self.parts:
            tensors[_types(part), route_of(collective)] += collective.count
        return self.bytes, self.sent, self.received, frozenset(tensors.items())

    @property
    def types(self) -> Counter[Hashable]:
        """How many of the tensors have which type and local shape, layouts aside."""
        counts: Counter[Hashable] = Counter()
        for collective, part in self.parts:
            counts[_types(part)] += collective.count
        return counts

    @property
    def largest(self) -> Part | None:
        """The tensor with the most bytes."""
        return max((part for _, part in self.parts), key=lambda part: part.bytes, default=None)

    @property
    def shapes(self) -> dict[str, int]:
        """How many of the tensors have which type and local shape."""
        counts: Counter[str] = Counter()
        for collective, part in self.parts:
            counts[", ".join(map(str, part.shape.leaves))] += collective.count
        return dict(counts.most_common())

    @property
    def origins(self) -> tuple[CollectiveOrigin, ...]:
        """Why they are communicated, where that is known."""
        every = (part.origin for _, part in self.parts)
        return tuple(
            dict.fromkeys(source for source in every if source is not None and source.known)
        )


def _types(part: Part) -> Hashable:
    return tuple([(leaf.dtype, leaf.dimensions) for leaf in part.shape.leaves])


@dataclass(frozen=True, slots=True)
class CollectiveDifference:
    """Collectives that are not the same on both sides, of one op or of an op of repeated layers.

    Attributes:
        change: what happened.
        key: what they were matched by; of several layers the scope has ``*`` for the number.
        scopes: the scopes, one for each layer.
        sources: lines of user code.
        a: what the first program communicates.
        b: what the second communicates.
        sent: bytes that a device sends more in the second program.
        otherwise: what differs where as many tensors have as many bytes: their types, or which
            devices send to each other; empty for all else.
        cause: number of its cause, from 0; None where none was found.
    """

    change: Change
    key: DifferenceKey
    scopes: tuple[str, ...]
    a: Communicated
    b: Communicated
    cause: int | None

    __document__ = ("change", "key", "scopes", "sources", "a", "b", "sent", "otherwise", "cause")

    @property
    def otherwise(self) -> Otherwise:
        """What differs where as many tensors have as many bytes."""
        if (self.a.tensors, self.a.bytes) != (self.b.tensors, self.b.bytes) or self.sent:
            return ""
        return "types" if self.a.types != self.b.types else "devices"

    @property
    def sources(self) -> tuple[SourceLocation, ...]:
        """The lines of user code of both sides, each once, in order."""
        every = (part.source for side in (self.a, self.b) for _, part in side.parts)
        lines = {(source.file, source.line): source for source in every if source is not None}
        return tuple(lines[place] for place in sorted(lines))

    @property
    def sent(self) -> int:
        """Bytes that a device sends more in the second program."""
        return self.b.sent - self.a.sent

    @property
    def largest(self) -> Part:
        """The largest tensor of the first program, or else of the second."""
        part = self.a.largest or self.b.largest
        assert part is not None
        return part


@dataclass(frozen=True, slots=True)
class KindAxesDifference:
    """Collectives of one kind over the same axes that do not come to the same.

    Attributes:
        kind: HLO's opcode.
        axes: the mesh axes; None where no set of axes has the groups, or one of the two programs
            has no mesh.
        group_size: devices that work together, where ``axes`` is None; None where it varies.
        a: what they come to in the first program.
        b: what they come to in the second.
    """

    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    group_size: int | None
    a: Tally
    b: Tally


def kind_axes_differences(a: Collectives, b: Collectives) -> tuple[KindAxesDifference, ...]:
    """Totals by kind and axes that are not the same, the most bytes first."""
    ours, theirs = (
        side.tallied(partial(_kind_and_axes, axes_of))
        for side, axes_of in zip((a, b), _axes_of_both(a, b), strict=True)
    )
    pairs = {key: (ours.get(key, Tally()), theirs.get(key, Tally())) for key in {**ours, **theirs}}
    differences = [
        KindAxesDifference(*key, *pair) for key, pair in pairs.items() if pair[0] != pair[1]
    ]
    return tuple(
        sorted(differences, key=lambda difference: -max(difference.a.sent, difference.b.sent))
    )


_AxesOf: TypeAlias = Callable[[Collective], tuple[tuple[AxisRef, ...] | None, int | None]]
"""Axes that a collective is over, by the first program's names, else how many devices work
together."""


def _kind_and_axes(
    axes_of: _AxesOf, collective: Collective, _: object
) -> tuple[CollectiveKind, tuple[AxisRef, ...] | None, int | None]:
    return (collective.kind, *axes_of(collective))


def _axes_of_both(a: Collectives, b: Collectives) -> tuple[_AxesOf, _AxesOf]:
    named = a.mesh is not None and b.mesh is not None
    called = renamed_axes(a.mesh, b.mesh)

    def axes_of(
        collective: Collective, called: Mapping[str, str]
    ) -> tuple[tuple[AxisRef, ...] | None, int | None]:
        axes = collective.axes if named else None
        if axes is None:
            return None, collective.group_size
        return tuple(replace(axis, name=called.get(axis.name, axis.name)) for axis in axes), None

    return partial(axes_of, called={}), partial(axes_of, called=called)


def collective_differences(
    a: Collectives,
    b: Collectives,
    cause_of: CauseOf = lambda *_: None,
    *,
    across_versions: bool = False,
) -> tuple[tuple[CollectiveDifference, ...], int]:
    """What differs, what makes the largest difference in bytes first; and how many were moved.

    Args:
        a: the collectives of the first program.
        b: those of the second.
        cause_of: finds what a difference is due to.
        across_versions: they may be of two JAX, of which only newer ones have the names of inner
            functions in scopes.
    """
    ours, theirs = (
        _by_key(side, axes_of, inner=not across_versions)
        for side, axes_of in zip((a, b), _axes_of_both(a, b), strict=True)
    )
    moved = _moved(ours, theirs)
    differences: dict[Hashable, CollectiveDifference] = {}
    for key in dict.fromkeys([*ours, *theirs]):
        left, right = ours.get(key) or Communicated(), theirs.get(key) or Communicated()
        if left.amount == right.amount:
            continue
        difference = CollectiveDifference(
            "changed" if left.parts and right.parts else "only in a" if left.parts else "only in b",
            key,
            (key.scope,),
            left,
            right,
            cause_of(left, right),
        )
        folded = _fold_key(difference)
        differences[folded] = (
            _folded(differences[folded], difference) if folded in differences else difference
        )
    return tuple(sorted(differences.values(), key=_size)), moved


def _size(difference: CollectiveDifference) -> tuple[int, int]:
    return -abs(difference.sent), -max(difference.a.sent, difference.b.sent)


def _by_key(
    collectives: Collectives, axes_of: _AxesOf, *, inner: bool
) -> dict[DifferenceKey, Communicated]:
    by_key: dict[DifferenceKey, Communicated] = {}
    for collective in collectives.collectives:
        axes, size = axes_of(collective)
        collective = replace(collective, axes=axes)
        for part in collective.parts:
            scope = part.scope if inner else without_inner(part.scope)
            key = DifferenceKey(part.phase, scope, part.primitive, collective.kind, axes, size)
            by_key.setdefault(key, Communicated()).parts.append((collective, part))
    return by_key


# --- other scopes ---------------------------------------------------------------------------------


def _moved(
    ours: dict[DifferenceKey, Communicated], theirs: dict[DifferenceKey, Communicated]
) -> int:
    """Takes out what both have under different scopes, and says how many tensors that is."""
    left = [_by_line(ours, theirs), _by_line(theirs, ours)]
    moved = 0
    for line, keys in left[0].items():
        others = left[1].get(line, [])
        own, other = _together(ours, keys), _together(theirs, others)
        if own.amount == other.amount:
            moved += own.tensors
            for key in keys:
                del ours[key]
            for key in others:
                del theirs[key]
    return moved


def _by_line(
    own: Mapping[DifferenceKey, Communicated], other: Mapping[DifferenceKey, Communicated]
) -> dict[Hashable, list[DifferenceKey]]:
    """What only one side has, by its source lines and all but the scope."""
    alike: dict[Hashable, list[DifferenceKey]] = {}
    for key, communicated in own.items():
        lines = {named_line_of(part.source) for _, part in communicated.parts}
        if key in other or None in lines:
            continue
        loose = (
            key.phase,
            key.primitive,
            key.kind,
            key.axes,
            key.group_size,
            frozenset(lines),
        )
        alike.setdefault(loose, []).append(key)
    return alike


def _together(
    by_key: Mapping[DifferenceKey, Communicated], keys: Iterable[DifferenceKey]
) -> Communicated:
    communicated = Communicated()
    for key in keys:
        communicated.parts.extend(by_key[key].parts)
    return communicated


# --- repeated layers ------------------------------------------------------------------------------


def _fold_key(difference: CollectiveDifference) -> Hashable:
    # The same whichever of the two programs comes first.
    key = difference.key
    return (
        difference.change,
        (difference.sent > 0) - (difference.sent < 0),
        folded_layers(key.scope),
        (key.phase, key.primitive, key.kind, key.axes, key.group_size),
        frozenset(
            named_line_of(part.source)
            for side in (difference.a, difference.b)
            for _, part in side.parts
        ),
        difference.cause,
    )


def _folded(before: CollectiveDifference, more: CollectiveDifference) -> CollectiveDifference:
    a, b = Communicated(), Communicated()
    for side, parts in ((a, (before.a, more.a)), (b, (before.b, more.b))):
        for part in parts:
            side.parts.extend(part.parts)
    return CollectiveDifference(
        before.change,
        replace(before.key, scope=folded_layers(before.key.scope)),
        (*before.scopes, *more.scopes),
        a,
        b,
        before.cause,
    )
