"""What a device holds of two compiled programs, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.memory.text import TextMemory

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


def memory_rows(
    a: Memory | TextMemory | None, b: Memory | TextMemory | None
) -> tuple[MemoryRow, ...]:
    """Groups of arguments and results, then what the compiler says that a device needs.

    Of texts of compiled programs, arguments and results are all that is known.
    """
    if a is None or b is None:
        return ()
    ours, theirs = _groups(a), _groups(b)
    rows = [MemoryRow(*key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
    rows.sort(key=lambda row: row.kind)
    one, two = _needed(a), _needed(b)
    rows += [
        MemoryRow("total" if name == "in all" else "needed", name, one.get(name), two.get(name))
        for name in {**one, **two}
    ]
    return tuple(rows)


def _groups(memory: Memory | TextMemory) -> dict[tuple[Literal["argument", "result"], str], int]:
    if isinstance(memory, TextMemory):
        return {(group.kind, group.name): group.stored for group in memory.groups}
    return {(group.kind, group.title): group.stored for group in memory.groups}


def _needed(memory: Memory | TextMemory) -> dict[str, int]:
    if isinstance(memory, TextMemory):
        return {"in all": memory.total}
    said = memory.compiled.memory
    if said is None:
        return {}
    return {
        "arguments": said.arguments,
        "results": said.outputs,
        "shared by donation": said.aliases,
        "temporaries": said.temporaries,
        "code": said.generated_code,
        "in all": said.total,
        **({"on the host": said.host} if said.host else {}),
    }
