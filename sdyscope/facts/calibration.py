"""Rates that were fitted to measured runs, and the error that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sdyscope.facts.work import Work
from sdyscope.hardware.specs import EstimateError


@dataclass(frozen=True, slots=True)
class AxisRate:
    """What was fitted for one mesh axis.

    Attributes:
        axis: its name.
        bandwidth: bytes a second that a device sends over it; None where bytes made no difference.
        latency: seconds a hop.
        collectives: of how many collectives.
        error: the median of how far a collective's estimate is from what it took, as a part of
            what it took.
    """

    axis: str
    bandwidth: float | None
    latency: float
    collectives: int
    error: float


@dataclass(frozen=True, slots=True)
class ComputeRates:
    """What was fitted for the ops of a device that send nothing.

    Attributes:
        matmuls: operations a second of dots and convolutions, by what is multiplied; infinite where
            operations made no difference.
        other: operations a second of all other arithmetic; infinite likewise.
        transcendentals: transcendental functions a second; infinite likewise.
        bandwidth: bytes a second that ops read and write; infinite likewise.
        overhead: seconds that an op takes, however small it is.
        ops: of how many ops.
        beside: seconds that a collective takes longer for each that is computed next to it, where
            devices share the cores of a host; else 0.
    """

    matmuls: Mapping[str, float]
    other: float
    transcendentals: float
    bandwidth: float
    overhead: float
    ops: int
    beside: float = 0.0

    def of_op(self, work: Work) -> float:
        """Seconds of an op."""
        arithmetic = work.other / self.other + work.transcendentals / self.transcendentals
        arithmetic += sum(flops / self.matmuls[kind] for kind, flops in work.matmuls.items())
        moved = max(work.bytes - work.on_chip, 0.0) / self.bandwidth
        return max(arithmetic, moved) + self.overhead

    def of_beside(self, ops: Iterable[Work]) -> float:
        """Seconds that a collective takes longer for the ops next to it."""
        known = (op for op in ops if op.matmuls.keys() <= self.matmuls.keys())
        return self.beside * sum(map(self.of_op, known))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Rates that were fitted to traces.

    Attributes:
        traces: the traces, by their files.
        rates: what was fitted for mesh axes, an entry an axis.
        compute: what was fitted for arithmetic and memory; None where no trace has its program.
        stretch: how many times as long a step took as its schedule comes to by these rates, the
            median over traces: waiting, and whatever else the machine did; None where that is not
            known of any.
        errors: how far the estimates are from what was measured.
        left_out: how many collectives run over several axes, over a part of one, or over axes that
            are not known, and were not fitted.
    """

    traces: tuple[str, ...]
    rates: tuple[AxisRate, ...]
    compute: ComputeRates | None
    stretch: float | None
    errors: tuple[EstimateError, ...]
    left_out: int
