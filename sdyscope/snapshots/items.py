"""What stages say of a tensor, in the fewest cells; equal items counted; fewer stages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import STAGES, Item, Stage, StageText
from sdyscope.snapshots.values import Key, Snapshot
from sdyscope.words.mesh import axis_spans

#: What stands for what the stage before says.
ALIKE = "="

#: What the order of devices of a collective stands behind.
DEVICES = "; devices "

Texts = Mapping[Stage, Mapping[Partitioner | None, str]]
"""What each stage says under each partitioner; by None what a compiled program's text says."""


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


def compiled_cells(
    texts: Mapping[Partitioner | None, str], partitioners: Collection[Partitioner | None]
) -> tuple[StageText, ...]:
    """What the compiled programs say of something: one cell where all say it alike."""
    if len(texts) == len(partitioners) and len(set(texts.values())) == 1:
        return (StageText("compiled", next(iter(texts.values()))),)
    return tuple(StageText("compiled", text, partitioner) for partitioner, text in texts.items())


def texts_of(cells: Sequence[StageText], partitioners: Sequence[Partitioner | None]) -> Texts:
    """What was said, in full."""
    texts: dict[Stage, dict[Partitioner | None, str]] = {}
    for cell in cells:
        number = STAGES.index(cell.stage)
        before = texts.get(STAGES[number - 1], {}) if number else {}
        said = texts.setdefault(cell.stage, {})
        for partitioner in [cell.partitioner] if cell.partitioner else partitioners or [None]:
            is_same = cell.text == ALIKE and partitioner in before
            said[partitioner] = before[partitioner] if is_same else cell.text
    return texts


def counted(items: Iterable[Item]) -> tuple[Item, ...]:
    """Items with the same cells as one; sorted."""
    members: dict[tuple[StageText, ...], list[Item]] = {}
    for item in items:
        members.setdefault(item.cells, []).append(item)
    every = [item for of in members.values() for item in of]
    is_placed = len(members) > 1 and all(item.places for item in every)
    is_marked = is_placed and all(item.on for item in every)
    merged = []
    for cells, of in members.items():
        item = Item(cells, sum(item.count for item in of))
        if is_placed:
            ordered = in_order(of)
            item = replace(
                item,
                places=tuple(place for place, _, _ in ordered),
                on=tuple(mark for _, mark, _ in ordered) if is_marked else (),
            )
        merged.append(item)
    return tuple(sorted(merged, key=lambda item: item.order))


def placed(items: Sequence[Item], marks: Sequence[str]) -> Iterator[Item]:
    """Single items in the order of the program, each with its place.

    Args:
        items: the items.
        marks: what the tensor of each is computed from; empty where that is not known.
    """
    for place, item in enumerate(items, 1):
        yield replace(item, places=(place,), on=tuple(marks[place - 1 : place]))


def in_order(items: Iterable[Item]) -> list[tuple[int, str, Item]]:
    """Each place in its order, what the tensor there is computed from if known, and its item."""
    places = [
        (place, mark, item)
        for item in items
        for place, mark in zip(item.places, item.on or ("",) * len(item.places), strict=True)
    ]
    return sorted(places, key=itemgetter(0))


def without_places(items: Iterable[Item]) -> tuple[Item, ...]:
    """The same where it is not known which is which."""
    return tuple(replace(item, places=(), on=()) for item in items)


def without_marks(items: Iterable[Item]) -> tuple[Item, ...]:
    """The same where it is not known what they are computed from."""
    return tuple(replace(item, on=()) for item in items)


def has_devices(items: Iterable[Item]) -> bool:
    """Whether it is said in which order the devices of a collective work together."""
    return any(DEVICES in cell.text for item in items for cell in item.cells)


def without_devices(items: Iterable[Item], partitioners: Sequence[Partitioner]) -> tuple[Item, ...]:
    """The same where that is not known."""
    bare = []
    for item in items:
        said = texts_of(item.cells, partitioners)["compiled"]
        texts = {under: text.partition(DEVICES)[0] for under, text in said.items()}
        bare.append(replace(item, cells=compiled_cells(texts, partitioners or [None])))
    return counted(bare)


def reduced(snapshot: Snapshot, stages: Iterable[Stage]) -> Snapshot:
    """A snapshot without the stages that are not named; what only they know is left out."""
    wanted = set(stages)
    kept = tuple(stage for stage in snapshot.stages if stage in wanted)
    if kept == snapshot.stages:
        return snapshot
    items: dict[Key, tuple[Item, ...]] = {}
    for key, of_key in snapshot.items.items():
        less = []
        for item in of_key:
            texts = texts_of(item.cells, snapshot.partitioners)
            texts = {stage: text for stage, text in texts.items() if stage in wanted}
            if texts:
                less.append(replace(item, cells=cells_of(texts)))
        if less:
            items[key] = counted(less)
    hardware = snapshot.hardware if "compiled" in kept else ""
    return replace(snapshot, stages=kept, hardware=hardware, items=items)


def with_axes(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """A snapshot whose mesh axes have other names.

    Args:
        snapshot: the snapshot.
        names: the new name of each axis.
    """

    def renamed(text: str) -> str:
        pieces, end = [], 0
        for begin, stop, axis in axis_spans(text, tuple(names)):
            pieces += [text[end:begin], names[axis]]
            end = stop
        return "".join((*pieces, text[end:]))

    items: dict[Key, tuple[Item, ...]] = {}
    for key, of_key in snapshot.items.items():
        items[replace(key, over=renamed(key.over))] = counted(
            replace(
                item, cells=tuple(replace(cell, text=renamed(cell.text)) for cell in item.cells)
            )
            for item in of_key
        )
    axes = [axis.partition("=") for axis in snapshot.mesh.split(", ")]
    mesh = ", ".join(f"{names.get(name, name)}={size}" for name, _, size in axes)
    return replace(snapshot, mesh=mesh, items=items)
