"""Pictures of a step over time: each once for the partitioners under which it looks the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.facts.over_time import MemoryOverTime
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Schedule
from sdyscope.terminal.alike import by_partitioner
from sdyscope.terminal.chart import Span, Track


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


def tracks(schedule: Schedule, longest: float) -> list[Track]:
    """The lanes of a schedule as lines of a timeline.

    Args:
        schedule: one step.
        longest: seconds that the timeline stands for, of all schedules that are compared.
    """
    whole = longest or 1.0
    lines = []
    for number, lane in enumerate(schedule.lanes):
        computes = number == 0
        spans = [
            Span(segment.start / whole, segment.end / whole, computes or segment.exposed)
            for segment in lane.segments
        ]
        lines.append(Track(lane.name, spans, "plain" if computes else "bad"))
    return lines
