"""What JAX says of types that have to be equal."""

import jax
import jax.numpy as jnp
import pytest

from sdyscope.facts.refusals import DifferingTypes
from sdyscope.stages.lowered.differing import differing
from sdyscope.stages.recorder import sitecustomize


def carry(value, first, second):
    return DifferingTypes("carry", value, "", "", first, second)


def test_carries_with_their_shardings_and_how_they_vary():
    said = (
        "The input carry has a component that differs:\n"
        "  * the input carry component s[1] has type float32[8@(data,model),16] but the "
        "corresponding output carry component has type float32[8,16@model];\n"
        "  * the input carry component s[0] has type float32[] but the corresponding output carry "
        "component has type float32[]{V:data}, so the manual axis types do not match.\n"
    )
    assert [*differing(said)] == [
        carry("s[1]", "float32[8@(data,model),16]", "float32[8,16@model]"),
        carry("s[0]", "float32[]", "float32[]{V:data}"),
    ]


@pytest.mark.parametrize(
    ("loop", "types"),
    [
        (
            lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c.astype(jnp.int32), x),
            carry("loop_carry[1]", "float32[8]", "int32[8]"),
        ),
        (
            lambda x: jax.lax.switch(1, [lambda a: a, lambda a: a > 0], x),
            DifferingTypes("branch", "branch 0", "branch 1", "", "float32[8]", "bool[8]"),
        ),
        (
            lambda x: jax.lax.cond(True, lambda a: {"h": a}, lambda a: {"h": a > 0}, x),
            DifferingTypes("branch", "true_fun", "false_fun", "['h']", "float32[8]", "bool[8]"),
        ),
    ],
)
@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="older JAX says it otherwise")
def test_what_this_jax_says_is_read_and_explained_by_record(loop, types):
    with pytest.raises(TypeError) as caught:
        jax.jit(loop).trace(jax.ShapeDtypeStruct((8,), jnp.float32))
    assert [*differing(str(caught.value))] == [types]
    assert sitecustomize._EXPLAINED.search(str(caught.value))


def test_another_message_has_none():
    assert [*differing("add got incompatible shapes for broadcasting: (3,), (4,).")] == []
