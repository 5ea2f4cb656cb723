"""Budgets: what a step may send and a device hold, against what the compiled program does.

Bytes are the compiler's, or counted from its program as ``comms`` and ``memory`` do. Time is no
budget: a compile says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from sdyscope.analysis.budget_limits import (
    Budgets,
    CommunicationLimit,
    LimitPath,
    ReplicationLimit,
    Spent,
    Unit,
)
from sdyscope.analysis.collective_totals import Collective, Collectives, Part
from sdyscope.analysis.globs import glob
from sdyscope.analysis.memory_held import Held
from sdyscope.findings import Finding, Severity
from sdyscope.partitioned import MemoryAnalysis
from sdyscope.program import Partitioner
from sdyscope.source import SourceLocation

__all__ = [
    "Budgets",
    "CommunicationLimit",
    "LimitPath",
    "ReplicationLimit",
    "Spent",
    "Unit",
    "communication_spent",
    "memory_spent",
    "replication_spent",
]

#: How many of what a budget was spent on a finding names.
_NAMED = 3


def communication_spent(
    budgets: Budgets, collectives: Collectives, partitioner: Partitioner
) -> Iterator[Spent]:
    """What the collectives of a step come to, by limit.

    Args:
        budgets: the limits.
        collectives: the collectives; with origins, a finding says why they are there.
        partitioner: under which the program was compiled.
    """
    for number, limit in enumerate(budgets.communication):
        covered = [one for one in collectives.collectives if limit.covers(one)]
        where: LimitPath = ("communication", number)
        if limit.bytes is not None:
            path = (*where, "bytes")
            yield _sent(path, limit.words, covered, limit.bytes, collectives, partitioner)
        if limit.count is not None:
            path = (*where, "count")
            yield _run(path, limit.words, covered, limit.count, collectives, partitioner)
    if budgets.unlisted is not None:
        rest = [
            one
            for one in collectives.collectives
            if not any(limit.covers(one) for limit in budgets.communication)
        ]
        path = ("unlisted-communication",)
        words = "unlisted communication"
        yield _sent(path, words, rest, budgets.unlisted, collectives, partitioner)


def _sent(
    path: LimitPath,
    words: str,
    covered: Sequence[Collective],
    allowed: int,
    among: Collectives,
    partitioner: Partitioner,
) -> Spent:
    used = sum(one.sent for one in covered)
    findings = _uncertain(words, covered, among, partitioner)
    if used > allowed:
        parts = [(one.count * part.sent, one, part) for one in covered for part in one.parts]
        findings.append(
            Finding(
                "over-communication",
                "error",
                f"A device sends {used:,} bytes in a step, and {allowed:,} are allowed.",
                tensor=words,
                kind="budget",
                source=_first_source(parts),
                partitioner=partitioner,
                expected=f"at most {allowed:,} bytes",
                found="; ".join(_each(parts, "bytes")),
                hint="If this is meant, allow more; sdyscope comms lists every collective.",
            )
        )
    return Spent(path, words, "bytes", partitioner, used, allowed, tuple(findings))


def _run(
    path: LimitPath,
    words: str,
    covered: Sequence[Collective],
    allowed: int,
    among: Collectives,
    partitioner: Partitioner,
) -> Spent:
    used = sum(one.count for one in covered)
    findings = _uncertain(words, covered, among, partitioner)
    if used > allowed:
        parts = [(one.count, one, one.largest) for one in covered]
        findings.append(
            Finding(
                "over-communication",
                "error",
                f"A step runs {used:,} of them, and {allowed:,} are allowed.",
                tensor=words,
                kind="budget",
                source=_first_source(parts),
                partitioner=partitioner,
                expected=f"at most {allowed:,} in a step",
                found="; ".join(_each(parts, "times")),
                hint="If this is meant, allow more; sdyscope comms lists every collective.",
            )
        )
    return Spent(path, words, "collectives", partitioner, used, allowed, tuple(findings))


_Amount: TypeAlias = tuple[int, Collective, Part]


def _first_source(parts: Iterable[_Amount]) -> SourceLocation | None:
    """The line of what takes most, or of the next that has one."""
    ordered = sorted(parts, key=lambda each: -each[0])
    return next((part.source for _, _, part in ordered if part.source is not None), None)


def _each(parts: Sequence[_Amount], unit: str) -> Iterator[str]:
    """What takes most, each with its place and, where it is known, why it is there."""
    amounts: dict[tuple[str, str, str, str], int] = {}
    for amount, one, part in parts:
        if amount:
            scope = "/".join(word for word in (part.scope, part.primitive) if word)
            where = f" at {part.source}" if part.source is not None else ""
            origins = part.origin.annotations if part.origin is not None else ()
            why = " and ".join(dict.fromkeys(origin.written().words for origin in origins))
            key = (one.kind, scope or "the program", where, why)
            amounts[key] = amounts.get(key, 0) + amount
    ordered = sorted(amounts.items(), key=lambda item: -item[1])
    for (kind, scope, where, why), amount in ordered[:_NAMED]:
        because = f" (from {why})" if why else ""
        yield f"{amount:,} {unit}: {kind} for {scope}{where}{because}"
    if more := ordered[_NAMED:]:
        yield f"{sum(amount for _, amount in more):,} {unit} for {len(more):,} more"


def _uncertain(
    words: str, covered: Sequence[Collective], among: Collectives, partitioner: Partitioner
) -> list[Finding]:
    """What the count is not sure of."""
    found: list[Finding] = []

    def note(message: str, severity: Severity = "note") -> None:
        found.append(
            Finding(
                "budget-uncertain",
                severity,
                message,
                tensor=words,
                kind="budget",
                partitioner=partitioner,
            )
        )

    unknown = sum(one.unknown_trips for one in covered)
    if unknown:
        note(f"{unknown:,} of them are in loops that run an unknown number of times: counted once.")
    no_axes = sum(one.axes is None for one in covered) if " over " in words else 0
    if no_axes:
        note(f"{no_axes:,} of them run over no known mesh axes, and count as if over this one.")
    if among.not_understood_count:
        unread = f"{among.not_understood_count:,} lines of the compiled program"
        note(f"{unread} could not be read, so that more may be sent.", "warning")
    return found


def replication_spent(
    budgets: Budgets, held: Sequence[Held], partitioner: Partitioner
) -> Iterator[Spent]:
    """What a device holds that others hold, too: arguments, and results with memory of their own.

    Args:
        budgets: the limits.
        held: what a device holds.
        partitioner: under which the program was compiled.
    """
    own = [one for one in held if one.kind == "argument" or not one.shares]
    for number, limit in enumerate(budgets.replicated):
        pattern = glob(limit.tensors)
        members = [one for one in own if pattern.fullmatch(one.name)]
        words = "replicated" + ("" if limit.tensors == "*" else f" {limit.tensors}")
        used = sum(one.replicated for one in members)
        findings: list[Finding] = []
        if not members:
            findings.append(
                Finding(
                    "budget-uncertain",
                    "warning",
                    f"No argument or result is called {limit.tensors}, so this limits nothing.",
                    tensor=words,
                    kind="budget",
                    partitioner=partitioner,
                    hint="sdyscope memory lists arguments and results by name.",
                )
            )
        if used > limit.bytes:
            ordered = sorted(members, key=lambda one: -one.replicated)
            named = [_replicated(one) for one in ordered[:_NAMED] if one.replicated]
            findings.append(
                Finding(
                    "over-replication",
                    "error",
                    f"A device holds {used:,} bytes that other devices hold, too, and "
                    f"{limit.bytes:,} are allowed.",
                    tensor=words,
                    kind="budget",
                    partitioner=partitioner,
                    expected=f"at most {limit.bytes:,} bytes",
                    found="; ".join(named),
                    hint="If this is meant, allow more; sdyscope memory says what could be "
                    "sharded further.",
                )
            )
        path = ("replicated", number, "bytes")
        yield Spent(path, words, "bytes", partitioner, used, limit.bytes, tuple(findings))


def _replicated(one: Held) -> str:
    return f"{one.replicated:,} bytes: {one.name}, {one.copies or 1:,} copies"


def memory_spent(
    budgets: Budgets,
    memory: MemoryAnalysis | None,
    held: Sequence[Held],
    partitioner: Partitioner,
) -> Iterator[Spent]:
    """What the compiler says that a device needs.

    Args:
        budgets: the limits.
        memory: the compiler's own count; None where it says nothing.
        held: what a device holds.
        partitioner: under which the program was compiled.
    """
    limits = {
        "arguments": budgets.arguments,
        "temporaries": budgets.temporaries,
        "total": budgets.total,
    }
    for name, allowed in limits.items():
        if allowed is None:
            continue
        used: int | None = None if memory is None else getattr(memory, name)
        words = "memory" if name == "total" else name
        findings: tuple[Finding, ...] = ()
        if used is None:
            findings = (
                Finding(
                    "budget-uncertain",
                    "warning",
                    "The compiler of this hardware does not say how much memory a device needs.",
                    tensor=words,
                    kind="budget",
                    partitioner=partitioner,
                    hint="Leave the limit out for this hardware.",
                ),
            )
        elif used > allowed:
            findings = (
                Finding(
                    "over-memory",
                    "error",
                    f"A device needs {used:,} bytes{_OF[name]}, and {allowed:,} are allowed.",
                    tensor=words,
                    kind="budget",
                    partitioner=partitioner,
                    expected=f"at most {allowed:,} bytes",
                    found=_needed(name, memory, held),
                    hint="If this is meant, allow more; sdyscope memory has every argument.",
                ),
            )
        yield Spent(("memory", name), words, "bytes", partitioner, used, allowed, findings)


_OF = {"arguments": " of arguments", "temporaries": " of temporaries", "total": ""}


def _needed(name: str, memory: MemoryAnalysis | None, held: Sequence[Held]) -> str:
    """What the memory is for, as far as is known."""
    if name == "arguments":
        arguments = [one for one in held if one.kind == "argument"]
        arguments.sort(key=lambda one: -one.stored.bytes)
        return "; ".join(f"{one.stored.bytes:,} bytes: {one.name}" for one in arguments[:_NAMED])
    if name == "temporaries" or memory is None:
        return ""
    parts = {
        "arguments": memory.arguments,
        "results beside them": memory.outputs - memory.aliases,
        "temporaries": memory.temporaries,
        "code": memory.generated_code,
    }
    return "; ".join(f"{size:,} bytes: {what}" for what, size in parts.items() if size)
