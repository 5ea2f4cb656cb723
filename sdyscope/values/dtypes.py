"""Sizes of element types, by their MLIR and HLO names (``f32``, ``bf16``, ``i1``, ``pred``)."""

from __future__ import annotations

import re
from functools import lru_cache

from sdyscope.errors import ConversionError

#: What an ordered effect takes and gives; it has no shape and takes no memory.
TOKEN = "!stablehlo.token"

_BITS = {"pred": 8, "i1": 8, "index": 64, "tf32": 32, "token": 0, TOKEN: 0}
_COMPLEX = re.compile(r"complex<(.+)>|c(64|128)")
_INTEGER = re.compile(r"[su]?i?(\d+)|ui(\d+)")
_FLOAT = re.compile(r"b?f(\d+)(?:E.*|e.*)?")


@lru_cache(1 << 8)
def bit_width(dtype: str) -> int:
    """Bits that one element takes in memory; booleans take a byte, as in XLA.

    Raises:
        ConversionError: a name that is no MLIR or HLO element type.
    """
    if dtype in _BITS:
        return _BITS[dtype]
    if match := _COMPLEX.fullmatch(dtype):
        return int(match[2]) if match[2] else 2 * bit_width(match[1])
    if match := _FLOAT.fullmatch(dtype) or _INTEGER.fullmatch(dtype):
        return int(next(group for group in match.groups() if group))
    raise ConversionError(f"unknown element type {dtype!r}")


def num_bytes(elements: int, dtype: str) -> int:
    """Bytes of ``elements`` packed elements, rounded up to a whole byte."""
    return -(-elements * bit_width(dtype) // 8)


_HLO_NAMES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def hlo_dtype(name: str) -> str:
    """HLO's name of an element type of MLIR: ``i1`` -> ``pred``, ``i32`` -> ``s32``."""
    if name in _HLO_NAMES:
        return _HLO_NAMES[name]
    if name.startswith("ui"):
        return f"u{name[2:]}"
    if name.startswith("i") and name[1:].isdecimal():
        return f"s{name[1:]}"
    return name.lower()
