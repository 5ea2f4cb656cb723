"""Snapshots, and what changed since, as documents and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.snapshots import Change, Comparison, Item, Key, Stage
from sdyscope.snapshots import Snapshot as Taken
from sdyscope.snapshots.blocks import Block, Blocks
from sdyscope.snapshots.compare import NotCompared

Action: TypeAlias = Literal["print", "write", "check", "update", "diff"]


@dataclass(frozen=True, slots=True)
class CellDocument:
    """What one stage says.

    Attributes:
      stage: which.
      partitioner: under which; null where all say the same.
      text: a PartitionSpec, `replicated`, `nothing`, or `=` for what the stage before says.
    """

    stage: Stage
    partitioner: Partitioner | None
    text: str


@dataclass(frozen=True, slots=True)
class ItemDocument:
    """Tensors of which every stage says the same.

    Attributes:
      count: how many they are.
      cells: what each stage says.
    """

    count: int
    cells: tuple[CellDocument, ...]


@dataclass(frozen=True, slots=True)
class TensorDocument:
    """A tensor, or a group of collectives.

    Attributes:
      kind: what it is.
      name: pytree path or scope.
      type: its type and shape.
      over: of a collective what is done over which axes; else empty.
      items: what is said of it.
    """

    kind: str
    name: str
    type: str
    over: str
    items: tuple[ItemDocument, ...]


@dataclass(frozen=True, slots=True)
class ProgramDocument:
    """The snapshot of a program.

    Attributes:
      name: the program's.
      mesh: its meshes in words.
      partitioners: under which.
      stages: which were looked at.
      hardware: what it was compiled for; empty where it was not.
      tensors: what there is, sorted.
    """

    name: str
    mesh: str
    partitioners: tuple[Partitioner, ...]
    stages: tuple[Stage, ...]
    hardware: str
    tensors: tuple[TensorDocument, ...]


@dataclass(frozen=True, slots=True)
class ChangeDocument:
    """What changed of a tensor, or of the same tensor of several layers.

    Attributes:
      what: `changed`, `removed` (only in the snapshot) or `added` (only in the program).
      kind: what it is.
      name: its name, with the numbers of several layers as ranges.
      count: how many layers.
      type_before: its type in the snapshot.
      type_after: its type now.
      over: of a collective what is done over which axes; else empty.
      before: what the snapshot says; nothing where it has none.
      after: what is so now; nothing where the program has none.
    """

    what: Literal["changed", "removed", "added"]
    kind: str
    name: str
    count: int
    type_before: str
    type_after: str
    over: str
    before: tuple[ItemDocument, ...]
    after: tuple[ItemDocument, ...]


@dataclass(frozen=True, slots=True)
class HeaderChange:
    """What is said of the whole program and changed.

    Attributes:
      word: `mesh`, `partitioners` or `hardware`.
      before: in the snapshot.
      after: now.
    """

    word: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class BlockDocument:
    """What a device has of a tensor.

    Attributes:
      type: type and shape of the whole tensor.
      spec: its sharding: a PartitionSpec or `replicated`.
      shape: what of it is on one device, padding included.
      bytes: its bytes.
    """

    type: str
    spec: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class NamedTensorsDocument:
    """One tensor, or the same of several layers.

    Attributes:
      kind: what it is.
      name: its name, with the numbers of several layers as ranges.
      count: how many they are.
    """

    kind: str
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class BlockChangeDocument:
    """Tensors of which a device has another block, all from and to the same.

    Attributes:
      partitioner: under which; null where all say the same.
      same_spec: whether the sharding reads as before, so that only the mesh makes it another block.
      before: what a device had.
      after: what it has.
      tensors: which they are.
    """

    partitioner: Partitioner | None
    same_spec: bool
    before: BlockDocument
    after: BlockDocument
    tensors: tuple[NamedTensorsDocument, ...]


@dataclass(frozen=True, slots=True)
class TotalDocument:
    """What a device has of all arguments, or of all results.

    Attributes:
      kind: which of the two.
      partitioner: under which; null where all say the same.
      before: bytes on the mesh of the snapshot.
      after: bytes on the mesh as it is now.
    """

    kind: Literal["argument", "result"]
    partitioner: Partitioner | None
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class BlocksDocument:
    """What another mesh makes of the tensors of a program.

    Attributes:
      changes: what is in other blocks; arguments first, what changes most bytes before others.
      same: how many tensors are in the same blocks as before.
      unknown: of how many the snapshots do not say it.
      totals: all arguments and all results, where each of them is known.
    """

    changes: tuple[BlockChangeDocument, ...]
    same: int
    unknown: int
    totals: tuple[TotalDocument, ...]


@dataclass(frozen=True, slots=True)
class ComparisonDocument:
    """What changed of one program.

    Attributes:
      name: the program's.
      same: how many tensors and groups of collectives are as they were.
      different: how many are not.
      header: what changed of the whole program.
      changes: what changed of tensors and collectives.
      not_compared: what only the snapshot or only the program has: stages, or memory.
      blocks: on another mesh, what a device has of each tensor; null on the same one, and where a
        mesh is not known by its axes.
    """

    name: str
    same: int
    different: int
    header: tuple[HeaderChange, ...]
    changes: tuple[ChangeDocument, ...]
    not_compared: tuple[NotCompared, ...]
    blocks: BlocksDocument | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What `sdyscope snapshot --json` prints.

    Attributes:
      action: what was done.
      file: the snapshot file; empty where none is named.
      same: whether nothing differs, is missing or is unused.
      programs: the snapshots of the programs as they are now.
      compared: what changed of each program that the file has.
      missing: programs that the file does not have.
      unused: programs that the file has and that were not named.
      written: whether the file was written.
      accounts: what is not known of each program, by name; nothing where all is known.
    """

    schema: Literal["sdyscope.snapshot/3"] = "sdyscope.snapshot/3"
    action: Action
    file: str
    same: bool
    programs: tuple[ProgramDocument, ...]
    compared: tuple[ComparisonDocument, ...] = ()
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    written: bool = False
    accounts: Mapping[str, Account] = field(default_factory=dict)


