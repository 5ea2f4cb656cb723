"""Pictures of a step over time: each once for the partitioners under which it looks the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.facts.over_time import MemoryOverTime
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Lane, Schedule
from sdyscope.terminal.chart import ChartSpan, Track
from sdyscope.terminal.paragraphs import by_partitioner
from sdyscope.words.schedule import lane_text


def distinct_memory(
    steps: Sequence[MemoryOverTime],
) -> Iterator[tuple[MemoryOverTime, tuple[Partitioner, ...]]]:
    """Memory over each step that looks different, with the partitioners under which it does."""
    return by_partitioner(steps, _bare)


def _bare(over_time: MemoryOverTime) -> object:
    """What is left of it when it does not matter whose it is, or how instructions are called."""
    return (
        over_time.by_category,
        over_time.moments,
        [
            (holding.category, holding.name, holding.op, holding.array, holding.bytes)
            for holding in over_time.held
        ],
        over_time.counted,
    )


def distinct_schedules(
    schedules: Sequence[Schedule],
) -> Iterator[tuple[Schedule, tuple[Partitioner, ...]]]:
    """Each schedule that looks different, with the partitioners under which it does."""
    return by_partitioner(schedules, lambda step: (step.lanes, step.seconds, step.pipelines))


def tracks(lanes: Sequence[Lane], longest: float) -> list[Track]:
    """The lanes of a step as lines of a timeline.

    Args:
        lanes: of one step.
        longest: seconds that the timeline stands for, of all steps that are compared.
    """
    whole = longest or 1.0
    lines = []
    for lane in lanes:
        computes = lane.kind == "compute"
        spans = [
            ChartSpan(segment.start / whole, segment.end / whole, segment.exposed or computes)
            for segment in lane.segments
        ]
        lines.append(Track(lane_text(lane), spans, "plain" if computes else "bad"))
    return lines


def measured_tracks(
    measured: Sequence[Lane], predicted: Sequence[Lane], longest: float
) -> list[Track]:
    """Lanes of a step as it was measured, each above the same as it is predicted.

    Args:
        measured: what was measured.
        predicted: what is predicted; empty where nothing is.
        longest: seconds that the timeline stands for.
    """
    if not predicted:
        return tracks(measured, longest)
    of_measured = {track.name: track for track in tracks(measured, longest)}
    of_predicted = {track.name: track for track in tracks(predicted, longest)}
    lines = []
    for name in dict.fromkeys([*of_measured, *of_predicted]):
        for which, of in (("measured", of_measured), ("predicted", of_predicted)):
            track = of.get(name, Track(name, ()))
            lines.append(replace(track, name=f"{name} {which}" if of is of_measured else which))
    return lines
