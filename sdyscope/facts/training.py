"""Steps of training in a row on a mesh, beside the same on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sdyscope.facts.program import Partitioner


@dataclass(frozen=True, slots=True)
class Curve:
    """A scalar result in each step.

    Attributes:
        path: the result's pytree path.
        dtype: MLIR element type.
        tolerance: the largest error that rounding explains, relative to one device.
        one_device: what it is on one device, by step; empty where that was not run.
        partitioners: what it is on the mesh, by partitioner and step.
    """

    path: str
    dtype: str
    tolerance: float
    one_device: tuple[float, ...]
    partitioners: dict[Partitioner, tuple[float, ...]]

    def errors(self, partitioner: Partitioner) -> tuple[float, ...]:
        """How far it is off in each step, relative to one device."""
        pairs = zip(self.partitioners[partitioner], self.one_device, strict=False)
        return tuple(_error(here, there) for here, there in pairs)


@dataclass(frozen=True, slots=True)
class TrainedUnder:
    """The steps under one partitioner.

    Attributes:
        partitioner: whose.
        failure: why not all of them were run; empty when they were.
        steps: how many were run.
        seconds: of all of them.
        arrays: results of the last step that were on the devices.
        shards: how many shards of them were compared with a placement.
        differing: how many of the arrays are not where they were to be.
        error: the largest error of a watched number in any step; None where none was compared.
    """

    partitioner: Partitioner
    failure: str
    steps: int
    seconds: float
    arrays: int
    shards: int
    differing: int
    error: float | None


@dataclass(frozen=True, slots=True)
class Training:
    """Steps in a row.

    Attributes:
        steps: how many were asked for.
        carried: how many results are arguments of the next step.
        curves: scalar results by step.
        partitioners: what came of it under each.
        failure: why it was not run on one device; empty when it was.
    """

    steps: int
    carried: int
    curves: tuple[Curve, ...]
    partitioners: tuple[TrainedUnder, ...]
    failure: str


def _error(here: float, there: float) -> float:
    if here == there or (math.isnan(here) and math.isnan(there)):
        return 0.0
    if not (math.isfinite(here) and math.isfinite(there) and there):
        return math.inf
    return abs(here - there) / abs(there)
