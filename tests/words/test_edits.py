"""Edits in sentences."""

import pytest

from sdyscope.facts.edits import SourceEdit
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.values.source import SourceLocation
from sdyscope.words.edits import edit_text, edits_text, why_not_text

LINE = SourceLocation("train.py", 7)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            SourceEdit("new constraint", "x[tokens]", None, P(("data", None)), LINE),
            "constrain x[tokens] to P('data', None)",
        ),
        (
            SourceEdit("constraint", "logits", P(("data",)), None, LINE),
            "remove the constraint P('data') of logits",
        ),
        (
            SourceEdit("constraint", "h", P(("a",)), P(("b",)), LINE),
            "constrain h to P('b') instead of P('a')",
        ),
        (
            SourceEdit("argument", "params['w']", P((None,)), P(("a",)), LINE, 3),
            "shard params['w'] and 2 more tensors as P('a') instead of P(None)",
        ),
        (
            SourceEdit("argument", "x", P(("a",)), None, LINE),
            "leave x to the compiler instead of P('a')",
        ),
        (SourceEdit("donation", "state", None, None, LINE, 2), "donate state and 1 more tensor"),
        (
            SourceEdit("optimizer state", "mu['w']", P(("a",)), None, LINE, 3),
            "shard mu['w'] and 2 more tensors as their parameters instead of P('a')",
        ),
        (
            SourceEdit("optimizer state", "mu", None, None, LINE),
            "shard mu as its parameter instead of no sharding",
        ),
        (
            SourceEdit("repeated reduction", "psum(g, 'd')", None, None, LINE),
            "leave out psum(g, 'd'): it is summed already",
        ),
    ],
)
def test_what_an_edit_is(edit, text):
    assert edit_text(edit) == text
    assert edits_text([edit]) == f"{text} (train.py:7)"


def test_a_long_expression_is_shown_by_its_beginning():
    edit = SourceEdit("setting", "x" * 80, None, None, None)
    assert edit_text(edit) == f"set {'x' * 45}..."


def test_why_not():
    assert why_not_text("not built", "No mesh.") == "the edited source does not build: No mesh"
    assert why_not_text("loses") == "compiled, it wins nothing"
