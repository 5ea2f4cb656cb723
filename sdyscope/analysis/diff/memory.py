"""What a device holds of two compiled programs, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from sdyscope.analysis.memory.memory import Memory
from sdyscope.facts.differences import MemoryRow
from sdyscope.facts.memory import GroupName, MemoryPart


def memory_rows(a: Memory | None, b: Memory | None) -> tuple[MemoryRow, ...]:
    """Groups of arguments and results, then what the compiler says that a device needs.

    Where one side is a compiled program's text, arguments and results are all that is known, and
    results have no names.
    """
    if a is None or b is None:
        return ()
    texts = a.is_text or b.is_text
    ours, theirs = _groups(a, texts), _groups(b, texts)
    rows = [MemoryRow(*key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
    rows.sort(key=lambda row: row.kind)
    needed_a, needed_b = _needed(a, texts), _needed(b, texts)
    rows += [
        MemoryRow(
            "total" if part is MemoryPart.TOTAL else "needed",
            part,
            needed_a.get(part),
            needed_b.get(part),
        )
        for part in {**needed_a, **needed_b}
    ]
    return tuple(rows)


def aliases(rows: Iterable[MemoryRow]) -> int:
    """Bytes of results in the buffers of donated arguments, on both sides."""
    return sum((row.a or 0) + (row.b or 0) for row in rows if row.name is MemoryPart.ALIASES)


_GroupKey: TypeAlias = tuple[Literal["argument", "result"], GroupName | MemoryPart]


def _groups(memory: Memory, texts: bool) -> dict[_GroupKey, int]:
    held: Counter[_GroupKey] = Counter()
    for group in memory.groups:
        of_text = texts and group.kind == "result"
        held[group.kind, MemoryPart.RESULTS if of_text else group.title] += group.stored
    return dict(held)


def _needed(memory: Memory, texts: bool) -> dict[MemoryPart, int]:
    if texts:
        return {MemoryPart.TOTAL: memory.stored}
    analysis = memory.compiled.memory
    if analysis is None:
        return {}
    counts = {part: analysis.part(part) for part in MemoryPart}
    return {part: count for part, count in counts.items() if count or part is not MemoryPart.HOST}
