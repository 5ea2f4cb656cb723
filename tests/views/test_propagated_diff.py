"""Differences of propagations as they are printed."""

from dataclasses import replace

import pytest

from sdyscope.analysis.diff.sides import what_if
from sdyscope.graph.types import parse_type
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import propagated_diff


@pytest.fixture(scope="module")
def found():
    before = Inspection(resolve("mlp"), ["shardy"])
    after = before.what_if({"params['w1']": "P('data', 'model')"})
    (changed,) = what_if(before, after)
    return changed


def texts(paragraphs):
    return [paragraph.text for paragraph in paragraphs]


def test_the_total_is_first_and_says_where(found):
    total = propagated_diff.total(found)
    assert total.text.startswith(f"mlp under Shardy: {found.different_values} of ")
    assert " sharded differently before and after, beginning at " in total.text
    named = replace(found, a="one.mlir", b="two.mlir", across="programs")
    assert (
        " differently in one.mlir and two.mlir, beginning at " in propagated_diff.total(named).text
    )
    partitioners = replace(found, a="shardy", b="gspmd", across="partitioners", beginnings=())
    assert propagated_diff.total(partitioners).text.endswith("the same way under Shardy and GSPMD")


def test_a_beginning_has_both_sides_its_inputs_and_what_follows(found):
    lines = texts(propagated_diff.details(found))
    at = next(k for k, line in enumerate(lines) if "params['w1'] f32[128,256]" in line)
    assert lines[at + 1] == (
        "before  P(None, 'model'): dim 0 whole, dim 1 split 2 ways over model; "
        "replicated 4 times over data"
    )
    assert (
        lines[at + 2]
        == "after   P('data', 'model'): dim 0 split 4 ways over data, dim 1 split 2 ways over model"
    )
    assert "more values follow from it; all " in lines[at + 3]
    assert any(line.startswith("computed from values sharded the same way: ") for line in lines)
    assert not any("under before" in line for line in lines)


def test_another_type_stands_before_the_sharding_on_its_side(found):
    (begins, *_), half = found.beginnings, parse_type("tensor<128x256xbf16>")
    retyped = replace(begins, begins=replace(begins.begins, other_type=half))
    lines = texts(propagated_diff.details(replace(found, beginnings=(retyped,))))
    assert any(line.startswith("before  P(") for line in lines)
    assert any(line.startswith("after   bf16[128,256] P(") for line in lines)


def test_the_rest_is_counted_and_all_lists_it(found):
    first = found.beginnings[0]
    begun = [
        replace(first.begins, value=replace(first.begins.value, name=f"w{k}")) for k in range(14)
    ]
    many = replace(found, beginnings=tuple(replace(first, begins=begins) for begins in begun))
    rest = 4 * found.beginnings[0].values
    lines = texts(propagated_diff.details(many))
    assert f"and 4 more places, with {rest} values: --all lists everything" in lines
    everything = texts(propagated_diff.details(many, everything=True))
    assert not any("--all" in line for line in everything)
    assert sum(" | " in line for line in everything) == 14 * len(found.beginnings[0].follows)


def test_where_axes_come_from_is_not_asked_for_a_diff_that_does_not_say_it(found):
    list(propagated_diff.details(found))
    assert not found.propagation_a.is_explained
    assert not found.propagation_b.is_explained


def test_beginnings_of_which_the_same_is_said_are_told_once(found):
    first = found.beginnings[0]
    several = replace(found, beginnings=(first,) * 12)
    headings = [line for line in texts(propagated_diff.details(several)) if " (×" in line]
    assert headings == [f"1. {propagated_diff.title(first.begins.value)} (×12)"]
    assert not any("more place" in line for line in texts(propagated_diff.details(several)))
