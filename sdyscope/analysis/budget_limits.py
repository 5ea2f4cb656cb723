"""Budgets as values: limits of what a step may send and a device hold, and what of them is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.bytes import CollectiveKind
from sdyscope.analysis.collectives.totals import Collective
from sdyscope.facts.findings import Observation
from sdyscope.facts.program import Partitioner

__all__ = ["Budgets", "CommunicationLimit", "LimitPath", "ReplicationLimit", "Spent", "Unit"]

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
    def words(self) -> str:
        """``all-gather over model``."""
        over = f" over {self.axis}" if self.axis else ""
        return f"{self.kind or 'collectives'}{over}"

    def covers(self, one: Collective) -> bool:
        """Whether a collective counts; one that runs over no known axes counts to all axes."""
        if self.kind is not None and one.kind != self.kind:
            return False
        return not self.axis or one.axes is None or any(axis.name == self.axis for axis in one.axes)


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
        unlisted: bytes that a device may send in a step for collectives that none of these covers.
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
        words: what it is about: ``all-gather over model``.
        unit: what is counted.
        partitioner: under which.
        used: how much; None where the compiler does not say.
        allowed: how much may be.
        findings: that it is too much, or what of it is not known.
    """

    limit: LimitPath
    words: str
    unit: Unit
    partitioner: Partitioner
    used: int | None
    allowed: int
    findings: tuple[Observation, ...] = ()
