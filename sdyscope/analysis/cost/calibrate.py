"""Fits rates to what collectives and ops took in traces: of mesh axes, arithmetic and memory.

A collective takes what ``collective_seconds`` says of a switch: bytes that a device sends over the
bandwidth, and hops times the latency. An op takes the longer of its arithmetic and of the bytes
that it moves, as everywhere (``schedule.py``), and some time more, however small it is. Rates are
those by which estimates are off by the smallest factors (least squares of their logarithms, in
which outliers count less; ``scipy.optimize.least_squares``); what an op takes in a step is its
weight. What is fitted to is the median over devices and runs, without waiting for the slowest
device where the trace tells it apart. Where devices share the cores of a host, a collective takes
longer by a part of what is computed next to it (``beside.py``), which is fitted with it. Steps take
longer than what their schedule comes to by such rates, by a factor that is fitted last.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from scipy.optimize import least_squares, nnls

from sdyscope.analysis.cost.beside import work_beside
from sdyscope.analysis.cost.cost import read_given
from sdyscope.analysis.cost.links import flat_level
from sdyscope.analysis.cost.schedule import schedule_of
from sdyscope.analysis.cost.time import collective_seconds
from sdyscope.analysis.profile.traced import known_work, traced_cost, traced_module
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.calibration import AxisRate, Calibration, ComputeRates
from sdyscope.facts.measured import CollectiveTime, Measured, TracedProgram
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.facts.work import Work
from sdyscope.hardware.specs import Estimated, EstimateError
from sdyscope.hlo import HloModule
from sdyscope.values.mesh import Mesh

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: What has no bytes to send, and takes a second a hop: its time is the hops of the model.
_HOPS = math.inf, 1.0

#: A rate makes no difference where no estimate is longer by this part with it.
_NO_DIFFERENCE = 1e-3


@dataclass(frozen=True, slots=True)
class _Sample:
    """One collective over one mesh axis: what a run of it sends, its hops, and what it took."""

    name: str
    axis: str
    sent: float
    hops: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _OpSample:
    """One op: what a run of it computes and moves, what it took, and in a whole step."""

    work: Work
    seconds: float
    a_step: float

    @property
    def of(self) -> Estimated:
        if self.work.matmuls:
            return "matmuls"
        return "elementwise" if self.work.other or self.work.transcendentals else "copies"


@dataclass(frozen=True, slots=True)
class _Fit:
    """Rates: by axis seconds a byte and seconds a hop; of ops; steps by what they come to."""

    axes: Mapping[str, tuple[float, float]]
    compute: ComputeRates | None
    stretch: float | None = None

    def of(self, sample: _Sample, run: _Run) -> float:
        """What a collective over one of the axes takes."""
        inverse, latency = self.axes[sample.axis]
        seconds = sample.sent * inverse + sample.hops * latency
        if self.compute is not None and self.compute.beside:
            seconds += self.compute.of_beside(run.beside.get(sample.name, ()))
        return seconds


@dataclass(frozen=True)
class _Run:
    """What one trace has."""

    measured: Measured
    traced: TracedProgram | None
    collectives: Sequence[_Sample]
    ops: Sequence[_OpSample]

    @cached_property
    def module(self) -> HloModule | None:
        """Its program."""
        return None if self.traced is None else traced_module(self.traced)

    @cached_property
    def beside(self) -> Mapping[str, Sequence[Work]]:
        """What is computed next to its collectives, where its devices share cores."""
        if self.traced is None or not self.traced.shares_cores or self.module is None:
            return {}
        return work_beside(self.module, {timed.name for timed in self.measured.collectives})

    @property
    def busy(self) -> float:
        """Seconds of all its ops in a step."""
        return sum(op.a_step for op in self.ops)


def calibrated(
    measurements: Mapping[str, Measured],
    programs: Mapping[str, TracedProgram] | None = None,
    *,
    held_out: bool = True,
) -> Calibration:
    """The rates of axes, arithmetic and memory that programs ran at in some traces.

    Args:
        measurements: what was measured, by the trace's file.
        programs: the programs that ran, likewise, to estimate whole steps of; by default none.
        held_out: whether to estimate each trace by a fit to the others as well.

    Raises:
        TargetError: the traces have no program, and so nothing whose work is known.
    """
    runs = {
        trace: _Run(measured, (programs or {}).get(trace), _samples(measured), _ops(measured))
        for trace, measured in measurements.items()
    }
    every = [(sample, run) for run in runs.values() for sample in run.collectives]
    collectives = sum(len(measured.collectives) for measured in measurements.values())
    fit = _fit(runs.values())
    if not fit.axes and fit.compute is None:
        raise TargetError(
            "There is nothing to calibrate with: the traces have no program whose work is known, "
            "and no collective over one axis of a known mesh.",
            file=next(iter(measurements), ""),
            hint="Name the mesh that the program ran on with --mesh.",
        )
    rates = []
    for axis, (inverse, latency) in fit.axes.items():
        own = [(sample, run) for sample, run in every if sample.axis == axis]
        error = statistics.median(_off(fit.of(sample, run), sample) for sample, run in own)
        bandwidth = _three_digits(1 / inverse) if inverse else None
        rates.append(AxisRate(axis, bandwidth, _three_digits(latency), len(own), error))
    return Calibration(
        traces=tuple(measurements),
        rates=tuple(rates),
        compute=fit.compute,
        stretch=fit.stretch,
        errors=tuple(_errors_of(runs, fit, held_out=held_out)),
        left_out=collectives - len(every),
    )


def _three_digits(rate: float) -> float:
    """A fit is no more exact than that."""
    return float(f"{rate:.3g}")


# What is fitted to.


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
    if size == 1 or mesh.axis_size(ref) != size or timed.typical <= 0 or not timed.sent:
        return None
    kind = cast("CollectiveKind", timed.kind)
    hops = collective_seconds(kind, 0, (flat_level(size, *_HOPS),)) or 0.0
    return _Sample(timed.name, ref.name, timed.sent / timed.count, hops, timed.typical)


def _ops(measured: Measured) -> list[_OpSample]:
    collectives = {timed.name for timed in measured.collectives}
    return [
        _OpSample(work, op.typical, op.typical * op.count)
        for op in measured.ops
        if op.typical and op.name not in collectives and (work := known_work(op)) is not None
    ]


# Rates.


def _fit(runs: Iterable[_Run]) -> _Fit:
    runs = list(runs)
    compute = _compute_rates([run for run in runs if run.ops])
    every = [(sample, run) for run in runs for sample in run.collectives]
    if compute is not None and any(run.beside for run in runs):
        axes, beside = _axis_rates(every, replace(compute, beside=1.0))
        fit = _Fit(axes, replace(compute, beside=beside))
    else:
        of_axis: dict[str, list[tuple[_Sample, _Run]]] = defaultdict(list)
        for sample, run in every:
            of_axis[sample.axis].append((sample, run))
        separate = [_axis_rates(own, None)[0] for own in of_axis.values()]
        axes = {axis: rates for fitted in separate for axis, rates in fitted.items()}
        fit = _Fit(axes, compute)
    stretches = [
        statistics.median(run.measured.step_seconds) / scheduled
        for run in runs
        if (scheduled := _scheduled(run, fit))
    ]
    return replace(fit, stretch=statistics.median(stretches) if stretches else None)


def _axis_rates(
    every: Sequence[tuple[_Sample, _Run]], compute: ComputeRates | None
) -> tuple[dict[str, tuple[float, float]], float]:
    """By axis seconds a byte and a hop; and seconds for each that is computed beside."""
    axes = list(dict.fromkeys(sample.axis for sample, _ in every))
    if not axes:
        return {}, 0.0
    work = np.zeros((len(every), 2 * len(axes) + 1))
    for row, (sample, run) in zip(work, every, strict=True):
        at = 2 * axes.index(sample.axis)
        row[at : at + 2] = sample.sent, sample.hops
        if compute is not None:
            row[-1] = compute.of_beside(run.beside.get(sample.name, ()))
    seconds = np.array([sample.seconds for sample, _ in every])
    *rates, beside = _rates(work, seconds, np.ones(len(every)), lambda times: times.sum(axis=1))
    pairs = zip(rates[::2], rates[1::2], strict=True)
    return dict(zip(axes, pairs, strict=True)), _three_digits(beside)


def _compute_rates(runs: Sequence[_Run]) -> ComputeRates | None:
    """Rates of ops; each trace counts as much as another."""
    ops = [op for run in runs for op in run.ops]
    if not ops:
        return None
    kinds = list(dict.fromkeys(kind for op in ops for kind in op.work.matmuls))
    work = np.array(
        [
            [
                *(op.work.matmuls.get(kind, 0.0) for kind in kinds),
                op.work.other,
                op.work.transcendentals,
                max(op.work.bytes - op.work.on_chip, 0.0),
                1.0,
            ]
            for op in ops
        ]
    )
    seconds = np.array([op.seconds for op in ops])
    shares = [op.a_step / busy for run in runs for busy in [run.busy] for op in run.ops]
    weights = np.array(shares) * len(ops) / len(runs)

    def longer(times: NDArray[Any]) -> NDArray[Any]:
        arithmetic = times[:, :-2].sum(axis=1)
        roofs: NDArray[Any] = np.maximum(arithmetic, times[:, -2])
        return cast("NDArray[Any]", roofs + times[:, -1])

    *units, overhead = _rates(work, seconds, weights, longer)
    per_second = [_three_digits(1 / each) if each else math.inf for each in units]
    return ComputeRates(
        matmuls=dict(zip(kinds, per_second, strict=False)),
        other=per_second[-3],
        transcendentals=per_second[-2],
        bandwidth=per_second[-1],
        overhead=_three_digits(overhead),
        ops=len(ops),
    )


def _rates(
    work: NDArray[Any],
    seconds: NDArray[Any],
    weights: NDArray[Any],
    together: Callable[[NDArray[Any]], NDArray[Any]],
) -> list[float]:
    """Seconds a unit of each kind of work, by which estimates are off by the least factors.

    Args:
        work: how much of it, a row for what was measured and a column for each kind.
        seconds: what that took.
        weights: how much each row counts.
        together: what the seconds of each kind of work, in the same rows, take together.
    """
    used = work.sum(axis=0) > 0
    # Bytes are many and seconds few: each column is brought to what would take all the time.
    scale = np.array([(column[column > 0].mean() if column.any() else 1.0) for column in work.T])
    rows = work / scale / seconds[:, None]
    start, _ = nnls(rows * np.sqrt(weights)[:, None], np.sqrt(weights))
    start = np.maximum(start, 1e-3 * (start.max() or 1.0))

    def off(rate: NDArray[Any]) -> NDArray[Any]:
        factors = np.log(np.maximum(together(rows * rate), 1e-12))
        return cast("NDArray[Any]", np.sqrt(weights) * factors)

    best = least_squares(off, start, bounds=(0, np.inf), loss="soft_l1", x_scale=start).x
    whole = together(rows * best)
    for column in range(len(best)):
        without = best.copy()
        without[column] = 0.0
        if not used[column] or np.all(together(rows * without) >= (1 - _NO_DIFFERENCE) * whole):
            best[column] = 0.0
    return [float(each) for each in best / scale]


# Errors.


def _errors_of(runs: Mapping[str, _Run], fit: _Fit, *, held_out: bool) -> Iterator[EstimateError]:
    """The errors of the fit, and of each trace by a fit to the others."""
    within = _offs(runs.values(), lambda _: fit)
    others: dict[Estimated, list[tuple[float, float]]] = {}
    if held_out and len(runs) > 1:
        fits = {
            id(run): _fit([other for other in runs.values() if other is not run])
            for run in runs.values()
        }
        others = _offs(runs.values(), lambda run: fits[id(run)])
    for of, offs in within.items():
        of_others = _median(others[of]) if of in others else None
        yield EstimateError(of, _median(offs), count=len(offs), held_out=of_others)


def _offs(
    runs: Iterable[_Run], fit_for: Callable[[_Run], _Fit]
) -> dict[Estimated, list[tuple[float, float]]]:
    """By what is estimated, how far each estimate is off and its weight."""
    offs: dict[Estimated, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        fit, busy = fit_for(run), run.busy
        for sample in run.collectives:
            if sample.axis in fit.axes:
                offs["collectives"].append((_off(fit.of(sample, run), sample), 1.0))
        for op in run.ops:
            if fit.compute is not None and op.work.matmuls.keys() <= fit.compute.matmuls.keys():
                off = _off(fit.compute.of_op(op.work), op)
                offs[op.of].append((off, op.a_step / busy))
        scheduled = None if fit.stretch is None else _scheduled(run, fit)
        if scheduled is not None and fit.stretch is not None:
            middle = statistics.median(run.measured.step_seconds)
            offs["steps"].append((abs(scheduled * fit.stretch - middle) / middle, 1.0))
    return {of: offs[of] for of in get_args(Estimated) if of in offs}


def _off(estimate: float, sample: _Sample | _OpSample) -> float:
    """How far an estimate is from what was measured, as a part of that."""
    return abs(estimate - sample.seconds) / sample.seconds


def _median(weighed: Sequence[tuple[float, float]]) -> float:
    """Half of the weight is in what is below it, and half above."""
    if len({weight for _, weight in weighed}) == 1:
        return statistics.median(value for value, _ in weighed)
    below, half = 0.0, sum(weight for _, weight in weighed) / 2
    for value, weight in sorted(weighed):
        below += weight
        if below >= half:
            return value
    raise AssertionError("what is in no half")


def _scheduled(run: _Run, fit: _Fit) -> float | None:
    """What the program's own schedule takes by some rates; None where a time is not known."""
    measured = run.measured
    module = run.module
    if module is None or run.traced is None or fit.compute is None or not measured.step_seconds:
        return None
    if any(not op.work.matmuls.keys() <= fit.compute.matmuls.keys() for op in run.ops):
        return None
    rates = [
        AxisRate(axis, 1 / inverse if inverse else None, latency, 0, 0.0)
        for axis, (inverse, latency) in fit.axes.items()
    ]
    given = read_given({}, {}, Calibration((), tuple(rates), fit.compute, None, (), 0))
    try:
        schedule = schedule_of(traced_cost(run.traced, module, measured.mesh, given))
    except SdyscopeError:
        return None
    return None if schedule.unknown else schedule.seconds
