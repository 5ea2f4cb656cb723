"""A step over time: what a device computes and sends when, by schedule and model. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.cost import Pipeline
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import Partitioner
from sdyscope.formatters import in_place
from sdyscope.hardware.names import Hardware
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation

Way: TypeAlias = Literal["asynchronous", "reorder", "pipelined", "less"]
"""What would hide a collective.

Running it ``asynchronous``ly, since other work is scheduled between what it needs and what needs
it; a ``reorder`` of the schedule, since it runs so already, and more of such work is there than is
beside it; a loop whose iterations are ``pipelined``, since it needs nothing that the iteration
before computes, or the iteration does not need its result; or nothing but sending ``less``, or over
another axis, as what comes next needs it.
"""


LaneKind: TypeAlias = Literal["compute", "links"]
"""What a lane is of: what a device computes, or what it sends over the links of mesh axes."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a lane in which something goes on.

    Attributes:
        start: seconds from the beginning of the step.
        end: likewise.
        name: the collective's instruction; empty of compute.
        exposed: whether the device waits for it and computes nothing meanwhile.
    """

    start: float
    end: float
    name: str = ""
    exposed: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """What one resource does over the step.

    Attributes:
        kind: what computes, or the links of mesh axes.
        axes: the mesh axes whose links it is; None of what computes, and of the links of
            collectives whose axes are not known.
        busy: seconds that it is busy.
        segments: when. Of a loop one iteration is drawn over all the time that it takes.
    """

    kind: LaneKind
    axes: tuple[AxisRef, ...] | None
    busy: float
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Exposed:
    """A collective, and what of its time nothing hides.

    Attributes:
        name: the instruction's name.
        kind: what it does.
        axes: mesh axes that it runs over; None where they are not known.
        count: how often a step runs it.
        sent: bytes that a device sends for it in a step.
        scope: scope of what it was made for.
        source: its line.
        asynchronous: whether other work may go on meanwhile.
        seconds: what it takes in a step, by the model.
        exposed: of these, seconds in which the device waits and computes nothing.
        work: seconds of compute in a step that are scheduled between what it needs and what needs
            it, and are not beside it already.
        other: seconds of compute in the iterations before, or after, that could be beside it.
        way: what would hide it; None where nothing is exposed.
        origin: why it is there; None where that is not known.
    """

    name: str
    kind: str
    axes: tuple[AxisRef, ...] | None
    count: int
    sent: int
    scope: str
    source: SourceLocation | None
    asynchronous: bool
    seconds: float
    exposed: float
    work: float
    other: float
    way: Way | None
    origin: CollectiveOrigin | None

    __document__ = in_place(other=("other", "hideable"))

    @property
    def hideable(self) -> float:
        """Seconds that the work around it could hide."""
        return min(self.exposed, self.other if self.way == "pipelined" else self.work)


@dataclass(frozen=True)
class Schedule:
    """One step of a compiled program over time.

    Attributes:
        partitioner: under which it was compiled; None for a text.
        hardware: what it was compiled for; None likewise.
        device_kind: what the compiler calls such a device.
        mesh: the mesh whose axes are named.
        seconds: what the step takes: compute, and what is exposed.
        compute: of these, seconds of compute.
        exposed: of these, seconds in which a device only communicates.
        hidden: seconds of collectives beside which a device computes, or waits for another axis.
        lanes: compute first, then the links of mesh axes.
        collectives: each collective, what is exposed most first.
        pipelines: loops that hand a value on along a mesh axis.
        unknown: collectives whose time is not known, which count nothing.
    """

    partitioner: Partitioner | None
    hardware: Hardware | None
    device_kind: str
    mesh: Mesh | None
    seconds: float
    compute: float
    exposed: float
    hidden: float
    lanes: tuple[Lane, ...]
    collectives: tuple[Exposed, ...]
    pipelines: tuple[Pipeline, ...]
    unknown: int
