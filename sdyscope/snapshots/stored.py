"""What a device holds of a compiled program, by top-level argument and result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sdyscope.analysis.memory.memory import Group, memory
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner
from sdyscope.snapshots.values import Item, Key, StageText
from sdyscope.staged import Staged

__all__ = ["stored"]


def stored(staged: Staged, made: Mapping[Partitioner, Compiled]) -> Iterator[tuple[Key, Item]]:
    """Bytes a device of arguments and results, as their shardings make them.

    Temporaries are left out: they are another number with each version of XLA.

    Args:
        staged: the program.
        made: it compiled.

    Raises:
        CompilerError: a compiled module does not say how it stores its parameters.
    """
    texts: dict[Key, dict[Partitioner, str]] = {}
    for partitioner, compiled in made.items():
        found = memory(staged.tensors, compiled, staged.only_mesh(partitioner))
        for group in found.groups:
            key = Key("memory", f"{group.kind} {group.name}")
            texts.setdefault(key, {})[partitioner] = _words(group)
    for key, by_partitioner in texts.items():
        if len(by_partitioner) == len(made) and len(set(by_partitioner.values())) == 1:
            yield key, Item((StageText("compiled", next(iter(by_partitioner.values()))),))
        else:
            cells = tuple(StageText("compiled", text, one) for one, text in by_partitioner.items())
            yield key, Item(cells)


def _words(group: Group) -> str:
    words = f"a device holds {group.bytes_per_device:,} B"
    if group.replicated:
        words += f", {group.replicated:,} B of it copies"
    if group.shared and group.kind == "result":
        words += f", {group.shared:,} B of it in arguments' buffers"
    return words
