"""On another mesh one PartitionSpec is another block: what a device has of each tensor on both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import STAGES, Item
from sdyscope.snapshots.folding import fold, size
from sdyscope.snapshots.items import texts_of
from sdyscope.snapshots.values import KINDS, Key, Kind, Snapshot
from sdyscope.snapshots.write import template_text
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.syntax.shardy import parse_tensor_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding
from sdyscope.words.sharding import REPLICATED, without_memory

_TYPE = re.compile(r"(.+?)\[((?:\d+(?:,\d+)*)?)\]")

#: An axis in Shardy's form without the quotes of MLIR.
_AXIS = re.compile(r'(?<=[{ ])[^\s"{}\[\]():,?=][^"{}\[\]():,=]*(?=[:,}])')

#: What has a sharding that could be another block on another mesh.
_WITHOUT = frozenset({"collective", "memory", "not understood"})


@dataclass(frozen=True, slots=True)
class DeviceBlock:
    """What a device has of a tensor.

    Attributes:
        type: type and shape of the whole tensor.
        spec: the sharding, as the snapshot has it.
        shape: what of it is on one device, padding included.
        bytes: its bytes.
    """

    type: str
    spec: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class NamedTensors:
    """One tensor, or the same of several layers.

    Attributes:
        kind: what it is.
        name: its name, with the numbers of several layers as ranges.
        count: how many they are.
    """

    kind: Kind
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class BlockChange:
    """Tensors of which a device has another block, all from and to the same.

    Attributes:
        partitioner: under which; null where all say the same.
        same_spec: whether the sharding reads as before, so that only the mesh makes it another
            block.
        before: what a device had.
        after: what it has.
        tensors: which they are.
    """

    partitioner: Partitioner | None
    before: DeviceBlock
    after: DeviceBlock
    tensors: tuple[NamedTensors, ...]

    __document__ = ("partitioner", "same_spec", "before", "after", "tensors")

    @property
    def same_spec(self) -> bool:
        """Whether the sharding reads as before."""
        return self.before.spec == self.after.spec

    @property
    def count(self) -> int:
        """How many tensors they are."""
        return sum(tensor.count for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class DeviceTotal:
    """What a device has of all arguments, or of all results.

    Attributes:
        kind: which of the two.
        partitioner: under which; null where all say the same.
        before: bytes on the mesh before.
        after: bytes on the mesh now.
    """

    kind: Literal["argument", "result"]
    partitioner: Partitioner | None
    before: int
    after: int


@dataclass(frozen=True)
class Blocks:
    """What another mesh makes of the tensors of a program.

    Attributes:
        changes: what is in other blocks; arguments first, what changes most bytes before others.
        same: how many tensors are in the same blocks as before.
        unknown: of how many the snapshots do not say it.
        totals: all arguments and all results, where each of them is known.
    """

    changes: tuple[BlockChange, ...]
    same: int
    unknown: int
    totals: tuple[DeviceTotal, ...]


_Said: TypeAlias = tuple[Partitioner | None, DeviceBlock, DeviceBlock]


def blocks_between(
    before: Snapshot, after: Snapshot, became: Mapping[Key, Key] | None = None
) -> Blocks | None:
    """What a device has on two meshes, of every tensor that both snapshots have.

    Args:
        before: the one snapshot.
        after: the other, with the same stages.
        became: keys of the first whose tensor has another key in the second, as of another type.

    Returns:
        None where a mesh is not known by its axes' names and sizes.
    """
    meshes = mesh_of(before.mesh), mesh_of(after.mesh)
    if meshes[0] is None or meshes[1] is None:
        return None
    moved: dict[_Said, dict[Key, int]] = {}
    sums: dict[tuple[str, Partitioner], tuple[int, int]] = {}
    unsummed: set[str] = set()
    same = unknown = 0
    for key, old in before.items.items():
        other = (became or {}).get(key, key)
        if key.kind in _WITHOUT or other not in after.items:
            continue
        for old_item, new_item in _pairs(old, after.items[other]):
            said = _blocks(
                old_item, new_item, (before, after), (key, other), (meshes[0], meshes[1])
            )
            if not said:
                unknown += old_item.count
                unsummed.add(key.kind)
                continue
            for partitioner, had, has in said:
                add = sums.get((key.kind, partitioner), (0, 0))
                sums[key.kind, partitioner] = add[0] + had.bytes, add[1] + has.bytes
            distinct = _alike(said)
            same += old_item.count * all(had.shape == has.shape for _, had, has in distinct)
            for each in distinct:
                if each[1].shape != each[2].shape:
                    keys = moved.setdefault(each, {})
                    keys[key] = keys.get(key, 0) + old_item.count
    changes = [BlockChange(*said, _named(keys)) for said, keys in moved.items()]
    return Blocks(tuple(sorted(changes, key=_order)), same, unknown, tuple(_totals(sums, unsummed)))


def mesh_of(words: str) -> Mesh | None:
    """The axes of a snapshot's mesh; the order of devices makes no other blocks."""
    sizes: dict[str, int] = {}
    for part in words.split("; "):
        if part.startswith("devices "):
            continue
        for axis in part.split(", "):
            name, equals, number = axis.rpartition("=")
            if not equals or not number.isdecimal() or sizes.get(name, int(number)) != int(number):
                return None
            sizes[name] = int(number)
    return Mesh.of(sizes)


