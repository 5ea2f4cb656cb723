"""A placement as a PartitionSpec, or in words where there is no mesh to say one."""

from sdyscope.facts.sharded import Sharded
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Digit, Placement
from sdyscope.words.sharding import spec_words

HALVES = Placement(8, ((Digit(4, 2),), ()))


def test_a_placement_is_a_spec_where_its_mesh_is_known():
    mesh = Mesh.of({"data": 4, "model": 2})
    assert spec_words(Sharded(None, (8, 8), "f32", HALVES, mesh)) == "P('data', None)"
    words = (
        "dim 0 split 4 ways (device stride 2), dim 1 whole; replicated 2 times (device stride 1)"
    )
    assert spec_words(Sharded(None, (8, 8), "f32", HALVES)) == words
    assert spec_words(Sharded(None, (8, 8), "f32")) == "left to the compiler"
