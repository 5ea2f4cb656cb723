"""Which tensors are to be sharded otherwise, and what comes of it."""

import pytest

from sdyscope.errors import SyntaxTextError, TargetError
from sdyscope.inspection import Inspection
from sdyscope.stages.propagated.what_if import Wish, find, joined, parse_priority, parse_sharding
from sdyscope.targets import resolve
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec


@pytest.fixture(scope="module")
def mlp():
    return Inspection(resolve("mlp"))


def test_shardings_are_read():
    assert parse_sharding("params['w1']=P('fsdp', 'model')") == Wish(
        "params['w1']", PartitionSpec.of("fsdp", "model")
    )
    assert parse_sharding(" x[0] = PartitionSpec(None) ").name == "x[0]"
    # A name may have an equals sign in it, and so may a spec.
    wish = parse_sharding("d['a=b']=P('x', unreduced={'y'})")
    assert (wish.name, wish.spec) == ("d['a=b']", PartitionSpec.of("x", unreduced=["y"]))
    assert parse_sharding("x=P(UNCONSTRAINED)").spec == PartitionSpec.of(UNCONSTRAINED)
    assert parse_sharding("x = None") == Wish("x", unspecified=True)


@pytest.mark.parametrize("text", ["", "x", "x=", "x=('a')", "=P()", "x=None()"])
def test_what_is_no_wish_is_said(text):
    with pytest.raises(TargetError, match="does not say how to shard what"):
        parse_sharding(text)


def test_a_damaged_spec_has_a_caret():
    with pytest.raises(SyntaxTextError, match="unexpected end"):
        parse_sharding("x=P('a'")


def test_priorities_are_read():
    assert parse_priority("params['w1'][1]=0") == Wish("params['w1']", None, ((1, 0),))
    assert parse_priority("x[0][12] = 3") == Wish("x[0]", None, ((12, 3),))
    for text in ("", "x=1", "x[a]=1", "x[1]=-1", "[1]=1"):
        with pytest.raises(TargetError, match="which dimension has which priority"):
            parse_priority(text)


def test_wishes_for_one_tensor_are_one():
    both = joined(
        [parse_priority("x[1]=0"), parse_sharding("x=P('a')"), parse_priority("x[1]=2"), Wish("y")]
    )
    assert both == (Wish("x", PartitionSpec.of("a"), ((1, 2),)), Wish("y"))


def test_tensors_are_found_by_path_scope_and_line(mlp):
    (row,) = find(mlp.tensors, "params['w1']")
    assert (row.kind, row.shape) == ("argument", (128, 256))
    assert len(find(mlp.tensors, "jvp(block0)")) == 3
    assert len(find(mlp.tensors, "jit(step)/jvp(block0)")) == 3
    assert {row.source.line for row in find(mlp.tensors, "mlp.py:98")} == {98}


def test_what_is_not_there_has_close_matches(mlp):
    with pytest.raises(TargetError) as error:
        find(mlp.tensors, "params['w3']")
    assert "Did you mean params['w" in error.value.hint


def test_a_wish_changes_the_module_and_nothing_else(mlp):
    changed = mlp.what_if({"params['w1']": "P('data', 'model')"}, {("params['w1']", 1): 3})
    # GSPMD has no priorities; that is a result.
    assert set(changed.lowered) == {"shardy"}
    assert "no priorities" in changed.failures["gspmd"].message
    before, after = (
        {a.path: a.text for a in one.annotations("shardy") if a.kind == "argument"}
        for one in (mlp, changed)
    )
    assert after.pop("params['w1']") == '<@mesh, [{"data"}, {"model"}p3]>'
    assert before.pop("params['w1']") == '<@mesh, [{}, {"model"}]>'
    assert before == after
    assert changed.requested is mlp.requested


def test_what_says_nothing_is_left_to_the_compiler(mlp):
    def written(inspection, partitioner):
        rows = inspection.annotations(partitioner)
        return {(row.path, row.ordinal): row for row in rows}

    names = dict.fromkeys(["params['w1']", "mlp.py:100"])
    for partitioner in mlp.lowered:
        before, after = written(mlp, partitioner), written(mlp.what_if(names), partitioner)
        changed = [key for key in before if before[key].sharding != after[key].sharding]
        assert [path for path, _ in changed if not path.startswith("jit(")] == ["params['w1']"]
        for key in changed:
            if before[key].kind == "argument":
                assert after[key].sharding is None
            else:
                assert (before[key].source.line, after[key].open_dims) == (100, (0, 1))
    # What says nothing and then something says that.
    again = joined([parse_sharding("x=None"), parse_sharding("x=P('a')")])
    assert again == (Wish("x", PartitionSpec.of("a")),)


def test_what_no_module_can_carry_is_said(mlp):
    for shardings, words in (
        ({"params['w1']": "P('zz')"}, "unknown mesh axis"),
        ({"params['w1']": "P(None, None, 'data')"}, "3 entries"),
    ):
        with pytest.raises(TargetError, match=words):
            mlp.what_if(shardings)
    with pytest.raises(TargetError, match="no dimension 7"):
        mlp.what_if({}, {("params['w1']", 7): 0})


def test_what_becomes_different(mlp):
    shardy = Inspection(mlp.program, ["shardy"])
    changed = shardy.what_if({"params['w1']": "P('data', 'model')"})
    diff = shardy.propagated_diff(changed)
    assert diff.different_values
    assert "params['w1']" in {
        value.value.name for group in diff.beginnings for value in (group.begins, *group.follows)
    }
    assert shardy.propagated_diff(shardy.what_if({"params['w1']": "P(None, 'model')"})).same


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_what_is_lowered_for_other_hardware_has_the_wishes_too(mlp, platform):
    changed = mlp.what_if({"params['w1']": "P('data', 'model')"})
    changed = changed.what_if({"params['w2']": "P('model', 'data')"})
    for partitioner in changed.lowered:
        there = changed.lowered_for(platform, partitioner)
        assert there.lowered[partitioner].platforms == (platform,)
        assert _arguments(there, partitioner) == _arguments(changed, partitioner)
        assert _arguments(there, partitioner) != _arguments(mlp, partitioner)


def _arguments(staged, partitioner):
    return [argument.sharding for argument in staged.graph(partitioner).main.arguments]
