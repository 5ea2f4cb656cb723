"""Budgets: what a step may send and a device hold, against what the compiled program does.

Bytes are the compiler's, or counted from its program as ``comms`` and ``memory`` do. Time is no
budget: a compile says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.globs import glob
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.findings import (
    Amount,
    BudgetSubject,
    CountedOnce,
    Fact,
    MemoryLimit,
    NoMemoryAnalysis,
    NoSuchTensor,
    Observation,
    OverCommunication,
    OverMemory,
    OverReplication,
    OverUnknownAxes,
    Severity,
    UnreadLines,
)
from sdyscope.facts.memory import SUMMANDS, Held, MemoryPart
from sdyscope.facts.program import Partitioner
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.values.source import SourceLocation

Unit: TypeAlias = Literal["bytes", "collectives"]

LimitPath: TypeAlias = tuple[str | int, ...]
"""Which limit, by the keys that it is written under: ``("communication", 0, "bytes")``."""


@dataclass(frozen=True, slots=True)
class CommunicationLimit:
    """What some of the collectives of a step may come to.

    Attributes:
        kind: those of this kind; None for any.
        axis: those that run over this mesh axis, alone or with others; empty for any.
        bytes: how many bytes a device may send for them in a step; None for any number.
        count: how many of them a step may run; None likewise.
    """

    kind: CollectiveKind | None = None
    axis: str = ""
    bytes: int | None = None
    count: int | None = None

    @property
    def subject(self) -> BudgetSubject:
        """What it is about."""
        return BudgetSubject("collectives", self.kind or "", self.axis)

    def covers(self, collective: Collective) -> bool:
        """Whether a collective counts; one that runs over no known axes counts to all axes."""
        is_of_kind = self.kind is None or collective.kind == self.kind
        return is_of_kind and (
            not self.axis
            or collective.axes is None
            or any(axis.name == self.axis for axis in collective.axes)
        )

    def surely_covers(self, collective: Collective) -> bool:
        """Whether it counts and, for an axis, is known to run over that."""
        is_known = not self.axis or collective.axes is not None
        return is_known and self.covers(collective)


@dataclass(frozen=True, slots=True)
class ReplicationLimit:
    """How many bytes a device may hold of some tensors that other devices hold, too.

    Attributes:
        tensors: a glob of the names of arguments and results.
        bytes: how many.
    """

    tensors: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """What one target may come to, on each device. None is any number.

    Attributes:
        communication: limits of collectives.
        unlisted: bytes that a device may send in a step for collectives that none of these surely
            covers.
        replicated: limits of what is held more than once.
        arguments: bytes of arguments.
        temporaries: bytes that the program needs besides, at its largest.
        total: bytes that a device needs in all.
    """

    communication: tuple[CommunicationLimit, ...] = ()
    unlisted: int | None = None
    replicated: tuple[ReplicationLimit, ...] = ()
    arguments: int | None = None
    temporaries: int | None = None
    total: int | None = None

    @property
    def limits_communication(self) -> bool:
        """Whether collectives need to be looked at."""
        return bool(self.communication) or self.unlisted is not None

    @property
    def limits_memory(self) -> bool:
        """Whether what a device holds needs to be looked at."""
        limits = (self.arguments, self.temporaries, self.total)
        return bool(self.replicated) or any(limit is not None for limit in limits)


@dataclass(frozen=True, slots=True)
class Spent:
    """How much of one limit a program takes.

    Attributes:
        limit: which limit.
        subject: what it is about.
        unit: what is counted.
        partitioner: under which; None for a compiled program's text.
        used: how much; None where the compiler does not say.
        allowed: how much may be.
        findings: that it is too much, or what of it is not known.
    """

    limit: LimitPath
    subject: BudgetSubject
    unit: Unit
    partitioner: Partitioner | None
    used: int | None
    allowed: int
    findings: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit under one partitioner: what its findings have in common.

    Attributes:
        path: which limit, by its keys.
        subject: what it is about.
        unit: what is counted.
        partitioner: under which the program was compiled.
        allowed: how much may be.
    """

    path: LimitPath
    subject: BudgetSubject
    unit: Unit
    partitioner: Partitioner | None
    allowed: int

    def over(self, rule: str, fact: Fact, source: SourceLocation | None = None) -> Observation:
        """Too much is used.

        Args:
            rule: the observation's.
            fact: how much, and of what.
            source: the line of what takes most.
        """
        return Observation(
            rule,
            "error",
            fact,
            source=source,
            partitioner=self.partitioner,
            budget=self.subject,
        )

    def uncertain(self, fact: Fact, severity: Severity = "warning") -> Observation:
        """It can't be said for sure how much is used."""
        return Observation(
            "budget-uncertain",
            severity,
            fact,
            partitioner=self.partitioner,
            budget=self.subject,
        )

    def spent(self, used: int | None, *findings: Observation) -> Spent:
        """What is used, with what was found."""
        return Spent(
            self.path, self.subject, self.unit, self.partitioner, used, self.allowed, findings
        )


