from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import ConversionError
from sdyscope.stages.compat import hlo
from sdyscope.values.convert import (
    to_hlo_sharding,
    to_named_hlo_sharding,
    to_named_sharding,
    to_placement,
    to_tensor_sharding,
    unreversed,
    unspecified_dims,
)
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, SubAxisInfo
from sdyscope.values.sharding import (
    UNCONSTRAINED,
    DimSharding,
    NamedSharding,
    PartitionSpec,
    TensorSharding,
)
from sdyscope.values.tiling import HloSharding, NamedHloSharding, TileAssignment
from sdyscope.words.sharding import placement_text
from tests.strategies import meshes, named_shardings, tensor_shardings
from tests.values.test_placement import jax_sharding

RANKS = st.integers(0, 4)


@given(st.data())
def test_a_named_sharding_becomes_the_very_text_that_jax_makes(data):
    mesh = data.draw(meshes(reorder=False))
    rank = data.draw(RANKS)
    sharding = data.draw(named_shardings(mesh, rank=rank, unconstrained=False))
    theirs = jax_sharding(sharding)
    if mesh.size > 1:  # jax says {maximal device=0} or {replicated} of one device, by version
        assert str(to_hlo_sharding(sharding, rank)) == str(theirs._to_xla_hlo_sharding(rank))
    # JAX gives dimensions; the text of them is Shardy's.
    shardy = theirs._to_sdy_sharding(rank)
    ours = to_tensor_sharding(sharding, rank)
    assert [[axis.name for axis in dim.axes] for dim in ours.dim_shardings] == [
        list(dim.axes) for dim in shardy.dim_shardings
    ]
    assert [dim.is_closed for dim in ours.dim_shardings] == [
        not dim.is_open for dim in shardy.dim_shardings
    ]


@given(st.data())
def test_a_named_sharding_survives_every_form_that_has_a_mesh(data):
    mesh = data.draw(meshes())
    rank = data.draw(RANKS)
    sharding = data.draw(named_shardings(mesh, rank=rank))
    shardy = to_tensor_sharding(sharding, rank)
    full = NamedSharding(
        mesh,
        PartitionSpec(
            sharding.spec.entries + (None,) * (rank - len(sharding.spec.entries)),
        ),
    )
    assert to_named_sharding(shardy, rank, mesh) == full
    named = to_named_hlo_sharding(sharding, rank)
    assert to_named_sharding(named, rank) == full
    assert to_tensor_sharding(named, rank) == shardy
    assert unspecified_dims(shardy, rank) == unspecified_dims(sharding, rank)
    assert unspecified_dims(named, rank) == unspecified_dims(sharding, rank)


@given(st.data())
def test_the_placement_survives_every_form(data):
    mesh = data.draw(meshes(max_devices=96))
    rank = data.draw(RANKS)
    sharding = data.draw(tensor_shardings(mesh, rank=rank, mesh_ref="mesh", priorities=False))
    place = to_placement(sharding, rank, mesh)
    classic = to_hlo_sharding(sharding, rank, mesh)
    assert to_placement(classic, rank, num_devices=mesh.size) == place
    assert to_hlo_sharding(place, rank) == classic
    named = to_named_hlo_sharding(sharding, rank, mesh)
    assert to_placement(named, rank) == place


@given(st.data())
def test_axes_are_found_again_from_device_numbers_alone(data):
    """Classic HLO has no names: what comes back may name other axes, but places the same."""
    mesh = data.draw(meshes(reorder=False))
    rank = data.draw(RANKS)
    sharding = data.draw(tensor_shardings(mesh, rank=rank, mesh_ref="mesh"))
    classic = to_hlo_sharding(sharding, rank, mesh)
    back = to_tensor_sharding(classic, rank, mesh)
    assert to_placement(back, rank, mesh) == to_placement(sharding, rank, mesh)
    if all(axis.size > 1 for axis in mesh.axes):
        for ours, theirs in zip(back.dim_shardings, sharding.dim_shardings, strict=True):
            assert ours.axes == theirs.axes


@given(st.data())
def test_xla_reads_the_same_blocks_from_our_text(data):
    mesh = data.draw(meshes(max_devices=96))
    rank = data.draw(RANKS)
    sharding = data.draw(tensor_shardings(mesh, rank=rank, mesh_ref="mesh"))
    classic = to_hlo_sharding(sharding, rank, mesh)
    if classic.tile_assignment is None:
        return
    theirs = hlo.HloSharding.from_string(str(classic))
    assert theirs.is_tiled()
    assert tuple(theirs.tile_assignment_dimensions()) == classic.tile_assignment.dims
    place = to_placement(sharding, rank, mesh)
    dims = list(theirs.tile_assignment_dimensions())
    for position, device in enumerate(theirs.tile_assignment_devices()):
        block, rest = [], position
        for size in reversed(dims):
            block.append(rest % size)
            rest //= size
        assert place.block(device) == tuple(block[::-1][:rank])


MESH = Mesh.of({"a": 4, "b": 2})
HALF = AxisRef("a", SubAxisInfo(1, 2))


@pytest.mark.parametrize(
    ("sharding", "rank", "message"),
    [
        (TensorSharding(MESH, (DimSharding((HALF,)),)), 1, "can't say a sub-axis"),
        (TensorSharding(MESH, (DimSharding(priority=1),)), 1, "can't say a priority"),
        (
            TensorSharding(MESH, (DimSharding((AxisRef("a"),), is_closed=False),)),
            1,
            "can't leave open a sharded dimension",
        ),
        (TensorSharding(MESH, (), (AxisRef("a"),)), 0, "can't say replicated axes"),
        (NamedHloSharding(MESH, manual_axes=(AxisRef("a"),)), 0, "can't say manual axes"),
        (TensorSharding("mesh"), 0, "the mesh @mesh is not known"),
        (HloSharding("replicated"), 1, "axes can't be named without a mesh"),
    ],
)
def test_what_a_partition_spec_cannot_say(sharding, rank, message):
    with pytest.raises(ConversionError) as raised:
        to_named_sharding(sharding, rank)
    assert message in str(raised.value)


