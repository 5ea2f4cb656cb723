"""Where a source says shardings."""

import pytest

from sdyscope.patches.source import Source, spliced
from sdyscope.patches.specs import spec_literals, spec_text
from sdyscope.values.sharding import PartitionSpec

AXES = ("data", "model")


def says(text, before, after, rank):
    """The texts after each edit that turns one spec into another."""
    source = Source("m.py", text)
    made = []
    for literal in spec_literals(source, AXES):
        splices = literal.with_spec(PartitionSpec(before), PartitionSpec(after), rank)
        if splices:
            made.append(spliced(text, splices))
    return made


@pytest.mark.parametrize(
    ("text", "before", "after", "rank", "then"),
    [
        ("P('data', None)", ("data", None), (None, "data"), 2, "P(None, 'data')"),
        ("P()", (), (None, "model"), 2, 'P(None, "model")'),
        ("P('data')", ("data",), ("data", "model"), 2, "P('data', 'model')"),
        ("P(('data', 'model'))", (("data", "model"),), ("data",), 1, "P('data')"),
        ("x = ('data', None)", ("data", None), (None, None), 2, "x = (None, None)"),
        ("x = ['data']", ("data",), ("data", "model"), 2, "x = ['data', 'model']"),
        ("P(BATCH, None)", ("data", None), ("data", "model"), 2, 'P(BATCH, "model")'),
        # What is written of dimensions that are exchanged is kept.
        ("P(R['in'], TP)", (None, "model"), ("model", None), 2, "P(TP, R['in'])"),
        ("P(TP, None)", ("model", None), (None, "data"), 2, 'P(None, "data")'),
        ("s((8, 4), 'data')", ("data",), (None, "data"), 2, "s((8, 4), None, 'data')"),
        ("s((8,), 'data', dtype=d)", ("data",), (None,), 1, "s((8,), None, dtype=d)"),
        ('P("data")', ("data",), ("model",), 1, 'P("model")'),
    ],
)
def test_an_edit_writes_the_new_spec_and_nothing_else(text, before, after, rank, then):
    assert says(text, before, after, rank) == [then]


def test_a_call_without_axes_is_one_where_others_of_the_function_have_some():
    text = "a = s((8, 4)); b = s((8,), 'data'); c = t((8, 4))"
    assert says(text, (), ("model",), 2) == [
        "a = s((8, 4), 'model'); b = s((8,), 'data'); c = t((8, 4))"
    ]


@pytest.mark.parametrize("text", ["P('data', None)", "P(None)", "f('other')", "('data', 3)"])
def test_what_says_another_spec_is_left_alone(text):
    assert says(text, ("model", None), (None, "model"), 2) == []


def test_what_stands_behind_an_axis_is_a_dimension_and_no_sharding_of_its_own():
    assert says("s((8, 4), 'data', None)", (), (None, "model"), 2) == []


def test_a_spec_is_written_as_the_file_writes():
    spec = PartitionSpec((("data", "model"), None, "seq"))
    assert spec_text(spec, "jax.P", '"') == 'jax.P(("data", "model"), None, "seq")'
