"""What changed from one snapshot to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, Literal, TypeAlias, get_args

from sdyscope.facts.snapshots import STAGES, Item, Stage, StageText
from sdyscope.formatters import in_place
from sdyscope.graph import written_scope
from sdyscope.snapshots.blocks import Blocks, blocks_between, mesh_of
from sdyscope.snapshots.folding import fold, size
from sdyscope.snapshots.items import (
    has_devices,
    in_order,
    reduced,
    with_axes,
    without_devices,
    without_marks,
    without_places,
)
from sdyscope.snapshots.values import Key, Kind, Snapshot
from sdyscope.snapshots.write import template_text
from sdyscope.values.mesh import renamed_axes

NotCompared: TypeAlias = Literal[Stage, "memory", "places", "on", "devices"]

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

    __document__ = in_place(
        key=("kind",), count=("count", "type_before"), type_after=("type_after", "over")
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
        not_compared: what only one of the two has: stages, memory, which of several constraints of
            a scope is which (`places`), the values that they stand on (`on`), or in which order the
            devices of collectives work together (`devices`).
        blocks: on another mesh, what a device has of each tensor; null on the same one, and where a
            mesh is not known by its axes.
        renamed: of meshes that differ in the names of axes alone, which is a difference of the
            header, what each axis of the first is called in the second: what the first says of
            tensors and collectives is compared by these names.
    """

    name: str
    header: tuple[HeaderChange, ...]
    changes: tuple[TensorChange, ...]
    same: int
    not_compared: tuple[NotCompared, ...] = ()
    blocks: Blocks | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    __document__ = in_place(name=("name", "same", "different"), same=())

    @property
    def is_same(self) -> bool:
        """Whether nothing differs that was compared."""
        return not self.header and not self.changes

    @property
    def different(self) -> int:
        """How many tensors and groups of collectives differ."""
        return sum(change.count for change in self.changes)


def compare(
    before: Snapshot,
    after: Snapshot,
    *,
    as_asked: bool = True,
    refused: Collection[Stage] = (),
) -> Comparison:
    """What changed, at the stages that both have.

    Args:
        before: the first, such as the one in a file.
        after: the second, such as the program as it is now.
        as_asked: whether the stages of the second were asked for: one that the first does not have
            is a difference then.
        refused: stages of the second that were asked for and that a compiler refused: one that the
            first has is a difference then.
    """
    shared = tuple(s for s in STAGES if s in before.stages and s in after.stages)
    missing = tuple(s for s in STAGES if (s in before.stages) != (s in after.stages))
    first, second = (_as_written(reduced(each, shared)) for each in (before, after))
    renamed = _renamed(first, second)
    if renamed:
        first = with_axes(first, renamed)
    left_out: tuple[NotCompared, ...] = missing
    if "compiled" in shared and _has_memory(first) != _has_memory(second):
        # Version 1 of the format did not have it.
        first, second = _without_memory(first), _without_memory(second)
        left_out = (*missing, "memory")
    older = [key for key, items in first.items.items() if _lacks_devices(key, items, second.items)]
    if older:
        # Versions before 7 did not have them.
        first, second = (_without_devices(each, older) for each in (first, second))
        left_out = (*left_out, "devices")
    pairings = {
        key: _paired(items, second.items[key])
        for key, items in first.items.items()
        if len(items) > 1 and len(second.items.get(key, ())) > 1
    }
    unknown = {pairing.unknown for pairing in pairings.values()}
    left_out = (*left_out, *(part for part in _PARTS if part in unknown))
    first = replace(first, items={**first.items, **{k: p.old for k, p in pairings.items()}})
    second = replace(second, items={**second.items, **{k: p.new for k, p in pairings.items()}})
    header = [
        HeaderChange(word, old, new)
        for word, old, new in (
            ("mesh", before.mesh, second.mesh),
            ("partitioners", ", ".join(first.partitioners), ", ".join(second.partitioners)),
            ("hardware", first.hardware, second.hardware),
        )
        if old != new
    ]
    gone = set(refused) & set(before.stages)
    if gone or (as_asked and not set(after.stages) <= set(before.stages)):
        # What is asked for and is missing on one side is no agreement.
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
    return Comparison(
        before.name, tuple(header), tuple(changes), same, left_out, blocks, {**renamed}
    )


