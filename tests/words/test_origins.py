"""Why a collective is there, in words."""

from dataclasses import replace

import pytest

from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation, Together
from sdyscope.values.mesh import AxisRef
from sdyscope.values.source import SourceLocation
from sdyscope.words.origins import annotation_name, origin_text

LINE = SourceLocation("model.py", 9, 1)


def annotation(name, kind="argument", source=None, spec="P('data')", role="has"):
    return OriginAnnotation(kind, name, spec, (AxisRef("data"),), role, source, True)


#: Two constraints of one line with different specs are one by name, and two annotations.
EVERY = (
    annotation("w1"),
    annotation("layer0/c", "constraint", LINE),
    annotation("layer0/c", "constraint", LINE, "P(None, 'data')"),
    annotation("w2"),
)


@pytest.mark.parametrize(
    "named", [(), (0,), (1,), (1, 2), (0, 1, 2), (0, 1, 2, 3), (3, 0)], ids=str
)
def test_who_else_says_the_axes_is_counted_by_name(named):
    together = Together(EVERY)
    origin = CollectiveOrigin(
        "reduction", "x", None, None, "sum", "f", None, tuple(EVERY[at] for at in named), together
    )
    others = list(origin.otherwise)
    assert others == [each for at, each in enumerate(EVERY) if at not in named]
    assert origin.otherwise_count == len(others)
    names = list(dict.fromkeys(map(annotation_name, others)))
    text = origin_text(origin)
    assert ("otherwise by" in text) == bool(names and named)
    if names and named:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        assert f"(otherwise by {names[0]}{more})" in text
    # An annotation of the same place is the same one, whatever else it says.
    again = replace(
        origin, annotations=tuple(replace(each, axes=()) for each in origin.annotations)
    )
    assert list(again.otherwise) == others


@pytest.mark.parametrize("may_split", [False, True])
@pytest.mark.parametrize("others", [0, 1, 2])
def test_of_an_annotated_value_that_is_moved_it_is_said_too(others, may_split):
    """What says its axes is the value itself, and is not named again."""
    named = annotation("w1"), annotation("c", "constraint", LINE, "P()", "needed")
    origin = CollectiveOrigin(
        *("resharding", "w1", "P('data')", "P()", "sharding_constraint", "f", LINE, named),
        together=Together((EVERY[0], *EVERY[2:][:others])),
        may_split=may_split,
    )
    by = ["", "by constraint at model.py:9", "by constraint at model.py:9 and 1 more"][others]
    itself = "perhaps by XLA itself" if may_split else ""
    else_said = ", or ".join(filter(None, [by, itself]))
    mark = f" (otherwise {else_said})" if else_said else ""
    assert origin_text(origin) == (
        f"w1 is P('data'){mark} but constraint at model.py:9 P() requires P()"
    )


def test_a_carry_is_not_what_the_loop_begins_with():
    """Its axes are the argument's, its sharding is another."""
    named = annotation("w1"), annotation("c", "constraint", LINE, "P()", "needed")
    origin = CollectiveOrigin(
        *("resharding", "w1", "P('data', 'model')", "P()", "dot_general", "f", LINE, named),
        carried=True,
    )
    assert origin_text(origin) == (
        "the carry w1 is P('data', 'model') but constraint at model.py:9 P() requires P(); "
        "sharded over data by w1 P('data')"
    )


def test_a_carry_that_begins_as_a_constant():
    named = annotation("w1"), annotation("c", "constraint", LINE, "P()", "needed")
    origin = CollectiveOrigin(
        *("resharding", "a constant", "P('data')", "P()", "dot_general", "f", LINE, named),
        carried=True,
    )
    assert origin_text(origin).startswith("the carry that begins as a constant is P('data') but ")


@pytest.mark.parametrize(
    ("uncertain", "followed", "recorded", "marks"),
    [
        (True, False, True, " (uncertain)"),
        (True, True, True, " (uncertain; op followed)"),
        (True, False, False, " (uncertain; followed, not recorded)"),
        (False, True, True, " (op followed)"),
        (False, True, False, " (op and axes followed, not recorded)"),
        (False, False, True, ""),
    ],
)
def test_what_may_be_wrong_and_what_was_followed_is_said(uncertain, followed, recorded, marks):
    named = (replace(annotation("w"), recorded=recorded),)
    origin = CollectiveOrigin(
        *("resharding", "h", "P('data')", None, "dot_general", "f", None, named),
        followed=followed,
        uncertain=uncertain,
    )
    text = origin_text(origin)
    assert text == (
        "h is P('data') but dot_general requires another sharding; sharded over data by w "
        f"P('data'){marks}"
    )


@pytest.mark.parametrize(
    "form", [{"form": "dynamic_slice"}, {"carried": True}], ids=["in another form", "a carry"]
)
def test_a_type_in_no_scope_is_named_as_what_shards_the_value(form):
    """It has a line and no name, and neither has a value in another form."""
    named = annotation("", "type", LINE), annotation("c", "constraint", LINE, "P()", "needed")
    origin = CollectiveOrigin(
        *("resharding", "w1", "P('data')", "P()", "reshard", "f", LINE, named), **form
    )
    assert origin_text(origin).endswith("; sharded over data by type at model.py:9 P('data')")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("rearrangement", "slice at line 9 rearranges a dimension sharded over data by w1 "),
        ("lookup", "slice at line 9 indexes a dimension "),
        ("resharding", "x is P('data') but slice at line 9 requires P()"),
    ],
)
def test_an_op_that_is_not_the_one_of_the_row_is_named_with_its_line(kind, words):
    """XLA may name a collective after what makes its value: "it" would be that."""
    origin = CollectiveOrigin(kind, "x", "P('data')", "P()", "slice", "", LINE, (EVERY[0],))
    assert words not in origin_text(origin, "model.py")
    assert words in origin_text(replace(origin, elsewhere=True), "model.py")


def test_what_an_op_makes_otherwise_than_it_has_it_is_not_called_by_the_op_twice():
    named = annotation("tokens"), annotation("table", spec="P('model', 'data')", role="needed")
    origin = CollectiveOrigin(
        *("resharding", "gather", None, "P('data', None)", "gather", "", LINE, named),
        own_result=True,
    )
    assert origin_text(origin) == (
        "gather, given table P('model', 'data'), makes its result with another sharding than "
        "P('data', None); sharded over data by tokens P('data')"
    )
    unknown = replace(origin, annotations=named[:1], after=None)
    assert "gather makes its result with another sharding than it has; " in origin_text(unknown)


def test_two_functions_that_one_line_maps_are_two_annotations():
    rows, columns = (
        replace(annotation("jit(step)", "shard_map output", LINE), mapped=mapped)
        for mapped in ("rows", "columns")
    )
    assert annotation_name(rows) == "shard_map output of rows at model.py:9"
    assert rows.key != columns.key
