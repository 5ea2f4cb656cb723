"""What limits a step, the pipelines in it, and what it takes to read its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.formatters import in_place
from sdyscope.values.source import SourceLocation

Resource: TypeAlias = Literal["compute", "memory", "axis"]

LevelName: TypeAlias = Literal["chip", "ICI", "DCN", "NVLink", "network", "given", "fitted"]
"""What connects devices, from the inside out; ``given`` is a bandwidth that the user gave."""


@dataclass(frozen=True, slots=True)
class Busy:
    """A resource, and how long it is busy in a step.

    Attributes:
        resource: arithmetic, memory or the links of a mesh axis.
        axis: the mesh axis; empty for the others.
        links: what the devices along the axis are connected by, from the inside out.
        seconds: how long.
    """

    resource: Resource
    axis: str
    links: tuple[LevelName, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What limits a step, and how long it takes at least.

    Attributes:
        limit: what is busy the longest; None where nothing is known.
        others: what else is known to be busy, the longest first.
        is_complete: whether it is known of every resource, and of all that may be sent.
        device_kind: what the compiler calls a device; empty where nothing says.
        is_chip_known: whether the table of hardware has it.
        overlapped: seconds of a step in which everything goes on at the same time; None where
            that is not known.
        sequential: seconds of a step in which nothing is computed while something is sent.
        step: seconds of a step in the order of the compiled program; None where no rates were
            measured or fitted.
        off: how far such estimates are known to be off; None where that is not known.
        is_measured: whether rates are those that were measured on such a device, not of traces.
        sends: whether a step sends anything.
        is_certain: whether all that is counted runs as often as it counts: no branch, no loop of
            unknown trip count, and no argument read in part that counts whole.
    """

    limit: Busy | None
    others: tuple[Busy, ...]
    is_complete: bool
    device_kind: str
    is_chip_known: bool
    overlapped: float | None
    sequential: float | None
    step: float | None = None
    off: float | None = None
    is_measured: bool = False
    sends: bool = False
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A loop that hands a value on along a mesh axis in every trip.

    Attributes:
        axis: the mesh axis.
        stages: devices along it, n.
        trips: trips of the loop.
        both_ways: whether values go both ways along the axis: forward and backward in one loop.
        microbatches: m, by the number of trips: n + m - 1, or m + 2 (n - 1) both ways. Each
            counts as often as it passes the stages: more than once in a circular pipeline.
        bubble: the part of the time in which a stage has nothing to do, (n - 1) / (n + m - 1).
        bytes: bytes that a device hands on in a step.
        source: the innermost line of user code of what hands them on; None where there is none.
    """

    axis: str
    stages: int
    trips: int
    both_ways: bool
    bytes: int
    source: SourceLocation | None

    __document__ = in_place(both_ways=("both_ways", "microbatches", "bubble"))

    @property
    def microbatches(self) -> int:
        """How many pass through the stages in that many trips, each as often as it passes."""
        return self.trips - (2 if self.both_ways else 1) * (self.stages - 1)

    @property
    def bubble(self) -> float:
        """The part of the time in which a stage has nothing to do."""
        return (self.stages - 1) / (self.stages + self.microbatches - 1)


@dataclass(frozen=True, slots=True)
class ArgumentCost:
    """What it takes at least to read a top-level argument once: the parameters, a cache, a batch.

    Attributes:
        name: the argument.
        tensors: how many arrays it has.
        bytes: bytes that a device stores of it.
        seconds: to read them once at the memory's bandwidth; None where that is not known.
    """

    name: str
    tensors: int
    bytes: int
    seconds: float | None
