"""Measured time as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sdyscope.analysis.cost.remarks import error_of_estimates
from sdyscope.analysis.profile.profile import ProfileDocument
from sdyscope.facts.measured import (
    Difference,
    LineTime,
    Measured,
    MeasuredDifference,
    MeasuredStep,
    ScopeTime,
)
from sdyscope.terminal.answer import Block
from sdyscope.terminal.chart import Timeline
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.steps import measured_tracks
from sdyscope.terminal.table import Cell, Column, Row, Table, Tone, fitted, number
from sdyscope.words.counts import counted, listed, percent, size
from sdyscope.words.mesh import over_text
from sdyscope.words.origins import annotation_text
from sdyscope.words.paths import file_text
from sdyscope.words.places import source_text
from sdyscope.words.profile import (
    CONCURRENT,
    NOT_COMPARED,
    PREDICTED,
    UNKNOWN_TEXTS,
    WAITING,
    deviation_text,
    difference_name,
    difference_text,
    noise_text,
    over_time_text,
    predicted_text,
    ratio_text,
    steps_text,
    total_text,
)
from sdyscope.words.rates import bandwidth_text, time_text
from sdyscope.words.remarks import remark_text

#: What is not said where two traces are compared: it is of one, or said otherwise.
_OF_ONE: Final = ("no mesh", "no program", "other program", "no rates")
#: How many other programs of a trace are named.
_NAMED = 3


def measured(
    program: Measured, top: int, columns: int | None, title: Iterable[Paragraph] = ()
) -> Iterator[Block]:
    """What a program took.

    Args:
        program: the program.
        top: how many rows of each table to show; 0 for all.
        columns: how wide the terminal is; None for any width.
        title: what comes before its heading.
    """
    yield (*title, *heading(program))
    if program.over_time is not None:
        yield timeline(program, program.over_time)
    if _predicts(program):
        yield deviations(columns, program, top)
    if program.by_axes:
        yield axes(program)
        yield collectives(columns, program, top)
    if any(line.source for line in program.by_line):
        yield lines(program, top)
    if any(scope.scope for scope in program.by_scope):
        yield scopes(program, top)
    if program.by_annotation:
        yield causes(program, top)


def compared(
    before: Measured, after: Measured, difference: MeasuredDifference, top: int
) -> Iterator[Block]:
    """What two traces differ in, `top` rows of each table."""
    yield compared_heading(before, after)
    yield totals(difference)
    for title, rows in (
        ("collective", difference.collectives),
        ("line", difference.lines),
        ("scope", difference.scopes),
    ):
        if rows:
            yield differences(title, rows, top, difference.noise)
    notes = [Paragraph(noise_text(difference.noise), "muted")]
    notes += [Paragraph(NOT_COMPARED[each], "warning") for each in difference.not_compared]
    notes += [
        Paragraph(f"{which}: {UNKNOWN_TEXTS[unknown]}", "warning")
        for which, measured in (("before", before), ("after", after))
        for unknown in measured.unknown
        if unknown not in _OF_ONE
    ]
    yield notes


def heading(measured: Measured) -> Iterator[Paragraph]:
    """The steps, and what they are made of."""
    yield Paragraph(steps_text(measured), "heading")
    yield Paragraph(total_text(measured))
    if predicted := predicted_text(measured):
        yield Paragraph(predicted)


def _predicts(measured: Measured) -> bool:
    return any(deviation.predicted is not None for deviation in measured.deviations)


def timeline(measured: Measured, step: MeasuredStep) -> Timeline:
    """One step over time: what was measured, above what is predicted."""
    predicted = measured.schedule
    longest = max(step.seconds, 0.0 if predicted is None else predicted.seconds)
    lanes = () if predicted is None else predicted.lanes
    return Timeline(measured_tracks(step.lanes, lanes, longest), time_text(longest))


@fitted
def deviations(brief: bool, measured: Measured, top: int) -> Table:
    """A row for ops or collectives that are alike: what they took, and what is predicted."""
    rows: list[Row] = []
    for deviation in measured.deviations[: top or None]:
        rows.append(
            (
                deviation_text(deviation, measured.mesh),
                time_text(deviation.seconds),
                time_text(deviation.predicted),
                ratio_text(deviation.ratio),
                difference_text(deviation.difference),
                *([] if brief else [deviation.scope]),
                source_text(deviation.source),
            )
        )
    return Table(
        (
            Column("op"),
            number("time"),
            number("predicted"),
            number("ratio"),
            number("difference"),
            *([] if brief else [Column("scope")]),
            Column("line"),
        ),
        tuple(rows),
    )


def axes(measured: Measured) -> Table:
    """A row for the collectives over the same axes."""
    predicts = any(row.predicted for row in measured.by_axes)
    rows: list[Row] = [
        (
            over_text(row.axes, measured.mesh),
            time_text(row.seconds),
            time_text(row.waiting),
            size(row.sent) if row.sent else "-",
            _rate(row.bandwidth),
            *([_rate(row.predicted)] if predicts else []),
        )
        for row in measured.by_axes
    ]
    columns = (
        Column("collectives"),
        number("time"),
        number("waiting"),
        number("sent"),
        number("while moving"),
        *([number("predicted")] if predicts else []),
    )
    return Table(columns, tuple(rows))


def _rate(bandwidth: float | None) -> str:
    return "-" if bandwidth is None else bandwidth_text(float(f"{bandwidth:.3g}"))


@fitted
def collectives(brief: bool, measured: Measured, top: int) -> Table:
    """A row for each of the collectives that take most time."""
    rows: list[Row] = []
    for timed in measured.collectives[: top or None]:
        count = f" ({timed.count:.0f} times)" if timed.count >= 1.5 else ""
        axes = over_text(timed.axes, measured.mesh)
        name = f"{timed.kind} {axes}" if axes else timed.name
        more = (
            []
            if brief
            else [time_text(timed.moving), "-" if timed.late is None else str(timed.late)]
        )
        rows.append(
            (
                name + count,
                time_text(timed.seconds),
                time_text(timed.waiting),
                *more,
                timed.scope,
                source_text(timed.source),
            )
        )
    shown = [] if brief else [number("moving"), number("late")]
    return Table(
        (
            Column("collective"),
            number("time"),
            number("waiting"),
            *shown,
            Column("scope"),
            Column("line"),
        ),
        tuple(rows),
    )


def lines(measured: Measured, top: int) -> Table:
    """A row for each of the source lines that take most time."""
    rows = [
        (source_text(row.source) or Cell("without a line", "muted"), row)
        for row in measured.by_line[: top or None]
    ]
    return _shares("line", rows, measured)


def scopes(measured: Measured, top: int) -> Table:
    """A row for each of the scopes that take most time."""
    rows = [
        (row.scope or Cell("without a scope", "muted"), row)
        for row in measured.by_scope[: top or None]
    ]
    return _shares("scope", rows, measured)


def _shares(
    title: str, rows: Iterable[tuple[str | Cell, LineTime | ScopeTime]], measured: Measured
) -> Table:
    """What lines or scopes took, and what of it was in collectives, where there are any."""
    whole = measured.compute + measured.collective
    sends = bool(measured.collectives)
    cells: list[Row] = [
        (
            name,
            time_text(row.seconds),
            percent(row.seconds, whole),
            *([time_text(row.collectives) if row.collectives else "-"] if sends else []),
        )
        for name, row in rows
    ]
    more = [number("in collectives")] if sends else []
    return Table((Column(title), number("time"), number("share"), *more), tuple(cells))


def causes(measured: Measured, top: int) -> Table:
    """A row for each of the annotations whose collectives take most time."""
    rows: list[Row] = [
        (annotation_text(row.annotation), time_text(row.seconds))
        for row in measured.by_annotation[: top or None]
    ]
    return Table((Column("annotation"), number("in collectives")), tuple(rows))


def footer(document: ProfileDocument, top: int) -> Iterator[Paragraph]:
    """What the times are, what was left out, and what is not known."""
    measured = document.measured
    left = len(measured.collectives) - top if top else 0
    if left > 0:
        rest = sum(timed.seconds for timed in measured.collectives[top:])
        words = counted(left, "more collective")
        yield Paragraph(f"{words}, {time_text(rest)}, left out by --top")
    if measured.waiting is not None and measured.collectives:
        yield Paragraph(WAITING, "muted")
    yield Paragraph(CONCURRENT, "muted")
    if measured.over_time is not None:
        yield Paragraph(over_time_text(measured, measured.over_time), "muted")
    if _predicts(measured):
        error = error_of_estimates(measured.predicted_for, document.calibration)
        yield Paragraph(f"{PREDICTED}. {remark_text(error)}", "muted")
    others = [program for program in document.programs if program.module != document.module]
    if others:
        named = [f"{program.module} ({time_text(program.seconds)})" for program in others[:_NAMED]]
        more = len(others) - len(named)
        named += [f"{more} more"] if more else []
        yield Paragraph(f"also in the trace: {listed(named)}; --module NAME shows another", "muted")
    for unknown in measured.unknown:
        yield Paragraph(UNKNOWN_TEXTS[unknown], "warning")


def compared_heading(before: Measured, after: Measured) -> Iterator[Paragraph]:
    """The steps of both."""
    yield Paragraph(f"before: {steps_text(before)}", "heading")
    yield Paragraph(f"after: {steps_text(after)}", "heading")


def totals(difference: MeasuredDifference) -> Table:
    """The step and its parts, before and after."""
    return differences("step", difference.totals, 0, difference.noise)


def differences(title: str, rows: Sequence[Difference], top: int, noise: float) -> Table:
    """A row for each of what changed most.

    Args:
        title: what the rows are.
        rows: what changed, the most first.
        top: how many rows; 0 for all.
        noise: what changed by a smaller part is not marked.
    """
    cells: list[Row] = []
    for row in rows[: top or None]:
        part = abs(row.change) / row.before if row.before else 1.0
        worse: Tone = "bad" if row.change > 0 else "good"
        tone: Tone = "plain" if part <= noise else worse
        sign = "+" if row.change > 0 else "-"
        change = f"{sign}{time_text(abs(row.change))}" if row.change else "-"
        percent = f"{sign}{100 * part:.0f}%" if row.before and row.change else ""
        cells.append(
            (
                file_text(difference_name(row)) or Cell("without one", "muted"),
                time_text(row.before),
                time_text(row.after),
                Cell(change, tone),
                Cell(percent, tone),
            )
        )
    columns = (Column(title), number("before"), number("after"), number("change"), number(""))
    return Table(columns, tuple(cells))
