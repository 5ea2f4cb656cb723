"""What a candidate of a search costs: bytes sent, arithmetic, and what a device holds.

The cost is explicit. A device sends so many bytes and does so many multiplications and additions
in its matmuls; both are predicted. They are added up as bytes: a byte over a slower axis counts as
more of them, and as many FLOPs as a device does while it sends one byte count as one. Nothing is
taken to overlap. Memory is not part of that sum: it is limited, and shown against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sdyscope.facts.traffic import Traffic
from sdyscope.hardware.specs import chips

#: FLOPs of a device in the time in which it sends a byte over one mesh axis: those of an H100 over
#: NVLink. Those of a TPU v5e over the two links of an axis are about as many.
FLOPS_PER_BYTE = chips()["h100"].flops_per_byte

_Candidate = TypeVar("_Candidate")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is said of a candidate without compiling it, or of a program by its compile.

    Attributes:
        traffic: its collectives, most bytes first.
        arguments: bytes a device of the arguments.
        results: bytes a device of the results.
        shared: bytes a device of results that lie in the buffers of donated arguments.
        sent: bytes that a device sends in a step.
        held: bytes a device of arguments and results, what is shared counted once.
        flops: floating-point operations of a device in matmuls in a step; None where not known.
    """

    traffic: tuple[Traffic, ...]
    arguments: int
    results: int
    shared: int = 0
    flops: float | None = None

    __document__ = ("traffic", "sent", "arguments", "results", "shared", "held", "flops")

    @property
    def sent(self) -> int:
        """Bytes that a device sends in a step."""
        return sum(traffic.sent for traffic in self.traffic)

    @property
    def held(self) -> int:
        """Bytes a device of arguments and results, those in one buffer counted once."""
        return self.arguments + self.results - self.shared


@dataclass(frozen=True)
class Rates:
    """How bytes and FLOPs are weighed against each other.

    Attributes:
        bandwidths: bytes a second that a device sends over an axis; empty to weigh all axes alike.
        flops_per_byte: FLOPs of a device in the time in which it sends a byte over its fastest
            axis; infinite to leave arithmetic out.
    """

    bandwidths: Mapping[str, float] = field(default_factory=dict)
    flops_per_byte: float = FLOPS_PER_BYTE

    @property
    def fastest(self) -> float | None:
        """Bytes a second over the fastest axis; None where no bandwidth is given."""
        return max(self.bandwidths.values(), default=None)

    def cost(self, prediction: Prediction) -> float:
        """Bytes over the fastest axis that would take as long.

        A collective over several axes is as slow as the slowest of them. An axis without a
        bandwidth is as fast as the fastest.
        """
        sent = sum(traffic.sent * self._slowness(traffic.axes) for traffic in prediction.traffic)
        if prediction.flops is None or math.isinf(self.flops_per_byte):
            return sent
        return sent + prediction.flops / self.flops_per_byte

    def seconds(self, prediction: Prediction) -> float | None:
        """An estimate of the time of a step; None where no bandwidth is given."""
        return None if self.fastest is None else self.cost(prediction) / self.fastest

    def _slowness(self, axes: Iterable[str]) -> float:
        if self.fastest is None:
            return 1.0
        return max(
            (self.fastest / self.bandwidths.get(axis, self.fastest) for axis in axes), default=1.0
        )


def front(
    candidates: Sequence[_Candidate], measure: Callable[[_Candidate], tuple[float, float]]
) -> list[_Candidate]:
    """Those to which no other is better in one measure and at least as good in the other.

    The first measure rises and the second falls from one to the next. Of candidates that are alike
    in both, the first is taken.
    """
    ordered = sorted(enumerate(candidates), key=lambda item: (*measure(item[1]), item[0]))
    costed: list[_Candidate] = []
    least = math.inf
    for _, candidate in ordered:
        second = measure(candidate)[1]
        if second < least:
            costed.append(candidate)
            least = second
    return costed
