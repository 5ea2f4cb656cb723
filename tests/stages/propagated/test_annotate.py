"""Annotations changed in a module are read back, and nothing else is changed."""

import pytest
from user_programs import USER_PROGRAMS

from sdyscope.annotations import read_annotations
from sdyscope.errors import TargetError
from sdyscope.graph import build
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.propagated.annotate import ShardingEdit, annotate
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec, TensorSharding

MESH = Mesh.of({"data": 4, "model": 2})


@pytest.fixture(scope="module")
def inspection():
    return Inspection(USER_PROGRAMS["two_layers"](compat.abstract_mesh(MESH)))


def changed(inspection, partitioner, *changes):
    lowered = inspection.lowered[partitioner]
    module = annotate(lowered, inspection.graph(partitioner), changes)
    return read_annotations(build(module.module))


def named(*spec) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(spec))


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_every_argument_result_and_constraint_can_be_changed(inspection, partitioner):
    before = inspection.annotations(partitioner)
    for position, annotation in enumerate(before):
        rank = len(annotation.shape)
        sharding = named(("model", "data"), *[None] * (rank - 1))
        after = changed(inspection, partitioner, ShardingEdit(annotation, sharding))
        assert after[position].placement == to_placement(sharding, rank)
        assert after[position].open_dims == ()
        others = [a.text for k, a in enumerate(after) if k != position]
        assert others == [b.text for k, b in enumerate(before) if k != position]
    texts = [annotation.text for annotation in read_annotations(inspection.graph(partitioner))]
    assert texts == [annotation.text for annotation in before]


def test_priorities(inspection):
    weight, *_ = inspection.annotations("shardy")
    sharding = changed(inspection, "shardy", ShardingEdit(weight, priorities=((1, 2),)))[0].sharding
    assert isinstance(sharding, TensorSharding)
    assert [dim.priority for dim in sharding.dim_shardings] == [None, 2]


def test_open_dimensions_of_a_constraint(inspection):
    for partitioner in ("shardy", "gspmd"):
        annotation = next(a for a in inspection.annotations(partitioner) if a.kind == "constraint")
        change = ShardingEdit(annotation, named(UNCONSTRAINED, "model"))
        after = changed(inspection, partitioner, change)
        assert next(a for a in after if a.kind == "constraint").open_dims == (0,)


@pytest.mark.parametrize(
    ("partitioner", "change", "message"),
    [
        ("gspmd", {"priorities": ((0, 1),)}, "GSPMD has no priorities"),
        ("gspmd", {"sharding": named(UNCONSTRAINED)}, "can't leave a dimension of an argument"),
        ("shardy", {"priorities": ((0, 1),)}, "dimension 0 is not sharded"),
        ("shardy", {"priorities": ((5, 1),)}, "has no dimension 5, only 2"),
        ("shardy", {"sharding": named("data", None, "model")}, "3 entries for a tensor of rank 2"),
        (
            "shardy",
            {"sharding": NamedSharding(Mesh.of({"x": 8}), PartitionSpec.of("x"))},
            "the module has no mesh",
        ),
    ],
)
def test_what_a_module_cannot_carry(inspection, partitioner, change, message):
    weight, *_ = inspection.annotations(partitioner)
    with pytest.raises(TargetError) as raised:
        changed(inspection, partitioner, ShardingEdit(weight, **change))
    assert message in str(raised.value)
    assert "params['w'][0]" in str(raised.value)


def test_a_shard_map_stays_as_it_is():
    inspection = Inspection(USER_PROGRAMS["shard_map_full"](compat.abstract_mesh(MESH)))
    inputs = next(a for a in inspection.annotations("shardy") if a.kind == "shard_map input")
    with pytest.raises(TargetError, match=r"shard_map input .* can't be changed"):
        changed(inspection, "shardy", ShardingEdit(inputs, named("data")))
