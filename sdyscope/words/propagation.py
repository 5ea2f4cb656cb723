"""How axes moved, and what stopped them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["WAYS", "stopped_alike"]

#: Which way an axis went, before the name of the op that it went through.
WAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "forward": "forward through",
        "backward": "back through",
        "sideways": "across",
        "data flow": "with the data of",
        "group": "in the sharding group of",
    }
)


def stopped_alike(count: int) -> str:
    """How many more tensors beside a value the same rule stopped; empty for none."""
    if count < 2:
        return "The same rule stopped one more tensor." if count else ""
    return f"The same rule stopped {count:,} more tensors."
