import pytest

from sdyscope.words.counts import counted, few, listed, percent


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("value",), "0 values"),
        (1, ("value",), "1 value"),
        (2, ("value",), "2 values"),
        (12_345, ("more difference",), "12,345 more differences"),
        (1, ("axis", "axes"), "1 axis"),
        (2, ("tensor is", "tensors are"), "2 tensors are"),
    ],
)
def test_counted(count, words, said):
    assert counted(count, *words) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (1, 8, "12%"),
        (1, 1000, "<1%"),
        (0, 8, "0%"),
        (3, 2, "150%"),
        (1, 0, "-"),
        (999, 1000, ">99%"),
        (8, 8, "100%"),
    ],
)
def test_percent(part, whole, said):
    assert percent(part, whole) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [((), ""), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c"), "a, b and c")],
)
def test_listed(words, said):
    assert listed(words) == said


@pytest.mark.parametrize(
    ("most", "said"), [(3, "a, b, c"), (2, "a, b and 1 more"), (1, "a and 2 more")]
)
def test_few(most, said):
    assert few("abc", most) == said
