"""Counts and lists as they stand in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, many: str = "") -> str:
    """`1 value`, `1,234 values`.

    Args:
      count: how many.
      one: what one of them is called.
      many: what several are; by default with an s.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of none."""
    *most, last = words or ("",)
    return f"{', '.join(most)} and {last}" if most else last
