"""Bytes that a device sends and receives in a collective, from kind, size and group.

With n devices in a group and B bytes (of one device's whole result or operand, as named):

| kind | bytes sent, and as many received | B |
| --- | --- | --- |
| all-gather | (n - 1) / n B | result |
| reduce-scatter | (n - 1) / n B | operand |
| all-reduce | 2 (n - 1) / n B | operand |
| all-to-all | (n - 1) / n B | operand |
| ragged-all-to-all | B: an upper bound, the sizes are data | operand |
| the rest: collective-permute, send, ... | B, of the device that sends most | operand |

These are the bytes of the ring algorithms, which are the least that bandwidth-optimal ones can send
(Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009;
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005; NCCL's ``doc/PERFORMANCE.md`` of nccl-tests has the same factors).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sdyscope.facts.traffic import CollectiveKind

_TIMES_THE_REST = {"all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "all-reduce": 2}


def wire_bytes(kind: CollectiveKind, size: int, group_size: int) -> tuple[int, int]:
    """Bytes that a device (sends, receives) in one run, rounded up to whole bytes.

    Args:
        kind: what is done.
        size: bytes on one device of the result (all-gather) or the operand (all else).
        group_size: devices that work together.
    """
    factor = _TIMES_THE_REST.get(kind)
    if factor is not None:
        moved = -(-factor * (group_size - 1) * size // group_size)
        return moved, moved
    if group_size < 2:
        return 0, 0
    return (0 if kind == "recv" else size), (0 if kind == "send" else size)


def wire_bytes_by_tensor(
    kind: CollectiveKind, sizes: Iterable[int], group_size: int
) -> Iterator[tuple[int, int]]:
    """The same for each tensor of a collective of several: they add up to those of the whole.

    Args:
        kind: what is done.
        sizes: bytes of each tensor, in order.
        group_size: devices that work together.
    """
    size, before = 0, (0, 0)
    for added in sizes:
        size += added
        sent, received = wire_bytes(kind, size, group_size)
        yield sent - before[0], received - before[1]
        before = sent, received