def test_blocks_that_follow_no_axes_are_refused():
    tile = TileAssignment((3,), IotaTile.identity(3))
    three = HloSharding("tiled", tile)
    with pytest.raises(ConversionError, match="is over 3 devices, not 8"):
        to_tensor_sharding(three, 1, MESH)
    six = Mesh.of({"a": 3, "b": 2})
    crossed = HloSharding("tiled", TileAssignment((2, 3), IotaTile.identity(6)))
    with pytest.raises(ConversionError, match="follows no axes of"):
        to_tensor_sharding(crossed, 2, six)


def test_another_device_order_is_refused():
    shuffled = Mesh.of({"a": 4, "b": 2}, (3, 1, 4, 0, 5, 2, 6, 7))
    classic = to_hlo_sharding(TensorSharding(shuffled, (DimSharding((AxisRef("a"),)),)), 1)
    assert to_tensor_sharding(classic, 1, shuffled).dim_shardings[0].axes == (AxisRef("a"),)
    with pytest.raises(ConversionError, match="in another order than the mesh's"):
        to_tensor_sharding(classic, 1, MESH)


@pytest.mark.parametrize(
    ("sharding", "words"),
    [
        (("a", None), "dim 0 split 4 ways over a, dim 1 whole; replicated 2 times over b"),
        ((("a", "b"), None), "dim 0 split 8 ways over a, b, dim 1 whole"),
        ((None, UNCONSTRAINED), "replicated on every device"),
        (("b", "a"), "dim 0 split 2 ways over b, dim 1 split 4 ways over a"),
    ],
)
def test_in_words(sharding, words):
    place = to_placement(NamedSharding(MESH, PartitionSpec(sharding)), 2)
    assert placement_text(place, MESH) == words


def test_in_words_without_names():
    place = to_placement(NamedSharding(MESH, PartitionSpec.of("b", unreduced={"a"})), 1)
    assert placement_text(place, MESH) == "dim 0 split 2 ways over b; unreduced over a"
    assert placement_text(place) == (
        "dim 0 split 2 ways (device stride 1); unreduced (device stride 2)"
    )
    assert (
        placement_text(to_placement(HloSharding("maximal", device=3), 0))
        == "whole, on device 3 alone"
    )
    halves = TensorSharding(MESH, (DimSharding((HALF,)),))
    assert placement_text(to_placement(halves, 1), MESH) == (
        "dim 0 split 2 ways over a:(1)2; replicated 4 times over a:(2)2, b"
    )


def test_a_sharding_on_one_device_alone_says_no_dimensions():
    # What JAX writes of a callback's operands and results, whatever their rank.
    maximal = TensorSharding(Mesh((), (0,)))
    assert to_placement(maximal, 2, num_devices=8) == to_placement(
        HloSharding("maximal", device=0), 2, num_devices=8
    )


def test_a_mesh_without_axes_is_of_all_devices():
    """JAX writes such a mesh for what it leaves on one device, and XLA has it on each."""
    sharding = TensorSharding("empty_mesh", (DimSharding(),))
    placement = to_placement(sharding, 1, Mesh(()), num_devices=8)
    assert placement == to_placement(HloSharding("replicated"), 1, num_devices=8)
    assert (placement.num_devices, placement.replication) == (8, 8)
    assert to_placement(sharding, 1, Mesh(())).num_devices == 1


def test_a_mesh_of_one_device_divides_nothing_among_those_that_there_are():
    sharding = TensorSharding("mesh", (DimSharding((AxisRef("one"),)), DimSharding()))
    placement = to_placement(sharding, 2, Mesh.of({"one": 1}), 8)
    assert (placement.num_devices, placement.replication) == (8, 8)


@given(st.data())
def test_axes_of_a_reversed_dimension_are_those_that_it_had(data):
    """XLA shards what it reverses over the same axes, from their last block to their first."""
    mesh = data.draw(meshes(reorder=False, max_devices=64))
    rank = data.draw(st.integers(1, 3))
    spec = data.draw(named_shardings(mesh, rank=rank, unconstrained=False)).spec
    whole = to_hlo_sharding(NamedSharding(mesh, PartitionSpec(spec.entries)), rank)
    own = whole.tile_assignment
    if own is None:
        return  # Whole on every device: there is nothing to turn, in half of what is drawn.
    listed = np.array(own.listed()).reshape(own.dims)
    dims = [dim for dim in range(rank) if data.draw(st.booleans())]
    devices = tuple(np.flip(listed, dims).flatten().tolist())
    turned = replace(whole, tile_assignment=TileAssignment(own.dims, devices))
    put_right = unreversed(to_placement(turned, rank, mesh), mesh)
    assert to_placement(put_right, rank, mesh) == to_placement(whole, rank, mesh)


def test_an_order_that_is_no_reversal_has_no_axes():
    mesh = Mesh.of({"a": 4, "b": 2})
    tile = TileAssignment((4, 2), (2, 3, 0, 1, 4, 5, 6, 7))
    sharding = HloSharding("tiled", tile, subgroup_types=("replicated",))
    with pytest.raises(ConversionError, match="follow no axes"):
        unreversed(to_placement(sharding, 1, mesh), mesh)
