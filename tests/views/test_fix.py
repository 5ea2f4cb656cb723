"""What `fix` prints, of values."""

from dataclasses import replace

import pytest
from fix_cases import fix

from sdyscope.facts.edits import Numbers
from sdyscope.terminal.paragraphs import lines
from sdyscope.views import fix as view


def text(paragraphs, columns=80):
    return "\n".join(line for each in paragraphs for line in lines(each, columns))


def test_a_remedy_is_called_proven_if_its_numbers_were_compared(tmp_path):
    proven, other = fix(tmp_path).remedies
    assert "remedy 1: proven" in text(view.remedy(1, proven))
    assert "remedy 2: not proven" in text(view.remedy(2, other))
    said = text(view.proof(fix(tmp_path), proven), None)
    assert "compiled for cpu:8" in said
    assert "3 of 4 results of the edited program equal the original's on 8 cpu devices" in said


@pytest.mark.parametrize("verdict", ["other random", "differ", "not compared"])
def test_nothing_else_is_proven(tmp_path, verdict):
    remedy = replace(fix(tmp_path).remedies[0], numbers=Numbers(verdict, 3, 3))
    assert not remedy.proven
    assert "not proven" in text(view.remedy(1, remedy))
    assert not replace(fix(tmp_path).remedies[0], verdict="loses").proven


def test_what_changes_is_said_of_each_kind_and_axis(tmp_path):
    fixes = fix(tmp_path)
    rows = {str(row[0]): row[1:] for row in view.changes(fixes, fixes.remedies[0]).rows}
    assert [getattr(cell, "text", cell) for cell in rows["all-gather over data"]] == [
        "3.0 MiB",
        "-",
        "gone",
    ]
    assert rows["sent"][-1].text == "-75%"


@pytest.mark.parametrize(
    ("now", "then", "change"),
    [
        (216, 44_040_408, "×203,891"),
        (100, 1000, "×10"),
        (100, 999, "+899%"),
        (50_331_648, 6, "-99.9%"),
        (1000, 1001, "+0.1%"),
        (100, 50, "-50%"),
    ],
)
def test_a_change_is_no_number_that_nobody_reads(tmp_path, now, then, change):
    fixes = fix(tmp_path)
    before = replace(fixes.before, temporaries=now)
    remedy = replace(fixes.remedies[0], after=replace(fixes.remedies[0].after, temporaries=then))
    rows = {
        str(row[0]): row[-1] for row in view.changes(replace(fixes, before=before), remedy).rows
    }
    assert rows["temporaries"].text == change


def test_80_columns_are_enough(tmp_path):
    fixes = fix(tmp_path)
    printed = text(
        [
            *view.heading(fixes),
            *view.remedy(1, fixes.remedies[0]),
            *view.proof(fixes, fixes.remedies[0]),
            *view.footer(fixes),
        ]
    )
    assert max(map(len, printed.splitlines())) <= 80
    assert "not taken: shard params['w'] as P(None)" in printed
    assert "--all shows their patches" in printed


def test_edits_not_taken_that_read_alike_are_listed_once(tmp_path):
    found = fix(tmp_path)
    (refused,) = found.not_taken
    (edit,) = refused.edits
    column = replace(edit, source=replace(edit.source, column=9))
    twice = replace(found, not_taken=(refused, replace(refused, edits=(column,))))
    lines = [each.text for each in view.footer(twice) if each.text.startswith("not taken")]
    assert lines == [each.text for each in view.footer(found) if each.text.startswith("not taken")]
    assert len(lines) == 1


def test_where_longer_loops_send_more_it_is_said(tmp_path):
    fixes = fix(tmp_path)
    remedy = replace(fixes.remedies[0], more_from=1200)
    said = "from 1,200 iterations of a loop of unknown trip count on, a device sends more than now"
    assert f"loops: {said}" in text(view.proof(fixes, remedy), None)
    assert "loops:" not in text(view.proof(fixes, fixes.remedies[0]))
