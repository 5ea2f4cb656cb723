"""What a device holds of two compiled programs: arguments and results, and bytes side by side.

Where a program does not say how an argument or result is sharded, as the text of one does not of
results, it is not compared, unless what a device holds of it already differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias

from sdyscope.analysis.memory.memory import Held, HeldKind, Memory
from sdyscope.facts.differences import Entries, EntryChange, EntryDifference, MemoryRow, NotCompared
from sdyscope.facts.memory import GroupName, MemoryPart


def compared_entries(a: Memory, b: Memory, *, by_name: bool) -> Entries:
    """Compares arguments and results, each by where the compilers say that it is.

    Args:
        a: what a device holds of the first program.
        b: of the second.
        by_name: the two are different programs, whose arguments and results are the same when
            their pytree paths are; otherwise when their numbers are.
    """
    same = 0
    # Other hardware has other layouts, and a text alone says nothing of donation.
    is_stored_alike = a.hardware == b.hardware
    # Where more is donated on one side, its memory says so, of all at once.
    is_as_much_donated = is_stored_alike and _donated(a) == _donated(b)
    different: list[EntryDifference] = []
    unknown: dict[tuple[HeldKind, Literal["a", "b", ""]], list[str]] = {}
    for ours, theirs in _pairs(a, b, by_name=by_name):
        own = ours or theirs
        assert own is not None
        change = _change(ours, theirs)
        if change is None and ours is not None and theirs is not None and is_stored_alike:
            change = _stored_change(ours, theirs, buffers=is_as_much_donated)
        if change is not None:
            name = theirs.name if _is_unnamed(own) and theirs is not None else own.name
            different.append(EntryDifference(own.kind, name, change, ours, theirs))
        elif ours is not None and theirs is not None and ours.placement and theirs.placement:
            same += 1
        elif ours is not None and theirs is not None:
            side: Literal["a", "b", ""] = "b" if ours.placement else "a" if theirs.placement else ""
            name = theirs.name if _is_unnamed(ours) else ours.name
            unknown.setdefault((own.kind, side), []).append(name)
    missing = tuple(
        NotCompared(kind, tuple(names), side) for (kind, side), names in unknown.items()
    )
    return Entries(same, tuple(different), missing)


def _change(held: Held | None, other: Held | None) -> EntryChange | None:
    """What is not the same; None where nothing is known to differ."""
    if held is None or other is None:
        return "only in a" if other is None else "only in b"
    known = held.placement is not None and other.placement is not None
    if known and held.placement != other.placement:
        return "sharding"
    whole = held.shape, other.shape
    if held.stored.dtype != other.stored.dtype or (None not in whole and whole[0] != whole[1]):
        return "type"
    return "sharding" if held.stored.shape != other.stored.shape else None


def _stored_change(held: Held, other: Held, *, buffers: bool) -> EntryChange | None:
    """What is not the same of how a device stores an argument or result that is sharded alike."""
    if held.stored.memory_space != other.stored.memory_space:
        return "memory"
    if held.stored.layout != other.stored.layout:
        return "layout"
    if not buffers:
        return None
    return "buffer" if (held.shares, held.donated) != (other.shares, other.donated) else None


def _donated(memory: Memory) -> int:
    """Bytes of results that lie in arguments' buffers."""
    return sum(group.shared for group in memory.groups if group.kind == "result")


def _pairs(a: Memory, b: Memory, *, by_name: bool) -> Iterator[tuple[Held | None, Held | None]]:
    theirs = {_key(tensor, by_name): tensor for tensor in b.tensors}
    alone: list[Held] = []
    for tensor in a.tensors:
        partner = theirs.pop(_key(tensor, by_name), None)
        if partner is None:
            alone.append(tensor)
        else:
            yield tensor, partner
    # A compiled program's text names no results: there the number is all that is known.
    numbered = {(tensor.kind, tensor.number): tensor for tensor in theirs.values()}
    for ours in alone:
        partner = numbered.get((ours.kind, ours.number))
        if partner is not None and (_is_unnamed(ours) or _is_unnamed(partner)):
            del numbered[ours.kind, ours.number]
            yield ours, partner
        else:
            yield ours, None
    for tensor in numbered.values():
        yield None, tensor


def _key(held: Held, by_name: bool) -> tuple[object, ...]:
    return (held.kind, held.name) if by_name else (held.kind, held.number)


def _is_unnamed(held: Held) -> bool:
    return held.name == f"{held.kind} {held.number}"


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
