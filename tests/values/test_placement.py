import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxPartitionSpec

from sdyscope.errors import ConversionError
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, SubAxisInfo
from sdyscope.values.placement import Digit, Placement, through_order
from sdyscope.values.sharding import (
    DimSharding,
    NamedSharding,
    PartitionSpec,
    TensorSharding,
    entry_axes,
)
from sdyscope.values.tiling import HloSharding, TileAssignment
from tests.strategies import meshes, named_shardings, shapes, shard_counts, tensor_shardings


class FakeDevice:
    """All that jax.sharding.Mesh looks at, so that meshes need no devices."""

    device_kind = platform = "fake"
    process_index = 0

    def __init__(self, number: int) -> None:
        self.id = number


DEVICES = [FakeDevice(number) for number in range(256)]


def jax_sharding(sharding: NamedSharding) -> JaxNamedSharding:
    mesh = sharding.mesh
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = [DEVICES[device] for device in mesh.devices()]
    made = JaxMesh(grid.reshape([axis.size for axis in mesh.axes]), tuple(mesh.shape))
    return JaxNamedSharding(made, JaxPartitionSpec(*sharding.spec.entries))


def listed(place: Placement, shape: tuple[int, ...]) -> list[tuple[slice, ...] | None]:
    return [place.index(device, shape) for device in range(place.num_devices)]


@given(st.data())
def test_named_shardings_place_as_jax_does(data):
    mesh = data.draw(meshes())
    rank = data.draw(st.integers(0, 4))
    sharding = data.draw(named_shardings(mesh, rank=rank, unconstrained=False))
    entries = sharding.spec.entries + (None,) * (rank - len(sharding.spec.entries))
    counts = [math.prod(mesh.shape[name] for name in entry_axes(entry)) for entry in entries]
    shape = data.draw(shapes(counts, divisible=True))
    place = to_placement(sharding, rank)
    theirs = jax_sharding(sharding)
    assert place.local_shape(shape) == theirs.shard_shape(shape)
    for device, slices in theirs.devices_indices_map(shape).items():
        wanted = tuple(
            slice(*part.indices(size)[:2]) for part, size in zip(slices, shape, strict=True)
        )
        assert place.index(device.id, shape) == wanted


@given(st.data())
def test_blocks_are_those_of_a_walk_over_the_mesh(data):
    """Sub-axes, which JAX has no word for: coordinates are worked out device by device."""
    mesh = data.draw(meshes(max_devices=96))
    sharding = data.draw(tensor_shardings(mesh, mesh_ref="mesh"))
    place = to_placement(sharding, sharding.rank, mesh)
    for position, device in enumerate(mesh.devices()):
        for dim, block in zip(sharding.dim_shardings, place.block(device), strict=True):
            wanted = 0
            for ref in dim.axes:
                size, stride = mesh.position_digit(ref)
                wanted = wanted * size + position // stride % size
            assert block == wanted
    counts = shard_counts(mesh, sharding)
    assert place.shards == tuple(counts)
    shape = data.draw(shapes(counts))
    local, padding = place.local_shape(shape), place.padding(shape)
    for size, count, part, extra in zip(shape, counts, local, padding, strict=True):
        assert part * count == size + extra
        assert 0 <= extra < part * count
    covered = np.zeros(shape, int)
    for slices in listed(place, shape):
        covered[slices] += 1
    copies = mesh.size // math.prod(counts)
    assert (covered == copies).all()
    assert place.bytes_per_device(shape, "f32") == 4 * math.prod(local)


@given(st.data())
def test_equal_exactly_when_every_device_holds_the_same(data):
    mesh = data.draw(meshes(max_devices=24, max_axes=3))
    rank = data.draw(st.integers(1, 2))
    placement = [
        to_placement(data.draw(tensor_shardings(other, rank=rank, unreduced=False)), rank)
        for other in (mesh, data.draw(st.sampled_from([mesh, _reordered(mesh, data)])))
    ]
    blocks = [[place.block(device) for device in range(mesh.size)] for place in placement]
    same = placement[0].shards == placement[1].shards and blocks[0] == blocks[1]
    assert (placement[0] == placement[1]) == same
    if same:
        assert hash(placement[0]) == hash(placement[1])


