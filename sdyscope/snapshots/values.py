"""What a snapshot holds: for each tensor or group of collectives, a text a stage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final, Literal, TypeAlias, get_args

from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import Item, Stage

Kind: TypeAlias = Literal[
    "argument",
    "result",
    "constraint",
    "shard_map input",
    "shard_map output",
    "value",
    "collective",
    "memory",
    "not understood",
]
"""``value``: the tensors of one type in one scope; ``collective``: what is communicated for one op;
``memory``: what a device holds of one top-level argument or result; ``not understood``: what a
stage could not read, with how often."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

#: What its author wrote in the program: which of those that share a key is which, its place says.
PLACED: Final[frozenset[Kind]] = frozenset({"constraint", "shard_map input", "shard_map output"})

#: What stands for a sharding that nobody wrote.
NOTHING: Final = "nothing"

_DIGITS = re.compile(r"(\d+)")


@lru_cache(1 << 14)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """What to sort a text by so that ``layer2`` comes before ``layer10``."""
    parts = _DIGITS.split(text)
    return tuple(
        (0, int(part), part) if k % 2 else (1, 0, part) for k, part in enumerate(parts) if part
    )


@dataclass(frozen=True, slots=True)
class Key:
    """What an item is found again by.

    Attributes:
        kind: what it is.
        name: pytree path of an argument or result, else its scope without the program's own name;
            empty at the top of the program.
        type: type and shape of the whole tensor, ``f32[256,512]``; of a collective what one device
            has of it.
        over: of a collective what is done and over which axes, ``all-gather over fsdp=4``.
    """

    kind: Kind
    name: str
    type: str = ""
    over: str = ""

    @property
    def order(self) -> tuple[object, ...]:
        """What to sort by: kinds in their order, numbers in names by size."""
        return (
            KINDS.index(self.kind),
            natural(self.name),
            natural(self.over),
            natural(self.type),
            (self.name, self.over, self.type),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """What a snapshot says of a tensor, or of a group of collectives.

    Attributes:
        kind: what it is.
        name: pytree path or scope.
        type: its type and shape.
        over: of a collective what is done over which axes; else empty.
        items: what is said of it.
    """

    kind: Kind
    name: str
    type: str
    over: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Snapshot:
    """What one program's shardings are.

    Attributes:
        name: the program's.
        mesh: its meshes, ``data=4, model=2``; empty without any.
        partitioners: under which; none of a compiled program's text, which does not say.
        stages: which stages were looked at.
        hardware: what ``compiled`` was compiled for; empty where it was not, and of a text.
        items: all there is, by key; sorted, several under a key where they differ.
        tensors: the same as a list.
        account: what is not known of the program at these stages; nothing of one that is read from
            a file, which does not hold it.
    """

    name: str
    mesh: str
    partitioners: tuple[Partitioner, ...]
    stages: tuple[Stage, ...]
    hardware: str = ""
    items: Mapping[Key, tuple[Item, ...]] = field(default_factory=dict)
    account: Account = field(default_factory=Account, compare=False)

    __document__ = ("name", "mesh", "partitioners", "stages", "hardware", "tensors")

    @property
    def tensors(self) -> tuple[Entry, ...]:
        """All there is, in order."""
        return tuple(
            Entry(key.kind, key.name, key.type, key.over, items)
            for key, items in self.items.items()
        )

    @cached_property
    def count(self) -> int:
        """How many tensors and groups of collectives it has."""
        return sum(item.count for items in self.items.values() for item in items)

    def __str__(self) -> str:
        """As its file would hold it."""
        from sdyscope.snapshots.write import write

        return write((self,))

    def at(self, stages: tuple[Stage, ...]) -> Snapshot:
        """The same with some of its stages only."""
        from sdyscope.snapshots.items import reduced

        return reduced(self, stages)
