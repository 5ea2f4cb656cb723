"""A step over time on a terminal: the timeline, and the collectives that nothing hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Exposed, Schedule
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Note, Row, Table, fitted, number
from sdyscope.words.cost import pipeline_text
from sdyscope.words.counts import counted, percent
from sdyscope.words.mesh import mesh_words_of, over_text
from sdyscope.words.origins import NOT_FOUND, origin_text
from sdyscope.words.places import source_text
from sdyscope.words.rates import time_text
from sdyscope.words.schedule import (
    LEGEND,
    MODEL,
    WAY_TEXTS,
    flags_text,
    step_text,
    way_text,
)

__all__ = ["exposed", "footer", "heading", "lanes"]

#: How many collectives are shown unless all are asked for.
LISTED = 12


def heading(
    document: CommsDocument, found: Schedule, partitioners: Sequence[Partitioner]
) -> Iterator[Paragraph]:
    """The program, and how long a step takes."""
    parts = [document.name]
    if found.mesh is not None:
        parts += mesh_words_of({"": found.mesh})
    if found.hardware is not None:
        under = f" under {' and '.join(partitioners)}" if partitioners else ""
        parts.append(f"compiled for {found.hardware} ({found.device_kind}){under}")
    yield Paragraph("; ".join(parts), hang=2)
    yield Paragraph(step_text(found), "heading", hang=2)


def lanes(found: Schedule) -> Table:
    """A row for compute and for each set of axes: how long it is busy, and how long alone."""
    rows: list[Row] = []
    for lane in found.lanes:
        alone = sum(one.end - one.start for one in lane.segments if one.exposed)
        share = percent(lane.busy, found.seconds)
        waited = Cell(time_text(alone), "bad" if alone else "plain")
        first = lane is found.lanes[0]
        rows.append((lane.name, time_text(lane.busy), share, "-" if first else waited))
    return Table(
        (Column("busy"), number("time"), number("of the step"), number("exposed")), tuple(rows)
    )


def exposed(found: Schedule, everything: bool, columns: int | None) -> Table:
    """A row for each of the collectives that are exposed most, with its cause."""
    return fitted(lambda brief: _exposed(found, everything, brief=brief), columns)


def _exposed(found: Schedule, everything: bool, *, brief: bool) -> Table:
    shown = found.collectives if everything else found.collectives[:LISTED]
    files = {source_text(one.source).rpartition(":")[0] for one in shown}
    file = files.pop() if brief and len(files) == 1 else ""
    rows: list[Row] = []
    for one in shown:
        source = source_text(one.source)
        rows.append(
            (
                f"{one.kind} (async)" if one.asynchronous else one.kind,
                over_text(one.axes, found.mesh),
                f"{one.count:,}",
                time_text(one.seconds),
                Cell(time_text(one.exposed), "bad" if one.exposed else "plain"),
                way_text(one),
                one.scope or Cell("-", "muted"),
                source.rpartition(":")[2] if file else source or Cell("-", "muted"),
            )
        )
        if why := _why(one, file):
            rows.append(Note(why))
    return Table(
        (
            Column("collective"),
            Column("over"),
            number("x"),
            number("time"),
            number("exposed"),
            Column("could hide it"),
            Column("scope"),
            number("line") if file else Column("source"),
        ),
        tuple(rows),
    )


def _why(one: Exposed, file: str) -> str:
    if one.origin is None:
        return ""
    words = origin_text(one.origin, file)
    return words if words.startswith(NOT_FOUND) else f"because {words}"


def footer(found: Schedule, everything: bool) -> Iterator[Paragraph]:
    """Pipelines, what the columns mean, and what is not known."""
    for pipeline in found.pipelines:
        yield Paragraph(pipeline_text(pipeline), hang=2)
    left = len(found.collectives) - LISTED
    if left > 0 and not everything:
        yield Paragraph(f"{counted(left, 'collective')} left out; --all lists every one", "muted")
    yield Paragraph(f"{MODEL}; {LEGEND}", "muted", hang=2)
    for way, words in WAY_TEXTS.items():
        if any(one.way == way for one in found.collectives):
            yield Paragraph(f"{'send less' if way == 'less' else way}: {words}", "muted", hang=2)
    if flags := flags_text(found):
        yield Paragraph(flags, hang=2)
    if found.unknown:
        yield Paragraph(
            f"{counted(found.unknown, 'collective')} of unknown time: counted as none",
            "warning",
            hang=2,
        )
