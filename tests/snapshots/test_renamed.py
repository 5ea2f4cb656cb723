"""Snapshots of a program on meshes that differ in the names of axes alone."""

from sdyscope.facts.snapshots import StageText
from sdyscope.snapshots import Item, Snapshot, compare
from sdyscope.snapshots.values import Key
from sdyscope.views import snapshot as view


def named(data, model, other, mesh="{data}=4, {model}=4"):
    def item(**texts):
        return (Item(tuple(StageText(stage, text) for stage, text in texts.items())),)

    items = {
        Key("argument", "batch['data']", "f32[8,16]"): item(lowered=f"P('{data}', None)"),
        Key("argument", "data", "f32[16,16]"): item(
            lowered=f"[{{{model}:(1)2, ?}}, {{}}]", propagated=f"P(None, '{other}')"
        ),
        Key("collective", "dot", "f32[8]", f"all-reduce over {data}=4 x {model}:(1)2"): item(
            compiled="1 × per step, a device sends 8 B"
        ),
    }
    stages = ("lowered", "propagated", "compiled")
    return Snapshot(
        "step", mesh.format(data=data, model=model), ("shardy",), stages, "cpu:16", items
    )


def test_renamed_axes_are_a_difference_of_the_mesh_alone():
    comparison = compare(named("data", "model", "model"), named("dp", "tp", "tp"))
    assert not comparison.is_same
    (header,) = comparison.header
    assert (header.word, header.before, header.after) == ("mesh", "data=4, model=4", "dp=4, tp=4")
    assert (comparison.same, comparison.different) == (3, 0)
    assert comparison.renamed == {"data": "dp", "model": "tp"}
    (line,) = [p.text for p in view.comparison(comparison) if "called" in p.text]
    assert line == "compared with data, model called dp, tp, as the sizes are the same"


def test_what_differs_besides_the_names_of_axes_is_a_difference():
    comparison = compare(named("data", "model", "model"), named("dp", "tp", "dp"))
    assert [change.name for change in comparison.changes] == ["data"]


def test_axes_that_may_have_changed_places_are_not_renamed():
    before = named("data", "model", "model")
    exchanged = compare(before, named("model", "data", "data"))
    assert (exchanged.renamed, exchanged.different) == ({}, 4)
    other_sizes = named("dp", "tp", "tp", mesh="{data}=4, {model}=2")
    assert compare(before, other_sizes).renamed == {}
    for mesh in ("{data}=4, {model}=4; devices [4,4]T(1,0)", "{data}=4, {model}=4; x=2"):
        assert compare(before, named("dp", "tp", "tp", mesh=mesh)).renamed == {}
