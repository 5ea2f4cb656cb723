"""Areas of block characters, at any width and without Unicode."""

import pytest

from sdyscope.terminal.chart import Area, Band, ChartSpan, Track, area_lines, shares, track_lines

AREA = Area(
    values=[2, 4, 8, 6, 2],
    top=8,
    base=2,
    labels=("8 B", "4 B", "0 B"),
    mark=2,
    bands=(Band("forward", 0.0, 0.4), Band("backward", 0.4, 1.0)),
    rows=4,
)


def text(*arguments, **options):
    return ["".join(cell.text for cell in line) for line in area_lines(*arguments, **options)]


@pytest.mark.parametrize("width", [20, 45, 80, 120])
def test_a_picture_is_as_wide_as_the_line(width):
    lines = text(AREA, width)
    assert max(map(len, lines)) == width
    assert lines[0].startswith("8 B ┤")
    assert lines[4].startswith("0 B └─")


def test_heights_and_the_mark():
    assert text(AREA, 15) == [
        "8 B ┤    ██    ",
        "    │    ████  ",
        "4 B ┤  ██████  ",
        "    │░░░░░░░░░░",
        "0 B └──────────",
        "     │   │",
        "         ▲ peak",
    ]


def test_plain_characters_alone_where_there_are_no_others():
    assert all(line.isascii() for line in text(AREA, 60, plain=True))


def test_the_mark_at_the_end_has_its_word_before_it():
    last = text(Area([1] * 9 + [8], 8, 0, ("8", "4", "0"), 9), 20)[-1]
    assert last.endswith("peak ▲")
    assert len(last) <= 20


TRACKS = (
    Track("compute", [ChartSpan(0.0, 0.5, dark=True), ChartSpan(0.5, 0.53, dark=True)]),
    Track("data", [ChartSpan(0.4, 0.5, dark=False), ChartSpan(0.5, 1.0, dark=True)], "bad"),
)


def test_a_timeline_is_dark_where_most_of_a_column_is():
    lines = ["".join(cell.text for cell in line) for line in track_lines(TRACKS, "2 s", 19)]
    assert lines == [
        "compute │█████▒    ",
        "   data │    ░█████",
        "        └──────────",
        "         0      2 s",
    ]
    plain = track_lines(TRACKS, "2 s", 19, plain=True)
    assert "".join(cell.text for cell in plain[1]) == "   data |    .#####"


def test_a_column_has_no_more_than_it_is_wide():
    columns = shares([ChartSpan(0.0, 0.55, dark=True), ChartSpan(0.55, 1.0, dark=False)], 10)
    assert all(0.0 <= dark + light <= 1.0 + 1e-9 for dark, light in columns)
    assert [round(part, 6) for part in columns[5]] == [0.5, 0.5]
