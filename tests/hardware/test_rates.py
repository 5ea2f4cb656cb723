import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import TargetError
from sdyscope.hardware.rates import parse_bandwidth, parse_latency, parse_size
from sdyscope.words.rates import bandwidth_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90GB/s", 90e9),
        ("84GiB/s", 84 * 2**30),
        ("400Gbit/s", 50e9),
        ("400Gb/s", 50e9),
        ("1.5 TB/s", 1.5e12),
        ("3e9B/s", 3e9),
        ("2kB/s", 2e3),
    ],
)
def test_bandwidths(text, value):
    assert parse_bandwidth(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "90", "90GB", "GB/s", "-1GB/s", "0GB/s", "90gb/s", "90GBs", "90iB/s", "nanGB/s", "9,0GB/s",
     "1e999GB/s", "90GB/s/s", "90 G B/s"],
)  # fmt: skip
def test_what_is_no_bandwidth_is_said_in_a_sentence(text):
    with pytest.raises(TargetError) as caught:
        parse_bandwidth(text)
    assert repr(text) in caught.value.message
    assert caught.value.message.endswith(".")


@given(st.floats(min_value=1e-3, max_value=1e15))
def test_what_is_written_is_read_back(value):
    assert math.isclose(parse_bandwidth(bandwidth_text(value)), value, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("text", "value"), [("1us", 1e-6), ("1µs", 1e-6), ("500ns", 5e-7), ("0ms", 0), ("0.5 s", 0.5)]
)
def test_latencies(text, value):
    assert math.isclose(parse_latency(text), value)


@pytest.mark.parametrize("text", ["", "1", "us", "-1us", "1 hour", "1e999s"])
def test_what_is_no_latency(text):
    with pytest.raises(TargetError, match="not a latency"):
        parse_latency(text)


def test_a_size_is_exact_and_has_a_limit():
    assert parse_size("9007199254740993B") == 9_007_199_254_740_993
    assert parse_size("0.1GiB") == 107_374_182
    for text in ("9" * 400 + "B", "9" * 5_000 + "GiB", "8388608TiB"):
        with pytest.raises(TargetError, match="more than a computer can hold"):
            parse_size(text)
