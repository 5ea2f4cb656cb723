"""What limits a step, what of its cost is not certain, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.cost.cost import Cost
from sdyscope.analysis.cost.roofline import Roof
from sdyscope.analysis.cost.time import is_of_nccl
from sdyscope.facts.calibration import Calibration
from sdyscope.facts.cost import Busy, StepLimits
from sdyscope.facts.remarks import NOT_PREDICTED, Remark, RemarkKind
from sdyscope.hardware.nccl import nccl
from sdyscope.hardware.specs import chip_of, estimate_errors


def limits(cost: Cost, calibration: Calibration | None = None) -> StepLimits:
    """What limits a step, how long it takes at least, and by its schedule.

    Args:
        cost: the cost.
        calibration: what its rates were fitted to.
    """
    errors = estimate_errors(cost.device_kind) if calibration is None else calibration.errors
    busy = [_busy(roof, roof.seconds) for roof in cost.roofs if roof.seconds is not None]
    limit = busy[0] if cost.limit is not None else None
    return StepLimits(
        limit=limit,
        others=tuple(busy if limit is None else busy[1:]),
        is_complete=len(busy) == len(cost.roofs) and not cost.counted.is_partly_predicted,
        device_kind=cost.device_kind,
        is_chip_known=cost.chip is not None,
        overlapped=cost.overlapped,
        sequential=cost.sequential,
        step=cost.step,
        off=next((error.expected for error in errors if error.of == "steps"), None),
        is_measured=cost.given.measured,
        sends=bool(cost.collectives),
        is_certain=not (
            cost.work.unknown_trips
            or cost.work.conditionals
            or any(note.kind == "looked up" for note in cost.notes)
        ),
    )


def _busy(roof: Roof, seconds: float) -> Busy:
    return Busy(roof.resource, roof.axis, tuple(level.name for level in roof.levels or ()), seconds)


def doubts(cost: Cost) -> Iterator[Remark]:
    """What is not certain of it."""
    kind: RemarkKind
    sent, work, compute = cost.communication, cost.work, cost.compute
    if sent.unknown:
        axis = next((roof.axis for roof in cost.roofs if roof.axis and roof.seconds is None), "")
        kind = "no times" if sent.unknown < sent.tensors else "no time at all"
        yield Remark(kind, axis, sent.unknown, sent.tensors)
    if work.unknown_trips:
        yield Remark("loops of unknown trips", count=work.unknown_trips, of=work.loops)
    if work.conditionals:
        kind = "conditionals predicted" if cost.predicted else "conditionals"
        yield Remark(kind, count=work.conditionals)
    if work.not_counted:
        calls = tuple(work.not_counted.items())
        yield Remark("uncounted calls", count=sum(work.not_counted.values()), names=calls)
    unknown = [kind for kind, peak in compute.peaks.items() if peak is None and compute.seconds]
    if unknown:
        kinds = tuple((kind, 0) for kind in unknown)
        yield Remark("not in the traces" if compute.fitted else "no peak", names=kinds)
    # What may be sent besides is in the account.
    yield from (note for note in cost.notes if note.kind not in NOT_PREDICTED)


def error_of_estimates(device_kind: str, calibration: Calibration | None = None) -> Remark:
    """How far estimates of times are known to be off.

    Args:
        device_kind: of this device, by the table of hardware.
        calibration: the traces that rates were fitted to, which say so themselves.
    """
    errors = estimate_errors(device_kind) if calibration is None else calibration.errors
    if not errors:
        chip = chip_of(device_kind)
        name = device_kind if chip is None else chip.name
        return Remark("error unknown", name or "this hardware")
    names = tuple((error.of, round(100 * error.expected)) for error in errors)
    if calibration is None:
        return Remark("error measured", errors[0].measured, names=names)
    traces = len(calibration.traces)
    return Remark("error of other traces" if traces > 1 else "error of a fit", "", traces, 0, names)


def basis(cost: Cost, calibration: Calibration | None = None) -> Iterator[Remark]:
    """What the figures rest on.

    Args:
        cost: the cost.
        calibration: what its rates were fitted to.
    """
    if any(roof.seconds for roof in cost.roofs):
        yield error_of_estimates(cost.device_kind, calibration)
    compute = cost.compute
    if compute.by_xla is None:
        yield Remark("counted by sdyscope")
    elif cost.work.loops and compute.flops > 1.0005 * compute.by_xla:
        bytes_ = round(cost.memory.by_xla or 0)
        yield Remark("further trips added", count=round(compute.by_xla), of=bytes_)
    else:
        yield Remark("counted by XLA")
    if compute.by_xla is not None and cost.work.libraries:
        calls = tuple(cost.work.libraries.items())
        yield Remark("library calls added", count=sum(cost.work.libraries.values()), names=calls)
    axes = [roof.levels for roof in cost.roofs if roof.levels]
    levels = [level for axis in axes for level in axis]
    if any(level.name == "ICI" for level in levels):
        yield Remark("order of chips")
    silent = sorted(
        {
            level.name
            for axis in axes
            if not is_of_nccl(axis, cost.chip)
            for level in axis
            if level.latency is None and level.name not in ("given", "fitted")
        }
    )
    if silent:
        yield Remark("no latency", names=tuple((name, 0) for name in silent))
    if any(is_of_nccl(axis, cost.chip) for axis in axes):
        yield Remark("times of NCCL", nccl().source.title)
    if cost.chip is not None and cost.chip.figures:
        titles = tuple((title, 0) for title in cost.chip.titles)
        yield Remark("figures", cost.chip.name, names=titles)
