"""Explanations as they are printed."""

from dataclasses import replace

import pytest

from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import explain, explain_text


@pytest.fixture(scope="module")
def found():
    return explain.document(Inspection(resolve("mlp"), ["shardy"]), "%2")


def texts(found, **options):
    return [paragraph.text for paragraph in explain_text.details(found, **options)]


def with_value(found, **changes):
    return replace(found, values=(replace(found.values[0], **changes),))


def test_a_long_chain_is_cut_in_the_middle(found):
    (why, *_) = found.values[0].why
    long = with_value(found, why=(replace(why, moves=why.moves * 20),))
    lines = texts(long)
    assert "8 moves more: --all lists them" in lines
    assert sum("sharding_constraint" in line for line in lines) == 2 * explain_text.ENDS
    assert sum("sharding_constraint" in line for line in texts(long, everything=True)) == 20
    # One is not left out: the line that says so would take its place.
    almost = with_value(found, why=(replace(why, moves=why.moves * 13),))
    assert texts(almost) == texts(almost, everything=True)


def test_what_no_annotation_was_found_for_is_said(found):
    (why, *_) = found.values[0].why
    lines = texts(with_value(found, why=(replace(why, annotated=None, moves=()),)))
    assert "dim 0 on data: no annotation was found" in lines


@pytest.mark.parametrize(
    ("fate", "words"), [("folded", "folded away"), ("not partitioned", "not partitioned")]
)
def test_what_has_no_sharding_is_said(found, fate, words):
    (value,) = found.values
    gone = replace(value.propagated["shardy"], fate=fate)
    assert words in texts(with_value(found, propagated={"shardy": gone}, why=()))


def test_priorities_and_how_often(found):
    (why, *_) = found.values[0].why
    stopped = explain.WhyNot(
        "model", None, why.moves[0].through, "the result", "closed", "It is closed.", None, 2
    )
    annotated = replace(why.annotated, priority=3)
    lines = texts(with_value(found, why=(replace(why, annotated=annotated),), why_not=(stopped,)))
    assert any("jvp(block0), priority 3 at models/mlp.py:100" in line for line in lines)
    assert "not on model: It is closed. The same rule stopped 2 more tensors." in lines
