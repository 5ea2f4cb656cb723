"""Mesh axes of the groups that collectives run over, and the bytes that each kind sends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.collectives.axes import axes_of_groups, axes_of_pairs
from sdyscope.analysis.collectives.bytes import wire_bytes
from sdyscope.syntax.replica_groups import parse_replica_groups
from sdyscope.values.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.values.replica_groups import CollectiveDeviceList, MeshAxesReplicaGroupList

MESH = Mesh.of({"a": 2, "b": 2, "c": 2})


def names(axes):
    return None if axes is None else tuple(map(str, axes))


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", ('"c"',)),
        ("{{1,0},{3,2},{5,4},{7,6}}", ('"c"',)),
        ("{{6,7},{0,1},{4,5},{2,3}}", ('"c"',)),
        ("{{0,4},{1,5},{2,6},{3,7}}", ('"a"',)),
        ("{{0,1,4,5},{2,3,6,7}}", ('"a"', '"c"')),
        ("{}", ('"a"', '"b"', '"c"')),
        ("[1,8]<=[8]", ('"a"', '"b"', '"c"')),
        ("[4,2]<=[4,2]T(1,0)", ('"b"',)),
        ("[4,2]<=[2,4]T(1,0)", ('"a"',)),
        ("mesh['x'=4,'y'=2] {'x'}", ('"a"', '"b"')),
        ("mesh['x'=8] {'x':(2)2}", ('"b"',)),
        ("{{0},{1},{2},{3},{4},{5},{6},{7}}", ()),
        ("{{0,3},{1,2},{4,7},{5,6}}", None),
        ("{{0,1},{2,4},{3,5},{6,7}}", None),
        ("{{0,1}}", None),
        ("{{0,1,2},{3,4,5,6,7}}", None),
        ("[2,2]<=[4]", None),
    ],
)
def test_axes_of_groups(groups, axes):
    assert names(axes_of_groups(parse_replica_groups(groups), MESH)) == axes


def test_sub_axes_are_named():
    mesh = Mesh.of({"data": 8, "model": 2})
    assert names(axes_of_groups(parse_replica_groups("[8,2]<=[4,2,2]T(0,2,1)"), mesh)) == (
        '"data":(4)2',
    )
    assert names(axes_of_groups(parse_replica_groups("[4,4]<=[16]"), mesh)) == (
        '"data":(4)2',
        '"model"',
    )
    assert axes_of_groups(parse_replica_groups("[2,3]<=[6]"), Mesh.of({"x": 2, "y": 3})) == (
        AxisRef("y"),
    )


def test_nothing_lists_32768_devices():
    mesh = Mesh.of({"slice": 8, "data": 256, "model": 16})
    axes = axes_of_groups(parse_replica_groups("[16,2048]<=[2048,16]T(1,0)"), mesh)
    assert names(axes) == ('"slice"', '"data"')


@st.composite
def meshes_and_axes(draw):
    """A mesh of up to 48 devices in any order, some of its axes or parts of them."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    total = math.prod(sizes)
    order = draw(st.none() | st.permutations(range(total)) | st.just(range(total)[::-1]))
    mesh = Mesh.of(
        {f"x{i}": size for i, size in enumerate(sizes)}, None if order is None else tuple(order)
    )
    axes = []
    for axis in mesh.axes:
        kind = draw(st.sampled_from(["no", "whole", "part"]))
        if kind == "part" and axis.size == 4:
            axes.append(AxisRef(axis.name, SubAxisInfo(draw(st.sampled_from([1, 2])), 2)))
        elif kind != "no" and axis.size > 1:
            axes.append(AxisRef(axis.name))
    return mesh, tuple(axes)


@given(meshes_and_axes(), st.randoms(use_true_random=False))
def test_axes_are_found_again_however_groups_are_written(case, random):
    mesh, axes = case
    groups = MeshAxesReplicaGroupList(mesh, axes)
    assert axes_of_groups(groups, mesh) == axes
    listed = groups.groups()
    random.shuffle(listed)
    for group in listed:
        random.shuffle(group)
    shuffled = CollectiveDeviceList(tuple(map(tuple, listed)))
    assert axes_of_groups(shuffled, mesh) == axes


@pytest.mark.parametrize(
    ("pairs", "axes"),
    [
        ([(0, 1), (1, 0), (2, 3), (3, 2)], ('"c"',)),
        ([(0, 2), (2, 0)], ('"b"',)),
        ([(0, 3), (3, 0)], ('"b"', '"c"')),
        ([(0, 0), (5, 5)], ()),
        ([(0, 8)], None),
    ],
)
def test_axes_of_pairs(pairs, axes):
    assert names(axes_of_pairs(pairs, MESH)) == axes


@pytest.mark.parametrize(
    ("kind", "sent", "received"),
    [
        ("all-gather", 300, 300),
        ("reduce-scatter", 300, 300),
        ("all-reduce", 600, 600),
        ("all-to-all", 300, 300),
        ("ragged-all-to-all", 400, 400),
        ("collective-permute", 400, 400),
        ("collective-broadcast", 400, 400),
        ("send", 400, 0),
        ("recv", 0, 400),
    ],
)
def test_bytes_of_each_kind(kind, sent, received):
    assert wire_bytes(kind, 400, 4) == (sent, received)
    assert wire_bytes(kind, 400, 1) == (0, 0)
