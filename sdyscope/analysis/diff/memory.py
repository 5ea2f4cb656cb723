"""What a device holds of two compiled programs, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.memory.memory import Memory

__all__ = ["MemoryKind", "MemoryRow", "memory_rows"]

MemoryKind: TypeAlias = Literal["argument", "result", "needed", "total"]
"""``argument`` and ``result``: a group of tensors, as the hardware stores them; ``needed``: a part
of what the compiler says a device needs; ``total``: all of that."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes a device on both sides.

    Of two texts ``total`` is what arguments and results take.

    Attributes:
        kind: what they are.
        name: the group, or the part of what a device needs.
        a: bytes in the first program; None where it has no such group.
        b: bytes in the second.
    """

    kind: MemoryKind
    name: str
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
    one, two = _needed(a, texts), _needed(b, texts)
    rows += [
        MemoryRow("total" if name == "total" else "needed", name, one.get(name), two.get(name))
        for name in {**one, **two}
    ]
    return tuple(rows)


def _groups(memory: Memory, texts: bool) -> dict[tuple[Literal["argument", "result"], str], int]:
    found: Counter[tuple[Literal["argument", "result"], str]] = Counter()
    for group in memory.groups:
        name = "results" if texts and group.kind == "result" else group.title
        found[group.kind, name] += group.stored
    return dict(found)


def _needed(memory: Memory, texts: bool) -> dict[str, int]:
    if texts:
        return {"total": memory.stored}
    said = memory.compiled.memory
    if said is None:
        return {}
    return {
        "arguments": said.arguments,
        "results": said.outputs,
        "shared by donation": said.aliases,
        "temporaries": said.temporaries,
        "code": said.generated_code,
        "total": said.total,
        **({"on the host": said.host} if said.host else {}),
    }
