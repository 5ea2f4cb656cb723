"""What a device sends in a step, by kind of collective and axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

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

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


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


def sent_side_by_side(
    programs: Sequence[Iterable[Traffic]],
) -> list[tuple[tuple[CollectiveKind, tuple[str, ...]], list[int]]]:
    """Bytes that a device sends in each program by kind and axes, the most first.

    Args:
        programs: the traffic of each.
    """
    sent: dict[tuple[CollectiveKind, tuple[str, ...]], list[int]] = {}
    for number, program in enumerate(programs):
        for traffic in program:
            key = traffic.kind, traffic.axes
            sent.setdefault(key, [0] * len(programs))[number] += traffic.sent
    return sorted(sent.items(), key=lambda item: -max(item[1]))


@dataclass(frozen=True, slots=True)
class Tally:
    """Some collectives taken together.

    Attributes:
        count: how many a step runs.
        tensors: of how many tensors.
        bytes: bytes of these tensors on one device.
        sent: bytes that a device sends.
        received: bytes that it receives.
    """

    count: int = 0
    tensors: int = 0
    bytes: int = 0
    sent: int = 0
    received: int = 0
