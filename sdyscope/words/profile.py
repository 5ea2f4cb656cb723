"""Measured time in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Final

from sdyscope.facts.measured import Measured, Unknown
from sdyscope.words.counts import counted, percent
from sdyscope.words.rates import time_text

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


def steps_text(measured: Measured) -> str:
    """How many steps on how many devices, and how long they take."""
    middle = statistics.median(measured.step_seconds) if measured.step_seconds else 0.0
    hosts = f" on {counted(measured.hosts, 'host')}" if measured.hosts > 1 else ""
    spread = ""
    if len(measured.step_seconds) > 1:
        least, most = min(measured.step_seconds), max(measured.step_seconds)
        spread = f" ({time_text(least)} to {time_text(most)})"
    return (
        f"{measured.program}: {counted(measured.steps, 'step')} on "
        f"{counted(measured.devices, 'device')}{hosts}; a step takes {time_text(middle)}{spread}"
    )


def total_text(measured: Measured) -> str:
    """What of it is compute, what collectives, and what of these is waiting."""
    whole = measured.compute + measured.collective
    waiting = ""
    if measured.waiting is not None and measured.collective:
        waiting = (
            f", of which {percent(measured.waiting, measured.collective)} is waiting for others"
        )
    return (
        f"compute {time_text(measured.compute)} ({percent(measured.compute, whole)}), collectives "
        f"{time_text(measured.collective)} ({percent(measured.collective, whole)}){waiting}"
    )
