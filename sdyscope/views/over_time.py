"""Memory over a step on a terminal: the picture, what is held at the peak, what lowers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.memory.memory import MemoryDocument
from sdyscope.facts.over_time import Fit, MemoryOverTime, PeakRemedy, Varied
from sdyscope.terminal.answer import Block
from sdyscope.terminal.answer import heading as headline
from sdyscope.terminal.chart import Area, Band
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.steps import distinct_memory
from sdyscope.terminal.table import Cell, Column, Row, Table, fitted, number
from sdyscope.views import memory
from sdyscope.words.counts import percent, size
from sdyscope.words.over_time import (
    LEGEND,
    NO_OFFLOADING,
    PHASE_TEXTS,
    basis,
    fit_text,
    holding_name,
    peak_sentence,
    remedies_text,
    remedy_text,
    varied_text,
)
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import source_text
from sdyscope.words.propagation import origin_text


def peaks(document: MemoryDocument, top: int, columns: int | None) -> Iterator[Block]:
    """Memory over the step of each program, `top` rows of each table, and what lowers the peak."""
    # All pictures on one scale.
    scale = max(step.peak for step in document.over_time)
    compiled = {program.partitioner: program for program in document.compiled}
    for step, partitioners in distinct_memory(document.over_time):
        yield headline(memory.heading(document, compiled[step.partitioner], partitioners))
        yield picture(step, scale)
        yield [Paragraph(peak_sentence(step))]
        yield categories(step)
        yield held(columns, step, top)
        yield footer(step, top)
    if document.remedies:
        yield remedies(document.remedies, document.over_time[0])
        yield remedies_footer(document.remedies, can_offload=document.compiled[0].can_offload)


def fitting(document: MemoryDocument, limit: int) -> Iterator[Block]:
    """Whether the programs fit into `limit` bytes, and the largest size that does."""
    yield fits(document.fits)
    if document.varied is not None:
        yield trials(document.varied, limit)
        yield [varied_paragraph(document.varied)]


def picture(over_time: MemoryOverTime, top: int) -> Area:
    """What is held from the first instruction to the last.

    Args:
        over_time: memory over a step.
        top: bytes that the height stands for, of all pictures that are compared.
    """
    moments = over_time.moments
    length = max(over_time.instructions, 1)
    peak = max(range(len(moments)), key=lambda number: moments[number].bytes, default=0)
    return Area(
        values=[moment.bytes for moment in moments],
        top=top,
        base=over_time.least,
        labels=(size(top), size(top / 2), "0 B"),
        mark=peak,
        bands=[
            Band(PHASE_TEXTS[phase.phase], phase.start / length, phase.end / length)
            for phase in over_time.phases
        ],
    )


def categories(over_time: MemoryOverTime) -> Table:
    """A row for what memory is held for at the peak, what takes most first."""
    categories = sorted(over_time.by_category.items(), key=lambda pair: -pair[1])
    rows: list[Row] = [
        (category, size(count), percent(count, over_time.peak)) for category, count in categories
    ]
    return Table(
        (Column("held at the peak for"), number("per device"), number("share")), tuple(rows)
    )


@fitted
def held(brief: bool, over_time: MemoryOverTime, top: int) -> Table:
    """A row for each of the largest things that are held at the peak.

    Args:
        brief: whether the table is wider than the line: annotations and blocks are left
            out.
        over_time: memory over a step.
        top: how many rows; 0 for all.
    """
    rows: list[Row] = []
    for holding in over_time.held[: top or None]:
        count = f" ({holding.count:,})" if holding.count > 1 else ""
        cells = [holding_name(holding) + count, holding.category, size(holding.bytes)]
        if not brief:
            cells += [holding.array.partition("{")[0], ", ".join(map(origin_text, holding.origins))]
        rows.append((*cells, source_text(holding.source)))
    columns = [Column("largest at the peak"), Column("for"), number("per device")]
    if not brief:
        columns += [Column("block", fold=False), Column("sharded by")]
    return Table((*columns, Column("line")), tuple(rows))


def footer(over_time: MemoryOverTime, top: int) -> Iterator[Paragraph]:
    """What the figures are, and what was left out; ``top`` is as of ``held``."""
    left = len(over_time.held) - top if top else 0
    if left > 0:
        rest = sum(holding.bytes for holding in over_time.held[top:])
        yield Paragraph(f"{left:,} more, {size(rest)}, left out by --top")
    for text, is_well in basis(over_time):
        yield Paragraph(text, "plain" if is_well else "warning")
    yield Paragraph(LEGEND, "muted")


def remedies(tried: Sequence[PeakRemedy], over_time: MemoryOverTime) -> Table:
    """A row for each change that was compiled, what lowers the peak most first."""
    rows: list[Row] = []
    for remedy in tried:
        if remedy.peak is None or remedy.saves is None:
            rows.append((remedy_text(remedy), Cell("-", "muted"), Cell(remedy.refused, "muted")))
            continue
        lower = remedy.saves > 0
        change = f"-{size(remedy.saves)} ({percent(remedy.saves, over_time.peak)})"
        higher = f"+{size(-remedy.saves)}" if remedy.saves else "no change"
        rows.append(
            (
                remedy_text(remedy),
                size(remedy.peak),
                Cell(change if lower else higher, "good" if lower else "muted"),
            )
        )
    return Table(
        (Column("to lower the peak"), number("peak"), Column("change", fold=False)), tuple(rows)
    )


def remedies_footer(tried: Sequence[PeakRemedy], *, can_offload: bool) -> Iterator[Paragraph]:
    """How many changes were compiled, how many of them lower the peak, and what was not tried."""
    lower = sum((remedy.saves or 0) > 0 for remedy in tried)
    yield Paragraph(remedies_text(len(tried), lower), "plain")
    if not can_offload:
        yield Paragraph(NO_OFFLOADING, "muted")


def fits(every: Sequence[Fit]) -> Iterator[Paragraph]:
    """Whether it fits, under each partitioner where that differs."""
    differs = len({fit.needs for fit in every}) > 1
    for fit in every if differs else every[:1]:
        under = f"{partitioner_name(fit.partitioner)}: " if differs else ""
        yield Paragraph(under + fit_text(fit), "good" if fit.fits else "bad")


def trials(varied: Varied, limit: int) -> Table:
    """A row for each size that was compiled."""
    rows: list[Row] = []
    for trial in varied.trials:
        if trial.needs is None:
            rows.append((f"{trial.value:,}", "-", Cell(trial.refused, "muted")))
        else:
            fitting = trial.needs <= limit
            verdict = Cell("fits", "good") if fitting else Cell("does not fit", "bad")
            rows.append((f"{trial.value:,}", size(trial.needs), verdict))
    return Table((number(varied.name), number("needs"), Column("")), tuple(rows))


def varied_paragraph(varied: Varied) -> Paragraph:
    """How far it can go."""
    return Paragraph(varied_text(varied), "good" if varied.best is not None else "bad")
