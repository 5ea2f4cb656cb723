"""What looks the same is one row, on the terminal and on the page."""

from dataclasses import replace

from sdyscope.analysis.collectives.groups import collective_groups
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.hlo import Shape
from sdyscope.values.mesh import AxisRef
from sdyscope.values.source import SourceLocation

MODEL = (AxisRef("model"),)


def collective(scope, *, line=1, column=0, sent=8, axes=MODEL, primitive="dot_general"):
    part = Part(
        Shape("f32", (8,), ()),
        32,
        sent,
        sent,
        scope,
        primitive,
        "forward",
        SourceLocation("a.py", line, column),
    )
    return Collective(
        f"all-reduce.{scope}.{line}.{column}",
        "all-reduce",
        axes,
        2,
        3,
        False,
        False,
        False,
        None,
        "",
        (part,),
        line,
    )


def scopes(*collectives):
    found = Collectives(collectives, 8, None, differentiated=False)
    return [(group.scope, len(group.members), group.sent) for group in collective_groups(found)]


def test_layers_are_one_row():
    assert scopes(collective("layer0/mlp"), collective("layer1/mlp", column=4)) == [
        ("layer*/mlp", 2, 48)
    ]


def test_a_scope_alone_keeps_its_number():
    assert scopes(collective("layer0/mlp"), collective("")) == [
        ("layer0/mlp", 1, 24),
        ("dot_general", 1, 24),
    ]


def test_another_line_or_axis_is_another_row_and_the_largest_comes_first():
    assert scopes(
        collective("mlp"), collective("mlp", line=2, sent=16), collective("mlp", axes=None)
    ) == [("mlp", 1, 48), ("mlp", 1, 24), ("mlp", 1, 24)]


def test_a_helper_s_calls_on_one_line_are_one_row():
    def called(line, column):
        return replace(part, callers=(SourceLocation("a.py", line, column),))

    each = collective("mlp")
    (part,) = each.parts
    found = [replace(each, parts=(called(*place),)) for place in ((9, 1), (9, 8), (10, 1))]
    groups = collective_groups(Collectives(tuple(found), 8, None, differentiated=False))
    assert [(len(group.members), group.callers[0].line) for group in groups] == [(2, 9), (1, 10)]


def test_a_line_that_all_ways_to_a_helper_end_in_tells_nothing_apart():
    """As that of a wrapper of the user's, which calls `shard_map` on the whole step."""

    def called(*places):
        lines = tuple(SourceLocation(file, line) for file, line in places)
        return replace(each, parts=(replace(part, callers=lines),))

    def shown(*calls):
        groups = collective_groups(Collectives(calls, 8, None, differentiated=False))
        return [[(line.file, line.line) for line in group.callers] for group in groups]

    each = collective("mlp")
    (part,) = each.parts
    layer, other, wrapper = ("model.py", 5), ("model.py", 9), ("wrap.py", 3)
    assert shown(called(layer, wrapper), called(other, wrapper)) == [[layer], [other]]
    assert shown(called(layer, wrapper), called(layer, other)) == [
        [layer, wrapper],
        [layer, other],
    ]
    assert shown(called(layer, wrapper), called(wrapper)) == [[layer, wrapper], [wrapper]]
    assert shown(called(layer, wrapper), called()) == [[layer, wrapper], []]
