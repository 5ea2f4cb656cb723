"""What is not known of a compiled program's collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.facts.account import Reason, Unknown, UnknownKind, Why
from sdyscope.facts.remarks import Remark

__all__ = ["collectives_unknowns"]


def collectives_unknowns(found: Collectives) -> Iterator[Unknown]:
    """Lines that could not be read, and collectives whose number is a guess."""
    stage: Literal["propagated", "compiled"] = "propagated" if found.predicted else "compiled"
    under = () if found.partitioner is None else (found.partitioner,)

    def unknown(kind: UnknownKind, reason: Reason, text: str = "", count: int = 1) -> Unknown:
        return Unknown(kind, stage, reason, under, text=text, count=count)

    for line in found.not_understood:
        yield unknown("not understood", Remark("unread line", count=line.line), line.text)
    if rest := found.not_understood_count - len(found.not_understood):
        yield unknown("not understood", Why.FURTHER_LINES, count=rest)
    if loops := sum(one.unknown_trips for one in found.collectives):
        yield unknown("approximate", Why.UNKNOWN_TRIPS, count=loops)
    if branches := sum(one.conditional for one in found.collectives):
        yield unknown("approximate", Why.IN_BRANCHES, count=branches)
    if ragged := sum(one.at_most for one in found.collectives):
        yield unknown("approximate", Why.RAGGED, count=ragged)
