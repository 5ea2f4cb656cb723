"""What stands beside a line of source, in words."""

from types import SimpleNamespace

from sdyscope.facts.sharded import Sharded
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation
from sdyscope.words.findings import Finding
from sdyscope.words.mesh import axis_spans
from sdyscope.words.source import (
    collectives_text,
    finding_text,
    told_once,
    values_text,
    way_text,
)

MESH = Mesh.of({"data": 4, "model": 2})


def values(**changed):
    sharding = Sharded(None, (8, 4), "f32")
    fields = {
        "count": 1,
        "name": "step",
        "op": "stablehlo.dot_general",
        "shape": (8, 4),
        "dtype": "f32",
        "shardings": {"shardy": sharding, "gspmd": sharding},
        "same": True,
        "begins": False,
    }
    return SimpleNamespace(**fields | changed)


def test_values_that_agree_have_one_sharding():
    assert values_text(values()) == "f32[8,4] dot_general -"
    assert values_text(values(count=1200)) == "1,200 values f32[8,4] -"
    assert values_text(values(shape=None)) == "f32 dot_general -"


def test_values_that_differ_say_whose_and_where_it_begins():
    differing = values_text(values(same=False, begins=True))
    assert (
        differing
        == "f32[8,4] dot_general: - under Shardy, - under GSPMD; the difference begins here"
    )
    assert values_text(values(same=False)).endswith("; follows from an earlier difference")


def collectives(**changed):
    fields = {
        "partitioner": "shardy",
        "kind": "all-gather",
        "axes": (AxisRef("data"),),
        "tensors": 2,
        "sent": 2048,
        "counted_once": False,
        "at_most": False,
    }
    return SimpleNamespace(**fields | changed)


def test_collectives_say_their_axes_tensors_and_bytes():
    assert (
        collectives_text(collectives(), MESH) == "all-gather over data=4 of 2 tensors sends 2.0 KiB"
    )
    assert collectives_text(collectives(tensors=1, at_most=True), MESH, ["gspmd"]) == (
        "GSPMD: all-gather over data=4 of 1 tensor sends at most 2.0 KiB"
    )
    assert collectives_text(collectives(counted_once=True), MESH).endswith(
        " sends 2.0 KiB with loops of unknown trip count run once"
    )
    assert collectives_text(collectives(axes=None), None).startswith("all-gather of 2")


def test_what_partitioners_send_alike_is_told_once():
    shardy, gspmd = collectives(), collectives(partitioner="gspmd")
    other = collectives(partitioner="gspmd", kind="all-to-all")
    groups = told_once([shardy, gspmd, other], {"shardy": MESH, "gspmd": MESH})
    assert list(groups.values()) == [[shardy, gspmd], [other]]


def test_findings_of_one_rule_are_the_first_and_a_number():
    finding = Finding("some-rule", "warning", "It is so.", "params['w']", "argument")
    assert finding_text([finding]) == "warning some-rule of params['w']: It is so."
    assert finding_text([finding] * 3).endswith("It is so. And 2 more of this rule.")
    assert finding_text([Finding("some-rule", "note", "So.")]) == "note some-rule: So."


def test_a_way_begins_with_the_call_of_the_line():
    way = [SourceLocation("/a/b.py", 3, 0, "f"), SourceLocation("/a/c.py", 4)]
    assert way_text(way) == "f at …/a/b.py:3 > …/a/c.py:4"


def test_axes_are_found_in_shardings_and_not_in_paths():
    text = (
        "batch['data'] is P(('data', 'model'), None) over data=4; [{model:(1)2}, {data}] metadata=4"
    )
    found = [text[begin:end] for begin, end, _ in axis_spans(text, ("data", "model"))]
    assert found == ["data", "model", "data", "model", "data"]
    assert axis_spans(text, ()) == []
    (span,) = axis_spans("P('data_outer', 'x')", ("data", "data_outer"))
    assert span == (3, 13, "data_outer")