def _reordered(mesh: Mesh, data: st.DataObject) -> Mesh:
    return Mesh(mesh.axes, tuple(data.draw(st.permutations(range(mesh.size)))))


@given(st.data())
def test_refines_exactly_when_every_block_is_in_one_of_the_other(data):
    mesh = data.draw(meshes(max_devices=48))
    finer, coarser = (
        to_placement(data.draw(named_shardings(mesh, rank=2, unconstrained=False)), 2)
        for _ in range(2)
    )
    cuts = list(zip(finer.shards, coarser.shards, strict=True))
    inside = all(many % few == 0 for many, few in cuts) and all(
        own // (many // few) == other
        for device in range(mesh.size)
        for own, other, (many, few) in zip(
            finer.block(device), coarser.block(device), cuts, strict=True
        )
    )
    assert finer.refines(coarser) == inside
    assert finer.refines(finer)


@given(st.data())
def test_renaming_and_splitting_axes_is_no_difference(data):
    """A mesh with every axis cut into its prime factors, and the sharding said over those."""
    mesh = data.draw(meshes(max_devices=64, reorder=False))
    rank = data.draw(st.integers(0, 3))
    sharding = data.draw(named_shardings(mesh, rank=rank, unconstrained=False))
    parts = {axis.name: _factors(axis.size) for axis in mesh.axes}
    finer = Mesh.of({f"{n}.{k}": size for n, f in parts.items() for k, size in enumerate(f)})
    entries = [
        tuple(f"{name}.{k}" for name in entry_axes(entry) for k in range(len(parts[name])))
        for entry in sharding.spec.entries
    ]
    again = NamedSharding(finer, PartitionSpec(tuple(entries)))
    assert to_placement(again, rank) == to_placement(sharding, rank)


def _factors(number: int) -> list[int]:
    for prime in range(2, number + 1):
        if number % prime == 0:
            return [prime, *_factors(number // prime)]
    return []


@given(st.data())
def test_unreduced_axes_compare_by_who_shares_a_partial_result(data):
    mesh = data.draw(meshes(max_devices=24, max_axes=3))
    one = data.draw(tensor_shardings(mesh, rank=1))
    two = data.draw(tensor_shardings(mesh, rank=1))
    places = [to_placement(sharding, 1) for sharding in (one, two)]

    def groups(sharding: TensorSharding) -> list[tuple[object, ...]]:
        rows = [()] * mesh.size
        for position, device in enumerate(mesh.devices()):
            dims = (*sharding.dim_shardings, DimSharding(sharding.unreduced_axes))
            rows[device] = tuple(
                tuple(
                    position // stride % size for size, stride in map(mesh.position_digit, d.axes)
                )
                for d in dims
            )
        first: dict[object, int] = {}
        return [
            (to_placement(sharding, 1).block(d), first.setdefault(rows[d][-1], d))
            for d in range(mesh.size)
        ]

    same = places[0].shards == places[1].shards and groups(one) == groups(two)
    assert (places[0] == places[1]) == same


def test_thirty_two_thousand_devices_are_a_few_digits():
    sizes = {"pipeline": 1, "data": 16, "expert": 1, "fsdp": 256, "seq": 1, "track": 8, "model": 1}
    mesh = Mesh.of(sizes)
    place = to_placement(NamedSharding(mesh, PartitionSpec.of(("data", "fsdp"), "track")), 2)
    assert place.dims == ((Digit(4096, 8),), (Digit(8, 1),))
    assert place.local_shape((8192, 4096)) == (2, 512)
    assert place.index(32767, (8192, 4096)) == (slice(8190, 8192), slice(3584, 4096))


def test_an_order_that_no_digits_describe_is_listed():
    tile = TileAssignment((3, 2), IotaTile((3, 2), (1, 0)))
    place = to_placement(HloSharding("tiled", tile), 2)
    assert through_order([(3, 2)], IotaTile((3, 2), (1, 0))) is None
    assert place.order == (0, 2, 4, 1, 3, 5)
    assert [place.block(d) for d in (0, 2, 4, 1, 3, 5)] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)
    ]  # fmt: skip


