"""How axes moved, and what stopped them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sdyscope.words.counts import counted

__all__ = ["WAYS", "moves_text", "stopped_alike"]

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


def moves_text(moves: int, steps: int, last: int | None) -> str:
    """`914 moves of an axis in 641 steps, numbered by Shardy up to 687`.

    Args:
      moves: how many moves there are.
      steps: in how many steps.
      last: the number of the last step; None without any.
    """
    text = f"{counted(moves, 'move')} of an axis in {counted(steps, 'step')}"
    return text if last is None else f"{text}, numbered by Shardy up to {last:,}"


def stopped_alike(count: int) -> str:
    """How many more tensors beside a value the same rule stopped; empty for none."""
    if count < 2:
        return "The same rule stopped one more tensor." if count else ""
    return f"The same rule stopped {count:,} more tensors."
