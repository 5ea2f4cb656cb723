"""Collectives of two compiled programs: which tensors only one of them communicates.

Tensors are matched by pass, scope, primitive, kind of collective and axes; their order, the names
of instructions and how XLA joins several tensors in one collective make no difference. What then
has no partner, but the same lines, the same number and the same bytes under another scope, was
moved: a loop that is written out has its layers' scopes, and the same loop has its body's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from sdyscope.analysis.collectives.routes import route_of
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.scopes import without_inner
from sdyscope.facts.differences import (
    Change,
    CollectiveDifference,
    Communicated,
    DifferenceKey,
    KindAxesDifference,
    Otherwise,
)
from sdyscope.facts.traffic import CollectiveKind, Tally
from sdyscope.values.mesh import AxisRef, renamed_axes
from sdyscope.values.source import SourceLocation, named_line_of

_Key = TypeVar("_Key")

CauseOf: TypeAlias = Callable[["Transfers", "Transfers"], int | None]
"""The number of what two lists of communicated tensors differ because of, where it is known."""

#: The number in a scope that tells layers apart: ``jvp(layer12)/mlp``.
_NUMBER = re.compile(r"(?<=[A-Za-z_])\d+(?![A-Za-z\d])")


def folded_layers(scope: str) -> str:
    """A scope with ``*`` for the numbers that tell layers apart: ``jvp(layer*)/mlp``."""
    return _NUMBER.sub("*", scope)


@dataclass(slots=True)
class Transfers:
    """Tensors that one program communicates in a step, each with its collective."""

    parts: list[tuple[Collective, Part]] = field(default_factory=list)

    def fact(self) -> Communicated:
        """What they come to."""
        every = (part.origin for _, part in self.parts)
        return Communicated(
            tensors=self.tensors,
            bytes=self.bytes,
            sent=self.sent,
            received=self.received,
            shapes=self._counted(lambda part: ", ".join(map(str, part.shapes))),
            origins=tuple(dict.fromkeys(each for each in every if each is not None and each.known)),
        )

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
    def types(self) -> Mapping[Hashable, int]:
        """How many of the tensors have which type and local shape, layouts aside."""
        return self._counted(_types)

    def _counted(self, key: Callable[[Part], _Key]) -> dict[_Key, int]:
        counts: Counter[_Key] = Counter()
        for collective, part in self.parts:
            counts[key(part)] += collective.count
        return dict(counts.most_common())


def _types(part: Part) -> Hashable:
    return tuple([(leaf.dtype, leaf.dimensions) for leaf in part.shapes])


@dataclass(slots=True)
class Differing:
    """Transfers of both programs that are not the same.

    Attributes:
        key: what they were matched by; of several layers the scope has ``*`` for the number.
        scopes: the scopes, one for each layer.
        a: those of the first program.
        b: those of the second.
        cause: the number of what they differ because of; None where that is not known.
    """

    key: DifferenceKey
    scopes: tuple[str, ...]
    a: Transfers
    b: Transfers
    cause: int | None

    @property
    def change(self) -> Change:
        """What happened."""
        if self.a.parts and self.b.parts:
            return "changed"
        return "only in a" if self.a.parts else "only in b"

    @property
    def sent(self) -> int:
        """Bytes that a device sends more in the second program."""
        return self.b.sent - self.a.sent

    def fact(self, cause: int | None) -> CollectiveDifference:
        """The difference as a value.

        Args:
            cause: the number of its cause among those that are shown.
        """
        lines = {(line.file, line.line): line for line in self._sources() if line is not None}
        a, b = self.a.fact(), self.b.fact()
        otherwise: Otherwise = ""
        if (a.tensors, a.bytes, a.sent) == (b.tensors, b.bytes, b.sent):
            otherwise = "types" if self.a.types != self.b.types else "devices"
        return CollectiveDifference(
            self.change,
            self.key,
            self.scopes,
            tuple(lines[place] for place in sorted(lines)),
            a,
            b,
            otherwise,
            cause,
        )

    def named_lines(self) -> frozenset[Hashable]:
        """The lines of both sides, by what a line is called."""
        return frozenset(map(named_line_of, self._sources()))

    def _sources(self) -> Iterator[SourceLocation | None]:
        return (part.source for side in (self.a, self.b) for _, part in side.parts)


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
) -> tuple[tuple[Differing, ...], int]:
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
    differences: dict[Hashable, Differing] = {}
    for key in dict.fromkeys([*ours, *theirs]):
        left, right = ours.get(key) or Transfers(), theirs.get(key) or Transfers()
        if left.amount == right.amount:
            continue
        difference = Differing(key, (key.scope,), left, right, cause_of(left, right))
        folded = _fold_key(difference)
        if folded in differences:
            _fold(differences[folded], difference)
        else:
            differences[folded] = difference
    return tuple(sorted(differences.values(), key=_size)), moved


def _size(difference: Differing) -> tuple[int, int]:
    return -abs(difference.sent), -max(difference.a.sent, difference.b.sent)


def _by_key(
    collectives: Collectives, axes_of: _AxesOf, *, inner: bool
) -> dict[DifferenceKey, Transfers]:
    by_key: dict[DifferenceKey, Transfers] = {}
    for collective in collectives.collectives:
        axes, size = axes_of(collective)
        collective = replace(collective, axes=axes)
        for part in collective.parts:
            scope = part.scope if inner else without_inner(part.scope)
            key = DifferenceKey(part.phase, scope, part.primitive, collective.kind, axes, size)
            by_key.setdefault(key, Transfers()).parts.append((collective, part))
    return by_key


# --- other scopes ---------------------------------------------------------------------------------


def _moved(ours: dict[DifferenceKey, Transfers], theirs: dict[DifferenceKey, Transfers]) -> int:
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
    own: Mapping[DifferenceKey, Transfers], other: Mapping[DifferenceKey, Transfers]
) -> dict[Hashable, list[DifferenceKey]]:
    """What only one side has, by its source lines and all but the scope."""
    alike: dict[Hashable, list[DifferenceKey]] = {}
    for key, transfers in own.items():
        lines = {named_line_of(part.source) for _, part in transfers.parts}
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
    by_key: Mapping[DifferenceKey, Transfers], keys: Iterable[DifferenceKey]
) -> Transfers:
    together = Transfers()
    for key in keys:
        together.parts.extend(by_key[key].parts)
    return together


# --- repeated layers ------------------------------------------------------------------------------


def _fold_key(difference: Differing) -> Hashable:
    # The same whichever of the two programs comes first.
    key = difference.key
    return (
        difference.change,
        (difference.sent > 0) - (difference.sent < 0),
        folded_layers(key.scope),
        (key.phase, key.primitive, key.kind, key.axes, key.group_size),
        difference.named_lines(),
        difference.cause,
    )


def _fold(first: Differing, more: Differing) -> None:
    """Takes the difference of one more layer to those of others."""
    first.key = replace(first.key, scope=folded_layers(first.key.scope))
    first.scopes += more.scopes
    first.a = Transfers([*first.a.parts, *more.a.parts])
    first.b = Transfers([*first.b.parts, *more.b.parts])
