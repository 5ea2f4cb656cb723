"""Bandwidths, latencies and sizes as people write them: ``90GB/s``, ``1us``, ``16GiB``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from sdyscope.errors import TargetError

_PREFIXES = {"": 0, "K": 1, "k": 1, "M": 2, "G": 3, "T": 4}
_BANDWIDTH = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*"
    r"(?P<prefix>[KkMGT]?)(?P<binary>i?)(?P<unit>B|bit|b)/s"
)
_LATENCY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*(?P<unit>ns|us|µs|ms|s)")
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<prefix>[KkMGT]?)(?P<binary>i?)B")
_SECONDS: Mapping[str, float] = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_bandwidth(text: str) -> float:
    """Bytes a second of ``90GB/s`` (10^9 bytes), ``84GiB/s`` (2^30 bytes) or ``400Gbit/s``.

    Raises:
        TargetError: the text is no bandwidth, or it is zero.
    """
    match = _BANDWIDTH.fullmatch(text.strip())
    if match is None or (match["binary"] and not match["prefix"]):
        raise TargetError(
            f"{text!r} is not a bandwidth.", hint="Write 90GB/s, 84GiB/s or 400Gbit/s."
        )
    scale = (1024.0 if match["binary"] else 1000.0) ** _PREFIXES[match["prefix"]]
    value = float(match["number"]) * scale / (1 if match["unit"] == "B" else 8)
    if not 0 < value < math.inf:
        raise TargetError(f"The bandwidth {text!r} is not positive and finite.")
    return value


def parse_latency(text: str) -> float:
    """Seconds of ``1us``, ``500ns`` or ``0.01ms``.

    Raises:
        TargetError: the text is no time.
    """
    match = _LATENCY.fullmatch(text.strip())
    value = math.inf if match is None else float(match["number"]) * _SECONDS[match["unit"]]
    if match is None or value == math.inf:
        raise TargetError(f"{text!r} is not a latency.", hint="Write 1us, 500ns or 0.01ms.")
    return value


def parse_size(text: str, *, least: int = 1) -> int:
    """Bytes of ``16GiB`` (2^30 bytes), ``16GB`` (10^9 bytes) or ``512 B``.

    Args:
        text: the size.
        least: what it must be at least, in bytes; 0 or 1.

    Raises:
        TargetError: the text is no size, or it is less than that.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match["binary"] and not match["prefix"]):
        raise TargetError(f"{text!r} is not a size in bytes.", hint="Write 16GiB, 800MB or 512B.")
    scale = (1024 if match["binary"] else 1000) ** _PREFIXES[match["prefix"]]
    if float(match["number"]) * scale >= 2**63:
        raise TargetError(f"The size {text[:40]!r} is more than a computer can hold.")
    size = int(Fraction(match["number"]) * scale)
    if size < least:
        raise TargetError(f"The size {text!r} is less than a byte.")
    return size
