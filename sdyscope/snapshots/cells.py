"""What stages say, in the fewest cells: ``=`` for what the stage before says, one for all alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sdyscope.facts.program import Partitioner
from sdyscope.snapshots.values import STAGES, Stage, StageText

__all__ = ["ALIKE", "Texts", "cells_of", "texts_of"]

#: What stands for what the stage before says.
ALIKE = "="

Texts = Mapping[Stage, Mapping[Partitioner, str]]
"""What each stage says under each partitioner."""


def cells_of(texts: Texts) -> tuple[StageText, ...]:
    """The cells of a tensor; a stage of ``texts`` that says nothing of it has none."""
    cells: list[StageText] = []
    for number, stage in enumerate(STAGES):
        before = texts.get(STAGES[number - 1], {}) if number else {}
        said = {
            partitioner: ALIKE if before.get(partitioner) == text else text
            for partitioner, text in texts.get(stage, {}).items()
        }
        if len(set(said.values())) == 1 and len(said) == max(map(len, texts.values())):
            cells.append(StageText(stage, next(iter(said.values()))))
        else:
            cells += [StageText(stage, text, partitioner) for partitioner, text in said.items()]
    return tuple(cells)


def texts_of(cells: Sequence[StageText], partitioners: Sequence[Partitioner]) -> Texts:
    """What was said, in full."""
    texts: dict[Stage, dict[Partitioner, str]] = {}
    for cell in cells:
        number = STAGES.index(cell.stage)
        before = texts.get(STAGES[number - 1], {}) if number else {}
        said = texts.setdefault(cell.stage, {})
        for partitioner in [cell.partitioner] if cell.partitioner else partitioners:
            is_same = cell.text == ALIKE and partitioner in before
            said[partitioner] = before[partitioner] if is_same else cell.text
    return texts
