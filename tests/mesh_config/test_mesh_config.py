"""Shapes with an inferred size, rules by hardware, merged defaults and mappings."""

import copy
import dataclasses
import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import TargetError
from sdyscope.mesh_config import (
    AXIS_NAMES,
    MappedMesh,
    MeshRule,
    MeshRules,
    MeshShape,
    mesh_shape_from_axes,
)

sizes = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def names(count):
    return tuple("abcdefgh"[:count])


# --- Shapes ---------------------------------------------------------------------------------------


def test_the_example_of_32768_devices():
    shape = mesh_shape_from_axes(data=-1, fsdp=256, track=8)
    assert shape.axis_names == AXIS_NAMES
    assert shape.ici == (1, -1, 1, 256, 1, 8, 1)
    found = shape.over(32_768)
    assert found.shape == (1, 16, 1, 256, 1, 8, 1)
    assert math.prod(found.shape) == 32_768 == 16 * 256 * 8
    assert found.mesh.size == 32_768
    # A weight of 4,096 rows over fsdp: blocks of 16.
    assert 4096 // found.sizes["fsdp"] == 16
    # 8 slices of 4,096: all on data, the first axis that is not 1.
    sliced = shape.over(32_768, slices=8)
    assert (sliced.dcn, sliced.ici) == ((1, 8, 1, 1, 1, 1, 1), (1, 2, 1, 256, 1, 8, 1))
    assert sliced.shape == found.shape
    assert sliced.slices == 8


def test_axes_that_are_not_given_are_1():
    assert mesh_shape_from_axes().ici == (1,) * 7
    assert mesh_shape_from_axes(data=16, fsdp=256, track=8).ici == (1, 16, 1, 256, 1, 8, 1)
    assert mesh_shape_from_axes(("x", "y"), y=2).ici == (1, 2)


@given(sizes, st.data())
def test_what_is_inferred_is_what_was_left_out(full, data):
    at = data.draw(st.integers(0, len(full) - 1))
    asked = tuple(-1 if k == at else size for k, size in enumerate(full))
    found = MeshShape(names(len(full)), asked).over(math.prod(full))
    assert found.shape == tuple(full)
    assert math.prod(found.sizes.values()) == math.prod(full)


@given(sizes, st.data(), st.integers(1, 200))
def test_a_product_is_the_devices_or_it_is_said(full, data, devices):
    at = data.draw(st.integers(0, len(full) - 1))
    asked = tuple(-1 if k == at else size for k, size in enumerate(full))
    known = math.prod(size for size in asked if size != -1)
    shape = MeshShape(names(len(full)), asked)
    if devices % known == 0:
        assert math.prod(shape.over(devices).shape) == devices
    else:
        with pytest.raises(TargetError, match=f"does not divide {devices} device"):
            shape.over(devices)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4))
