"""What limits a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Busy", "LevelName", "Resource", "StepLimits"]

Resource: TypeAlias = Literal["compute", "memory", "axis"]

LevelName: TypeAlias = Literal["chip", "ICI", "DCN", "NVLink", "network", "given"]
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
        is_complete: whether it is known of every resource.
        device_kind: what the compiler calls a device; empty where nothing says.
        is_chip_known: whether the table of hardware has it.
        overlapped: seconds of a step in which everything goes on at the same time; None where
            that is not known.
        sequential: seconds of a step in which nothing is computed while something is sent.
    """

    limit: Busy | None
    others: tuple[Busy, ...]
    is_complete: bool
    device_kind: str
    is_chip_known: bool
    overlapped: float | None
    sequential: float | None
