"""Sources: expressions by their place, edits of their text."""

import ast

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import TargetError
from sdyscope.patches.diff import applied, replacements, unified_diff
from sdyscope.patches.source import Overlap, Source, Span, Splice, one_line, spliced

TEXT = """é = "é"; y = g((p + q), k=3)
def f(a, b):
    return (
        a @ b
        + b
    )
"""


def test_an_expression_is_found_by_what_python_says_of_its_place():
    """Every expression that Python's own parser sees and that no other shares its place with."""
    source = Source("m.py", TEXT)
    seen = 0
    for node in ast.walk(ast.parse(TEXT)):
        if isinstance(node, ast.expr) and not isinstance(node, ast.Tuple):
            span = Span("m.py", node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            expression = source.expression(span)
            assert expression is not None, ast.dump(node)
            assert source.written(expression) == ast.get_source_segment(TEXT, node)
            start, end = source.extent(expression)
            assert TEXT[start:end] == source.written(expression)
            seen += 1
    assert seen > 12
    assert source.expression(Span("m.py", 1, 1, 1, 2)) is None
    assert source.expression(Span("m.py", 90, 0, 90, 2)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model.apply(\n    params,\n    x,\n)", "model.apply(params, x)"),
        ("f(\n    a\n    + b\n)[\n    0\n]", "f(a + b)[0]"),
        ("(\n    a,\n)", "(a,)"),
        ("g(\n    [\n        a,\n        b,\n    ],\n    c=1,\n)", "g([a, b], c=1)"),
    ],
)
def test_what_stands_on_several_lines_reads_as_on_one(text, said):
    assert one_line(text) == said


def test_splices_are_put_where_they_belong_and_never_over_one_another():
    assert spliced("abc", [Splice(3, 3, ")"), Splice(0, 0, "("), Splice(1, 2, "B")]) == "(aBc)"
    with pytest.raises(Overlap):
        spliced("abcd", [Splice(0, 3, "x"), Splice(2, 4, "y")])


def test_a_file_that_is_no_python_is_one_sentence():
    with pytest.raises(TargetError) as raised:
        Source("m.py", "def f(:\n")
    assert raised.value.line == 1
    assert "\n" not in raised.value.message


LINES = st.lists(st.sampled_from(["a", "b", "", "--- x", "+++ y", "@@ -1 +1 @@", "\\ No"]))


@given(LINES, LINES, st.booleans(), st.booleans())
def test_a_diff_applied_to_the_text_before_is_the_text_after(before, after, one, two):
    old, new = "\n".join(before) + "\n" * one, "\n".join(after) + "\n" * two
    diff = unified_diff({"/f/m.py": old}, {"/f/m.py": new}, "/f")
    assert applied(diff, old, "m.py") == new


@given(LINES, LINES, st.booleans(), st.booleans())
def test_replacements_make_the_text_after(before, after, one, two):
    """Applied by line and column, as a reader of SARIF does, from the bottom up."""
    old, new = "\n".join(before) + "\n" * one, "\n".join(after) + "\n" * two
    starts = [0, *(at + 1 for at, letter in enumerate(old) if letter == "\n")]
    text = old
    for row in reversed(replacements(old, new)):
        end = starts[row.end - 1] + row.end_column - 1
        text = text[: starts[row.start - 1]] + row.text + text[end:]
    assert text == new


def test_git_applies_the_diff(tmp_path):
    import subprocess

    old, new = "a\nb\nc", "a\nB\nc\nd\n"
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "m.py"
    file.write_text(old)
    diff = unified_diff({str(file): old}, {str(file): new}, str(tmp_path))
    assert diff.startswith("--- a/sub/m.py\n+++ b/sub/m.py\n")
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    assert file.read_text() == new
    with pytest.raises(TargetError, match="line 1 differs"):
        applied(diff, "x\ny\nz\n", "sub/m.py")


@pytest.mark.parametrize("value", ["()", "(1, 2)", "((1, 2))", "(x)", "((x))", "(((1,), 2))", "x"])
def test_an_expression_is_whole_with_its_parentheses(value):
    source = Source("m.py", f"f(a, {value}, b)")
    call = next(node for node in source.nodes() if isinstance(node, cst.Call))
    start, end = source.whole(call.args[1].value)
    assert source.text[start:end] == value
