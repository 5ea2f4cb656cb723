"""Slices in words, against JAX's own map of devices to indices."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.slices import LISTED, device_slices
from sdyscope.facts.slices import DeviceSet
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding
from sdyscope.words.slices import rule_text, slice_text


def slices_of(mesh, spec, shape):
    sharding = NamedSharding(Mesh.of(mesh), parse_partition_spec(spec))
    return device_slices(to_placement(sharding, len(shape)), shape)


def sentences(found, name="w"):
    return [slice_text(replace(part, subject=name)) for part in found.listed]


SPECS = st.sampled_from(
    [(), ("x",), (None, "y"), ("y", "x"), (("x", "z"), "y"), (("z", "y", "x"),), ("z", None)]
)


@given(SPECS)
def test_each_device_holds_what_jax_says(spec):
    mesh = JaxMesh(np.array(jax.devices()).reshape(2, 2, 2), ("x", "y", "z"))
    theirs = JaxNamedSharding(mesh, P(*spec)).devices_indices_map((16, 8))
    found = slices_of({"x": 2, "y": 2, "z": 2}, str(P(*spec)), (16, 8))
    assert found.rule is None
    told = {}
    for part in found.listed:
        for device in part.devices.members():
            assert device not in told
            told[device] = tuple(slice(*bounds) for bounds in part.index)
    wanted = {
        device.id: tuple(
            slice(*index.indices(size)[:2]) for index, size in zip(at, (16, 8), strict=True)
        )
        for device, at in theirs.items()
    }
    assert told == wanted


def test_the_axlearn_example():
    """weight [4096, 1024] on fsdp=256 of 32,768 devices: each holds 16 rows."""
    axes = {"pipeline": 1, "data": 16, "expert": 1, "fsdp": 256, "seq": 1, "track": 8, "model": 1}
    found = slices_of(axes, "P('fsdp', None)", (4096, 1024))
    assert found.different == 256
    said = sentences(found, "weight")
    assert said[:2] == [
        "devices 0-7 (+2,048 x16) hold weight[0:16, :]",
        "devices 8-15 (+2,048 x16) hold weight[16:32, :]",
    ]
    assert said[-1] == "devices 2040-2047 (+2,048 x16) hold weight[4080:4096, :]"
    assert len(said) == LISTED
    assert rule_text(found.rule) == "[16*i:16*i+16, :] where i = d // 8 % 256"


@pytest.mark.parametrize(
    ("mesh", "spec", "shape"),
    [
        ({"a": 4, "b": 8, "c": 16}, "P('b', ('c', 'a'))", (64, 256)),
        ({"a": 4, "b": 8, "c": 16}, "P(('a', 'c'), 'b')", (64, 8)),
        ({"a": 16, "b": 2}, "P('a')", (16,)),
    ],
)
def test_the_rule_is_right_for_every_device(mesh, spec, shape):
    found = slices_of(mesh, spec, shape)
    index, _, where = rule_text(found.rule).partition(" where ")
    sharding = NamedSharding(Mesh.of(mesh), parse_partition_spec(spec))
    place = to_placement(sharding, len(shape))
    for device in range(place.num_devices):
        names = {"d": device}
        for one in where.split(", "):
            name, _, value = one.partition(" = ")
            names[name] = eval(value, {}, names)
        bounds = [
            tuple(int(eval(bound, {}, names)) for bound in entry.split(":"))
            if entry != ":"
            else (0, size)
            for entry, size in zip(index[1:-1].split(", "), shape, strict=True)
        ]
        assert bounds == [(part.start, part.stop) for part in place.index(device, shape)]


def test_words():
    mesh = {"data": 4, "model": 2}
    assert sentences(slices_of(mesh, "P(None, 'model')", (8, 4))) == [
        "devices 0, 2, 4, 6 hold w[:, 0:2]",
        "devices 1, 3, 5, 7 hold w[:, 2:4]",
    ]
    assert sentences(slices_of(mesh, "P('data')", (8,)))[1] == "devices 2, 3 hold w[2:4]"
    assert sentences(slices_of(mesh, "P()", ())) == ["all 8 devices hold w"]
    assert sentences(slices_of({"x": 1}, "P('x')", (4,))) == ["the one device holds w[:]"]
    # 9 rows on 4 devices are blocks of 3, the last of which is empty.
    assert sentences(slices_of({"x": 4}, "P('x')", (9,)))[2:] == [
        "device 2 holds w[6:9]",
        "device 3 holds padding only",
    ]


def test_a_single_device_and_an_order_of_its_own():
    alone = device_slices(Placement(6, ((),), device=5), (4,))
    assert sentences(alone) == ["device 5 holds w[:]"]
    place = to_placement(
        NamedSharding(Mesh.of({"x": 2, "y": 2}), parse_partition_spec("P('x')")), 1
    )
    shuffled = Placement(4, place.dims, order=(2, 0, 3, 1))
    assert sentences(device_slices(shuffled, (4,))) == [
        "devices 0, 2 hold w[0:2]",
        "devices 1, 3 hold w[2:4]",
    ]


@pytest.mark.parametrize("outer", [(), ((3, 100),), ((2, 1000), (3, 100))])
def test_members_are_as_many_as_counted(outer):
    group = DeviceSet(5, (*outer, (4, 1)), 10_000)
    assert len(set(group.members())) == group.count == 4 * int(np.prod([t for t, _ in outer] or 1))
