"""What a program was compiled for, in words."""

import pytest

from sdyscope.hardware.names import parse_hardware
from sdyscope.words.hardware import compiled_text, hardware_text


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


def test_what_was_compiled_for_what_by_whom():
    words = compiled_text("cpu:8", "cpu", under="Shardy", by="JAX 0.10.2")
    assert words == "compiled for cpu:8 under Shardy by JAX 0.10.2"
    assert compiled_text(None, "NVIDIA H200") == "compiled for NVIDIA H200"
    assert compiled_text(None, by="JAX 0.10.2") == ""
