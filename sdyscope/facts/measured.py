"""Measured time: what a profiler's trace says that each op of a program took. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from sdyscope.annotations import NamedKind
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.facts.over_time import Phase
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Lane, Schedule
from sdyscope.facts.work import Work
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation

Unknown: TypeAlias = Literal[
    "no program",
    "no mesh",
    "other program",
    "several clocks",
    "several runs",
    "other instructions",
    "command buffers",
    "no rates",
]
"""``no program``: the trace has no program, so nothing is known but what instructions are called;
``no mesh``: no mesh is known to name axes of; ``other program``: the program that was named has
other collectives than the one that ran; ``several clocks``: who waits for whom can't be told;
``several runs``: it ran on more devices than it is for, each host on its own;
``other instructions``: events are of instructions that the trace's program does not have;
``command buffers``: which instructions some kernels are of can't be told;
``no rates``: nothing can be predicted for the hardware that was named."""

Occurrence: TypeAlias = tuple[int, int, float, float]
"""(step, device, seconds at which it starts, seconds that it takes)."""


COMMAND_BUFFER: Final = "command_buffer"
"""How the ops of kernels are called that XLA gave a GPU several instructions of at once."""


class Kernel(NamedTuple):
    """What a GPU ran for an instruction, or for several that it was given at once.

    Attributes:
        op: the instruction, or XLA's command buffer (a CUDA graph): ``command_buffer_1``.
        name: the kernel's name; XLA's own are called after an instruction: ``loop_add_fusion_1``.
        step: in which step.
        device: on which device.
        start: seconds at which it starts.
        seconds: seconds that it takes.
    """

    op: str
    name: str
    step: int
    device: int
    start: float
    seconds: float


@dataclass(frozen=True)
class TracedProgram:
    """One program of a trace.

    Attributes:
        name: its name in HLO: ``jit_step``.
        hlo: its text; empty where the trace does not have it.
        devices: how many devices run it.
        hosts: how many hosts these are on.
        steps: how often it runs while the trace is made.
        occurrences: by instruction each time that it runs, in order of their starts. Starts on two
            hosts are by two clocks.
        host_of: the host of each device.
        handed_on: instructions that other threads of a CPU computed: their time has in it what they
            waited for a thread.
        shares_cores: whether its devices compute on the same cores, as virtual CPU devices do.
        kernels: what GPUs ran, in order of their starts, where command buffers hide which
            instruction a kernel is of; else empty.
    """

    name: str
    hlo: str
    devices: int
    hosts: int
    steps: int
    occurrences: Mapping[str, Sequence[Occurrence]]
    host_of: Sequence[int]
    handed_on: frozenset[str] = frozenset()
    shares_cores: bool = False
    kernels: Sequence[Kernel] = ()

    @property
    def seconds(self) -> float:
        """The time of all its instructions on all devices."""
        return sum(
            occurrence[3] for occurrences in self.occurrences.values() for occurrence in occurrences
        )


@dataclass(frozen=True)
class Trace:
    """A profiler's trace of one or several hosts.

    Attributes:
        files: its files, one a host.
        programs: what ran, what took most time first.
    """

    files: tuple[Path, ...]
    programs: tuple[TracedProgram, ...]


@dataclass(frozen=True, slots=True)
class OpTime:
    """An instruction of the program.

    Attributes:
        name: its name.
        opcode: HLO's; empty where the trace has no program.
        scope: scope of the op that it was made for; empty likewise.
        primitive: JAX's primitive; empty likewise.
        phase: which pass it belongs to.
        source: its line.
        count: how often a step runs it.
        seconds: what it takes in a step, on average over devices and steps.
        least: the same of the device that it takes least time on.
        most: of the one that it takes most time on.
        typical: what one run of it takes, the median over devices and runs; None where a thread of
            a CPU took it over, and waiting for one is in its time.
        work: what one run of it computes and moves; None where the trace has no program.
        predicted: seconds of a step that the model of the hardware, or rates that were fitted,
            predict; None where they have no figures, of collectives, and of what has no known work.
    """

    name: str
    opcode: str
    scope: str
    primitive: str
    phase: Phase
    source: SourceLocation | None
    count: float
    seconds: float
    least: float
    most: float
    typical: float | None
    work: Work | None
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """A collective of the program.

    Attributes:
        name: the instruction's name.
        kind: what it does.
        axes: mesh axes that it runs over; None where they are not known.
        count: how often a step runs it.
        sent: bytes that a device sends in a step; where the program does not say how often it runs,
            as often as it was seen to.
        scope: scope of what it was made for.
        source: its line.
        seconds: what it takes in a step, on average over devices and steps.
        waiting: of these, until the last device of its group arrives; None where devices of a
            group are by different clocks.
        moving: the rest, in which bytes move; None likewise.
        late: the device that others wait for most; None where there is no waiting.
        bandwidth: bytes a second that a device sends meanwhile; None where that is not known.
        typical: what one run of it takes while bytes move, the median over devices and runs; with
            the waiting where that is not told apart.
        predicted: seconds of a step that the model of the hardware, or rates that were fitted,
            predict; None where they have no figures.
        origin: why it is there; None where that is not known.
        compiled: name of the same collective in the program that was named; empty likewise.
    """

    name: str
    kind: str
    axes: tuple[AxisRef, ...] | None
    count: float
    sent: int
    scope: str
    source: SourceLocation | None
    seconds: float
    waiting: float | None
    moving: float | None
    late: int | None
    bandwidth: float | None
    typical: float
    predicted: float | None
    origin: CollectiveOrigin | None
    compiled: str = ""


@dataclass(frozen=True, slots=True)
class LineTime:
    """What a source line takes in a step.

    Attributes:
        source: the line; None for what has none.
        seconds: of all its instructions, on average over devices and steps.
        collectives: of these, in collectives.
    """

    source: SourceLocation | None
    seconds: float
    collectives: float


@dataclass(frozen=True, slots=True)
class ScopeTime:
    """What a scope takes in a step.

    Attributes:
        scope: the scope, with ``*`` for the numbers of layers.
        seconds: of all its instructions, on average over devices and steps.
        collectives: of these, in collectives.
    """

    scope: str
    seconds: float
    collectives: float


@dataclass(frozen=True, slots=True)
class MeasuredAxes:
    """Collectives over the same axes.

    Attributes:
        axes: the axes; None where they are not known.
        seconds: what they take in a step.
        waiting: of these, waiting for others; None where that is not known.
        sent: bytes that a device sends.
        bandwidth: bytes a second while they move; None where that is not known.
        predicted: the same by the model of the hardware; None where it has no figures.
    """

    axes: tuple[AxisRef, ...] | None
    seconds: float
    waiting: float | None
    sent: int
    bandwidth: float | None
    predicted: float | None


@dataclass(frozen=True, slots=True)
class AnnotationTime:
    """Collectives that come from one annotation; what comes from several counts with each.

    Attributes:
        annotation: what is annotated.
        seconds: what they take in a step.
    """

    annotation: OriginAnnotation
    seconds: float

    @property
    def kind(self) -> NamedKind:
        """What is annotated."""
        return self.annotation.kind


@dataclass(frozen=True, slots=True)
class Deviation:
    """Ops or collectives that are alike, measured beside predicted; those of repeated layers too.

    Attributes:
        what: a collective's kind; of other ops JAX's primitive, HLO's opcode or the instruction's
            name, whichever is known first.
        collective: whether they are collectives.
        axes: mesh axes of collectives; None of other ops, and where they are not known.
        scope: their scope, with ``*`` for the numbers of layers.
        source: their line.
        instructions: how many instructions they are.
        seconds: what they take in a step, on average over devices and steps.
        waiting: of these, waiting for the last device of a group; None where that is not known.
        predicted: seconds that are predicted; None where that is not known of all of them.
    """

    what: str
    collective: bool
    axes: tuple[AxisRef, ...] | None
    scope: str
    source: SourceLocation | None
    instructions: int
    seconds: float
    waiting: float | None
    predicted: float | None

    __document__ = (
        *("what", "collective", "axes", "scope", "source", "instructions"),
        *("seconds", "waiting", "predicted", "ratio", "difference"),
    )

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where nothing is predicted."""
        return self.seconds / self.predicted if self.predicted else None

    @property
    def difference(self) -> float | None:
        """Seconds of a step more than predicted; None where that is not known."""
        return None if self.predicted is None else self.seconds - self.predicted


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step of one device over time.

    Attributes:
        step: which step of the trace, by how long it took the one in the middle; from 0.
        device: the device that is least in collectives in that step, and so waits least.
        seconds: from the first start on any device of its host to the last end.
        lanes: compute first, then the links of mesh axes; ``exposed`` is what this device computes
            nothing beside, so that waiting for others is.
    """

    step: int
    device: int
    seconds: float
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Measured:
    """What a program took, by a trace.

    Attributes:
        partitioner: under which it was compiled; None where that is not known.
        program: its name in HLO.
        devices: how many devices ran it.
        hosts: how many hosts these are on.
        steps: how many steps the trace has.
        mesh: the mesh whose axes are named; None where none is known.
        step_seconds: what each step took, from the first start to the last end on any device of
            the host that took longest.
        busy: seconds of a step in which a device runs anything, on average over devices and steps.
        compute: seconds of a step in ops other than collectives. Ops that run at the same time
            count each, as they do on a CPU's threads.
        collective: seconds of a step in collectives, likewise.
        waiting: of these, waiting for the last device of a group, where that is known; None where
            it is of none.
        ops: instructions, what takes most time first.
        collectives: collectives, likewise.
        by_line: source lines, likewise.
        by_scope: scopes, likewise.
        by_axes: collectives by mesh axes, likewise.
        by_annotation: collectives by the annotations that they come from, likewise.
        unknown: what is not known, and why.
        predicted_for: what the compiler calls the device whose model predicts; empty without, and
            for rates that were fitted or given.
        over_time: one step over time; None of a trace without steps.
        schedule: the step as it is predicted, by the schedule of the program that ran; None where
            no rates are known.
        predicted_step: seconds of a step that are predicted; with rates that were fitted as much
            longer than its schedule as the steps that they were fitted to. None likewise, and where
            the time of a collective is not known.
        deviations: ops and collectives, measured beside predicted: what takes most longer than
            predicted first, and last, what takes most first, those that nothing is predicted of.
    """

    partitioner: Partitioner | None
    program: str
    devices: int
    hosts: int
    steps: int
    mesh: Mesh | None
    step_seconds: tuple[float, ...]
    busy: float
    compute: float
    collective: float
    waiting: float | None
    ops: tuple[OpTime, ...]
    collectives: tuple[CollectiveTime, ...]
    by_line: tuple[LineTime, ...]
    by_scope: tuple[ScopeTime, ...]
    by_axes: tuple[MeasuredAxes, ...]
    by_annotation: tuple[AnnotationTime, ...]
    unknown: tuple[Unknown, ...] = ()
    predicted_for: str = ""
    over_time: MeasuredStep | None = None
    schedule: Schedule | None = None
    predicted_step: float | None = None
    deviations: tuple[Deviation, ...] = ()


NotCompared: TypeAlias = Literal["no program", "waiting", "other program"]
"""``no program``: a trace has no program, so scopes, lines and collectives are not compared;
``waiting``: it is told apart in one trace only; ``other program``: next to nothing ran in both."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What something took in two traces.

    Attributes:
        name: what: a scope, a source line, a kind of collective; ``step``, ``compute``,
            ``collectives`` and ``waiting`` are of the whole step.
        before: seconds of a step in the first; None where it is not there.
        after: seconds of a step in the second; None likewise.
        axes: the mesh axes of a collective; None where they are not known.
        scope: its scope; empty of what is no collective.
    """

    name: str
    before: float | None
    after: float | None
    axes: tuple[AxisRef, ...] | None = None
    scope: str = ""

    __document__ = ("name", "axes", "scope", "before", "after", "change")

    @property
    def change(self) -> float:
        """Seconds that it takes more; negative for less."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class MeasuredDifference:
    """Two traces beside each other.

    Attributes:
        totals: the step and its parts.
        scopes: by scope, what changed most first.
        lines: by source line, likewise.
        collectives: by kind, scope and axes, likewise.
        noise: how far steps of one trace are from their median, at most, as a part of it: what
            changed less may well be chance.
        not_compared: what is not, and why.
    """

    totals: tuple[Difference, ...]
    scopes: tuple[Difference, ...]
    lines: tuple[Difference, ...]
    collectives: tuple[Difference, ...]
    noise: float
    not_compared: tuple[NotCompared, ...] = ()
