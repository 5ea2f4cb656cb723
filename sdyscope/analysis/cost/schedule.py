"""A step over time: the schedule of the compiled program, with the times of the cost model.

A device runs one instruction after the other. What is asynchronous begins where it is started, when
the links that it uses are free, and the device waits for it where it is done; what is not, it waits
for at once. A loop takes as long as its trips times one iteration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.cost.cost import CollectiveCost, Cost, CostDocument, cost_of
from sdyscope.analysis.cost.work import instruction_work
from sdyscope.analysis.naming.speakers import Speakers
from sdyscope.errors import TargetError
from sdyscope.facts.schedule import Exposed, Lane, Schedule, Segment, Way
from sdyscope.facts.work import Work
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import Computation, HloModule, Instruction, call_sites, trip_count
from sdyscope.hlo.live import is_scheduled
from sdyscope.hlo.loops import given_element, known_before
from sdyscope.hlo.model import BRANCHES, CALLED, IN_PLACE
from sdyscope.staged import Staged
from sdyscope.values.mesh import AxisRef

#: Opcodes of what only hands on what it is given, as it lies there.
_HANDS_ON = IN_PLACE | {"async-update", "get-tuple-element", "tuple"}

_DONE = 'custom_call_target="AsyncCollectiveDone"'
_START = 'custom_call_target="AsyncCollectiveStart"'

#: Segments of compute that are closer than this part of the step are one.
CLOSE = 1 / 2000

#: Work that would hide less than this part of what is exposed is none.
_LITTLE = 1 / 100


def with_schedules(
    document: CommsDocument, program: Staged, on: Hardware | str | None
) -> CommsDocument:
    """A document of collectives with a step over time under each partitioner.

    Args:
        document: the document.
        program: the program.
        on: what it was compiled for.

    Raises:
        TargetError: see ``schedule_of``.
    """
    schedules = tuple(
        schedule_of(cost_of(program, program_cost.partitioner, on), program_cost)
        for program_cost in document.programs
    )
    return replace(document, schedules=schedules)


def with_steps(document: CostDocument) -> CostDocument:
    """A document of costs with what a step takes by its schedule, where rates were fitted."""
    return replace(document, programs=tuple(map(with_step, document.programs)))


def with_step(cost: Cost) -> Cost:
    """A cost with what a step takes by its schedule, where its rates were fitted and all known."""
    if cost.given.stretch is None or cost.predicted:
        return cost
    try:
        schedule = schedule_of(cost)
    except TargetError:
        return cost
    step = None if schedule.unknown else schedule.seconds * cost.given.stretch
    return replace(cost, step=step)


def schedule_of(cost: Cost, collectives: Collectives | None = None) -> Schedule:
    """A step of a program over time.

    Args:
        cost: what its collectives, arithmetic and memory take.
        collectives: the same collectives with their causes.

    Raises:
        TargetError: the program is not scheduled, or no rates of the hardware are known.
    """
    if cost.compute.seconds is None or cost.memory.seconds is None:
        kind = cost.device_kind or "this hardware"
        raise TargetError(
            f"No rates are known for {kind}, so nothing has a time.",
            hint="Compile for TPUs or GPUs, present or not: --on tpu:v5e:2x4 or cuda:h100:1x1x8.",
        )
    module = cost.compiled.module
    if not is_scheduled(module):
        raise TargetError("The program is not scheduled: its text is in no order of time.")
    return _Simulation(cost, module, collectives).schedule()


@dataclass
class _Flight:
    """A collective that has been started.

    Attributes:
        cost: its cost.
        begins: when it begins, with the links free.
        ends: when it is there.
        waited: from when to when the device waits and computes nothing.
    """

    cost: CollectiveCost
    begins: float
    ends: float
    waited: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class _Spent:
    """What a collective came to so far, in a whole step."""

    exposed: float = 0.0
    work: float = 0.0
    other: float = 0.0
    segments: list[tuple[float, float, bool]] = field(default_factory=list)


class _Simulation:
    """One step of one program."""

    def __init__(self, cost: Cost, module: HloModule, explained: Collectives | None) -> None:
        self.cost = cost
        self.module = module
        self.sites = call_sites(module)
        self.speakers = Speakers(module)
        self.work: Callable[[Computation, Instruction], Work] = instruction_work(module)
        self.costs = {timed.collective.name: timed for timed in cost.collectives}
        self.within = self._within()
        self.origins = {}
        if explained is not None:
            self.origins = {
                collective.name: collective.largest.origin for collective in explained.collectives
            }
        self.free: dict[object, float] = defaultdict(float)
        self.flights: dict[str, _Flight] = {}
        self.spent: dict[str, _Spent] = defaultdict(_Spent)
        self.compute: list[tuple[float, float]] = []
        self.computing = 0.0
        self.now = 0.0
        self.times = 1.0

    def schedule(self) -> Schedule:
        self.run(self.module.computations[self.module.entry])
        exposed = tuple(self.exposed())
        busy = sum(exposure.seconds for exposure in exposed)
        alone = sum(exposure.exposed for exposure in exposed)
        return Schedule(
            partitioner=self.cost.partitioner,
            hardware=self.cost.hardware,
            device_kind=self.cost.device_kind,
            mesh=self.cost.mesh,
            seconds=self.now,
            compute=self.computing,
            exposed=alone,
            hidden=busy - alone,
            lanes=tuple(self.lanes()),
            collectives=exposed,
            pipelines=self.cost.pipelines,
            unknown=sum(timed.each is None for timed in self.cost.collectives),
        )

    # Which instruction is a collective.

    def _within(self) -> Mapping[str, str]:
        """By instruction that runs a collective inside, the collective's name."""
        inside = {
            name: computation.name
            for computation in self.module.computations.values()
            for name in computation.instructions
            if name in self.costs
        }
        by_computation = defaultdict(list)
        for name, computation in inside.items():
            by_computation[computation].append(name)
        within = {}
        for sites in self.sites.values():
            for instruction, called in sites:
                if instruction.opcode in ("fusion", "fusion-start", "async-start", "call-start"):
                    for name in by_computation.get(called, ()):
                        within[instruction.name] = name
        return within

    def begun(self, instruction: Instruction) -> CollectiveCost | None:
        """The collective that an instruction begins or is."""
        name = instruction.name if instruction.name in self.costs else None
        name = name or self.within.get(instruction.name)
        return None if name is None else self.costs[name]

    def goes_on(self, instruction: Instruction) -> bool:
        """Whether something goes on while others run: it has an end of its own."""
        if instruction.opcode.endswith("-start") or instruction.opcode in ("send", "recv"):
            return True
        fused = self.module.fused(instruction)
        return fused is not None and any(
            _START in inside.rest for inside in fused.instructions.values()
        )

    def ended(self, instruction: Instruction, carried: Mapping[str, str]) -> str | None:
        """The collective that an instruction waits for, of those that operands stand for."""
        if instruction.opcode.endswith("-done"):
            return carried.get(next(iter(instruction.operands), ""))
        fused = self.module.fused(instruction)
        if fused is not None and any(_DONE in inner.rest for inner in fused.instructions.values()):
            awaited = (carried.get(operand) for operand in instruction.operands)
            return next((name for name in awaited if name is not None), None)
        return None

    # Time.

    def run(self, computation: Computation, early: Collection[str] | None = None) -> None:
        """Runs a computation, from now on; of a loop's body with what an earlier iteration knew."""
        first = self.worked()
        across: set[str] = set()
        carried: dict[str, str] = {}
        ready: dict[str, float] = {}
        results: dict[str, set[str]] = defaultdict(set)
        unread: dict[str, float] = {}
        read: dict[int, float] = {}
        for instruction in computation.instructions.values():
            names = instruction.operands if instruction.opcode != "parameter" else ()
            for operand in names:
                index = given_element(computation, computation.instructions.get(operand))
                if index is not None and not self.passes(instruction):
                    read.setdefault(index, self.worked())
                if operand in carried and self.passes(instruction):
                    carried[instruction.name] = carried[operand]
                if operand not in results:
                    continue
                if self.passes(instruction):
                    results[instruction.name] |= results[operand]
                    continue
                for collective in results[operand] & unread.keys():
                    # The first that reads its result: what ran since could have run beside it.
                    since = self.worked() - unread.pop(collective)
                    self.spent[collective].work += since * self.times
            given = max((ready.get(name, first) for name in names), default=first)
            over = self.ended(instruction, carried)
            if over is not None and over in self.flights:
                self.finish(over)
                results[instruction.name].add(over)
                unread[over] = self.worked()
            cost = self.begun(instruction)
            if cost is not None and cost.each is not None and over is None:
                name = cost.collective.name
                if early is not None and all(operand in early for operand in names):
                    across.add(name)
                if name not in self.flights:
                    self.spent[name].work += (self.worked() - given) * self.times
                    self.start(cost)
                    if self.goes_on(instruction):
                        carried[instruction.name] = name
                    else:
                        self.finish(name)
                        results[instruction.name].add(name)
                        unread[name] = self.worked()
                elif instruction.name not in carried:
                    carried[instruction.name] = name
            self.step(computation, instruction, cost)
            ready[instruction.name] = given if self.passes(instruction) else self.worked()
        for name in dict.fromkeys(carried.values()):
            if name in self.flights:  # The next iteration waits for it, which is not followed.
                self.finish(name)
        for collective, done in unread.items():
            self.spent[collective].work += (self.worked() - done) * self.times
        for collective in across:
            self.spent[collective].other += (self.worked() - first) * self.times
        if early is not None and computation.root is not None:
            # The next iteration may compute until it reads the result.
            ends: dict[str, float] = {}
            for index, operand in enumerate(computation.root.operands):
                for collective in results[operand] & unread.keys():
                    end = read.get(index, self.worked())
                    ends[collective] = min(end, ends.get(collective, end))
            for collective, end in ends.items():
                if collective not in across:
                    self.spent[collective].other += (end - first) * self.times

    def passes(self, instruction: Instruction) -> bool:
        """Whether an instruction only hands on what it is given."""
        return instruction.opcode in _HANDS_ON

    def worked(self) -> float:
        """Seconds of compute so far, in one run of what runs."""
        return self.computing / self.times if self.times else 0.0

    def start(self, cost: CollectiveCost) -> None:
        assert cost.each is not None
        links = self.links(cost)
        begins = max([self.now, *(self.free[link] for link in links)])
        for link in links:
            self.free[link] = begins + cost.each
        self.flights[cost.collective.name] = _Flight(cost, begins, begins + cost.each)

    def finish(self, name: str) -> None:
        """Waits for a collective, and before it for those that have its links."""
        flight = self.flights[name]
        others = [other for other in self.flights.values() if other is not flight]
        now = self.now
        for running in (*sorted(others, key=lambda other: other.begins), flight):
            start, end = max(running.begins, now), min(running.ends, flight.ends)
            if running is not flight:
                end = min(end, flight.begins)
            if start < end:
                running.waited.append((start, end))
                now = end
        self.now = max(self.now, flight.ends)
        del self.flights[name]
        spent = self.spent[name]
        hidden = flight.begins
        for start, end in flight.waited:
            if hidden < start:
                spent.segments.append((hidden, start, False))
            spent.segments.append((start, end, True))
            spent.exposed += (end - start) * self.times
            hidden = end
        if hidden < flight.ends:
            spent.segments.append((hidden, flight.ends, False))

    def links(self, cost: CollectiveCost) -> list[object]:
        """The links that a collective uses: of its levels, or of its axes where they are given."""
        links: list[object] = []
        for level in cost.levels or ():
            if level.name in ("given", "fitted"):
                links += [axis.name for axis in cost.collective.axes or ()]
            else:
                links += [(level.name, span.dimension) for span in level.spans]
        return links

    def step(
        self, computation: Computation, instruction: Instruction, cost: CollectiveCost | None
    ) -> None:
        """Computes what an instruction computes."""
        match instruction.opcode:
            case "while":
                self.loop(computation, instruction)
                return
            case "conditional":
                self.branches(instruction)
                return
            case "call":
                for called in self.module.called(instruction, *CALLED):
                    self.run(called)
                return
        if cost is not None and instruction.name in self.costs:
            return  # Its own time is that of the links.
        seconds = work_seconds(self.cost, self.work(computation, instruction))
        if seconds:
            self.compute.append((self.now, self.now + seconds))
            self.now += seconds
            self.computing += seconds * self.times

    def loop(self, computation: Computation, instruction: Instruction) -> None:
        trips = trip_count(self.module, computation, instruction)
        times = 1 if trips is None else trips
        start, marks = self.now, self.marks()
        outer, self.times = self.times, self.times * times
        if times:
            for called in self.module.called(instruction, "condition"):
                self.run(called)
            for called in self.module.called(instruction, "body"):
                self.run(called, known_before(called) if times > 1 else None)
        self.times = outer
        # One iteration is drawn over all the time that the loop takes.
        took = self.now - start
        self.stretch(marks, start, max(times, 1))
        self.now = start + took * times

    def branches(self, instruction: Instruction) -> None:
        """Of a conditional the branch that takes longest."""
        every = self.module.called(instruction, *BRANCHES)
        if not every:
            return
        times = {}
        for branch in every:
            times[branch.name] = sum(
                work_seconds(self.cost, self.work(branch, inner))
                for inner in branch.instructions.values()
            )
        self.run(max(every, key=lambda branch: times[branch.name]))

    def marks(self) -> tuple[int, Mapping[str, int]]:
        return len(self.compute), {name: len(spent.segments) for name, spent in self.spent.items()}

    def stretch(self, marks: tuple[int, Mapping[str, int]], start: float, times: float) -> None:
        """Draws what was added since longer."""

        def longer(at: float) -> float:
            return start + (at - start) * times if at > start else at

        first, known = marks
        self.compute[first:] = [(longer(a), longer(b)) for a, b in self.compute[first:]]
        for name, spent in self.spent.items():
            at = known.get(name, 0)
            spent.segments[at:] = [
                (longer(a), longer(b), alone) for a, b, alone in spent.segments[at:]
            ]

    # What came of it.

    def exposed(self) -> Iterator[Exposed]:
        exposures = []
        for timed in self.cost.collectives:
            collective = timed.collective
            if timed.seconds is None:
                continue
            spent = self.spent[collective.name]
            part = collective.largest
            exposed, work, other = spent.exposed, max(spent.work, 0.0), max(spent.other, 0.0)
            way: Way | None = None
            if exposed > 0 and work >= _LITTLE * exposed:
                way = "reorder" if collective.asynchronous else "asynchronous"
            if exposed > 0 and other > work and other >= _LITTLE * exposed and work < exposed / 2:
                way = "pipelined"
            elif exposed > 0 and way is None:
                way = "less"
            exposures.append(
                Exposed(
                    collective.name,
                    collective.kind,
                    collective.axes,
                    collective.count,
                    collective.sent,
                    part.scope,
                    part.source,
                    collective.asynchronous,
                    timed.seconds,
                    exposed,
                    work,
                    other,
                    way,
                    self.origins.get(collective.name),
                )
            )
        yield from sorted(exposures, key=lambda each: (-each.exposed, -each.seconds))

    def lanes(self) -> Iterator[Lane]:
        computed = tuple(merged_spans(self.compute, self.now * CLOSE))
        yield Lane("compute", None, self.computing, computed)
        by_axes: dict[tuple[AxisRef, ...] | None, list[Segment]] = defaultdict(list)
        busy: dict[tuple[AxisRef, ...] | None, float] = defaultdict(float)
        for timed in self.cost.collectives:
            axes = timed.collective.axes
            for start, end, alone in self.spent[timed.collective.name].segments:
                by_axes[axes].append(Segment(start, end, timed.collective.name, alone))
            busy[axes] += timed.seconds or 0.0
        for axes in sorted(by_axes, key=lambda each: -busy[each]):
            segments = sorted(by_axes[axes], key=lambda segment: segment.start)
            yield Lane("links", axes, busy[axes], tuple(segments))


def work_seconds(cost: Cost, work: Work) -> float:
    """What an op takes by the rates of a cost: the longer of its arithmetic and its memory."""
    bandwidth = cost.memory.bandwidth
    moved = max(work.bytes - work.on_chip, 0.0) / bandwidth if bandwidth else 0.0
    seconds = max(cost.compute.time(work), moved)
    fitted = cost.given.compute
    if fitted is not None and (work.flops or work.bytes):
        seconds += fitted.overhead
    return seconds


def merged_spans(spans: Iterable[tuple[float, float]], close: float) -> Iterator[Segment]:
    """Spans of time, those that are close to each other as one."""
    current: Segment | None = None
    for start, end in sorted(spans):
        if current is not None and start - current.end <= close:
            current = replace(current, end=max(current.end, end))
            continue
        if current is not None:
            yield current
        current = Segment(start, end)
    if current is not None:
        yield current
