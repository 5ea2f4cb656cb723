"""What an error's text looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import SdyscopeError, SyntaxTextError, caret_snippet, one_of


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "It is wrong."),
        ({"file": "a.mlir"}, "a.mlir: It is wrong."),
        ({"file": "a.mlir", "line": 3}, "a.mlir:3: It is wrong."),
        ({"file": "a.mlir", "line": 3, "column": 7}, "a.mlir:3:7: It is wrong."),
        ({"line": 3, "column": 7}, "line 3, column 7: It is wrong."),
        ({"hint": "Mend it."}, "It is wrong.\nMend it."),
        ({"snippet": "  x\n  ^", "hint": "Mend it."}, "It is wrong.\n  x\n  ^\nMend it."),
    ],
)
def test_text(arguments, text):
    assert str(SdyscopeError("It is wrong.", **arguments)) == text


def test_syntax_error_shows_the_place_and_what_could_stand_there():
    error = SyntaxTextError(
        "a comma has nothing after it.",
        text='<@mesh,\n [{"a",}]>',
        line=2,
        column=7,
        expected=("an axis", "'?'"),
        file="a.mlir",
    )
    assert str(error).splitlines() == [
        "a.mlir:2:7: a comma has nothing after it.",
        '   [{"a",}]>',
        "        ^",
        "Expected an axis or '?'.",
    ]


@pytest.mark.parametrize(
    ("choices", "words"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_one_of(choices, words):
    assert one_of(choices) == words


@given(st.text(min_size=1), st.data())
def test_caret_is_under_the_character(text, data):
    lines = text.split("\n")
    line = data.draw(st.integers(1, len(lines)))
    source = lines[line - 1]
    column = data.draw(st.integers(1, len(source) + 1))
    shown, caret = caret_snippet(text, line, column, width=20).split("\n")
    assert len(shown) <= 2 + 3 + 20 + 3
    assert shown.isprintable()
    if column <= len(source):
        character = source[column - 1]
        expected = character if character.isprintable() else " " if character == "\t" else "?"
        assert shown[caret.index("^")] == expected


def test_caret_in_the_middle_of_a_long_line():
    text = "a" * 500 + "!" + "b" * 500
    shown, caret = caret_snippet(text, 1, 501).split("\n")
    assert shown.startswith("  ...a")
    assert shown.endswith("b...")
    assert shown[caret.index("^")] == "!"


def test_position_outside_of_the_text():
    assert caret_snippet("ab", 1, 9) == "  ab\n    ^"
    assert caret_snippet("ab", 7, 1) == "  \n  ^"
