"""How long a collective takes, by a model: bytes over bandwidth, and hops times latency.

With B bytes (of the result of an all-gather, of the operand of all else) and a group that is
connected at several levels l of n_l devices each, from the inside out:

| kind | seconds |
| --- | --- |
| all-gather, reduce-scatter | sum over l of (n_l - 1) / n_l B_l / W_l + hops_l t_l |
| all-reduce | twice that: a reduce-scatter and an all-gather |
| all-to-all | sum over l of B f_l + longest_l t_l |
| collective-permute, collective-broadcast, send | B / w + t of the slowest level |

B_l is B over the devices that the levels inside have together: what crosses an outer level is
already split. W_l is what a device sends at the level, with all its links; w with one link in one
direction. In a torus W_l is the sum over the dimensions, and f_l the largest over them of
floor(n^2 / 4) / (n W): the busiest link of n devices in a row, each of which has B / n for every
other one. Over a switch f_l is (n - 1) / (n W).

Sources: "How to Scale Your Model", part 3 (https://jax-ml.github.io/scaling-book/sharding), has
these formulas with (n - 1) / n taken as 1, W_l as W times the number of dimensions, and a quarter
of an all-gather for the all-to-all in a ring, which is B n / (8 w); part 12 (.../gpus) those
over NVLink and between nodes. R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective
communication operations in MPICH" (2005), has the latencies of the ring algorithms.
"""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.analysis.cost.links import Level
from sdyscope.analysis.cost.nccl import nccl_seconds
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hardware.nccl import nccl
from sdyscope.hardware.specs import Chip

_GATHERS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2}
_EXCHANGES = ("all-to-all", "ragged-all-to-all")


def group_seconds(
    kind: CollectiveKind, size: int, levels: Sequence[Level], chip: Chip | None
) -> float | None:
    """Seconds of one run of a collective; of GPUs those of NCCL, where the table says their links.

    Args:
        kind: as ``collective_seconds`` takes it.
        size: likewise.
        levels: likewise.
        chip: what the devices are; None where that is not known.

    Returns:
        The seconds; None where a bandwidth is not known.
    """
    if chip is not None and is_of_nccl(levels, chip):
        return nccl_seconds(kind, size, levels, chip)
    return collective_seconds(kind, size, levels)


def is_of_nccl(levels: Sequence[Level], chip: Chip | None) -> bool:
    """Whether times over some levels are NCCL's: those of links as the table has them."""
    return (
        chip is not None
        and chip.gpu is not None
        and chip.gpu.compute_capability[0] in nccl().gpus
        and all(level.name in ("NVLink", "network") and level.latency is None for level in levels)
    )


def collective_seconds(kind: CollectiveKind, size: int, levels: Sequence[Level]) -> float | None:
    """Seconds of one run of a collective; latencies that are not known count nothing.

    Args:
        kind: what is done.
        size: bytes on one device of the result (all-gather) or the operand (all else).
        levels: what the group is connected by, from the inside out; none for a device alone.

    Returns:
        The seconds; None where a bandwidth is not known.
    """
    if any(level.bandwidth is None for level in levels):
        return None
    if kind in _GATHERS:
        return _GATHERS[kind] * _gather(size, levels)
    if kind in _EXCHANGES:
        return sum(_exchange(size, level) for level in levels)
    if kind == "recv":
        # It is the other side of a send, at the same time.
        return 0.0
    return max((_shift(size, level) for level in levels), default=0.0)


def _gather(size: float, levels: Sequence[Level]) -> float:
    seconds = 0.0
    for level in levels:
        n, bandwidth = level.size, level.bandwidth or 0.0
        seconds += (n - 1) / n * size / bandwidth
        seconds += sum(span.hops for span in level.spans) * (level.latency or 0.0)
        size /= n
    return seconds


def _exchange(size: float, level: Level) -> float:
    slowest = 0.0
    for span in level.spans:
        n, bandwidth = span.size, span.bandwidth or 0.0
        part = (n * n // 4) / n if span.dimension else (n - 1) / n
        slowest = max(slowest, part * size / bandwidth)
    hops = sum(span.hops if span.dimension else 1 for span in level.spans)
    return slowest + hops * (level.latency or 0.0)


def _shift(size: float, level: Level) -> float:
    """To a neighbour, over one link."""
    links = [
        (span.bandwidth or 0.0) / (2 if span.ring else 1) for span in level.spans if span.size > 1
    ]
    return size / min(links) + (level.latency or 0.0) if links else 0.0