def test_maximal():
    place = to_placement(HloSharding("maximal", device=2), 2)
    assert place.index(2, (4, 4)) == (slice(0, 4), slice(0, 4))
    assert place.index(1, (4, 4)) is None
    assert place == to_placement(TensorSharding(Mesh((), (2,)), (DimSharding(), DimSharding())), 2)
    assert place != to_placement(HloSharding("maximal", device=1), 2)
    assert place != to_placement(HloSharding("replicated"), 2, num_devices=8)


MESH = Mesh.of({"a": 4, "b": 2})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_placement(TensorSharding("m"), 0), "the mesh @m is not known"),
        (
            lambda: to_placement(_over(AxisRef("a"), AxisRef("a", SubAxisInfo(2, 2))), 1),
            '"a":(2)2 overlaps "a" in one sharding',
        ),
        (lambda: to_placement(_over(AxisRef("b"), AxisRef("b")), 1), 'axis "b" is used twice'),
        (lambda: to_placement(HloSharding("unknown"), 1), "leaves the placement to the compiler"),
        (
            lambda: to_placement(NamedSharding(MESH, PartitionSpec.of("a", "b")), 1),
            "has 2 entries for a tensor of rank 1",
        ),
        (
            lambda: to_placement(HloSharding("tiled", TileAssignment((8,), (0,) * 8)), 1),
            "lists a device twice",
        ),
        (
            lambda: to_placement(
                HloSharding("tiled", TileAssignment((4,), IotaTile.identity(4))), 1, num_devices=8
            ),
            "is over 4 devices, not 8",
        ),
        (lambda: to_placement(_over(AxisRef("a")), 2), "is for a tensor of rank 1, not 2"),
        (
            lambda: to_placement(_over(AxisRef("a")), 1).local_shape((2, 3)),
            "can't place a tensor of rank 2",
        ),
        (lambda: to_placement(_over(AxisRef("a")), 1).block(8), "there is no device 8 among 8"),
    ],
)
def test_what_has_no_placement_is_refused(make, message):
    with pytest.raises(ConversionError) as raised:
        make()
    assert message in str(raised.value)


def _over(*refs: AxisRef) -> TensorSharding:
    return TensorSharding(MESH, (DimSharding(refs),))


@settings(max_examples=20)
@given(st.data())
def test_real_arrays_hold_what_the_placement_says(data):
    mesh = data.draw(meshes(max_axes=3, max_devices=8))
    if mesh.size > len(jax.devices()):
        return
    sharding = data.draw(named_shardings(mesh, rank=2, unconstrained=False))
    entries = sharding.spec.entries + (None,) * (2 - len(sharding.spec.entries))
    counts = [math.prod(mesh.shape[name] for name in entry_axes(entry)) for entry in entries]
    shape = data.draw(shapes(counts, divisible=True))
    grid = np.array(jax.devices())[mesh.devices()].reshape([axis.size for axis in mesh.axes])
    theirs = JaxNamedSharding(
        JaxMesh(grid, tuple(mesh.shape)), JaxPartitionSpec(*sharding.spec.entries)
    )
    array = jax.device_put(np.arange(math.prod(shape)).reshape(shape), theirs)
    place = to_placement(sharding, 2)
    number = {device: position for position, device in enumerate(jax.devices())}
    for shard in array.addressable_shards:
        slices = place.index(number[shard.device], shape)
        assert shard.data.shape == place.local_shape(shape)
        assert (np.asarray(shard.data) == np.asarray(array)[slices]).all()