def test_a_hybrid_shape_multiplies_slices_and_devices_of_a_slice(pairs):
    ici, dcn = (tuple(side) for side in zip(*pairs, strict=True))
    slices, per_slice = math.prod(dcn), math.prod(ici)
    asked = MeshShape(names(len(pairs)), (-1, *ici[1:]), (*dcn[:-1], -1))
    found = asked.over(slices * per_slice, slices)
    assert (found.ici, found.dcn) == (ici, dcn)
    assert found.shape == tuple(a * b for a, b in pairs)
    assert sorted(found.mesh.devices()) == list(range(slices * per_slice))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MeshShape((), ()), "at least one axis"),
        (lambda: MeshShape(("a", "a"), (1, 2)), "'a' is named twice"),
        (lambda: MeshShape(("a", ""), (1, 2)), "The name of a mesh axis is empty"),
        (lambda: MeshShape(("a", 3), (1, 2)), "3 is not the name of a mesh axis"),
        (lambda: MeshShape("data", (2,)), "are 'data', not a list of names"),
        (lambda: mesh_shape_from_axes("ab", a=2), "are 'ab', not a list of names"),
        (lambda: MeshShape(("a",), 4), "sizes of the mesh axes are 4, not a list of whole numbers"),
        (lambda: MeshShape(("a",), "4"), "sizes of the mesh axes are '4', not a list of whole"),
        (lambda: MeshShape(("a", "b"), (2,)), "There are 2 mesh axes and 1 size."),
        (lambda: MeshShape(("a",), (2,), (1, 2)), "There is 1 mesh axis and 2 DCN sizes."),
        (lambda: MeshShape(("a",), (0,)), "'a' is 0, not a whole number from 1, or -1"),
        (lambda: MeshShape(("a",), (-2,)), "'a' is -2, not"),
        (lambda: MeshShape(("a",), (True,)), "'a' is True, not"),
        (lambda: MeshShape(("a",), ("2",)), "'a' is '2', not"),
        (lambda: MeshShape(("a", "b"), (-1, -1)), "sizes of a and b are -1, and only one"),
        (lambda: MeshShape(("a", "b"), (1, 2), (-1, -1)), "DCN sizes of a and b are -1"),
        (lambda: MeshShape(("a", "b"), (-1, -1), (1, 2)), "ICI sizes of a and b are -1"),
        (lambda: MeshShape(("a",), (np.array([1, 2]),)), "not a whole number"),
        (lambda: mesh_shape_from_axes(fdsp=2), "no axis 'fdsp'.\nDid you mean 'fsdp'?"),
        (lambda: mesh_shape_from_axes(("x",), qqq=2), "no axis 'qqq'.\nIt has x."),
        (lambda: MeshShape(("a", "b"), (2, 4)).over(9), "a=2 x b=4 = 8, and there are 9 devices"),
        (lambda: MeshShape(("a", "b"), (-1, 3)).over(8), "size of a can't be inferred: b=3 does"),
        (lambda: MeshShape(("a",), (1,)).over(2), "The sizes are all 1, and there are 2 devices"),
        (lambda: MeshShape(("a",), (-1,)).over(9, 2), "9 devices can't be 2 slices"),
        (lambda: MeshShape(("a",), (-1,)).over(0), "number of devices is 0, not a whole number"),
        (lambda: MeshShape(("a",), (-1,)).over(8.0), "number of devices is 8.0, not a whole"),
        (lambda: MeshShape(("a",), (-1,)).over("8"), "number of devices is '8', not a whole"),
        (lambda: MeshShape(("a",), (-1,)).over(8, 0), "number of slices is 0, not a whole number"),
        (
            lambda: MeshShape(("a", "b"), (2, 2), (2, 1)).over(8),
            "The DCN sizes are a=2, and there is 1 slice.\nSay how many slices there are",
        ),
        (
            lambda: MeshShape(("a", "b"), (3, 4)).over(12, 2),
            "first axis with more than one device, a=3, can't be split over 2 slices",
        ),
        (
            lambda: MeshShape(("a", "b"), (-1, 2), (2, 1)).over(16, 4),
            "The DCN sizes are a=2, and there are 4 slices",
        ),
        (
            lambda: MeshShape(("a", "b"), (2, 2), (-1, 1)).over(16, 2),
            "The ICI sizes are a=2 x b=2 = 4, and there are 8 devices of a slice",
        ),
    ],
)
def test_what_is_wrong_with_a_shape_is_said(make, words):
    with pytest.raises(TargetError, match=re.escape(words)):
        make()


def test_lists_and_numpy_numbers_are_as_good_as_tuples_and_ints():
    shape = MeshShape(["a", "b"], [np.int64(-1), np.int32(2)])
    assert shape == MeshShape(("a", "b"), (-1, 2))
    assert hash(shape) == hash(MeshShape(("a", "b"), (-1, 2)))
    found = shape.over(np.prod([4, 2]))
    assert [(type(size), size) for size in found.shape] == [(int, 4), (int, 2)]


