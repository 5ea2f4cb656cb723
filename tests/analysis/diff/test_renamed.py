"""Rows that one side has under another name."""

from sdyscope.analysis.diff.renamed import renamed


def pairs(rows):
    return list(renamed(rows, lambda row: row[1:], lambda row: row[0][0]))


def test_what_both_sides_have_as_often_is_put_together_in_order():
    rows = [("w1", 1, 0), ("w2", 1, 0), ("w", 1, 1), ("w3", 0, 1), ("x", 1, 0), ("w4", 0, 1)]
    assert pairs(rows) == [
        (rows[0], rows[3]),
        (rows[1], rows[5]),
        (rows[2], None),
        (rows[4], None),
    ]


def test_where_one_side_has_more_nothing_is_guessed():
    rows = [("w1", 1, 0), ("w2", 0, 1), ("w3", 0, 1)]
    assert pairs(rows) == [(row, None) for row in rows]
