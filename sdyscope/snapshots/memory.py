"""What a device holds of a compiled program, by top-level argument and result."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sdyscope.analysis.memory.memory import Group, memory_of
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import Item
from sdyscope.hardware.names import Hardware
from sdyscope.snapshots.items import compiled_cells
from sdyscope.snapshots.values import Key
from sdyscope.staged import Staged


def stored(
    staged: Staged, compiled: Collection[Partitioner | None], on: Hardware | str | None
) -> Iterator[tuple[Key, Item]]:
    """Bytes a device of arguments and results, as their shardings make them.

    Temporaries are left out: they are another number with each version of XLA.

    Args:
        staged: the program.
        compiled: under which partitioners it compiled.
        on: what for.

    Raises:
        CompilerError: a compiled module does not say how it stores its parameters.
    """
    texts: dict[Key, dict[Partitioner | None, str]] = {}
    for partitioner in compiled:
        for group in memory_of(staged, partitioner, on).groups:
            key = Key("memory", f"{group.kind} {group.name}")
            texts.setdefault(key, {})[partitioner] = _words(group)
    for key, by_partitioner in texts.items():
        yield key, Item(compiled_cells(by_partitioner, staged.compiled_under))


def _words(group: Group) -> str:
    words = f"a device holds {group.bytes_per_device:,} B"
    if group.replicated:
        words += f", {group.replicated:,} B of it replicated"
    if group.shared and group.kind == "result":
        words += f", {group.shared:,} B of it in arguments' buffers"
    return words
