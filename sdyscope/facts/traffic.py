"""What a device sends in a step, by kind of collective and axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

CollectiveKind: TypeAlias = Literal[
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
    "send",
    "recv",
]
"""Kinds of communication, by HLO's opcodes."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives of one kind over the same axes.

    Attributes:
        kind: what they do.
        axes: names of the mesh axes; empty where they are not known.
        count: how many a step runs.
        sent: bytes that a device sends for them in a step.
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    count: int
    sent: int