def _pairs(old: Sequence[Item], new: Sequence[Item]) -> Iterator[tuple[Item, Item]]:
    """Items of which it is known which is which."""
    if len(old) == len(new) == 1:
        yield old[0], new[0]
    else:
        there = {item.cells: item for item in new}
        yield from ((item, there[item.cells]) for item in old if item.cells in there)


def _blocks(
    old: Item,
    new: Item,
    snapshots: tuple[Snapshot, Snapshot],
    keys: tuple[Key, Key],
    meshes: tuple[Mesh, Mesh],
) -> list[tuple[Partitioner, DeviceBlock, DeviceBlock]]:
    """The blocks under each partitioner; nothing where one of them is not known."""
    had, has = (
        _last(item, snapshot, key.type, mesh)
        for item, snapshot, key, mesh in zip((old, new), snapshots, keys, meshes, strict=True)
    )
    if had.keys() != has.keys():
        return []
    blocks = []
    for partitioner, block in had.items():
        now = has[partitioner]
        if block is None or now is None:
            return []
        blocks.append((partitioner, block, now))
    return blocks


def _last(
    item: Item, snapshot: Snapshot, type_: str, mesh: Mesh
) -> dict[Partitioner, DeviceBlock | None]:
    """What the last stage says that says something of a tensor."""
    texts = texts_of(item.cells, snapshot.partitioners)
    blocks: dict[Partitioner, DeviceBlock | None] = {}
    for partitioner in snapshot.partitioners:
        said = [texts[stage].get(partitioner) for stage in STAGES if stage in texts]
        known = [text for text in said if text is not None]
        if known:
            blocks[partitioner] = _block(type_, known[-1], mesh)
    return blocks


@lru_cache(1 << 12)
def _block(type_: str, spec: str, mesh: Mesh) -> DeviceBlock | None:
    """The block of a tensor; None where its sharding or its shape is none that is known."""
    match = _TYPE.fullmatch(type_)
    if match is None:
        return None
    shape = tuple(map(int, match[2].split(","))) if match[2] else ()
    try:
        place = _placement(without_memory(spec), len(shape), mesh)
        return DeviceBlock(
            type_, spec, place.local_shape(shape), place.bytes_per_device(shape, match[1])
        )
    except (ConversionError, SyntaxTextError):
        return None


def _placement(spec: str, rank: int, mesh: Mesh) -> Placement:
    if spec == REPLICATED:
        return Placement(mesh.size, ((),) * rank)
    if spec.startswith("["):
        quoted = _AXIS.sub(lambda name: f'"{name[0]}"', spec)
        return to_placement(parse_tensor_sharding(f"<@mesh, {quoted}>"), rank, mesh)
    return to_placement(NamedSharding(mesh, parse_partition_spec(spec)), rank)


def _alike(said: Sequence[tuple[Partitioner, DeviceBlock, DeviceBlock]]) -> Sequence[_Said]:
    """What all partitioners say alike, once."""
    if len({(had, has) for _, had, has in said}) == 1:
        return [(None, *said[0][1:])]
    return said


def _named(keys: Mapping[Key, int]) -> tuple[NamedTensors, ...]:
    named = [
        NamedTensors(key.kind, template_text(template), count * size(template))
        for key, template, count in fold(keys)
    ]
    # A parameter's path is shorter than those of what an optimizer keeps of it.
    return tuple(sorted(named, key=lambda tensors: (KINDS.index(tensors.kind), len(tensors.name))))


def _order(block_change: BlockChange) -> tuple[object, ...]:
    is_inside = block_change.tensors[0].kind not in ("argument", "result")
    return (
        is_inside,
        -abs(block_change.after.bytes - block_change.before.bytes) * block_change.count,
        block_change.before.type,
    )


def _totals(
    sums: Mapping[tuple[str, Partitioner], tuple[int, int]], unsummed: set[str]
) -> Iterator[DeviceTotal]:
    kinds: tuple[Literal["argument", "result"], ...] = ("argument", "result")
    for kind in kinds:
        of_kind = {by: both for (each, by), both in sums.items() if each == kind}
        if kind in unsummed or not of_kind:
            continue
        if len(set(of_kind.values())) == 1:
            yield DeviceTotal(kind, None, *next(iter(of_kind.values())))
        else:
            yield from (DeviceTotal(kind, by, *both) for by, both in of_kind.items())
