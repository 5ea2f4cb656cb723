"""The fields of a protobuf message, without its schema.

As https://protobuf.dev/programming-guides/encoding has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BYTES = 2


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers as numbers, messages and texts as bytes.

    Raises:
        ValueError: the message is cut off, or has a field of a kind that there is not.
    """
    at, length = 0, len(data)
    while at < length:
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            case 2:
                size, at = _varint(data, at)
            case 1:
                size = 8
            case 5:
                size = 4
            case kind:
                raise ValueError(f"There are no fields of kind {kind}.")
        if at + size > length:
            raise ValueError("A field is longer than the message.")
        yield key >> 3, data[at : at + size]
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
    for end in range(at, len(data)):
        byte = data[end]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, end + 1
        shift += 7
    raise ValueError("A number is longer than the message.")
