"""What limits a step: arithmetic, memory, or what is sent over one of the mesh axes.

Each resource is busy for some time at least, whatever the schedule is. The longest of these times
is what a step takes if everything else goes on meanwhile; the roofline model is that of
S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures" (2009), with the links of each mesh axis as further roofs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sdyscope.analysis.cost.links import Level
from sdyscope.analysis.cost.work import WorkCount
from sdyscope.facts.calibration import ComputeRates
from sdyscope.facts.cost import Resource
from sdyscope.facts.work import Work
from sdyscope.formatters import in_place
from sdyscope.hardware.specs import Chip

#: Passes in bf16 that a product of f32 takes on a TPU, from the documentation of
#: ``jax.lax.Precision``.
_PASSES: Mapping[str, int] = {"f32": 1, "f32 high": 3, "f32 highest": 6}


@dataclass(frozen=True, slots=True)
class Roof:
    """How long one resource is busy in a step.

    Attributes:
        resource: arithmetic, memory or the links of a mesh axis.
        axis: the mesh axis; empty for the others.
        size: devices along the axis; 1 for the others.
        seconds: how long; None where it is not known.
        levels: what the devices along the axis are connected by, from the inside out; None where it
            is not known, empty for the others.
    """

    resource: Resource
    axis: str
    size: int
    seconds: float | None
    levels: tuple[Level, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a device computes in a step.

    Attributes:
        flops: operations, loops multiplied out.
        by_xla: what XLA's cost analysis says, which counts the body of a loop once; None without.
        matmuls: of dots and convolutions, by what is multiplied.
        peaks: operations a second of a device for each of these; None where it is not known, and
            then they count at ``unlisted``.
        usual: operations a second on everything else: the peak of bf16, or what was fitted; None
            where it is not known.
        unlisted: operations a second on products that have no peak: the peak of bf16, or the
            slowest that was fitted; None where it is not known.
        seconds: at those peaks; None where none is known.
        fitted: whether these are rates that were fitted to traces.
        functions: transcendental functions a second; None where it is not known, and they count as
            nothing.
    """

    flops: float
    by_xla: float | None
    matmuls: Mapping[str, float]
    peaks: Mapping[str, float | None]
    usual: float | None
    unlisted: float | None
    seconds: float | None
    fitted: bool = False
    functions: float | None = None

    __document__ = in_place(usual=("usual", "functions"), unlisted=(), functions=())

    def time(self, work: Work) -> float:
        """Seconds of some of it; 0 where no peak is known."""
        seconds = work.other / self.usual if self.usual else 0.0
        seconds += work.transcendentals / self.functions if self.functions else 0.0
        for kind, flops in work.matmuls.items():
            peak = self.peaks.get(kind) or self.unlisted
            seconds += flops / peak if peak else 0.0
        return seconds


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """What a device reads and writes in a step.

    Attributes:
        bytes: bytes that instructions access, loops multiplied out.
        by_xla: what XLA's cost analysis says, which counts the body of a loop once; None without.
        hbm: how many of them are in HBM; the rest is in memory on the chip.
        bandwidth: bytes a second between a device and its HBM; None where it is not known.
        seconds: of the bytes in HBM; None where the bandwidth is not known.
        fitted: whether the bandwidth was fitted to traces.
    """

    bytes: float
    by_xla: float | None
    hbm: float
    bandwidth: float | None
    seconds: float | None
    fitted: bool = False


def arithmetic(
    work: WorkCount,
    by_xla: float | None,
    chip: Chip | None,
    devices_a_chip: int,
    fitted: ComputeRates | None = None,
) -> Arithmetic:
    """XLA's count with the loops' further trips, and the time it takes.

    Args:
        work: what was counted.
        by_xla: what XLA counts.
        chip: whose peaks it is computed at.
        devices_a_chip: among how many devices these are split.
        fitted: rates that take the peaks' place.
    """
    flops = work.total.flops
    if by_xla is not None:
        flops = max(by_xla + flops - work.once.flops, 0.0)
    matmuls = {kind: min(matmul, flops) for kind, matmul in work.total.matmuls.items()}
    if fitted is not None:
        peaks: dict[str, float | None] = {kind: fitted.matmuls.get(kind) for kind in matmuls}
        usual: float | None = fitted.other
        unlisted = min(fitted.matmuls.values(), default=usual)
    else:
        peaks = {kind: _peak(kind, chip, devices_a_chip) for kind in matmuls}
        usual = unlisted = _peak("bf16", chip, devices_a_chip)
    functions = None if fitted is None else fitted.transcendentals
    timeless = Arithmetic(
        *(flops, by_xla, matmuls, peaks, usual, unlisted, None, fitted is not None, functions)
    )
    if usual is None:
        return timeless
    others = max(flops - sum(matmuls.values()), 0.0)
    whole = Work(matmuls, others, transcendentals=work.total.transcendentals)
    return replace(timeless, seconds=timeless.time(whole))


def memory(
    work: WorkCount,
    by_xla: float | None,
    chip: Chip | None,
    devices_a_chip: int,
    fitted: ComputeRates | None = None,
) -> MemoryTraffic:
    """XLA's count with the loops' further trips, what of it is in HBM, and the time that takes.

    Args:
        work: as ``arithmetic`` takes it.
        by_xla: likewise.
        chip: likewise.
        devices_a_chip: likewise.
        fitted: likewise.
    """
    total = work.total.bytes
    share = 1 - work.total.on_chip / total if total else 1.0
    if by_xla is not None:
        total = max(by_xla + total - work.once.bytes, 0.0)
    bandwidth = None if chip is None else chip.value("hbm_bandwidth")
    if bandwidth is not None:
        bandwidth /= devices_a_chip
    if fitted is not None:
        bandwidth = fitted.bandwidth
    hbm = share * total
    seconds = None if bandwidth is None else hbm / bandwidth
    return MemoryTraffic(total, by_xla, hbm, bandwidth, seconds, fitted is not None)


def _peak(kind: str, chip: Chip | None, devices_a_chip: int) -> float | None:
    """Operations a second of a device on products of some type; None where it is not known."""
    if chip is None:
        return None
    dtype, passes = kind.partition(" ")[0], 1
    if dtype in ("bf16", "f16"):
        name = "flops_bf16"
    elif dtype == "f32" and chip.torus:
        name, passes = "flops_bf16", _PASSES[kind]
    elif kind in ("f32", "f32 high"):
        name = "flops_tf32"
    elif dtype.startswith("f8"):
        name = "flops_fp8"
    elif dtype in ("s8", "u8"):
        name = "flops_int8"
    else:
        return None
    value = chip.value(name)
    return None if value is None else value / passes / devices_a_chip