def _renamed(before: Snapshot, after: Snapshot) -> Mapping[str, str]:
    """What the axes of the first are called in the second, where nothing else of a mesh differs."""
    if any("; " in each.mesh for each in (before, after)):
        return {}  # Several meshes, or devices in an order of their own.
    return renamed_axes(mesh_of(after.mesh), mesh_of(before.mesh))


def _as_written(snapshot: Snapshot) -> Snapshot:
    """With scopes as the author wrote them: older files have what JAX has in them for itself."""
    items: dict[Key, tuple[Item, ...]] = {}
    for key, own in snapshot.items.items():
        is_named = key.kind in ("argument", "result")
        name = key.name if is_named else written_scope(written_scope(f"{key.name}/")[:-1])
        written = key if name == key.name else replace(key, name=name)
        items[written] = (*items.get(written, ()), *own)
    return replace(snapshot, items=items)


def _has_memory(snapshot: Snapshot) -> bool:
    return any(key.kind == "memory" for key in snapshot.items)


def _without_memory(snapshot: Snapshot) -> Snapshot:
    kept = {key: items for key, items in snapshot.items.items() if key.kind != "memory"}
    return replace(snapshot, items=kept)


def _lacks_devices(
    key: Key, items: tuple[Item, ...], others: Mapping[Key, tuple[Item, ...]]
) -> bool:
    """Whether one side alone says in which order the devices of a collective work together."""
    return (
        key.kind == "collective"
        and key in others
        and has_devices(items) != has_devices(others[key])
    )


def _without_devices(snapshot: Snapshot, keys: Iterable[Key]) -> Snapshot:
    bare = {key: without_devices(snapshot.items[key], snapshot.partitioners) for key in keys}
    return replace(snapshot, items={**snapshot.items, **bare})


_Part: TypeAlias = Literal["places", "on"]

_PARTS: Final[tuple[_Part, ...]] = get_args(_Part)


@dataclass(frozen=True, slots=True)
class _Pairing:
    """What is compared of tensors that share a key.

    Attributes:
        old: what the first snapshot says of them.
        new: what the second does; equal to ``old`` where it says the same of each.
        unknown: what would tell which is which and one side does not have.
    """

    old: tuple[Item, ...]
    new: tuple[Item, ...]
    unknown: _Part | None = None


def _paired(old: tuple[Item, ...], new: tuple[Item, ...]) -> _Pairing:
    """Tensors of one key: those that are computed from the same as pairs, the rest in order."""
    if bool(old[0].places) != bool(new[0].places):
        # Versions before 5 did not have them.
        return _Pairing(without_places(old), without_places(new), "places")
    if not (old[0].on and new[0].on):
        # Nor did version 5 have these.
        unknown: _Part | None = "on" if old[0].on or new[0].on else None
        return _Pairing(without_marks(old), without_marks(new), unknown)
    waiting: dict[str, deque[tuple[int, tuple[StageText, ...]]]] = {}
    for place, mark, item in in_order(new):
        waiting.setdefault(mark, deque()).append((place, item.cells))
    is_same = True
    rest: list[tuple[StageText, ...]] = []
    for _, mark, item in in_order(old):
        if waiting.get(mark):
            is_same &= waiting[mark].popleft()[1] == item.cells
        else:
            rest.append(item.cells)
    unpaired = sorted((left for lefts in waiting.values() for left in lefts), key=itemgetter(0))
    others = [cells for _, cells in unpaired]
    is_same &= rest == others
    is_clear = len(set(rest)) < 2 and len(set(others)) < 2
    return _Pairing(old, old if is_same else new, None if is_clear else "on")


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
