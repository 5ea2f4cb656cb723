"""Fits the bandwidth and the latency of each mesh axis to what collectives took in traces.

The model is that of ``collective_seconds`` for a switch, which is linear in both unknowns: bytes
that a device sends over the bandwidth, and hops times the latency. Both are at least 0, and the
sum of squared relative errors is least (``scipy.optimize.nnls``). Waiting for the slowest device is
no part of what is fitted, where the trace tells it apart.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from scipy.optimize import nnls

from sdyscope.analysis.cost.links import flat_level
from sdyscope.analysis.cost.time import collective_seconds
from sdyscope.errors import TargetError
from sdyscope.facts.calibration import AxisRate, Calibration
from sdyscope.facts.measured import CollectiveTime, Measured
from sdyscope.values.mesh import Mesh

if TYPE_CHECKING:
    from sdyscope.facts.traffic import CollectiveKind

#: What has no bytes to send, and takes a second a hop: its time is the hops of the model.
_HOPS = math.inf, 1.0


@dataclass(frozen=True, slots=True)
class _Sample:
    """One collective over one mesh axis: what a run of it sends, its hops, and what it took."""

    axis: str
    sent: float
    hops: float
    seconds: float

    def estimate(self, inverse: float, latency: float) -> float:
        return self.sent * inverse + self.hops * latency


def calibrated(measurements: Mapping[str, Measured]) -> Calibration:
    """The rates of the axes that collectives ran over in some traces.

    Args:
        measurements: what was measured, by the trace's file.

    Raises:
        TargetError: no collective ran over just one whole axis of a known mesh.
    """
    samples = {trace: _samples(measured) for trace, measured in measurements.items()}
    every = [sample for of_trace in samples.values() for sample in of_trace]
    collectives = sum(len(measured.collectives) for measured in measurements.values())
    if not every:
        raise TargetError(
            "There is nothing to calibrate with: no collective of the traces ran over one axis of "
            "a known mesh.",
            file=next(iter(measurements), ""),
            hint="Name the mesh that the program ran on with --mesh.",
        )
    fits = _fits(every)
    held_out = None
    if len(samples) > 1:
        errors: list[float] = []
        for trace, of_trace in samples.items():
            others = _fits(
                [sample for other, rest in samples.items() if other != trace for sample in rest]
            )
            errors += _errors([sample for sample in of_trace if sample.axis in others], others)
        held_out = statistics.median(errors) if errors else None
    rates = []
    for axis, (inverse, latency) in fits.items():
        own = [sample for sample in every if sample.axis == axis]
        error = statistics.median(_errors(own, fits))
        # A fit is no more exact than three digits.
        bandwidth = float(f"{1 / inverse:.3g}") if inverse else None
        rates.append(AxisRate(axis, bandwidth, float(f"{latency:.3g}"), len(own), error))
    return Calibration(
        traces=tuple(measurements),
        rates=tuple(rates),
        error=statistics.median(_errors(every, fits)),
        held_out=held_out,
        left_out=collectives - len(every),
    )


def _samples(measured: Measured) -> list[_Sample]:
    mesh = measured.mesh
    return [
        sample
        for timed in measured.collectives
        if mesh is not None and (sample := _sample(timed, mesh)) is not None
    ]


def _sample(timed: CollectiveTime, mesh: Mesh) -> _Sample | None:
    if timed.axes is None or len(timed.axes) != 1 or not timed.count:
        return None
    (ref,) = timed.axes
    size = mesh.shape.get(ref.name, 1)
    seconds = (timed.seconds if timed.moving is None else timed.moving) / timed.count
    if size == 1 or mesh.axis_size(ref) != size or seconds <= 0 or not timed.sent:
        return None
    kind = cast("CollectiveKind", timed.kind)
    hops = collective_seconds(kind, 0, (flat_level(size, *_HOPS),)) or 0.0
    return _Sample(ref.name, timed.sent / timed.count, hops, seconds)


def _fits(samples: Iterable[_Sample]) -> dict[str, tuple[float, float]]:
    """By axis: seconds a byte, and seconds a hop."""
    of_axis: dict[str, list[_Sample]] = defaultdict(list)
    for sample in samples:
        of_axis[sample.axis].append(sample)
    fits: dict[str, tuple[float, float]] = {}
    for axis, own in of_axis.items():
        # Bytes are many and seconds few: both columns are brought to one scale first.
        most = max(sample.sent for sample in own)
        rows = np.array(
            [[sample.sent / most / sample.seconds, sample.hops / sample.seconds] for sample in own]
        )
        (first, second), _ = nnls(rows, np.ones(len(own)))
        fits[axis] = float(first) / most, float(second)
    return fits


def _errors(samples: Sequence[_Sample], fits: Mapping[str, tuple[float, float]]) -> list[float]:
    """How far each estimate is from what was measured, as a part of that."""
    return [
        abs(sample.estimate(*fits[sample.axis]) - sample.seconds) / sample.seconds
        for sample in samples
    ]