# --- What a step sends ----------------------------------------------------------------------------


def communication_spent(
    budgets: Budgets,
    collectives: Collectives,
    partitioner: Partitioner | None,
    *,
    strict: bool = True,
) -> Iterator[Spent]:
    """What the collectives of a step come to, by limit.

    Args:
        budgets: the limits.
        collectives: the collectives; with origins, a finding says why they are there.
        partitioner: under which the program was compiled.
        strict: whether a limit that may be exceeded is more than worth a note.
    """
    spent = partial(_collectives_spent, among=collectives, strict=strict)
    for number, limit in enumerate(budgets.communication):
        covered = [collective for collective in collectives.collectives if limit.covers(collective)]
        where: LimitPath = ("communication", number)
        if limit.bytes is not None:
            path = (*where, "bytes")
            bytes_ = _Limit(path, limit.subject, "bytes", partitioner, limit.bytes)
            yield spent(bytes_, covered)
        if limit.count is not None:
            path = (*where, "count")
            count = _Limit(path, limit.subject, "collectives", partitioner, limit.count)
            yield spent(count, covered)
    if budgets.unlisted is not None:
        rest = [
            collective
            for collective in collectives.collectives
            if not any(limit.surely_covers(collective) for limit in budgets.communication)
        ]
        subject = BudgetSubject("unlisted")
        path = ("unlisted-communication",)
        unlisted = _Limit(path, subject, "bytes", partitioner, budgets.unlisted)
        yield spent(unlisted, rest)


_Amount: TypeAlias = tuple[int, Collective, Part]


def _collectives_spent(
    limit: _Limit, covered: Sequence[Collective], among: Collectives, *, strict: bool
) -> Spent:
    if limit.unit == "bytes":
        used = sum(collective.sent for collective in covered)
        parts = [
            (collective.count * part.sent, collective, part)
            for collective in covered
            for part in collective.parts
        ]
    else:
        used = sum(collective.count for collective in covered)
        parts = [(collective.count, collective, collective.largest) for collective in covered]
    findings = list(_uncertain(limit, covered, among, strict=strict))
    if used > limit.allowed:
        fact = OverCommunication(limit.unit, used, limit.allowed, tuple(_amounts(parts)))
        findings.append(limit.over("over-communication", fact, _first_source(parts)))
    return limit.spent(used, *findings)


def _first_source(parts: Iterable[_Amount]) -> SourceLocation | None:
    """The line of what takes most, or of the next that has one."""
    ordered = sorted(parts, key=lambda part: -part[0])
    return next((part.source for _, _, part in ordered if part.source is not None), None)


def _amounts(parts: Sequence[_Amount]) -> list[Amount]:
    """What it is used for, by place and by why it is there, the most first."""
    amounts: dict[tuple[object, ...], Amount] = {}
    for amount, collective, part in parts:
        if amount:
            why = tuple(dict.fromkeys(annotation.written() for annotation in part.annotations))
            key = (collective.kind, part.path, str(part.source), tuple(each.key for each in why))
            before = amounts.get(key, Amount(0, collective.kind, part.path, part.source, why))
            amounts[key] = replace(before, amount=before.amount + amount)
    return sorted(amounts.values(), key=lambda amount: -amount.amount)


