"""What of an argument changed from one compile to the next."""

import pytest

from sdyscope.facts.recompiles import ArgumentChange, Recompile
from sdyscope.facts.sharded import Sharded
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding


def sharded(spec, sizes):
    mesh = Mesh.of(sizes)
    named = NamedSharding(mesh, parse_partition_spec(spec))
    return Sharded(named, (8,), "f32", to_placement(named, 1), mesh)


ROWS, WHOLE = sharded("P('data')", {"data": 4}), sharded("P()", {"data": 4})
ON_NO_MESH = sharded("P()", {})


def argument(was="f32[8]", now="f32[8]", **facts):
    return ArgumentChange("argument", "x", was, now, **facts)


@pytest.mark.parametrize(
    ("changed", "change"),
    [
        (argument(now=""), "tree"),
        (argument(meshes=("data=4", "")), "mesh"),
        (argument(weak=True), "weak"),
        (argument(now="f32[4]"), "type"),
        (argument(), "sharding"),
    ],
)
def test_what_changed(changed, change):
    assert changed.change == change


@pytest.mark.parametrize(
    ("was", "now", "facts"),
    [
        (ROWS, WHOLE, (True, False, False)),
        (WHOLE, ROWS, (True, True, False)),
        (None, ROWS, (False, True, False)),
        (None, ON_NO_MESH, (False, False, True)),
        (ON_NO_MESH, None, (False, False, True)),
        (ON_NO_MESH, ROWS, (False, True, False)),
    ],
)
def test_where_it_was_and_is(was, now, facts):
    change = ArgumentChange("argument", "x", "f32[8]", "f32[8]", was, now)
    assert (change.was_placed, change.is_cut, change.commits) == facts


def test_the_same_change_is_one_cause_whatever_the_sharding():
    def recompile(*arguments):
        return Recompile("f", None, "f.2", "f.1", 1, 0.1, 0.1, (), arguments)

    first = recompile(argument(moved=True))
    assert first.cause == recompile(argument(moved=True, now="f32[8]")).cause
    assert first.cause != recompile(argument(now="f32[4]")).cause
