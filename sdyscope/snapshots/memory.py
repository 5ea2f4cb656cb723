"""What a device holds of a compiled program, by top-level argument and result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sdyscope.analysis.memory.memory import Group, memory
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import Item
from sdyscope.snapshots.items import compiled_cells
from sdyscope.snapshots.values import Key
from sdyscope.staged import Staged


def stored(
    staged: Staged,
    compiled: Mapping[Partitioner, Compiled],
    partitioners: Collection[Partitioner],
) -> Iterator[tuple[Key, Item]]:
    """Bytes a device of arguments and results, as their shardings make them.

    Temporaries are left out: they are another number with each version of XLA.

    Args:
        staged: the program.
        compiled: it compiled.
        partitioners: those of the snapshot, compiled or not.

    Raises:
        CompilerError: a compiled module does not say how it stores its parameters.
    """
    texts: dict[Key, dict[Partitioner, str]] = {}
    for partitioner, program in compiled.items():
        for group in memory(staged.tensors, program, staged.only_mesh(partitioner)).groups:
            key = Key("memory", f"{group.kind} {group.name}")
            texts.setdefault(key, {})[partitioner] = _words(group)
    for key, by_partitioner in texts.items():
        yield key, Item(compiled_cells(by_partitioner, partitioners))


def _words(group: Group) -> str:
    words = f"a device holds {group.bytes_per_device:,} B"
    if group.replicated:
        words += f", {group.replicated:,} B of it replicated"
    if group.shared and group.kind == "result":
        words += f", {group.shared:,} B of it in arguments' buffers"
    return words
