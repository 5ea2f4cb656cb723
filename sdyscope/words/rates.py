"""Bandwidths, times and numbers of operations as they are shown."""

from __future__ import annotations


def bandwidth_text(value: float) -> str:
    """Bytes a second as ``90 GB/s``, in decimal units as links are sold, to six digits."""
    for power, unit in ((4, "TB/s"), (3, "GB/s"), (2, "MB/s"), (1, "kB/s")):
        if value >= 0.9999995 * 1000**power:
            return f"{value / 1000**power:.6g} {unit}"
    return f"{value:.6g} B/s"


def time_text(seconds: float | None) -> str:
    """A time to three digits, ``3.10 ms``; a dash where it is not known."""
    if seconds is None:
        return "-"
    if seconds == 0:
        return "0 s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= 0.9995 * scale:
            return f"{_three(seconds / scale)} {unit}"
    return f"{_three(seconds / 1e-9)} ns"


def metric_text(value: float | None, unit: str = "") -> str:
    """`648 MFLOP`, in decimal units, to three digits; a dash where it is not known."""
    if value is None:
        return "-"
    for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if value >= 0.9995 * 1000**power:
            return f"{value / 1000**power:.3g} {prefix}{unit}".replace("e+03", "000")
    return f"{value:.3g} {unit}".rstrip()


def _three(value: float) -> str:
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )
