"""Rates of mesh axes that were fitted to measured runs, and the error that is left."""

from __future__ import annotations

from dataclasses import dataclass


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
class Calibration:
    """Rates that were fitted to traces.

    Attributes:
        traces: the traces, by their files.
        rates: what was fitted, an entry an axis.
        error: the median error of all collectives that were fitted.
        held_out: the same of the collectives of each trace by rates that were fitted to the other
            traces; None of one trace, whose error is only that of the fit.
        left_out: how many collectives run over several axes, over a part of one, or over axes that
            are not known, and were not fitted.
    """

    traces: tuple[str, ...]
    rates: tuple[AxisRate, ...]
    error: float
    held_out: float | None
    left_out: int
