"""The fields of a protobuf message, without its schema.

As https://protobuf.dev/programming-guides/encoding has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers as numbers, messages and texts as bytes.

    Raises:
        IndexError: the message is cut off.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield field, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        else:
            size = 8 if wire == _FIXED64 else 4
        if at + size > len(data):
            raise IndexError(field)
        yield field, data[at : at + size]
        at += size


def encoded(field: int, data: bytes) -> bytes:
    """A field of bytes as it is written."""
    return _as_varint(field << 3 | _BYTES) + _as_varint(len(data)) + data


def _as_varint(number: int) -> bytes:
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