def _uncertain(
    limit: _Limit, covered: Sequence[Collective], among: Collectives, *, strict: bool
) -> Iterator[Observation]:
    """What the count is not sure of."""
    severity: Severity = "warning" if strict else "note"
    unknown = sum(collective.unknown_trips for collective in covered)
    if unknown:
        yield limit.uncertain(CountedOnce(unknown), severity)
    # What runs over no known axes may be over one that is listed.
    is_by_axis = bool(limit.subject.axis) or limit.subject.what == "unlisted"
    no_axes = sum(collective.axes is None for collective in covered) if is_by_axis else 0
    if no_axes:
        # They are counted in, whatever they run over: no more than this is used.
        yield limit.uncertain(OverUnknownAxes(no_axes), "note")
    if among.not_understood_count:
        yield limit.uncertain(UnreadLines(among.not_understood_count))


# --- What a device holds --------------------------------------------------------------------------


def replication_spent(
    budgets: Budgets, held: Sequence[Held], partitioner: Partitioner | None
) -> Iterator[Spent]:
    """What a device holds that others hold, too: arguments, and results with memory of their own.

    Args:
        budgets: the limits.
        held: what a device holds.
        partitioner: under which the program was compiled.
    """
    own = [tensor for tensor in held if tensor.kind == "argument" or not tensor.shares]
    for number, allowed in enumerate(budgets.replicated):
        pattern = glob(allowed.tensors)
        members = [tensor for tensor in own if pattern.fullmatch(tensor.name)]
        subject = BudgetSubject("replicated", tensors=allowed.tensors)
        path = ("replicated", number, "bytes")
        limit = _Limit(path, subject, "bytes", partitioner, allowed.bytes)
        used = sum(member.replicated for member in members)
        if not members:
            yield limit.spent(used, limit.uncertain(NoSuchTensor(allowed.tensors)))
        elif used > allowed.bytes:
            ordered = sorted(members, key=lambda member: -member.replicated)
            tensors = tuple(
                (tensor.name, tensor.replicated, tensor.replicas or 1)
                for tensor in ordered
                if tensor.replicated
            )
            fact = OverReplication(used, allowed.bytes, tensors)
            yield limit.spent(used, limit.over("over-replication", fact))
        else:
            yield limit.spent(used)


def memory_spent(
    budgets: Budgets,
    memory: MemoryAnalysis | None,
    held: Sequence[Held],
    partitioner: Partitioner | None,
) -> Iterator[Spent]:
    """What the compiler says that a device needs.

    Args:
        budgets: the limits.
        memory: the compiler's own count; None where it says nothing.
        held: what a device holds.
        partitioner: under which the program was compiled.
    """
    limits: Mapping[MemoryLimit, int | None] = {
        "arguments": budgets.arguments,
        "temporaries": budgets.temporaries,
        "total": budgets.total,
    }
    for name, allowed in limits.items():
        if allowed is None:
            continue
        subject = BudgetSubject(name)
        limit = _Limit(("memory", name), subject, "bytes", partitioner, allowed)
        used: int | None = None if memory is None else getattr(memory, name)
        if used is None:
            yield limit.spent(None, limit.uncertain(NoMemoryAnalysis()))
        elif used > allowed:
            fact = OverMemory(name, used, allowed, tuple(_needed(name, memory, held)))
            yield limit.spent(used, limit.over("over-memory", fact))
        else:
            yield limit.spent(used)


def _needed(
    name: MemoryLimit, memory: MemoryAnalysis | None, held: Sequence[Held]
) -> list[tuple[str | MemoryPart, int]]:
    """What the memory is for, as far as is known."""
    if name == "arguments":
        arguments = [tensor for tensor in held if tensor.kind == "argument"]
        arguments.sort(key=lambda argument: -argument.stored.bytes)
        return [(argument.name, argument.stored.bytes) for argument in arguments]
    if name == "temporaries" or memory is None:
        return []
    return [(part, memory.part(part)) for part in SUMMANDS if memory.part(part)]
