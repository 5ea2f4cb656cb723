"""Words that name hardware."""

import pytest

from sdyscope.errors import TargetError
from sdyscope.hardware.names import Hardware, parse_hardware


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu", Hardware("cpu")),
        ("cpu:8", Hardware("cpu", 8)),
        ("tpu:v5e:4x4", Hardware("tpu", chip="v5e", topology="4x4")),
        ("tpu:v5p:8x8x16", Hardware("tpu", chip="v5p", topology="8x8x16")),
        ("tpu:v6e:16x16x2slices", Hardware("tpu", chip="v6e", topology="16x16", slices=2)),
        ("tpu:v5p:2x2x2x8slices", Hardware("tpu", chip="v5p", topology="2x2x2", slices=8)),
        (
            "cuda:h100.txtpb:1x128x8",
            Hardware("cuda", 1024, topology="1x128x8", config="h100.txtpb"),
        ),
        ("cuda:a:b/c:1x1x8", Hardware("cuda", 8, topology="1x1x8", config="a:b/c")),
        ("cuda:h100:1x1x8", Hardware("cuda", 8, topology="1x1x8", config="h100")),
        ("devices", Hardware("any")),
        ("devices:4", Hardware("any", 4)),
        ("gpu", Hardware("cuda")),
        ("gpu:4", Hardware("cuda", 4)),
        ("tpu", Hardware("tpu")),
        ("tpu:8", Hardware("tpu", 8)),
    ],
)
def test_names(text: str, expected: Hardware) -> None:
    assert parse_hardware(text) == expected
    assert str(expected) == text
    assert expected.present is (text[:3] != "cpu" and "x" not in text)


def test_cuda_and_gpu_are_one():
    assert parse_hardware("cuda:4") == parse_hardware("gpu:4")
    assert parse_hardware("gpu:h100:1x1x8") == parse_hardware("cuda:h100:1x1x8")


def test_one_slice_is_what_no_word_of_slices_means() -> None:
    assert parse_hardware("tpu:v5e:4x4x1slice") == parse_hardware("tpu:v5e:4x4")


@pytest.mark.parametrize(
    "text",
    ["", "cpu:", "cpu:x", "cpu:0", "cpu:4096", "gpu:0", "devices:", "devices:x", "tpu:v5e",
     "tpu:v5e:", "tpu:v5e:4xx4",
     "tpu:v5e:0x4", "tpu:v5e:4x4x0slices", "tpu:v5e:slices", "cuda:1x2x3", "cuda:c:1x2",
     "cuda:c:1x0x2", "v5e:4x4"],
)  # fmt: skip
def test_what_names_none(text: str) -> None:
    with pytest.raises(TargetError):
        parse_hardware(text)
