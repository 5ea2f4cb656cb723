import jax.numpy as jnp
import numpy as np
import pytest

from sdyscope.errors import ConversionError
from sdyscope.stages.compat import dtype_name
from sdyscope.values.dtypes import bit_width, num_bytes

BYTES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16"]
BYTES += ["float32", "complex64", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("name", BYTES)
def test_sizes_are_those_of_the_arrays(name):
    array = np.zeros(3, jnp.dtype(name))
    assert num_bytes(3, dtype_name(array.dtype)) == array.nbytes


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("i4", 4),
        ("ui4", 4),
        ("f4E2M1FN", 4),
        ("s32", 32),
        ("u64", 64),
        ("pred", 8),
        ("c128", 128),
        ("complex<f64>", 128),
        ("f8e4m3fn", 8),
        ("f64", 64),
    ],
)
def test_names_of_both_dialects(name, bits):
    assert bit_width(name) == bits


def test_odd_numbers_of_packed_elements_round_up():
    assert num_bytes(3, "i4") == 2


def test_an_unknown_name_is_refused():
    with pytest.raises(ConversionError, match="unknown element type 'quantum'"):
        bit_width("quantum")
