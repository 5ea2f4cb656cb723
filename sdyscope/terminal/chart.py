"""Curves and timelines in block characters, for a terminal of any width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sdyscope.process.output import Output, answers
from sdyscope.terminal.table import Cell, Tone, print_lines

#: A character filled to n eighths from below.
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_BASE = "░"

#: How many columns a picture has where nothing says how wide a line is, and at most.
_WIDTH, _WIDEST = 80, 160


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the horizontal axis with a name.

    Attributes:
        name: what stands below it.
        start: where it begins, of the length of the axis.
        end: where it ends.
    """

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Area:
    """A curve above zero.

    Attributes:
        values: its heights, at even distances.
        top: what the height of the picture stands for; several pictures with one top can be
            compared.
        base: up to this height it is drawn lightly.
        labels: what stands beside the top, the middle and the bottom.
        mark: which value is marked below.
        bands: parts of the axis.
        rows: how many lines it is high.
    """

    values: Sequence[float]
    top: float
    base: float
    labels: tuple[str, str, str]
    mark: int
    bands: Sequence[Band] = ()
    rows: int = 8


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """A part of a timeline in which something goes on.

    Attributes:
        start: where it begins, of the length of the timeline.
        end: where it ends.
        dark: whether it is drawn darkly.
    """

    start: float
    end: float
    dark: bool


@dataclass(frozen=True, slots=True)
class Track:
    """A line of a timeline.

    Attributes:
        name: what stands before it.
        spans: what is drawn.
        tone: in what colour what is dark is drawn.
    """

    name: str
    spans: Sequence[ChartSpan]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lines on one scale of time.

    Attributes:
        tracks: the lines.
        length: how long they are, in words.
    """

    tracks: Sequence[Track]
    length: str


def print_timeline(timeline: Timeline, output: Output | None = None) -> None:
    """Prints a timeline as wide as the output's lines."""
    output = output or answers()
    plain = not _has_blocks(output)
    lines = track_lines(timeline.tracks, timeline.length, output.columns, plain=plain)
    print_lines(lines, output)


def track_lines(
    tracks: Sequence[Track], length: str, width: int | None, *, plain: bool = False
) -> list[list[Cell]]:
    """The lines of a timeline.

    Args:
        tracks: what is drawn.
        length: how long it is, in words.
        width: characters in a line; None for as many as are usual.
        plain: whether to do with ASCII.
    """
    margin = max((len(track.name) for track in tracks), default=0)
    columns = max(min(width or _WIDTH, _WIDEST) - margin - 2, 8)
    edge, corner, rule = ("|", "+", "-") if plain else ("│", "└", "─")
    lines = []
    for track in tracks:
        cells = [Cell(f"{track.name:>{margin}} {edge}", "muted")]
        cells += _merged(iter(_track_blocks(track, columns, plain)))
        lines.append(cells)
    lines.append([Cell(f"{'':>{margin}} {corner}{rule * columns}", "muted")])
    lines.append([Cell(f"{'':>{margin}}  0{length:>{columns - 1}}", "muted")])
    return lines


def shares(spans: Sequence[ChartSpan], columns: int) -> list[tuple[float, float]]:
    """How much of each column of a timeline is drawn darkly, and how much lightly."""
    dark, light = [0.0] * columns, [0.0] * columns
    for span in spans:
        filled = dark if span.dark else light
        start, end = span.start * columns, min(span.end * columns, columns)
        for column in range(int(start), min(int(end) + 1, columns)):
            filled[column] += max(min(end, column + 1) - max(start, column), 0.0)
    return list(zip(dark, light, strict=True))


def _track_blocks(track: Track, columns: int, plain: bool) -> list[tuple[str, Tone]]:
    blocks: list[tuple[str, Tone]] = []
    for of_dark, of_light in shares(track.spans, columns):
        if max(of_dark, of_light) < 0.02:
            blocks.append((" ", "plain"))
        elif of_dark >= 0.5:
            blocks.append(("#" if plain else "█", track.tone))
        elif of_dark >= 0.02:
            blocks.append(("=" if plain else "▒", track.tone))
        else:
            blocks.append(("." if plain else "░", "muted"))
    return blocks


def print_area(area: Area, output: Output | None = None) -> None:
    """Prints a picture as wide as the output's lines."""
    output = output or answers()
    print_lines(area_lines(area, output.columns, plain=not _has_blocks(output)), output)


def area_lines(area: Area, width: int | None, *, plain: bool = False) -> list[list[Cell]]:
    """The lines of a picture.

    Args:
        area: the picture.
        width: characters in a line; None for as many as are usual.
        plain: whether to do with ASCII.
    """
    margin = max(map(len, area.labels))
    columns = max(min(width or _WIDTH, _WIDEST) - margin - 2, 8)
    heights, mark = _in_columns(area, columns)
    lines = []
    for row in range(area.rows):
        floor = area.top * (area.rows - 1 - row) / area.rows
        label = {0: area.labels[0], area.rows // 2: area.labels[1]}.get(row, "")
        cells = [Cell(f"{label:>{margin}} {'|' if plain else '┤' if label else '│'}", "muted")]
        cells += _merged(_block(height, floor, area, plain) for height in heights)
        lines.append(cells)
    corner = "+" if plain else "└"
    rule = "-" if plain else "─"
    lines.append([Cell(f"{area.labels[2]:>{margin}} {corner}{rule * columns}", "muted")])
    bands = _band_line(area.bands, columns, "|" if plain else "│")
    if bands.strip():
        lines.append([Cell(" " * (margin + 2) + bands, "muted")])
    arrow = "^ peak" if plain else "▲ peak"
    if mark + len(arrow) > columns:
        arrow = "peak ^" if plain else "peak ▲"
        mark -= len(arrow) - 1
    lines.append([Cell(" " * (margin + 2 + mark) + arrow, "heading")])
    return lines


def _has_blocks(output: Output) -> bool:
    return output.stream.encoding.lower().startswith("utf")


def _in_columns(area: Area, columns: int) -> tuple[list[float], int]:
    """The height in each column, and which column is marked."""
    count = len(area.values)
    heights = []
    for column in range(columns):
        start = column * count // columns
        end = max((column + 1) * count // columns, start + 1)
        heights.append(max(area.values[start:end], default=0.0))
    return heights, min(area.mark * columns // max(count, 1), columns - 1)


def _block(height: float, floor: float, area: Area, plain: bool) -> tuple[str, Tone]:
    step = area.top / area.rows
    filled = min(max((height - floor) / step, 0.0), 1.0)
    if floor + step / 2 <= area.base and filled:
        return (":" if plain else _BASE), "muted"
    eighths = math.ceil(filled * 8 - 1e-9)
    if plain:
        return ("#" if eighths >= 4 else " "), "plain"
    return _EIGHTHS[eighths], "plain"


def _merged(blocks: Iterator[tuple[str, Tone]]) -> Iterator[Cell]:
    """Neighbours of one tone in one cell."""
    text = ""
    tone: Tone = "plain"
    merged: list[Cell] = []
    for block, of in blocks:
        if of != tone and text:
            merged.append(Cell(text, tone))
            text = ""
        text, tone = text + block, of
    merged.append(Cell(text, tone))
    return iter(merged)


def _band_line(bands: Sequence[Band], columns: int, edge: str) -> str:
    line = [" "] * columns
    for band in bands:
        start, end = int(band.start * columns), int(band.end * columns)
        if end - start < 3:
            continue
        name = band.name if len(band.name) < end - start else ""
        line[start] = edge
        line[start + 1 : start + 1 + len(name)] = name
    return "".join(line).rstrip()
