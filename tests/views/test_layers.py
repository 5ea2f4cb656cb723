"""Rows of repeated layers, folded: nothing is lost, and little is said twice."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.analysis.show import shown
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.terminal.table import Heading
from sdyscope.views import propagate, show
from sdyscope.views.layers import folded, folded_rows, masked

NAMES = st.builds(
    "params['layers'][{}]['{}']".format, st.integers(0, 12), st.sampled_from(["w1", "w2", "b"])
)


@given(st.lists(st.tuples(NAMES, st.sampled_from("xy"))))
def test_every_item_is_in_one_group_that_looks_like_it(items):
    names, looks = [name for name, _ in items], [look for _, look in items]
    groups = folded(names, looks, "argument")
    places = [place for group in groups for place in group.members]
    assert sorted(places) == list(range(len(items)))
    assert [group.members[0] for group in groups] == sorted(group.members[0] for group in groups)
    for group in groups:
        assert len({looks[place] for place in group.members}) == 1
        own = {names[place] for place in group.members}
        if group.is_one and len(own) > 1:
            listed = re.fullmatch(r"params\['layers'\]\[\{(.*)\}\]\['(\w+)'\]", group.name)
            numbers = set()
            for part in listed[1].split(","):
                start, _, end = part.partition("..")
                numbers |= set(range(int(start), int(end or start) + 1))
            assert own == {f"params['layers'][{n}]['{listed[2]}']" for n in numbers}
        else:
            assert own == {group.name}


def test_two_layers_are_not_folded_and_all_folds_nothing():
    rows = [(f"params[{layer}]['w']", "P()") for layer in (0, 1)]
    assert list(folded_rows(rows, "argument", everything=False)) == rows
    rows += [("params[2]['w']", "P()")]
    assert list(folded_rows(rows, "argument", everything=True)) == rows
    assert list(folded_rows(rows, "argument", everything=False)) == [
        ("params[{0..2}]['w'] (3)", "P()")
    ]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("tree[{}]", "tree[{0..2}] (3)"),
        ("layers[0]['experts'][{}]", "layers[0]['experts'][{0..2}] (3)"),
        ("tree['layers/{}/w1']", "tree['layers/{0..2}/w1'] (3)"),
        ("state.h['block.{}.attn.w']", "state.h['block.{0..2}.attn.w'] (3)"),
        ("result[0][{}]", "result[0][{0..2}] (3)"),
        # These do different things.
        ("layers['w{}']", ""),
        ("layers.w{}", ""),
        ("result[{}]", ""),
        ("w{}", ""),
        ("tree['v1.{}']", ""),
    ],
)
def test_the_last_part_of_a_path_may_count_layers(name, title):
    rows = [(name.format(number), "P()") for number in range(3)]
    shown = [row[0] for row in folded_rows(rows, "argument", everything=False)]
    assert shown == ([title] if title else [row[0] for row in rows])


def test_other_cells_say_which_layer_and_w1_is_no_layer():
    assert masked("x <- params['layers'][3]['w1']") == "x <- params['layers'][*]['w1']"
    assert masked("jvp(layer3)/mlp") == "jvp(layer*)/mlp"
    assert masked("result[1]") == "result[1]"


@pytest.fixture(scope="module")
def layered():
    sizes = {
        "layers": 4, "d_model": 64, "heads": 4, "head_dim": 16, "d_ff": 64, "vocab": 64,
        "sequence": 16, "optimizer": "sgd",
    }  # fmt: skip
    return Inspection(resolve("fsdp-transformer", settings=sizes), ["shardy"])


def test_show_folds_layers_unless_all_are_asked_for(layered):
    program = shown(layered)
    names = [row[0].text for row in show.table(None, program, everything=False).cells]
    assert "params['layers'][{0..3}]['wq'] (4)" in names
    assert not any("[1]['wq']" in name for name in names)
    every = [row[0].text for row in show.table(None, program, everything=True).cells]
    assert {f"params['layers'][{layer}]['wq']" for layer in range(4)} <= set(every)
    assert len(names) < len(every) / 2


def test_propagate_folds_scopes_and_where_axes_come_from(layered):
    document = propagate_document(layered)
    table = propagate.table(document)
    headings = [row.text for row in table.rows if isinstance(row, Heading)]
    assert any(text.startswith("jvp(layer{0..3})/attention (4 times ") for text in headings)
    rows = [" ".join(cell.text for cell in row) for row in table.cells]
    assert any("(×4)" in row and "params['layers'][*]['wq']" in row for row in rows)
    every = propagate.table(document, everything=True)
    assert len(table.cells) < len(every.cells) / 4
    assert "[*]" not in str(every.cells)
    assert "jvp(layer{" not in str(every.rows)
