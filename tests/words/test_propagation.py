"""Where an axis begins, and where a value is, in words."""

from sdyscope.facts.decided import DecidedValue
from sdyscope.facts.moves import AnnotatedDim
from sdyscope.facts.sharded import Sharded
from sdyscope.syntax.shardy import parse_tensor_sharding
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import Placement, axes_digits
from sdyscope.words.propagation import decided_text, written_text

MESH = Mesh.of({"data": 4, "model": 2})


def test_a_constraint_without_a_scope_is_in_none():
    sharding = parse_tensor_sharding('<@mesh, [{}, {"model"}]>')
    texts = [written_text(AnnotatedDim("constraint", name, sharding, 1)) for name in ("", "layer0")]
    assert texts == [
        "the annotation {model} on dim 1 of the constraint",
        "the annotation {model} on dim 1 of the constraint in layer0",
    ]


def test_devices_that_hold_the_same_in_a_shard_map_hold_no_block_of_their_own():
    texts = []
    for names in (("data", "model"), ("data",)):
        manual = axes_digits(MESH, map(AxisRef, names))
        place = Placement(8, ((),), manual=manual)
        texts.append(decided_text(DecidedValue("kept", Sharded(None, (8,), "f32", place, MESH))))
    assert texts == [
        "manual: each device has its own block, as in the shard_map",
        "manual: dim 0 whole; manual over data; replicated 2 times over model",
    ]
