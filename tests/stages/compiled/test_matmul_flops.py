"""What a device computes in matmuls, against XLA's own cost analysis."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from programs import array

from sdyscope.analysis.collectives.predicted import Predictor
from sdyscope.inspection import inspect


def flops(function, *arguments):
    program = inspect(jax.jit(function), *arguments, partitioners=("shardy",))
    return Predictor(program.lowered["shardy"], program.graph("shardy")).predict().flops


def whole(function, *arguments):
    """XLA counts the program before it is compiled."""
    alone = [jax.ShapeDtypeStruct(argument.shape, argument.dtype) for argument in arguments]
    return jax.jit(function).lower(*alone).cost_analysis()["flops"]


def convolve(image, kernel):
    numbers = lax.conv_dimension_numbers(image.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
    return lax.conv_general_dilated(image, kernel, (1, 1), "VALID", dimension_numbers=numbers)


CASES = {
    "columns": (jnp.matmul, array((16, 32), "data"), array((32, 64), None, "model"), 8),
    "rows": (jnp.matmul, array((16, 32), None, "model"), array((32, 64), "model"), 2),
    "alone": (jnp.matmul, array((16, 32)), array((32, 64)), 1),
    "batch": (
        lambda a, b: jnp.einsum("bij,bkj->bik", a, b),
        array((8, 4, 16), "data"),
        array((8, 6, 16), "data", None, "model"),
        8,
    ),
    "vector": (jnp.dot, array((32,)), array((32, 8), None, "data"), 4),
    "convolution": (convolve, array((8, 9, 9, 4), "data"), array((3, 3, 4, 6), None), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_a_device_computes_its_part(name):
    function, one, other, parts = CASES[name]
    assert flops(function, one, other) * parts == whole(function, one, other)


def test_loops_and_functions_are_multiplied_out():
    def scanned(x, ws):
        return lax.scan(lambda x, w: (jnp.tanh(jax.jit(jnp.matmul)(x, w)), None), x, ws)[0]

    arguments = array((16, 32), "data"), array((5, 32, 32), None, None, "model")
    assert flops(scanned, *arguments) == 5 * 2 * 16 * 32 * 32 // 8
