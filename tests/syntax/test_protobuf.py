"""Fields of protobuf messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.syntax.protobuf import encoded, fields


def test_every_kind_of_field():
    long = bytes((4 << 3 | 2, 0xAC, 0x02)) + b"x" * 300
    message = bytes((1 << 3, 0x96, 0x01)) + encoded(2, b"testing") + bytes((3 << 3 | 5,)) + b"1234"
    message += bytes((5 << 3 | 1,)) + b"12345678" + long
    expected = [(1, 150), (2, b"testing"), (3, b"1234"), (5, b"12345678"), (4, b"x" * 300)]
    assert list(fields(message)) == expected


@given(st.integers(1, 2**29 - 1), st.binary(max_size=300))
def test_a_field_of_bytes_is_read_as_it_was_written(field, data):
    assert list(fields(encoded(field, data))) == [(field, data)]


def test_what_is_cut_off_is_told():
    message = encoded(1, b"jit_step")
    for end in range(1, len(message)):
        with pytest.raises(ValueError, match="longer than the message"):
            list(fields(message[:end]))
