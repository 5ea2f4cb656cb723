"""Items with equal ones counted together, and snapshots of fewer stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sdyscope.snapshots.cells import cells_of, texts_of
from sdyscope.snapshots.values import Item, Key, Snapshot, Stage, StageText

__all__ = ["counted", "reduced"]


def counted(items: Iterable[Item]) -> tuple[Item, ...]:
    """Items with the same cells as one; sorted."""
    found: Counter[tuple[StageText, ...]] = Counter()
    for item in items:
        found[item.cells] += item.count
    made = (Item(cells, count) for cells, count in found.items())
    return tuple(sorted(made, key=lambda item: item.order))


def reduced(snapshot: Snapshot, stages: Iterable[Stage]) -> Snapshot:
    """A snapshot without the stages that are not named; what only they know is left out."""
    wanted = set(stages)
    kept = tuple(stage for stage in snapshot.stages if stage in wanted)
    if kept == snapshot.stages:
        return snapshot
    items: dict[Key, tuple[Item, ...]] = {}
    for key, found in snapshot.items.items():
        less = []
        for item in found:
            texts = texts_of(item.cells, snapshot.partitioners)
            texts = {stage: text for stage, text in texts.items() if stage in wanted}
            if texts:
                less.append(Item(cells_of(texts), item.count))
        if less:
            items[key] = counted(less)
    hardware = snapshot.hardware if "compiled" in kept else ""
    return replace(snapshot, stages=kept, hardware=hardware, items=items)
