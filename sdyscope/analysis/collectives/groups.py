"""Which collectives of a program look the same, and are told in one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.annotations import folded_names
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.values.source import SourceLocation, line_of, lines_apart


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """Collectives that look the same, those of repeated layers too.

    Attributes:
        members: the collectives, at least one, in the order of the document.
        scope: the scope that they were made for, with ``*`` for the numbers that they differ in;
            the primitive where there is none.
        callers: the lines behind theirs, where others of the program come to theirs by other ways.
    """

    members: tuple[Collective, ...]
    scope: str
    callers: tuple[SourceLocation, ...] = ()

    @property
    def first(self) -> Collective:
        """The one that stands for all."""
        return self.members[0]

    @property
    def count(self) -> int:
        """How often a step runs them."""
        return sum(member.count for member in self.members)

    @property
    def sent(self) -> int:
        """Bytes that a device sends for them in a step."""
        return sum(member.sent for member in self.members)

    @property
    def received(self) -> int:
        """Bytes that it receives."""
        return sum(member.received for member in self.members)

    @property
    def origins(self) -> Sequence[CollectiveOrigin]:
        """Why each is there, where that is known, of its largest tensor."""
        origins = (member.largest.origin for member in self.members)
        return [origin for origin in origins if origin is not None]


def collective_groups(collectives: Collectives) -> list[CollectiveGroup]:
    """The collectives by what looks the same, what sends most first.

    Alike are those of one kind, axes, tensors and source line, reached in the same way, that stand
    in the same scope, or in scopes that differ in numbers only.
    """
    scopes = folded_names(
        part.scope for collective in collectives.collectives for part in collective.parts
    )
    ways: dict[object, set[tuple[object, ...]]] = {}
    groups: dict[tuple[object, str], list[Collective]] = {}
    for collective in collectives.collectives:
        part = collective.largest
        scope = scopes[part.scope] or part.primitive
        way = tuple(map(line_of, part.callers))
        key = (
            collective.kind,
            collective.asynchronous,
            collective.unknown_trips,
            collective.conditional,
            collective.axes,
            collective.group_size,
            part.shapes,
            len(collective.parts),
            line_of(part.source),
            way,
        )
        ways.setdefault(line_of(part.source), set()).add(way)
        groups.setdefault((key, scope), []).append(collective)
    grouped = [
        CollectiveGroup(
            tuple(members), scope, lines_apart(part.callers, ways[line_of(part.source)])
        )
        for (_, scope), members in groups.items()
        for part in [members[0].largest]
    ]
    return sorted(grouped, key=lambda group: -group.sent)
