"""Measured time in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Final

from sdyscope.facts.measured import Measured, Unknown
from sdyscope.words.counts import counted, percent
from sdyscope.words.rates import time_text

__all__ = [
    "CONCURRENT",
    "UNKNOWN_TEXTS",
    "WAITING",
    "noise_text",
    "steps_text",
    "total_text",
]

CONCURRENT = (
    "times are per step, on average over devices and steps; ops that run at the same time count "
    "each"
)

WAITING = (
    "waiting: until the last device of a group arrives; moving: the rest, in which bytes move; "
    "late: the device that others wait for most"
)

UNKNOWN_TEXTS: Final[Mapping[Unknown, str]] = {
    "no program": (
        "the trace has no program: ops are known by their names alone, without scopes, source "
        "lines, axes and bytes"
    ),
    "no mesh": "no mesh is known to name axes of: name the program, or give --mesh",
    "other program": (
        "the program that was named compiles to other collectives than the one that ran: causes "
        "are left out"
    ),
    "several clocks": (
        "the devices are on several hosts, whose clocks differ: waiting is not told apart"
    ),
}


def noise_text(noise: float) -> str:
    """How much steps of one trace differ."""
    return (
        f"steps of one trace are up to {100 * noise:.0f} % from their median: smaller changes may "
        "be chance, and are not coloured"
    )


def steps_text(found: Measured) -> str:
    """How many steps on how many devices, and how long they take."""
    middle = statistics.median(found.step_seconds) if found.step_seconds else 0.0
    hosts = f" on {counted(found.hosts, 'host')}" if found.hosts > 1 else ""
    spread = ""
    if len(found.step_seconds) > 1:
        least, most = min(found.step_seconds), max(found.step_seconds)
        spread = f" ({time_text(least)} to {time_text(most)})"
    return (
        f"{found.program}: {counted(found.steps, 'step')} on {counted(found.devices, 'device')}"
        f"{hosts}; a step takes {time_text(middle)}{spread}"
    )


def total_text(found: Measured) -> str:
    """What of it is compute, what collectives, and what of these is waiting."""
    whole = found.compute + found.collective
    waiting = ""
    if found.waiting is not None and found.collective:
        waiting = f", of which {percent(found.waiting, found.collective)} is waiting for others"
    return (
        f"compute {time_text(found.compute)} ({percent(found.compute, whole)}), collectives "
        f"{time_text(found.collective)} ({percent(found.collective, whole)}){waiting}"
    )
