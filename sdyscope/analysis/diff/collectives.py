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
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.bytes import CollectiveKind
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.scopes import Phase
from sdyscope.values.mesh import AxisRef

__all__ = [
    "CollectiveDifference",
    "Communicated",
    "DifferenceKey",
    "collective_differences",
    "folded_layers",
]

CauseOf: TypeAlias = Callable[["Communicated", "Communicated"], int | None]
"""The number of what two lists of communicated tensors differ because of, where it is known."""

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
    """

    parts: list[tuple[Collective, Part]] = field(default_factory=list)
    tensors: int = 0
    bytes: int = 0
    sent: int = 0
    received: int = 0

    def add(self, collective: Collective, part: Part) -> None:
        """Adds one tensor."""
        times = collective.count
        self.parts.append((collective, part))
        self.tensors += times
        self.bytes += times * part.bytes
        self.sent += times * part.sent
        self.received += times * part.received

    def extend(self, other: Communicated) -> None:
        """Adds what another one has."""
        for collective, part in other.parts:
            self.add(collective, part)

    @property
    def amount(self) -> tuple[int, int, int, int]:
        """What has to be equal for two to be the same."""
        return self.tensors, self.bytes, self.sent, self.received

    @property
    def largest(self) -> Part | None:
        """The tensor with the most bytes."""
        return max((part for _, part in self.parts), key=lambda part: part.bytes, default=None)

    @property
    def shapes(self) -> dict[str, int]:
        """How many of the tensors have which type and local shape."""
        found: Counter[str] = Counter()
        for collective, part in self.parts:
            found[", ".join(map(str, part.shape.leaves))] += collective.count
        return dict(found.most_common())


@dataclass(frozen=True, slots=True)
class CollectiveDifference:
    """Collectives that are not the same on both sides, of one op or of an op of repeated layers.

    Attributes:
        change: what happened.
        key: what they were matched by; of several layers the scope has ``*`` for the number.
        scopes: the scopes, one for each layer.
        a: what the first program communicates.
        b: what the second communicates.
        cause: number of the place where the difference begins; None where it was not found.
    """

    change: Literal["changed", "only in a", "only in b"]
    key: DifferenceKey
    scopes: tuple[str, ...]
    a: Communicated
    b: Communicated
    cause: int | None

    @property
    def sent(self) -> int:
        """Bytes that a device sends more in the second program."""
        return self.b.sent - self.a.sent

    @property
    def largest(self) -> Part:
        """The largest tensor of the first program, or else of the second."""
        found = self.a.largest or self.b.largest
        assert found is not None
        return found


def collective_differences(
    a: Collectives, b: Collectives, cause_of: CauseOf = lambda *_: None
) -> tuple[tuple[CollectiveDifference, ...], int]:
    """What differs, what makes the largest difference in bytes first; and how many were moved.

    Args:
        a: the collectives of the first program.
        b: those of the second.
        cause_of: finds what a difference is due to.
    """
    named = a.mesh is not None and b.mesh is not None
    ours, theirs = _by_key(a, named), _by_key(b, named)
    moved = _moved(ours, theirs)
    found: dict[Hashable, CollectiveDifference] = {}
    for key in dict.fromkeys([*ours, *theirs]):
        one, two = ours.get(key) or Communicated(), theirs.get(key) or Communicated()
        if one.amount == two.amount:
            continue
        made = CollectiveDifference(
            "changed" if one.parts and two.parts else "only in a" if one.parts else "only in b",
            key,
            (key.scope,),
            one,
            two,
            cause_of(one, two),
        )
        folded = _fold_key(made)
        found[folded] = _folded(found[folded], made) if folded in found else made
    return tuple(sorted(found.values(), key=_size)), moved


def _size(one: CollectiveDifference) -> tuple[int, int]:
    return -abs(one.sent), -max(one.a.sent, one.b.sent)


def _by_key(found: Collectives, named: bool) -> dict[DifferenceKey, Communicated]:
    by_key: dict[DifferenceKey, Communicated] = {}
    for one in found.collectives:
        axes = one.axes if named else None
        size = one.group_size if axes is None else None
        for part in one.parts:
            key = DifferenceKey(part.phase, part.scope, part.primitive, one.kind, axes, size)
            by_key.setdefault(key, Communicated()).add(one, part)
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
        one, two = _together(ours, keys), _together(theirs, others)
        if one.amount == two.amount:
            moved += one.tensors
            for key in keys:
                del ours[key]
            for key in others:
                del theirs[key]
    return moved


def _by_line(
    own: Mapping[DifferenceKey, Communicated], other: Mapping[DifferenceKey, Communicated]
) -> dict[Hashable, list[DifferenceKey]]:
    """What only one side has, by its source lines and all but the scope."""
    found: dict[Hashable, list[DifferenceKey]] = {}
    for key, communicated in own.items():
        lines = {_line(part) for _, part in communicated.parts}
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
        found.setdefault(loose, []).append(key)
    return found


def _line(part: Part) -> tuple[str, int] | None:
    # Two checkouts of one program have other folders.
    if part.source is None:
        return None
    return PurePath(part.source.file).name, part.source.line


def _together(
    found: Mapping[DifferenceKey, Communicated], keys: Iterable[DifferenceKey]
) -> Communicated:
    made = Communicated()
    for key in keys:
        made.extend(found[key])
    return made


# --- repeated layers ------------------------------------------------------------------------------


def _fold_key(one: CollectiveDifference) -> Hashable:
    # The same whichever of the two programs comes first.
    key = one.key
    return (
        one.change,
        (one.sent > 0) - (one.sent < 0),
        folded_layers(key.scope),
        (key.phase, key.primitive, key.kind, key.axes, key.group_size),
        frozenset(_line(part) for side in (one.a, one.b) for _, part in side.parts),
        one.cause,
    )


def _folded(before: CollectiveDifference, more: CollectiveDifference) -> CollectiveDifference:
    a, b = Communicated(), Communicated()
    for side, parts in ((a, (before.a, more.a)), (b, (before.b, more.b))):
        for part in parts:
            side.extend(part)
    key = before.key
    return CollectiveDifference(
        before.change,
        DifferenceKey(
            key.phase,
            folded_layers(key.scope),
            key.primitive,
            key.kind,
            key.axes,
            key.group_size,
        ),
        (*before.scopes, *more.scopes),
        a,
        b,
        before.cause,
    )