# --- Rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "devices", "expected"),
    [
        ("tpu-v5p-4096-8", 32_768, (1, 16, 1, 256, 1, 8, 1)),
        ("tpu-v5p-4096-2", 8_192, (1, 16, 1, 128, 1, 4, 1)),
        ("tpu-v6e-2048", 2_048, (1, 32, 1, 64, 1, 1, 1)),
        ("gpu-h100", 32_768, (1, 16, 1, 256, 1, 8, 1)),  # none matches: the default
    ],
)
def test_rules_are_written_as_in_a_trainers_configuration(selector, devices, expected):
    rules = MeshRules(
        mesh_shape_from_axes(data=-1, fsdp=256, track=8),
        rules=(
            ("tpu-v5p-4096-8", mesh_shape_from_axes(data=-1, fsdp=256, track=8)),
            ("tpu-v5p-4096-2", mesh_shape_from_axes(data=-1, fsdp=128, track=4)),
            ("tpu-v6e-2048", mesh_shape_from_axes(data=-1, fsdp=64, track=1)),
        ),
    )
    assert rules.select(selector).over(devices).shape == expected


@pytest.mark.parametrize("given", ["tpu", ("tpu",), ("tpu", 3), (3, MeshShape(("x",), (1,)))])
def test_what_is_no_rule_is_said(given):
    with pytest.raises(TargetError, match="mesh rule"):
        MeshRules(MeshShape(("x",), (1,)), (given,))


RULES = MeshRules(
    mesh_shape_from_axes(data=-1),
    (
        MeshRule("tpu-v5p-4096-8", mesh_shape_from_axes(data=-1, fsdp=256, track=8)),
        MeshRule("tpu-v5p-4096-2", mesh_shape_from_axes(data=-1, fsdp=128, track=4)),
        MeshRule("tpu-v6e-2048", mesh_shape_from_axes(data=-1, fsdp=64, track=1)),
    ),
)


@pytest.mark.parametrize(
    ("selector", "devices", "shape"),
    [
        ("tpu-v5p-4096-8", 8 * 4096, (1, 16, 1, 256, 1, 8, 1)),
        ("tpu-v5p-4096-2", 2 * 4096, (1, 16, 1, 128, 1, 4, 1)),
        ("tpu-v6e-2048", 2048, (1, 32, 1, 64, 1, 1, 1)),
        ("tpu-v6e-2048", 4096, (1, 64, 1, 64, 1, 1, 1)),
        ("gpu", 8, (1, 8, 1, 1, 1, 1, 1)),
        (None, 8, (1, 8, 1, 1, 1, 1, 1)),
        ("my-tpu-v6e-2048", 8, (1, 8, 1, 1, 1, 1, 1)),  # a pattern matches the whole name
    ],
)
def test_a_rule_is_selected_by_the_whole_name(selector, devices, shape):
    assert RULES.select(selector).over(devices).shape == shape


@given(
    st.lists(st.sampled_from(["a", "b", ".", "a.*", ".*b", "[ab]+", "ab"]), max_size=5),
    st.text("ab"),
)
def test_the_first_rule_that_matches_wins(patterns, selector):
    rules = tuple(
        MeshRule(pattern, MeshShape(("x",), (number,)))
        for number, pattern in enumerate(patterns, 1)
    )
    matching = [k for k, pattern in enumerate(patterns, 1) if re.fullmatch(pattern, selector)]
    expected = matching[0] if matching else 99
    assert MeshRules(MeshShape(("x",), (99,)), rules).select(selector).ici == (expected,)


