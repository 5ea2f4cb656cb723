"""What is not known of a compiled program's collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.facts.account import Reason, Unknown, UnknownKind, Why
from sdyscope.facts.remarks import NOT_PREDICTED, Remark


def collectives_unknowns(collectives: Collectives) -> Iterator[Unknown]:
    """Lines that could not be read, ops that may send more, collectives whose number is a guess."""
    stage: Literal["propagated", "compiled"] = "propagated" if collectives.predicted else "compiled"
    under = () if collectives.partitioner is None else (collectives.partitioner,)

    def unknown(kind: UnknownKind, reason: Reason, text: str = "", count: int = 1) -> Unknown:
        return Unknown(kind, stage, reason, under, text=text, count=count)

    for line in collectives.not_understood:
        yield unknown("not understood", Remark("unread line", count=line.line), line.text)
    if rest := collectives.not_understood_count - len(collectives.not_understood):
        yield unknown("not understood", Why.FURTHER_LINES, count=rest)
    if loops := sum(collective.unknown_trips for collective in collectives.collectives):
        yield unknown("approximate", Why.UNKNOWN_TRIPS, count=loops)
    if branches := sum(collective.conditional for collective in collectives.collectives):
        yield unknown("approximate", Why.IN_BRANCHES, count=branches)
    if ragged := sum(collective.at_most for collective in collectives.collectives):
        yield unknown("approximate", Why.RAGGED, count=ragged)
    for note in collectives.notes:
        if isinstance(note, Remark) and note.kind in NOT_PREDICTED:
            yield unknown("left out", note, count=sum(count for _, count in note.names))
