"""A placement as a PartitionSpec, or in words where there is no mesh to say one."""

from sdyscope.facts.sharded import Sharded
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import Digit, Placement, axes_digits
from sdyscope.words.sharding import short, spec_words, told_apart

HALVES = Placement(8, ((Digit(4, 2),), ()))


def test_a_placement_is_a_spec_where_its_mesh_is_known():
    mesh = Mesh.of({"data": 4, "model": 2})
    assert spec_words(Sharded(None, (8, 8), "f32", HALVES, mesh)) == "P('data', None)"
    words = (
        "dim 0 split 4 ways (device stride 2), dim 1 whole; replicated 2 times (device stride 1)"
    )
    assert spec_words(Sharded(None, (8, 8), "f32", HALVES)) == words
    assert spec_words(Sharded(None, (8, 8), "f32")) == "left to the compiler"


def test_what_is_written_alike_on_two_meshes_is_told_apart_by_its_devices():
    meshes = Mesh.of({"data": 4, "model": 2}), Mesh.of({"model": 2, "data": 4})
    digits = (axes_digits(mesh, (AxisRef("data"),)) for mesh in meshes)
    first, second = (
        Sharded(None, (8, 8), "f32", Placement(8, (split, ())), mesh)
        for split, mesh in zip(digits, meshes, strict=True)
    )
    assert told_apart(short, first, second) == (
        "P('data', None): dim 0 split 4 ways (device stride 2), dim 1 whole; "
        "replicated 2 times (device stride 1)",
        "P('data', None): dim 0 split 4 ways (device stride 1), dim 1 whole; "
        "replicated 2 times (device stride 4)",
    )
    # As short as it can be.
    other = Sharded(None, (8, 8), "f32", Placement(8, ((), first.placement.dims[0])), meshes[0])
    assert told_apart(short, first, other) == ("P('data', None)", "P(None, 'data')")
    assert told_apart(short, first, first) == ("P('data', None)",) * 2