def document(
    action: Action,
    file: str,
    now: Sequence[Taken],
    compared: Sequence[Comparison] = (),
    missing: Sequence[str] = (),
    unused: Sequence[str] = (),
    *,
    written: bool = False,
    accounts: Mapping[str, Account] | None = None,
) -> Snapshot:
    """The document of what was done."""
    same = all(one.is_same for one in compared) and not missing and not unused
    return Snapshot(
        action=action,
        file=file,
        same=same,
        programs=tuple(map(_program, now)),
        compared=tuple(map(comparison_document, compared)),
        missing=tuple(missing),
        unused=tuple(unused),
        written=written,
        accounts=accounts or {},
    )


def _program(one: Taken) -> ProgramDocument:
    tensors = tuple(
        TensorDocument(key.kind, key.name, key.type, key.over, _items(items))
        for key, items in one.items.items()
    )
    return ProgramDocument(one.name, one.mesh, one.partitioners, one.stages, one.hardware, tensors)


def _items(items: Sequence[Item]) -> tuple[ItemDocument, ...]:
    return tuple(
        ItemDocument(
            item.count,
            tuple(
                CellDocument(cell.stage, cell.partitioner or None, cell.text) for cell in item.cells
            ),
        )
        for item in items
    )


def comparison_document(one: Comparison) -> ComparisonDocument:
    """What changed of one program, as a document."""
    return ComparisonDocument(
        one.name,
        one.same,
        one.different,
        tuple(HeaderChange(*words) for words in one.header),
        tuple(map(_change, one.changes)),
        one.not_compared,
        None if one.blocks is None else _blocks(one.blocks),
    )


def _blocks(blocks: Blocks) -> BlocksDocument:
    changes = (
        BlockChangeDocument(
            one.partitioner or None,
            one.before.spec == one.after.spec,
            _block(one.before),
            _block(one.after),
            tuple(NamedTensorsDocument(each.kind, each.name, each.count) for each in one.tensors),
        )
        for one in blocks.changes
    )
    totals = (
        TotalDocument(one.kind, one.partitioner or None, one.before, one.after)
        for one in blocks.totals
    )
    return BlocksDocument(tuple(changes), blocks.same, blocks.unknown, tuple(totals))


def _block(one: Block) -> BlockDocument:
    return BlockDocument(one.type, one.spec, one.shape, one.bytes)


def _change(one: Change) -> ChangeDocument:
    key: Key = one.key
    return ChangeDocument(
        one.what,
        key.kind,
        one.name,
        one.count,
        key.type,
        one.type_after,
        key.over,
        _items(one.before),
        _items(one.after),
    )
