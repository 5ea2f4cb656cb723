"""What JAX makes of the same shapes: device orders of slices, meshes, specs."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.mesh_config import MappedMesh, MeshShape, mesh_shape_from_axes


@dataclass(frozen=True)
class FakeDevice:
    """As much of a device as JAX looks at when it arranges CPU devices of several slices."""

    id: int
    slice_index: int
    process_index: int = 0
    platform: str = "cpu"
    device_kind: str = "cpu"


def fake_devices(slices, per_slice):
    return [FakeDevice(k, k // per_slice) for k in range(slices * per_slice)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4))
def test_the_device_order_is_that_of_a_hybrid_device_mesh(pairs):
    ici, dcn = (tuple(side) for side in zip(*pairs, strict=True))
    slices, per_slice = int(np.prod(dcn)), int(np.prod(ici))
    names = tuple("abcd"[: len(pairs)])
    found = MeshShape(names, ici, dcn).over(slices * per_slice, slices)
    made = mesh_utils.create_hybrid_device_mesh(ici, dcn, fake_devices(slices, per_slice))
    assert made.shape == found.shape
    assert [device.id for device in made.flat] == found.mesh.devices()


def test_slices_on_an_inner_axis():
    found = MeshShape(("a", "b"), (2, 2), (1, 2)).over(8, 2)
    assert found.mesh.devices() == [0, 1, 4, 5, 2, 3, 6, 7]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_minus_one_is_what_reshape_makes_of_it(full, data):
    at = data.draw(st.integers(0, len(full) - 1))
    asked = tuple(-1 if k == at else size for k, size in enumerate(full))
    names = tuple("abcd"[: len(full)])
    found = MeshShape(names, asked).over(int(np.prod(full)))
    assert np.arange(np.prod(full)).reshape(asked).shape == found.shape
    mesh = AbstractMesh(found.shape, found.axis_names)
    assert dict(mesh.shape) == found.sizes
    assert mesh.size == found.mesh.size


def test_the_example_of_32768_devices_is_a_mesh_of_jax():
    found = mesh_shape_from_axes(data=-1, fsdp=256, track=8).over(32_768)
    mesh = AbstractMesh(found.shape, found.axis_names)
    assert mesh.size == 32_768
    assert NamedSharding(mesh, P("fsdp", None)).shard_shape((4096, 1024)) == (16, 1024)


logical = st.sampled_from(["batch", "position", "embed", "heads", "mlp", "vocab"])


@settings(max_examples=100, deadline=None)
@given(st.lists(logical, min_size=1, max_size=4), st.sampled_from(["compute", "param"]))
def test_specs_are_those_that_jax_takes(axes, which):
    config = MappedMesh(axes={"context": 2, "model": 2}, shared_mapping={"position": "context"})
    mapping = getattr(config, f"resolved_{which}_mapping")
    sizes = config.over(16, 2).sizes
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    entries = [mapping.axes.get(axis) or None for axis in axes]
    used = [axis for dim in axes for axis in mapping.axes.get(dim, ())]
    if len(set(used)) < len(used):
        with pytest.raises(Exception, match=r"[Dd]uplicate"):
            NamedSharding(mesh, P(*entries))
        with pytest.raises(TargetError, match=r"twice|\d times"):
            mapping.partition_spec(axes)
        return
    expected = NamedSharding(mesh, P(*entries))
    spec = mapping.partition_spec(axes)
    ours = NamedSharding(mesh, P(*spec.entries))
    assert ours == expected or ours.is_equivalent_to(expected, len(axes))
    assert ours.shard_shape((32,) * len(axes)) == expected.shard_shape((32,) * len(axes))


def test_a_device_mesh_of_the_devices_that_are_there():
    devices = jax.devices("cpu")
    found = mesh_shape_from_axes(("data", "model"), data=-1).over(len(devices))
    mesh = jax.sharding.Mesh(np.array(devices).reshape(found.shape), found.axis_names)
    assert dict(mesh.shape) == found.sizes
