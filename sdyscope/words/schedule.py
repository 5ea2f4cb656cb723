"""A step over time in sentences without a full stop: what is exposed, and what would hide it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sdyscope.facts.schedule import Exposed, Lane, Schedule, Way
from sdyscope.words.counts import percent
from sdyscope.words.mesh import names_text
from sdyscope.words.rates import time_text

MODEL = (
    "estimate, not measured: the order is the compiled program's, the times are those of "
    "`sdyscope cost`, each instruction at the longer of its arithmetic and its memory"
)

LEGEND = (
    "exposed: the device waits and computes nothing; of a loop one iteration is drawn, as long as "
    "all of them"
)

#: What would hide a collective.
WAY_TEXTS: Final[Mapping[Way, str]] = {
    "asynchronous": (
        "work that does not need its result is scheduled next to it, and would hide it if it ran "
        "asynchronously"
    ),
    "reorder": "it is asynchronous; started earlier or waited for later, more work would hide it",
    "pipelined": (
        "started an iteration of its loop earlier, or waited for an iteration later, it would be "
        "hidden; that takes a second buffer"
    ),
    "less": "no work next to it can hide it: send less, or over a faster axis",
}

#: Flags that let a compiler overlap more, and the variable that they are read from.
_FLAGS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "cuda": (
        "XLA_FLAGS",
        (
            "--xla_gpu_enable_pipelined_all_gather=true",
            "--xla_gpu_enable_pipelined_reduce_scatter=true",
            "--xla_gpu_enable_pipelined_all_reduce=true",
        ),
    ),
    "tpu": (
        "LIBTPU_INIT_ARGS",
        (
            "--xla_tpu_enable_async_collective_fusion=true",
            "--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true",
            "--xla_tpu_overlap_compute_collective_tc=true",
            "--xla_enable_async_all_gather=true",
        ),
    ),
}


def step_text(schedule: Schedule) -> str:
    """How long a step takes, and how much of it is communication that nothing hides."""
    words = f"a step takes {time_text(schedule.seconds)}: {time_text(schedule.compute)} of compute"
    if not schedule.collectives:
        return f"{words}, no collectives"
    share = percent(schedule.exposed, schedule.seconds)
    words += f" and {time_text(schedule.exposed)} ({share}) of communication that nothing hides"
    if not schedule.hidden:
        return f"{words}; none is hidden"
    return f"{words}; {time_text(schedule.hidden)} of communication is hidden"


def lane_text(lane: Lane) -> str:
    """``compute``, or whose links it is: ``data``, ``(data, model)``."""
    if lane.kind == "compute":
        return "compute"
    return names_text(lane.axes) if lane.axes else "other groups"


def way_text(collective: Exposed) -> str:
    """What would hide a collective, in a word or two."""
    match collective.way:
        case None:
            return "hidden"
        case "less":
            return "send less"
        case "asynchronous":
            return f"asynchronous: {time_text(collective.hideable)}"
        case "reorder" | "pipelined":
            return f"{collective.way}: {time_text(collective.hideable)}"


def flags_text(schedule: Schedule) -> str:
    """Which flags let the compiler overlap more; empty where none are known, or none would."""
    ways = {collective.way for collective in schedule.collectives}
    if schedule.hardware is None or not ways & {"asynchronous", "reorder"}:
        return ""
    variable, flags = _FLAGS.get(schedule.hardware.platform, ("", ()))
    if not flags:
        return ""
    return (
        f"flags that let the compiler overlap more: {variable}='{' '.join(flags)}'; set them for "
        "this command to see what they do"
    )
