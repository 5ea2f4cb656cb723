"""What a device holds of two compiled programs, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.memory.memory import Memory
from sdyscope.facts.memory import GroupName, MemoryPart

MemoryKind: TypeAlias = Literal["argument", "result", "needed", "total"]
"""``argument`` and ``result``: a group of tensors, as the hardware stores them; ``needed``: a part
of what the compiler says a device needs; ``total``: all of that."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes a device on both sides.

    Of two texts ``total`` is what arguments and results take.

    Attributes:
        kind: what they are.
        name: the group, the part of what a device needs, or all results of a text.
        a: bytes in the first program; None where it has no such group.
        b: bytes in the second.
    """

    kind: MemoryKind
    name: GroupName | MemoryPart
    a: int | None
    b: int | None

    @property
    def differs(self) -> bool:
        """Whether the bytes are not the same."""
        return self.a != self.b


def memory_rows(a: Memory | None, b: Memory | None) -> tuple[MemoryRow, ...]:
    """Groups of arguments and results, then what the compiler says that a device needs.

    Where one side is a compiled program's text, arguments and results are all that is known, and
    results have no names.
    """
    if a is None or b is None:
        return ()
    texts = a.hardware is None or b.hardware is None
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
