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


def compiled_text(
    hardware: Hardware | str | None,
    device_kind: str | None = None,
    *,
    under: str = "",
    by: str | None = None,
) -> str:
    """`compiled for cpu:8 under Shardy by JAX 0.10.2`; empty where nobody says for what.

    Args:
        hardware: as ``hardware_text`` takes it.
        device_kind: likewise.
        under: which partitioners, in words.
        by: the JAX that compiled it; None where that is not known.
    """
    on = hardware_text(hardware, device_kind)
    parts = (f"compiled for {on}", f"under {under}" if under else "", f"by {by}" if by else "")
    return " ".join(filter(None, parts)) if on else ""
