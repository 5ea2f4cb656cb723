"""What is compared with what, and where values begin to differ, in words."""

from dataclasses import replace

import pytest

from sdyscope.facts.execution import OtherOnOneDevice, Reference
from sdyscope.facts.findings import (
    DependsOnMesh,
    InnerDifference,
    Inside,
    NotOnMesh,
    Observation,
    Regrouped,
)
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation
from sdyscope.words.findings import finding_of
from sdyscope.words.run import compared_with, inside_text, meshes_text, reference_text

ONE, EIGHT = Mesh.of({"d": 1}), Mesh.of({"d": 8})
LINE = SourceLocation("step.py", 9)
FIRST = InnerDifference("psum", "jit(f)", LINE, "f32", (4,), 7.0, 8.0, ("d",), ONE, None, 12, 0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {},
            "psum in jit(f) at step.py:9: f32[4], 8 times what it is on a mesh of one device (the ",
        ),
        ({"base": EIGHT}, "8 times what it is on d=8 (the size of d)."),
        ({"ratio": None, "base": None}, "7 of its norm from what it is without shardings."),
        ({"iteration": 2, "source": None}, "psum in jit(f), in iteration 2 of its loop: f32[4], "),
        ({"unseen": 1}, "(the size of d). 1 value that it may be made of was not compared."),
        ({"unseen": 3}, "(the size of d). 3 values that it may be made of were not compared."),
    ],
)
def test_the_first_value_inside(changed, said):
    text = inside_text(Inside("result", replace(FIRST, **changed)))
    assert text.startswith("The first value inside that differs is computed by psum in jit(f)")
    assert said in text


@pytest.mark.parametrize(
    ("regrouped", "axes", "todo"),
    [
        (
            Regrouped(16, 32, 4, ("d",)),
            " (over d)",
            "Split a device's part into whole groups, 2",
        ),
        (Regrouped(16, 32, 3, ("d", "e")), " (over d or e)", "Gather the dimension before it is"),
        (Regrouped(16, 48, 4, ()), "", "Gather the dimension before it is split."),
    ],
)
def test_groups_of_a_devices_own_elements(regrouped, axes, todo):
    inside = Inside("result", replace(FIRST, op="reshape", ratio=None, regrouped=regrouped))
    fact = DependsOnMesh("result", 1, 0.5, None, (), EIGHT, inside=inside)
    finding = finding_of(Observation("depends-on-mesh", "error", fact))
    assert finding.message.endswith(
        f"of which each device has a part, {regrouped.part} of {regrouped.whole}{axes}, into "
        f"{regrouped.groups} groups of the device's own elements: which elements form a group "
        "depends on the mesh."
    )
    assert finding.hint.startswith(todo)


def test_axes_of_a_ppermute_in_another_order_than_the_mesh():
    inside = Inside("result", replace(FIRST, op="ppermute", ratio=None, reordered=("b", "a")))
    fact = DependsOnMesh("result", 1, 0.5, None, (), EIGHT, inside=inside)
    finding = finding_of(Observation("depends-on-mesh", "error", fact))
    assert (
        "It names b and a in another order than the mesh does, and JAX numbers" in finding.message
    )
    assert finding.hint.startswith("Name the axes in the mesh's order")


def test_why_there_is_none():
    whys = ("other structure", "other ops", "gone", "processes", "failed")
    texts = [inside_text(Inside("result", None, why, "no memory")) for why in whys]
    assert len(set(texts)) == 5
    assert all(text.endswith(".") for text in texts)
    assert texts[-1] == "Values inside could not be compared: no memory."
    assert inside_text(None) == ""


def test_references():
    maps = Reference(has_shard_maps=True)
    other = replace(maps, others=(OtherOnOneDevice(0, 7.0, 8.0),))
    given = replace(maps, function="dense.py:step")
    independent = [one.is_independent for one in (Reference(), maps, other, given)]
    assert independent == [True, False, False, True]
    assert compared_with(Reference()) == "its jaxpr without shardings"
    assert compared_with(maps) == "itself on a mesh of one device"
    assert compared_with(other) == "itself, mapped on one device"
    assert compared_with(given) == "dense.py:step"
    assert compared_with(Reference(failure="out of memory")) == ""
    assert reference_text(given, " (1 ms)") == "against dense.py:step on one device (1 ms)."


def test_what_meshes_are_compared_with():
    start = "On each mesh the same values, and every result against "
    assert meshes_text(Reference(), ONE) == (
        f"{start}the base, which is the program on a mesh of one device."
    )
    assert meshes_text(Reference(), EIGHT) == f"{start}the base, which is the program on d=8."
    assert meshes_text(Reference(function="dense"), ONE) == f"{start}dense."
    assert meshes_text(Reference(), None).startswith("No mesh runs the program")


def message(fact):
    return finding_of(Observation("depends-on-mesh", "error", fact)).message


def test_what_depends_on_a_mesh():
    fact = DependsOnMesh("result", 2, 7.0, 8.0, ("d",), EIGHT, inside=Inside("result", FIRST))
    text = message(fact)
    assert text.startswith(
        "On d=8, result is 8 times what the program computes on a mesh of one device, and 1 more "
        "result differs: the size of d. The first value inside that differs is computed by psum "
    )
    text = message(replace(fact, results=3, ratio=None, inside=None, function="dense"))
    assert text == (
        "On d=8, result is not what dense computes, and 2 more results differ: the error is 7 of "
        "its norm."
    )
    text = message(replace(fact, results=1, ratio=None, inside=None, base=EIGHT, mesh=None))
    assert text == "result is not what the program computes on d=8: the error is 7 of its norm."
    assert message(NotOnMesh(EIGHT, "no")) == "It is not compared on d=8: no."
