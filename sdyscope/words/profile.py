"""Measured time in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Final

from sdyscope.facts.measured import (
    CollectiveTime,
    Deviation,
    Difference,
    Measured,
    MeasuredStep,
    NotCompared,
    Unknown,
)
from sdyscope.values.mesh import Mesh
from sdyscope.words.counts import counted, percent
from sdyscope.words.mesh import names_text, over_text
from sdyscope.words.rates import time_text

CONCURRENT = (
    "times are per step, on average over devices and steps; ops that run at the same time count "
    "each"
)

WAITING = (
    "waiting: until the last device of a group arrives; moving: the rest, in which bytes move; "
    "late: the device that others wait for most"
)

PREDICTED = (
    "predicted: by the estimates of `sdyscope cost`, an op at the longer of its arithmetic and its "
    "memory, a collective by its bytes and hops; ratio: measured over predicted, waiting included; "
    "a dash: not known"
)

NOT_PREDICTED = (
    "nothing is predicted: name the hardware with --on, or with --calibrate a trace whose rates to "
    "take"
)

UNKNOWN_TEXTS: Final[Mapping[Unknown, str]] = {
    "no program": (
        "the trace has no program: ops are known by their names alone, without scopes, source "
        "lines, axes and bytes"
    ),
    "no mesh": "no mesh is known whose axes could be named: name the program, or give --mesh",
    "other program": (
        "the program that was named compiles to other collectives than the one that ran: causes "
        "are left out"
    ),
    "several clocks": (
        "the devices are on several hosts, whose clocks differ: waiting is not told apart"
    ),
    "several runs": (
        "the program is for fewer devices than ran it: the files are of several runs, not of the "
        "hosts of one; name one file"
    ),
    "no rates": (
        "nothing is predicted: no figures of this hardware are known; --calibrate TRACE takes the "
        "rates of another trace"
    ),
    "other instructions": (
        "events of instructions that the program in the trace does not have: what they are is not "
        "known"
    ),
    "command buffers": (
        "the GPU was given several instructions at once (command buffers), and which of them some "
        "kernels are of can't be told: XLA_FLAGS=--xla_gpu_enable_command_buffer= gives it each "
        "alone"
    ),
}

NOT_COMPARED: Final[Mapping[NotCompared, str]] = {
    "no program": (
        "a trace has no program: which lines, scopes and collectives took more or less time is not "
        "known"
    ),
    "waiting": "waiting is told apart in one of the traces only, and is not compared",
    "other program": "next to nothing ran in both traces: they are of different programs",
}


def noise_text(noise: float) -> str:
    """How much steps of one trace differ."""
    return (
        f"steps of one trace are up to {100 * noise:.0f} % from their median: smaller changes may "
        "be chance, and are not coloured"
    )


#: From which part of the median on the average is told, by which all tables go.
_FAR = 0.25


def steps_text(measured: Measured) -> str:
    """How many steps on how many devices, and how long they take.

    The median; the average of all steps as well where one of them moves it far away.
    """
    middle = statistics.median(measured.step_seconds) if measured.step_seconds else 0.0
    hosts = f" on {counted(measured.hosts, 'host')}" if measured.hosts > 1 else ""
    spread = ""
    if len(measured.step_seconds) > 1:
        least, most = min(measured.step_seconds), max(measured.step_seconds)
        mean = statistics.fmean(measured.step_seconds)
        average = f", on average {time_text(mean)}" if abs(mean - middle) > _FAR * middle else ""
        spread = f" ({time_text(least)} to {time_text(most)}{average})"
    return (
        f"{measured.program}: {counted(measured.steps, 'step')} on "
        f"{counted(measured.devices, 'device')}{hosts}; a step takes {time_text(middle)}{spread}"
    )


def traced_sentence(measured: Measured) -> str:
    """The same as a sentence beside what a run did."""
    return f"By a trace, {steps_text(measured)}."


def total_text(measured: Measured) -> str:
    """What of it is compute, what collectives, and what of these is waiting."""
    whole = measured.compute + measured.collective
    if not measured.collectives:
        return f"compute {time_text(measured.compute)}, no collectives"
    waiting = ""
    if measured.waiting is not None and measured.collective:
        waiting = (
            f", of which {percent(measured.waiting, measured.collective)} is waiting for others"
        )
    return (
        f"compute {time_text(measured.compute)} ({percent(measured.compute, whole)}), collectives "
        f"{time_text(measured.collective)} ({percent(measured.collective, whole)}){waiting}"
    )


def predicted_text(measured: Measured) -> str:
    """How long a step is predicted to take, and how much longer it took; empty where unknown."""
    if not measured.predicted_step or not measured.step_seconds:
        return ""
    ratio = statistics.median(measured.step_seconds) / measured.predicted_step
    predicted = time_text(measured.predicted_step)
    return f"predicted {predicted}: a step took {ratio_text(ratio)} times that"


def over_time_text(measured: Measured, step: MeasuredStep) -> str:
    """Which step is drawn."""
    text = f"over time: step {step.step + 1} of the trace, the median"
    if measured.devices > 1:
        text += f", on device {step.device}, which waits least"
    if measured.collectives:
        text += "; exposed, or dark: it computes nothing meanwhile"
    return text


def ratio_text(ratio: float | None) -> str:
    """Measured over predicted, to three digits; a dash where nothing is predicted."""
    if ratio is None:
        return "-"
    return f"{ratio:.0f}" if ratio >= 99.5 else f"{ratio:.1f}" if ratio >= 9.95 else f"{ratio:.2f}"


def difference_text(seconds: float | None) -> str:
    """Seconds more than predicted, with their sign; a dash where that is not known."""
    if seconds is None:
        return "-"
    return f"{'-' if seconds < 0 else '+'}{time_text(abs(seconds))}"


def deviation_text(deviation: Deviation, mesh: Mesh | None) -> str:
    """What ops or collectives that are alike are, and how many of them there are."""
    axes = over_text(deviation.axes, mesh) if deviation.collective else ""
    more = f" ({deviation.instructions})" if deviation.instructions > 1 else ""
    return f"{deviation.what} {axes}".rstrip() + more


def difference_name(difference: Difference) -> str:
    """What is compared in two traces: ``step``, ``step.py:12``, ``all-reduce over data: sum``."""
    name = difference.name
    if difference.axes is not None:
        name += f" over {names_text(difference.axes)}"
    return f"{name}: {difference.scope}" if difference.scope else name


def collective_text(timed: CollectiveTime) -> str:
    """What a collective took in a step, beside what is predicted."""
    words = time_text(timed.seconds)
    if timed.waiting is not None:
        words += f", {time_text(timed.waiting)} of it waiting"
    if not timed.predicted:
        return f"{words}; what is predicted is not known"
    ratio = ratio_text(timed.seconds / timed.predicted)
    return f"{words}; predicted {time_text(timed.predicted)}, ratio {ratio}"
