"""Measured time as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.profile.profile import ProfileDocument
from sdyscope.facts.measured import Difference, Measured, MeasuredDifference
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Row, Table, Tone, fitted, number
from sdyscope.words.counts import counted, listed, percent, size
from sdyscope.words.mesh import over_text
from sdyscope.words.origins import annotation_text
from sdyscope.words.places import file_text, source_text
from sdyscope.words.profile import (
    CONCURRENT,
    UNKNOWN_TEXTS,
    WAITING,
    steps_text,
    total_text,
)
from sdyscope.words.rates import bandwidth_text, time_text

__all__ = [
    "axes",
    "causes",
    "collectives",
    "compared_heading",
    "differences",
    "footer",
    "heading",
    "lines",
    "scopes",
    "totals",
]

#: How many other programs of a trace are named.
_NAMED = 3


def heading(found: Measured) -> Iterator[Paragraph]:
    """The steps, and what they are made of."""
    yield Paragraph(steps_text(found), "heading", hang=2)
    yield Paragraph(total_text(found), hang=2)


def axes(found: Measured) -> Table:
    """A row for the collectives over the same axes."""
    rows: list[Row] = [
        (
            over_text(one.axes, found.mesh),
            time_text(one.seconds),
            time_text(one.waiting),
            size(one.sent) if one.sent else "-",
            "-" if one.bandwidth is None else bandwidth_text(float(f"{one.bandwidth:.3g}")),
        )
        for one in found.by_axes
    ]
    columns = (
        Column("collectives"),
        number("time"),
        number("waiting"),
        number("sent"),
        number("while moving"),
    )
    return Table(columns, tuple(rows))


def collectives(found: Measured, top: int, columns: int | None) -> Table:
    """A row for each of the collectives that take most time."""
    return fitted(lambda brief: _collectives(found, top, brief=brief), columns)


def _collectives(found: Measured, top: int, *, brief: bool) -> Table:
    rows: list[Row] = []
    for one in found.collectives[: top or None]:
        count = f" ({one.count:.0f} times)" if one.count >= 1.5 else ""
        axes = over_text(one.axes, found.mesh)
        name = f"{one.kind} {axes}" if axes else one.name
        more = [] if brief else [time_text(one.moving), "-" if one.late is None else str(one.late)]
        rows.append(
            (
                name + count,
                time_text(one.seconds),
                time_text(one.waiting),
                *more,
                one.scope,
                source_text(one.source),
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


def lines(found: Measured, top: int) -> Table:
    """A row for each of the source lines that take most time."""
    whole = found.compute + found.collective
    rows: list[Row] = [
        (
            source_text(one.source) or Cell("without a line", "muted"),
            time_text(one.seconds),
            percent(one.seconds, whole),
            time_text(one.collectives) if one.collectives else "-",
        )
        for one in found.by_line[: top or None]
    ]
    columns = (Column("line"), number("time"), number("share"), number("in collectives"))
    return Table(columns, tuple(rows))


def scopes(found: Measured, top: int) -> Table:
    """A row for each of the scopes that take most time."""
    whole = found.compute + found.collective
    rows: list[Row] = [
        (
            one.scope or Cell("without a scope", "muted"),
            time_text(one.seconds),
            percent(one.seconds, whole),
            time_text(one.collectives) if one.collectives else "-",
        )
        for one in found.by_scope[: top or None]
    ]
    columns = (Column("scope"), number("time"), number("share"), number("in collectives"))
    return Table(columns, tuple(rows))


def causes(found: Measured, top: int) -> Table:
    """A row for each of the annotations whose collectives take most time."""
    rows: list[Row] = [
        (annotation_text(one.annotation), time_text(one.seconds))
        for one in found.by_annotation[: top or None]
    ]
    return Table((Column("annotation"), number("in collectives")), tuple(rows))


def footer(document: ProfileDocument, top: int) -> Iterator[Paragraph]:
    """What the times are, what was left out, and what is not known."""
    found = document.measured
    left = len(found.collectives) - top if top else 0
    if left > 0:
        rest = sum(one.seconds for one in found.collectives[top:])
        words = counted(left, "more collective")
        yield Paragraph(f"{words}, {time_text(rest)}, left out by --top", hang=3)
    if found.waiting is not None and found.collectives:
        yield Paragraph(WAITING, "muted", hang=3)
    yield Paragraph(CONCURRENT, "muted", hang=3)
    others = [one for one in document.programs if one.name != found.program]
    if others:
        named = [f"{one.name} ({time_text(one.seconds)})" for one in others[:_NAMED]]
        more = len(others) - len(named)
        named += [f"{more} more"] if more else []
        yield Paragraph(
            f"also in the trace: {listed(named)}; --module NAME shows another", "muted", hang=3
        )
    for unknown in found.unknown:
        yield Paragraph(UNKNOWN_TEXTS[unknown], "warning", hang=3)


def compared_heading(before: Measured, after: Measured) -> Iterator[Paragraph]:
    """The steps of both."""
    yield Paragraph(f"before: {steps_text(before)}", "heading", hang=2)
    yield Paragraph(f"after: {steps_text(after)}", "heading", hang=2)


def totals(found: MeasuredDifference) -> Table:
    """The step and its parts, before and after."""
    return differences("step", found.totals, 0, found.noise)


def differences(title: str, rows: Sequence[Difference], top: int, noise: float) -> Table:
    """A row for each of what changed most.

    Args:
      title: what the rows are.
      rows: what changed, the most first.
      top: how many rows; 0 for all.
      noise: what changed by a smaller part is not marked.
    """
    made: list[Row] = []
    for one in rows[: top or None]:
        part = abs(one.change) / one.before if one.before else 1.0
        worse: Tone = "bad" if one.change > 0 else "good"
        tone: Tone = "plain" if part <= noise else worse
        sign = "+" if one.change > 0 else "-"
        change = f"{sign}{time_text(abs(one.change))}" if one.change else "-"
        percent = f"{sign}{100 * part:.0f} %" if one.before and one.change else ""
        made.append(
            (
                file_text(one.name) or Cell("without one", "muted"),
                time_text(one.before),
                time_text(one.after),
                Cell(change, tone),
                Cell(percent, tone),
            )
        )
    columns = (Column(title), number("before"), number("after"), number("change"), number(""))
    return Table(columns, tuple(made))
