"""Types with their shardings, against what JAX prints."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as JaxSpec

from sdyscope.stages import compat
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.types import jax_type_text

MESH = AbstractMesh((2, 2, 2), ("a", "b", "c"), axis_types=(AxisType.Explicit,) * 3)


@pytest.mark.skipif(compat.version_tuple() < (0, 10), reason="JAX printed some of it otherwise")
@pytest.mark.parametrize(
    ("entries", "unreduced", "reduced"),
    [
        ((None, None), (), ()),
        (("a", None), (), ()),
        ((("a", "b"), "c"), (), ()),
        (("a", None), ("b",), ()),
        ((None, None), ("b", "a"), ("c",)),
        ((None, "c"), (), ("a", "b")),
    ],
)
def test_a_type_reads_as_jax_prints_it(entries, unreduced, reduced):
    spec = JaxSpec(*entries, unreduced={*unreduced}, reduced={*reduced})
    aval = jax.core.ShapedArray((8, 16), jnp.float32, sharding=NamedSharding(MESH, spec))
    ours = PartitionSpec(entries, frozenset(unreduced), frozenset(reduced))
    assert jax_type_text((8, 16), "f32", ours, MESH.axis_names) == aval.str_short(True)


def test_what_jax_has_no_word_for():
    assert jax_type_text((4,), "f32", None) == "f32[4]"
    assert jax_type_text(None, "f32", PartitionSpec(("a",))) == "f32[?]"
