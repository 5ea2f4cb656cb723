"""What changed from one snapshot to another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sdyscope.snapshots.blocks import Blocks, blocks_between
from sdyscope.snapshots.folding import fold, size
from sdyscope.snapshots.items import reduced, without_places
from sdyscope.snapshots.values import STAGES, Item, Key, Kind, Snapshot, Stage
from sdyscope.snapshots.write import template_text

NotCompared: TypeAlias = Literal[Stage, "memory", "places"]

What: TypeAlias = Literal["changed", "removed", "added"]


@dataclass(frozen=True, slots=True)
class HeaderChange:
    """What is said of the whole program and changed.

    Attributes:
        word: `mesh`, `partitioners`, `hardware` or `stages`.
        before: in the first snapshot.
        after: in the second.
    """

    word: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TensorChange:
    """What changed of a tensor, or of the same tensor of several layers.

    Attributes:
        what: whether both snapshots have it, or only the first (``removed``), or only the second.
        key: the first of them, as the first snapshot has it where it does.
        kind: what it is.
        name: the name of all, with the numbers of the layers as ranges.
        count: how many they are.
        type_before: its type in the first snapshot.
        type_after: its type in the second snapshot; the same unless the type changed.
        over: of a collective what is done over which axes; else empty.
        before: what the first snapshot says.
        after: what the second says.
    """

    what: What
    key: Key
    name: str
    count: int
    type_after: str
    before: tuple[Item, ...]
    after: tuple[Item, ...]

    __document__ = (
        "what",
        "kind",
        "name",
        "count",
        "type_before",
        "type_after",
        "over",
        "before",
        "after",
    )

    @property
    def kind(self) -> Kind:
        """What it is."""
        return self.key.kind

    @property
    def type_before(self) -> str:
        """Its type in the first snapshot."""
        return self.key.type

    @property
    def over(self) -> str:
        """Of a collective what is done over which axes."""
        return self.key.over


@dataclass(frozen=True)
class Comparison:
    """What two snapshots of a program say differently.

    Attributes:
        name: the program's.
        same: how many tensors and groups of collectives are the same.
        different: how many are not.
        header: what is said of the whole program and differs.
        changes: what differs of tensors and collectives.
        not_compared: what only one of the two has: stages, memory, or which of several constraints
            of a scope is which (`places`).
        blocks: on another mesh, what a device has of each tensor; null on the same one, and where a
            mesh is not known by its axes.
    """

    name: str
    header: tuple[HeaderChange, ...]
    changes: tuple[TensorChange, ...]
    same: int
    not_compared: tuple[NotCompared, ...] = ()
    blocks: Blocks | None = None

    __document__ = ("name", "same", "different", "header", "changes", "not_compared", "blocks")

    @property
    def is_same(self) -> bool:
        """Whether nothing differs that was compared."""
        return not self.header and not self.changes

    @property
    def different(self) -> int:
        """How many tensors and groups of collectives differ."""
        return sum(change.count for change in self.changes)


def compare(before: Snapshot, after: Snapshot, *, as_asked: bool = True) -> Comparison:
    """What changed, at the stages that both have.

    Args:
        before: the first, such as the one in a file.
        after: the second, such as the program as it is now.
        as_asked: whether the stages of the second were asked for: one that the first does not have
            is a difference then.
    """
    shared = tuple(s for s in STAGES if s in before.stages and s in after.stages)
    missing = tuple(s for s in STAGES if (s in before.stages) != (s in after.stages))
    first, second = reduced(before, shared), reduced(after, shared)
    left_out: tuple[NotCompared, ...] = missing
    if "compiled" in shared and _has_memory(first) != _has_memory(second):
        # Version 1 of the format did not have it.
        first, second = _without_memory(first), _without_memory(second)
        left_out = (*missing, "memory")
    unplaced = set(_placed_once(first, second))
    if unplaced:
        # Versions before 5 did not have them.
        first, second = _without_places(first, unplaced), _without_places(second, unplaced)
        left_out = (*left_out, "places")
    header = [
        HeaderChange(word, old, new)
        for word, old, new in (
            ("mesh", first.mesh, second.mesh),
            ("partitioners", ", ".join(first.partitioners), ", ".join(second.partitioners)),
            ("hardware", first.hardware, second.hardware),
        )
        if old != new
    ]
    if as_asked and not set(after.stages) <= set(before.stages):
        # What is asked for and was never recorded is no agreement.
        header.append(HeaderChange("stages", ", ".join(before.stages), ", ".join(after.stages)))
    differing = _differing(first.items, second.items)
    changes = []
    for key, template, (type_after, old, new) in fold(differing):
        what: What = "changed" if old and new else "removed" if old else "added"
        name = template_text(template)
        changes.append(TensorChange(what, key, name, size(template), type_after, old, new))
    same = sum(second.items.get(key) == items for key, items in first.items.items())
    blocks = None
    if first.mesh != second.mesh:
        became = {
            key: replace(key, type=type_)
            for key, (type_, _, _) in differing.items()
            if type_ != key.type
        }
        blocks = blocks_between(first, second, became)
    return Comparison(before.name, tuple(header), tuple(changes), same, left_out, blocks)


def _has_memory(snapshot: Snapshot) -> bool:
    return any(key.kind == "memory" for key in snapshot.items)


def _without_memory(snapshot: Snapshot) -> Snapshot:
    kept = {key: items for key, items in snapshot.items.items() if key.kind != "memory"}
    return replace(snapshot, items=kept)


def _placed_once(first: Snapshot, second: Snapshot) -> Iterator[Key]:
    """What has places in one of them alone, although it has several items in both."""
    for key, items in first.items.items():
        others = second.items.get(key, ())
        if len(items) > 1 and len(others) > 1 and bool(items[0].places) != bool(others[0].places):
            yield key


def _without_places(snapshot: Snapshot, keys: Collection[Key]) -> Snapshot:
    return replace(
        snapshot,
        items={
            key: without_places(items) if key in keys else items
            for key, items in snapshot.items.items()
        },
    )


_Differing: TypeAlias = dict[Key, tuple[str, tuple[Item, ...], tuple[Item, ...]]]


def _differing(
    before: Mapping[Key, tuple[Item, ...]], after: Mapping[Key, tuple[Item, ...]]
) -> _Differing:
    differing: _Differing = {}
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, ()), after.get(key, ())
        if old != new:
            differing[key] = (key.type, old, new)
    # An argument of another type is the same argument.
    gone: dict[tuple[str, str], Key] = {}
    for key, (_, old, new) in differing.items():
        if key.kind in ("argument", "result") and old and not new:
            gone[key.kind, key.name] = key
    for key, (_, old, new) in list(differing.items()):
        was = gone.get((key.kind, key.name))
        if was is not None and new and not old:
            differing[was] = (key.type, differing[was][1], new)
            del differing[key]
    return differing
