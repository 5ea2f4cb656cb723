import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import ConversionError
from sdyscope.values.mesh import (
    AxisRef,
    IotaTile,
    Mesh,
    MeshAxis,
    SubAxisInfo,
    device_order,
    quote,
    renamed_axes,
)
from tests.strategies import meshes, split_axes


@given(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=5), st.randoms())
def test_iota_tile_lists_what_numpy_does_and_its_canonical_form_lists_the_same(dims, random):
    perm = list(range(len(dims)))
    random.shuffle(perm)
    tile = IotaTile(tuple(dims), tuple(perm))
    devices = np.arange(np.prod(dims)).reshape(dims).transpose(perm).ravel().tolist()
    assert tile.devices() == devices
    assert tile.num_devices == len(devices)
    assert IotaTile(tile.reshape_dims, tile.transpose_perm) == tile
    assert 1 not in tile.reshape_dims or tile.reshape_dims == (1,)


@given(st.lists(st.sampled_from([2, 3, 4, 5, 6]), min_size=1, max_size=4), st.randoms())
def test_every_iota_is_found_in_its_explicit_list(dims, random):
    perm = list(range(len(dims)))
    random.shuffle(perm)
    tile = IotaTile(tuple(dims), tuple(perm))
    assert device_order(tuple(tile.devices())) == tile


def test_every_permutation_of_six_devices_keeps_its_order():
    iotas = 0
    for order in itertools.permutations(range(6)):
        found = device_order(order)
        iotas += isinstance(found, IotaTile)
        assert (found.devices() if isinstance(found, IotaTile) else list(found)) == list(order)
    # The identity, [2,3]T(1,0) and [3,2]T(1,0): no others are iotas.
    assert iotas == 3


@pytest.mark.parametrize(("devices", "message"), [((0, 0), "listed twice"), ((0, 2), "range")])
def test_a_device_order_is_a_permutation(devices, message):
    with pytest.raises(ConversionError, match=message):
        device_order(devices)


@given(meshes(max_devices=64))
def test_a_mesh_lists_its_devices_in_order(mesh):
    assert sorted(mesh.devices()) == list(range(mesh.size))
    assert Mesh(mesh.axes, tuple(mesh.devices())) == mesh


@given(st.data())
def test_position_digits_are_the_coordinates_on_sub_axes(data):
    mesh = data.draw(meshes(max_devices=64, reorder=False))
    grid = np.indices([axis.size for axis in mesh.axes]).reshape(len(mesh.axes), -1)
    for ref in data.draw(split_axes(mesh)):
        row = grid[[axis.name for axis in mesh.axes].index(ref.name)]
        if ref.sub_axis_info is not None:
            rest = mesh.shape[ref.name] // (ref.sub_axis_info.pre_size * ref.sub_axis_info.size)
            row = row // rest % ref.sub_axis_info.size
        size, stride = mesh.position_digit(ref)
        assert (np.arange(mesh.size) // stride % size).tolist() == row.tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mesh((MeshAxis("a", 2), MeshAxis("a", 2))), 'duplicate axis name "a" in a mesh'),
        (lambda: Mesh.of({"a": 2}, (0, 1, 2)), "a mesh of 2 devices can't have 3 device ids"),
        (lambda: Mesh.of({"a": 2}, (0, 5)), "permutation of 0..1; 5 is out of range"),
        (lambda: MeshAxis("a", 0), "sizes start at 1"),
        (lambda: SubAxisInfo(0, 2), "pre-size must be at least 1"),
        (lambda: SubAxisInfo(1, 1), "size must be at least 2"),
        (lambda: Mesh.of({"a": 4}).axis_size(AxisRef("b")), 'unknown mesh axis "b"'),
        (lambda: Mesh.of({"a": 4}).axis_size(AxisRef("a", SubAxisInfo(1, 3))), "does not split"),
        (lambda: Mesh.of({"a": 4}).axis_size(AxisRef("a", SubAxisInfo(1, 4))), "does not split"),
        (lambda: IotaTile((2, 2), (0, 0)), "not a permutation"),
    ],
)
def test_what_is_no_mesh_is_refused(make, message):
    with pytest.raises(ConversionError, match=re.escape(message)):
        make()


def test_text():
    assert str(Mesh.of({"data": 4, "model": 2})) == '<["data"=4, "model"=2]>'
    assert str(Mesh.of({"a": 2}, (1, 0))) == '<["a"=2], device_ids=[1, 0]>'
    assert str(Mesh((), (3,))) == "<[], device_ids=[3]>"
    assert str(AxisRef("a", SubAxisInfo(2, 4))) == '"a":(2)4'
    assert str(IotaTile((4, 2), (1, 0))) == "[4,2]T(1,0)"
    assert quote('a "b"\\\n') == '"a \\22b\\22\\\\\\0A"'


@pytest.mark.parametrize(
    ("other", "called"),
    [
        ({"x": 4, "y": 2}, {}),
        ({"a": 4, "b": 2}, {"a": "x", "b": "y"}),
        ({"x": 4, "b": 2}, {"x": "x", "b": "y"}),
        ({"b": 2, "a": 4}, {}),  # other sizes
        ({"y": 4, "b": 2}, {}),  # y is another axis there
        ({"a": 4, "x": 2}, {}),
        ({"a": 4, "b": 2, "c": 1}, {}),
    ],
)
def test_axes_of_other_names(other, called):
    assert renamed_axes(Mesh.of({"x": 4, "y": 2}), Mesh.of(other)) == called
    assert renamed_axes(None, Mesh.of(other)) == {}
