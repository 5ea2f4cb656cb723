"""What the marks of the graph's picture say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from sdyscope.words.partitioners import partitioner_name

MARKS: Final[Mapping[str, str]] = {
    "moves": "needed with another sharding, by the op's sharding rule (predicted)",
    "sums": "partial sums, reduced across devices, by the op's sharding rule (predicted)",
    "sent": "a collective of the compiled program",
    "differs": "the partitioners place it differently",
}
"""By mark; as they stand in the legend, and behind what is marked."""


_UNMARKED: Final[Mapping[str, str]] = {
    "moves": "What has to move is not marked",
    "sent": "Its collectives are not marked",
}


def unmarked_text(reason: str, mark: Literal["moves", "sent"] = "moves") -> str:
    """Why something has no marks, a sentence."""
    return f"{_UNMARKED[mark]}: {reason}"


def plain_calls_text(calls: int) -> str:
    """That calls are drawn as one op each."""
    return f"{calls:,} calls are drawn as one op each: written out they would be too many."


def not_drawn_text(tensors: int, partitioner: str) -> str:
    """That tensors of collectives have no op in the picture."""
    of = f"tensors of {partitioner_name(partitioner)}'s collectives"
    return f"{tensors:,} {of} belong to no op that is drawn."