def test_what_is_wrong_with_rules_is_said():
    shape = MeshShape(("x",), (-1,))
    with pytest.raises(TargetError, match=r"'\(' of a mesh rule is not a regular expression"):
        MeshRule("(", shape)
    with pytest.raises(TargetError, match="neither a mesh_shape nor a mesh rule"):
        MeshRules(None)
    with pytest.raises(
        TargetError, match="mesh rule 'b' is about the axes y, and others are about x"
    ):
        MeshRules(shape, (MeshRule("b", MeshShape(("y",), (1,))),))
    turned = MeshRule("b", MeshShape(("y", "x"), (1, 1)))
    with pytest.raises(TargetError, match="is about the axes y, x, and others are about x, y"):
        MeshRules(MeshShape(("x", "y"), (1, 1)), [turned])
    with pytest.raises(TargetError, match="The pattern of a mesh rule is 3, not a string"):
        MeshRule(3, shape)
    with pytest.raises(TargetError, match=r"The shape of the mesh rule 'a' is .*, not a MeshShape"):
        MeshRule("a", {"x": 1})
    only = MeshRules(None, (MeshRule("a", shape), MeshRule("b", shape)))
    with pytest.raises(
        TargetError,
        match=r"No mesh rule matches 'c'.*\nSelect with a name that matches 'a' or 'b'.",
    ):
        only.select("c")
    with pytest.raises(TargetError, match="only mesh rules"):
        only.select()


# --- Merged defaults and mappings -----------------------------------------------------------------


def test_the_defaults():
    config = MappedMesh()
    assert config.over(8).sizes == {"replica_dcn": 1, "replica": 1, "data": 8, "model": 1}
    assert config.over(32, 4).sizes == {"replica_dcn": 4, "replica": 1, "data": 8, "model": 1}
    compute, param = config.resolved_compute_mapping, config.resolved_param_mapping
    assert compute.axes == {
        "mlp": ("model",),
        "heads": ("model",),
        "batch": ("replica_dcn", "replica", "data"),
    }
    assert param.axes == {"mlp": ("model",), "heads": ("model",), "embed": ("data",)}
    assert str(compute.partition_spec(("embed", "mlp"))) == "P(None, 'model')"
    assert str(param.partition_spec(("embed", "mlp"))) == "P('data', 'model')"
    assert (
        str(compute.partition_spec(("batch", "embed")))
        == "P(('replica_dcn', 'replica', 'data'), None)"
    )


def test_setting_one_value_keeps_the_others():
    config = MappedMesh(axes={"model": 2})
    assert config.over(16).sizes == {"replica_dcn": 1, "replica": 1, "data": 8, "model": 2}


def test_what_absorbs_can_be_another_axis():
    config = MappedMesh(axes={"replica": -1, "data": 4})
    assert config.over(16).sizes == {"replica_dcn": 1, "replica": 4, "data": 4, "model": 1}
    config = MappedMesh(axes={"context": -1})  # data, not given, makes way
    assert config.over(16).sizes["context"] == 16
    config = MappedMesh(dcn_axes={"stage_dcn": -1})
    assert config.over(8, 2).sizes["stage_dcn"] == 2


def test_context_parallelism():
    config = MappedMesh(
        axes={"data": -1, "replica": 1, "context": 4, "model": 1},
        shared_mapping={"position": "context"},
    )
    assert list(config.over(16).sizes) == ["replica_dcn", "replica", "data", "context", "model"]
    assert config.over(16).sizes["data"] == 4
    compute = config.resolved_compute_mapping
    scores = compute.partition_spec(("batch", "heads", "position", "key_position"))
    assert str(scores) == "P(('replica_dcn', 'replica', 'data'), 'model', 'context', None)"


def test_what_overrides_what():
    config = MappedMesh(
        axes={"seq": 2},
        shared_mapping={"mlp": "seq", "embed": []},
        compute_mapping={"heads": ["seq", "model"], "batch": "data"},
        param_mapping={"heads": []},
        batch_axis_name="batch",
    )
    compute, param = config.resolved_compute_mapping.axes, config.resolved_param_mapping.axes
    assert compute == {"mlp": ("seq",), "heads": ("seq", "model"), "embed": (), "batch": ("data",)}
    assert param == {"mlp": ("seq",), "heads": (), "embed": ()}
    assert "batch" not in MappedMesh(batch_axis_name=None).resolved_compute_mapping.axes
    assert "example" in MappedMesh(batch_axis_name="example").resolved_compute_mapping.axes


