"""What is not known of a compiled program's collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.facts.account import Unknown, UnknownKind

__all__ = ["collectives_unknowns"]


def collectives_unknowns(found: Collectives) -> Iterator[Unknown]:
    """Lines that could not be read, and collectives whose number is a guess."""
    stage: Literal["propagated", "compiled"] = "propagated" if found.predicted else "compiled"
    under = () if found.partitioner is None else (found.partitioner,)

    def unknown(kind: UnknownKind, reason: str, text: str = "", count: int = 1) -> Unknown:
        return Unknown(kind, stage, reason, under, text=text, count=count)

    for line in found.not_understood:
        where = f"line {line.line} of the HLO" if line.line else "it is not known as an op"
        yield unknown("not understood", where, line.text)
    if rest := found.not_understood_count - len(found.not_understood):
        yield unknown("not understood", "further lines of the HLO", "", rest)
    if loops := sum(one.unknown_trips for one in found.collectives):
        yield unknown(
            "approximate", "collectives in loops of unknown trip count count once (+)", "", loops
        )
    if branches := sum(one.conditional for one in found.collectives):
        yield unknown(
            "approximate",
            "collectives in branches count as if always taken (?)",
            "",
            branches,
        )
