"""Budgets: what a step may send and a device hold, against what the compiled program does.

Bytes are the compiler's, or counted from its program as ``comms`` and ``memory`` do. Time is no
budget: a compile says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.budget_limits import (
    Budgets,
    CommunicationLimit,
    LimitPath,
    ReplicationLimit,
    Spent,
    Unit,
)
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.memory.held import Held
from sdyscope.analysis.naming.globs import glob
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.findings import Finding, Severity
from sdyscope.facts.program import Partitioner
from sdyscope.values.source import SourceLocation
from sdyscope.words.origins import annotation_text

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


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit under one partitioner: what its findings have in common.

    Attributes:
        path: which limit, by its keys.
        words: what it is about.
        unit: what is counted.
        partitioner: under which the program was compiled.
        allowed: how much may be.
    """

    path: LimitPath
    words: str
    unit: Unit
    partitioner: Partitioner
    allowed: int

    def over(
        self, rule: str, message: str, found: str, see: str, source: SourceLocation | None = None
    ) -> Finding:
        """Too much is used.

        Args:
            rule: the finding's.
            message: how much, and of what.
            found: what it is used for.
            see: which command says more.
            source: the line of what takes most.
        """
        unit = "bytes" if self.unit == "bytes" else "in a step"
        return Finding(
            rule,
            "error",
            f"{message}, and {self.allowed:,} are allowed.",
            tensor=self.words,
            kind="budget",
            source=source,
            partitioner=self.partitioner,
            expected=f"at most {self.allowed:,} {unit}",
            found=found,
            hint=f"If this is meant, allow more; sdyscope {see}.",
        )

    def uncertain(self, message: str, severity: Severity = "warning", hint: str = "") -> Finding:
        """It can't be said for sure how much is used."""
        return Finding(
            "budget-uncertain",
            severity,
            message,
            tensor=self.words,
            kind="budget",
            partitioner=self.partitioner,
            hint=hint,
        )

    def spent(self, used: int | None, *findings: Finding) -> Spent:
        """What is used, with what was found."""
        return Spent(
            self.path, self.words, self.unit, self.partitioner, used, self.allowed, findings
        )


# --- What a step sends ----------------------------------------------------------------------------


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
            bytes_ = _Limit(path, limit.words, "bytes", partitioner, limit.bytes)
            yield _collectives_spent(bytes_, covered, collectives)
        if limit.count is not None:
            path = (*where, "count")
            count = _Limit(path, limit.words, "collectives", partitioner, limit.count)
            yield _collectives_spent(count, covered, collectives)
    if budgets.unlisted is not None:
        rest = [
            one
            for one in collectives.collectives
            if not any(limit.covers(one) for limit in budgets.communication)
        ]
        path = ("unlisted-communication",)
        unlisted = _Limit(path, "unlisted communication", "bytes", partitioner, budgets.unlisted)
        yield _collectives_spent(unlisted, rest, collectives)


_Amount: TypeAlias = tuple[int, Collective, Part]


def _collectives_spent(limit: _Limit, covered: Sequence[Collective], among: Collectives) -> Spent:
    if limit.unit == "bytes":
        used = sum(one.sent for one in covered)
        parts = [(one.count * part.sent, one, part) for one in covered for part in one.parts]
        message, unit = f"A device sends {used:,} bytes in a step", "bytes"
    else:
        used = sum(one.count for one in covered)
        parts = [(one.count, one, one.largest) for one in covered]
        message, unit = f"A step runs {used:,} of them", "times"
    findings = list(_uncertain(limit, covered, among))
    if used > limit.allowed:
        found = "; ".join(_each(parts, unit))
        see = "comms lists every collective"
        findings.append(limit.over("over-communication", message, found, see, _first_source(parts)))
    return limit.spent(used, *findings)


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
            why = " and ".join(dict.fromkeys(map(annotation_text, origins)))
            key = (one.kind, scope or "the program", where, why)
            amounts[key] = amounts.get(key, 0) + amount
    ordered = sorted(amounts.items(), key=lambda item: -item[1])
    for (kind, scope, where, why), amount in ordered[:_NAMED]:
        because = f" (from {why})" if why else ""
        yield f"{amount:,} {unit}: {kind} for {scope}{where}{because}"
    if more := ordered[_NAMED:]:
        yield f"{sum(amount for _, amount in more):,} {unit} for {len(more):,} more"


def _uncertain(
    limit: _Limit, covered: Sequence[Collective], among: Collectives
) -> Iterator[Finding]:
    """What the count is not sure of."""
    unknown = sum(one.unknown_trips for one in covered)
    if unknown:
        yield limit.uncertain(
            f"{unknown:,} of them are in loops that run an unknown number of times: counted once.",
            "note",
        )
    no_axes = sum(one.axes is None for one in covered) if " over " in limit.words else 0
    if no_axes:
        yield limit.uncertain(
            f"{no_axes:,} of them run over no known mesh axes, and count as if over this one.",
            "note",
        )
    if among.not_understood_count:
        unread = f"{among.not_understood_count:,} lines of the compiled program"
        yield limit.uncertain(f"{unread} could not be read, so that more may be sent.")


# --- What a device holds --------------------------------------------------------------------------


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
    for number, allowed in enumerate(budgets.replicated):
        pattern = glob(allowed.tensors)
        members = [one for one in own if pattern.fullmatch(one.name)]
        words = "replicated" + ("" if allowed.tensors == "*" else f" {allowed.tensors}")
        path = ("replicated", number, "bytes")
        limit = _Limit(path, words, "bytes", partitioner, allowed.bytes)
        used = sum(one.replicated for one in members)
        if not members:
            message = f"No argument or result is called {allowed.tensors}, so this limits nothing."
            hint = "sdyscope memory lists arguments and results by name."
            yield limit.spent(used, limit.uncertain(message, hint=hint))
        elif used > allowed.bytes:
            ordered = sorted(members, key=lambda one: -one.replicated)
            named = [_replicated(one) for one in ordered[:_NAMED] if one.replicated]
            message = f"A device holds {used:,} bytes that other devices hold, too"
            see = "memory says what could be sharded further"
            yield limit.spent(used, limit.over("over-replication", message, "; ".join(named), see))
        else:
            yield limit.spent(used)


def _replicated(one: Held) -> str:
    return f"{one.replicated:,} bytes: {one.name}, {one.replicas or 1:,} replicas"


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
        words = "memory" if name == "total" else name
        limit = _Limit(("memory", name), words, "bytes", partitioner, allowed)
        used: int | None = None if memory is None else getattr(memory, name)
        if used is None:
            message = "The compiler of this hardware does not say how much memory a device needs."
            hint = "Leave the limit out for this hardware."
            yield limit.spent(None, limit.uncertain(message, hint=hint))
        elif used > allowed:
            message = f"A device needs {used:,} bytes{_OF[name]}"
            found = _needed(name, memory, held)
            see = "memory has every argument"
            yield limit.spent(used, limit.over("over-memory", message, found, see))
        else:
            yield limit.spent(used)


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
