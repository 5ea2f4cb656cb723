"""What a program was compiled for, in words."""

import pytest

from sdyscope.hardware.names import parse_hardware
from sdyscope.words.hardware import hardware_text


@pytest.mark.parametrize(
    ("hardware", "kind", "text"),
    [
        ("cpu:8", "cpu", "cpu:8"),
        ("tpu:v5e:2x4", "TPU v5 lite", "tpu:v5e:2x4 (TPU v5 lite)"),
        ("gpu:4", "NVIDIA H200", "gpu:4 (NVIDIA H200)"),
        ("cuda:h100:1x1x8", None, "cuda:h100:1x1x8"),
        # Of a recorded run only the device is known, of a text nothing.
        (None, "NVIDIA H200", "NVIDIA H200"),
        (None, "", ""),
        (None, None, ""),
    ],
)
def test_hardware(hardware, kind, text):
    assert hardware_text(hardware, kind) == text
    assert hardware_text(None if hardware is None else parse_hardware(hardware), kind) == text