@given(
    st.dictionaries(
        st.sampled_from(["replica", "data", "model", "context", "expert"]), st.integers(1, 4)
    ),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_merged_axes_always_make_the_devices(axes, slices, more):
    given_data = {**axes, "data": -1}
    known = math.prod(size for size in given_data.values() if size != -1)
    found = MappedMesh(axes=given_data).over(known * more * slices, slices).sizes
    assert math.prod(found.values()) == known * more * slices
    assert {name: found[name] for name in axes if name != "data"} == {
        name: size for name, size in axes.items() if name != "data"
    }
    assert (found["data"], found["replica_dcn"]) == (more, slices)
    assert {"replica", "model"} <= set(found)
    assert list(found)[-1] == "model"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"axes": {"data": -1, "context": -1}}, "ICI sizes of data and context are -1"),
        ({"dcn_axes": {"replica_dcn": -1, "b": -1}}, "DCN sizes of replica_dcn and b are -1"),
        ({"axes": {"data": 0}}, "The ICI size of mesh axis 'data' is 0"),
        ({"dcn_axes": {"x": "all"}}, "The DCN size of mesh axis 'x' is 'all'"),
        ({"dcn_axes": {"data": 2}}, "'data' is in axes and in dcn_axes"),
        (
            {"shared_mapping": {"position": "contxt"}, "axes": {"context": 2}},
            "maps 'position' to 'contxt', and the mesh has no such axis.\nDid you mean 'context'?",
        ),
        ({"compute_mapping": {"batch": ["data", "data"]}}, "maps 'batch' to 'data' twice"),
        ({"axes": [1]}, "axes is [1], not a table of names and values"),
        ({"axes": {2: 2}}, "2 is not the name of a mesh axis"),
        ({"axes": {"": 2}}, "The name of a mesh axis is empty"),
        ({"shared_mapping": {3: "data"}}, "3 is not the name of a logical axis"),
        (
            {"shared_mapping": {"mlp": None}},
            "maps 'mlp' to None, which is neither a mesh axis nor a list",
        ),
        ({"shared_mapping": {"mlp": None}}, "To leave it whole, map it to []."),
        ({"batch_axis_name": 3}, "batch_axis_name is 3, not the name of a logical axis"),
        ({"param_mapping": {"embed": 3}}, "maps 'embed' to 3, which is neither a mesh axis"),
        (
            {"param_mapping": {"embed": ["data", 3]}},
            "which is neither a mesh axis nor a list of them",
        ),
    ],
)
def test_what_is_wrong_with_a_mapped_mesh_is_said(fields, words):
    with pytest.raises(TargetError, match=re.escape(words)):
        MappedMesh(**fields)


def test_an_axis_used_twice_on_one_tensor():
    mapping = MappedMesh().resolved_compute_mapping
    with pytest.raises(
        TargetError,
        match=r"compute_mapping shards w \[heads, mlp\] over the mesh axis 'model' twice, "
        r"for heads and mlp.\nMap 'mlp' to another mesh axis in compute_mapping",
    ):
        mapping.partition_spec(("heads", "mlp"), "w")
    with pytest.raises(TargetError, match="Give the two dimensions 'mlp' different names"):
        mapping.partition_spec(("mlp", "mlp"))
    with pytest.raises(TargetError, match="The logical axes are 'mlp', not a list of names"):
        mapping.partition_spec("mlp")


def test_a_mapped_mesh_can_be_copied_pickled_and_compared():
    config = MappedMesh(axes={"context": 2}, shared_mapping={"position": "context"})
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    assert dataclasses.asdict(config)["axes"] == {"context": 2}
    assert config == MappedMesh(axes={"context": 2}, shared_mapping={"position": ["context"]})
    given = {"model": 2}
    config = MappedMesh(axes=given)
    given["model"] = 4
    assert config.axes == {"model": 2}
