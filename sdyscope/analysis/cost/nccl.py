"""How long NCCL takes for a collective of GPUs: the fastest of its algorithms and protocols.

NCCL estimates each of them by latencies and bandwidths that it keeps in tables
(``src/graph/tuning.cc``), and runs the one that it expects to be fastest: a ring or a tree in LL,
LL128 or Simple, and NVLink SHARP where switches reduce. So the same is done here, with its tables
(``sdyscope.hardware.nccl``): for n GPUs, g on each of h hosts,

| algorithm | bytes a second of the operand | latency |
| --- | --- | --- |
| ring | n / steps times the least of NVLink and of the network of g GPUs | of its steps |
| tree | half of that | of g - 1 and log2 h steps, both ways |
| NVLS | n / steps times twice what the switches of a host let through | of one step |
| NVLS and tree | the same, or what the network of g GPUs sends | of log2 h more |

where steps are n - 1, or 2 (n - 1) of an all-reduce. What is within a host and between hosts goes
on at the same time. Exchanges and permutations are sent by each pair. Published tables take longer
than NCCL expects, by a factor and a time that were fitted to them (``benchmarks/collectives.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sdyscope.analysis.cost.links import Level
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hardware.nccl import GpuRates, Nccl, nccl
from sdyscope.hardware.specs import Chip

_LL, _LL128, _SIMPLE = range(3)

_RINGS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2}
_EXCHANGES = ("all-to-all", "ragged-all-to-all")


def nccl_seconds(
    kind: CollectiveKind, size: int, levels: Sequence[Level], chip: Chip
) -> float | None:
    """Seconds of one run of a collective of GPUs, as published tables have it.

    Args:
        kind: see ``expected_seconds``.
        size: likewise.
        levels: likewise.
        chip: likewise.

    Returns:
        The seconds; None as there.
    """
    expected = expected_seconds(kind, size, levels, chip)
    if not expected:
        return expected
    return nccl().overhead + nccl().factor * expected


def expected_seconds(
    kind: CollectiveKind, size: int, levels: Sequence[Level], chip: Chip
) -> float | None:
    """Seconds of one run of a collective of GPUs that NCCL expects.

    Args:
        kind: what is done.
        size: bytes on one device of the result (all-gather) or the operand (all else).
        levels: NVLink and the network between the GPUs; none for one alone.
        chip: the GPU.

    Returns:
        The seconds; None where the bandwidth of the network is not known, or NCCL's tables do not
        have such a GPU.
    """
    rates = None if chip.gpu is None else nccl().gpus.get(chip.gpu.compute_capability[0])
    sizes = {level.name: level.size for level in levels}
    nvlink, network = chip.value("nvlink"), chip.value("network")
    if rates is None or nvlink is None or ("network" in sizes and network is None):
        return None
    if not sizes or kind == "recv":
        return 0.0
    group = _Group(sizes.get("NVLink", 1), sizes.get("network", 1), nvlink, network or 0.0, rates)
    return group.seconds(kind, size)


class _Group:
    """GPUs that work together."""

    def __init__(
        self, gpus: int, hosts: int, nvlink: float, network: float, rates: GpuRates
    ) -> None:
        self.model: Nccl = nccl()
        self.rates = rates
        self.gpus, self.hosts, self.size = gpus, hosts, gpus * hosts
        self.nvlink = nvlink / rates.link_sold * rates.link
        self.network = _largest(rates.network_speeds, network)
        #: What a ring through all of them sends, and a tree.
        inside = self.nvlink if gpus > 1 else math.inf
        self.together = inside if hosts == 1 else min(inside, gpus * self.network)

    def seconds(self, kind: CollectiveKind, size: int) -> float:
        """What NCCL expects of the algorithm that it chooses."""
        if kind in _RINGS:
            steps = _RINGS[kind] * (self.size - 1)
            ways = [*self.rings(kind, size, steps)]
            if kind == "all-reduce":
                ways += [*self.trees(size), *self.switches(size, steps)]
            return min(ways)
        base = self.model.ring.base[_SIMPLE]
        if kind in _EXCHANGES:
            inside = (self.gpus - 1) / self.size * size / self.nvlink
            if self.hosts == 1:
                return base + inside
            return base + max(inside, (self.size - self.gpus) / self.size * size / self.network)
        return base + size / (self.nvlink if self.hosts == 1 else self.network)

    def rings(self, kind: CollectiveKind, size: int, steps: int) -> Iterator[float]:
        ring = self.model.ring
        between = 0 if self.hosts == 1 else _RINGS[kind] * (self.hosts - 1)
        for protocol in (_LL, _LL128, _SIMPLE):
            bandwidth = self.together
            if protocol == _LL:
                bandwidth = min(bandwidth / 2, self.rates.ll[self.hosts > 1])
            elif protocol == _LL128:
                bandwidth *= ring.ll128
            step = ring.nvlink[protocol]
            if between:
                step = max(step, ring.least_between_hosts[protocol])
            latency = ring.base[protocol] + (steps - between) * step
            latency += between * ring.network[protocol]
            if protocol == _SIMPLE and between and kind == "all-reduce":
                latency *= ring.simple_between_hosts
            yield latency + size * steps / self.size / bandwidth

    def trees(self, size: int) -> Iterator[float]:
        tree = self.model.tree
        for protocol in (_LL, _LL128, _SIMPLE):
            bandwidth = tree.share * self.together
            if protocol == _LL:
                bandwidth = min(bandwidth / tree.ll, self.rates.ll[0])
            elif protocol == _LL128:
                bandwidth *= tree.ll128[self.hosts > 1]
            by_size = tree.by_size[protocol]
            at = (max(size, 1) // 64).bit_length() - 1
            share = by_size[at] if 0 <= at < len(by_size) else 1.0
            inside = (self.gpus - 1) * tree.nvlink[protocol]
            latency = inside + math.log2(self.hosts) * tree.network[protocol]
            yield tree.base[protocol] + 2 * latency + 2 * size / (bandwidth * share)

    def switches(self, size: int, steps: int) -> Iterator[float]:
        nvls, rates = self.model.nvls, self.rates
        if not rates.nvls_share or self.gpus < nvls.fewest_gpus:
            return
        channels = min(self.gpus, nvls.most_channels)
        channel = _largest(rates.nvls_speeds, self.nvlink / channels)
        bandwidth = 2 * channels * channel * rates.nvls_share * (channels - 1) / channels
        latency = nvls.latency
        if self.hosts > 1:
            several = self.hosts > 2
            between = self.gpus * self.network * (1 if several else 2)
            bandwidth = min(bandwidth, between, channels * rates.nvls_tree[several])
            latency += 2 * math.log2(self.hosts) * nvls.network
        yield latency + size * steps / self.size / bandwidth


def _largest(speeds: Sequence[float], bandwidth: float) -> float:
    """The largest of some speeds that a link has; all of it where none is so slow."""
    return max((speed for speed in speeds if speed <= bandwidth), default=bandwidth)
