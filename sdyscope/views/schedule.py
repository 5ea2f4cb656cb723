"""A step over time on a terminal: the timeline, and the collectives that nothing hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.cost.remarks import error_of_estimates
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Exposed, Schedule
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Note, Row, Table, fitted, number
from sdyscope.words.cost import pipeline_text
from sdyscope.words.counts import counted, percent
from sdyscope.words.hardware import compiled_text
from sdyscope.words.mesh import mesh_words_of, over_text
from sdyscope.words.origins import NOT_FOUND, origin_text
from sdyscope.words.partitioners import partitioner_names
from sdyscope.words.places import common_file, source_text
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import remark_text
from sdyscope.words.schedule import (
    LEGEND,
    MODEL,
    WAY_TEXTS,
    flags_text,
    lane_text,
    step_text,
    way_text,
)

#: How many collectives are shown unless all are asked for.
LISTED = 12


def heading(
    document: CommsDocument, schedule: Schedule, partitioners: Sequence[Partitioner]
) -> Iterator[Paragraph]:
    """The program, and how long a step takes."""
    parts = [document.name]
    if schedule.mesh is not None:
        parts += mesh_words_of({"": schedule.mesh})
    under = partitioner_names(partitioners) if partitioners else ""
    by = document.compiled_by
    if compiled := compiled_text(schedule.hardware, schedule.device_kind, under=under, by=by):
        parts.append(compiled)
    yield Paragraph("; ".join(parts))
    yield Paragraph(step_text(schedule), "heading")


def lanes(schedule: Schedule) -> Table:
    """A row for compute and for each set of axes: how long it is busy, and how long alone."""
    rows: list[Row] = []
    for lane in schedule.lanes:
        alone = sum(span.end - span.start for span in lane.segments if span.exposed)
        share = percent(lane.busy, schedule.seconds)
        waited = Cell(time_text(alone), "bad" if alone else "plain")
        exposure = "-" if lane.kind == "compute" else waited
        rows.append((lane_text(lane), time_text(lane.busy), share, exposure))
    return Table(
        (Column("busy"), number("time"), number("of the step"), number("exposed")), tuple(rows)
    )


@fitted
def exposed(brief: bool, schedule: Schedule, everything: bool) -> Table:
    """A row for each of the collectives that are exposed most, with its cause."""
    shown = schedule.collectives if everything else schedule.collectives[:LISTED]
    file = common_file(collective.source for collective in shown) if brief else ""
    rows: list[Row] = []
    for collective in shown:
        source = source_text(collective.source)
        cells: list[str | Cell] = [
            f"{collective.kind} (async)" if collective.asynchronous else collective.kind,
            over_text(collective.axes, schedule.mesh),
            f"{collective.count:,}",
            time_text(collective.seconds),
            Cell(time_text(collective.exposed), "bad" if collective.exposed else "plain"),
            way_text(collective),
        ]
        if not brief:
            cells.append(collective.scope or Cell("-", "muted"))
        cells.append(source.rpartition(":")[2] if file else source or Cell("-", "muted"))
        rows.append(tuple(cells))
        if why := _why(collective, file):
            rows.append(Note(why))
    columns = [
        Column("collective"),
        Column("over"),
        number("x"),
        number("time"),
        number("exposed"),
        Column("could hide it"),
    ]
    if not brief:
        columns.append(Column("scope"))
    return Table((*columns, number("line") if file else Column("source")), tuple(rows))


def _why(collective: Exposed, file: str) -> str:
    if collective.origin is None:
        return ""
    words = origin_text(collective.origin, file)
    return words if words.startswith(NOT_FOUND) else f"because {words}"


def footer(schedule: Schedule, everything: bool) -> Iterator[Paragraph]:
    """Pipelines, what the columns mean, and what is not known."""
    for pipeline in schedule.pipelines:
        yield Paragraph(pipeline_text(pipeline))
    left = len(schedule.collectives) - LISTED
    if left > 0 and not everything:
        yield Paragraph(f"{counted(left, 'collective')} left out; --all lists every one", "muted")
    yield Paragraph(f"{MODEL}; {LEGEND}", "muted")
    yield Paragraph(remark_text(error_of_estimates(schedule.device_kind)), "muted")
    for way, words in WAY_TEXTS.items():
        if any(collective.way == way for collective in schedule.collectives):
            yield Paragraph(f"{'send less' if way == 'less' else way}: {words}", "muted")
    if flags := flags_text(schedule):
        yield Paragraph(flags)
    if schedule.unknown:
        yield Paragraph(
            f"{counted(schedule.unknown, 'collective')} of unknown time: counted as none",
            "warning",
        )
