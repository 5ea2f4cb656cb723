"""What a program was compiled for, in words."""

from __future__ import annotations

from sdyscope.hardware.names import Hardware


def hardware_text(hardware: Hardware | str | None, device_kind: str | None = None) -> str:
    """`cpu:8`, `cuda:h200:1x1x8 (NVIDIA H200)`; empty where nobody says.

    Args:
        hardware: what was compiled for; None for what a recorded run compiled, and for a text.
        device_kind: what the compiler calls such a device; empty or None where it does not say.
    """
    kind = device_kind or ""
    if hardware is None:
        return kind
    name = str(hardware)
    is_said = kind.lower() == name.partition(":")[0] or name.startswith(kind)
    return name if is_said else f"{name} ({kind})"
