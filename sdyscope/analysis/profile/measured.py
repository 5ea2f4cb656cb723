"""What the ops and collectives of a program took, joined with what is known of them.

The instructions of a trace are those of the program that is kept with it, which has their scopes
and source lines; the causes of its collectives are those of the program that the trace is of, where
that is named, as far as its compiled collectives are the same.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeAlias

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.cost.cost import Cost, Given
from sdyscope.analysis.cost.schedule import (
    CLOSE,
    merged_spans,
    schedule_of,
    work_seconds,
)
from sdyscope.analysis.cost.work import instruction_work
from sdyscope.analysis.naming.scopes import is_differentiated, phase_of, scope_of
from sdyscope.analysis.naming.speakers import Speakers
from sdyscope.analysis.profile.command_buffers import of_instructions
from sdyscope.analysis.profile.traced import known_work, traced_cost, traced_module
from sdyscope.annotations import folded_names
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.measured import (
    COMMAND_BUFFER,
    AnnotationTime,
    CollectiveTime,
    Deviation,
    LineTime,
    Measured,
    MeasuredAxes,
    MeasuredStep,
    Occurrence,
    OpTime,
    ScopeTime,
    TracedProgram,
    Unknown,
)
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Lane, Schedule, Segment
from sdyscope.facts.traffic import KINDS
from sdyscope.facts.work import Work
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import Instruction
from sdyscope.staged import Staged
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation

#: A collective that a device ran: its axes, its name, when it began and ended.
_Sending: TypeAlias = tuple[tuple[AxisRef, ...] | None, str, float, float]

#: Instructions whose events have those of other instructions in them.
_AROUND = frozenset({"call", "conditional", "while"})


def measured(
    traced: TracedProgram,
    meshes: Iterable[Mesh] = (),
    program: Staged | None = None,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
    given: Given | None = None,
) -> Measured:
    """What a program took.

    Args:
        traced: what ran.
        meshes: meshes whose axes to name.
        program: the program that ran; its collectives' causes are told.
        partitioner: under which it ran.
        on: what it ran on, as ``Staged.compiled`` takes it; what the model of that hardware
            predicts is told, too.
        given: rates that were fitted or given, of which the same is told.

    Raises:
        CompilerError: the program that is named can't be compiled.
    """
    return _Join(traced, tuple(meshes), program, partitioner, on, given or Given()).measured()


class _Join:
    """One program of a trace."""

    def __init__(
        self,
        traced: TracedProgram,
        meshes: tuple[Mesh, ...],
        program: Staged | None,
        partitioner: Partitioner | None,
        on: Hardware | str | None,
        given: Given,
    ) -> None:
        self.on = on
        self.given = given
        self.program = program
        self.partitioner = partitioner
        self.unknown: list[Unknown] = []
        self.module = traced_module(traced)
        if self.module is None:
            self.unknown.append("no program")
        else:
            traced = of_instructions(traced, self.module)
        self.traced = traced
        if any(op.startswith(COMMAND_BUFFER) for op in traced.occurrences):
            self.unknown.append("command buffers")
        self.compiled_collectives = None if self.module is None else self._collectives(meshes)
        if traced.hosts > 1:
            self.unknown.append("several clocks")

    def measured(self) -> Measured:
        ops = sorted(self.ops(), key=lambda op: -op.seconds)
        named = {timed.name for timed in self.collective_times}
        of_collectives = sum(timed.seconds for timed in self.collective_times)
        known = [timed.waiting for timed in self.collective_times if timed.waiting is not None]
        by_name = {timed.name: timed for timed in self.collective_times}
        schedule = self.schedule()
        if self.on is not None and self.module is not None and schedule is None:
            self.unknown.append("no rates")
        if self.module is not None and any(
            not op.opcode and not op.name.startswith(COMMAND_BUFFER) for op in ops
        ):
            self.unknown.append("other instructions")
        return Measured(
            partitioner=self.partitioner,
            program=self.traced.name,
            devices=self.traced.devices,
            hosts=self.traced.hosts,
            steps=self.traced.steps,
            mesh=None if self.compiled_collectives is None else self.compiled_collectives.mesh,
            step_seconds=tuple(self.step_seconds()),
            busy=self.busy(),
            compute=sum(op.seconds for op in ops if _begun(op.name) not in named),
            collective=of_collectives,
            waiting=sum(known) if known else None,
            ops=tuple(ops),
            collectives=self.collective_times,
            by_line=tuple(_lines(ops, by_name)),
            by_scope=tuple(_scopes(ops, by_name)),
            by_axes=tuple(_axes(self.collective_times)),
            by_annotation=tuple(_annotations(self.collective_times)),
            unknown=tuple(self.unknown),
            predicted_for="" if schedule is None or self.cost is None else self.cost.device_kind,
            over_time=self.over_time(),
            schedule=schedule,
            predicted_step=self.predicted_step(schedule),
            deviations=tuple(_deviations(ops, self.collective_times)),
        )

    # The program.

    def _collectives(self, meshes: tuple[Mesh, ...]) -> Collectives:
        assert self.module is not None
        program_collectives = collectives(self.module, meshes)
        if self.traced.hosts > 1 and self.is_several_runs(program_collectives.collectives):
            self.unknown.append("several runs")
        elif program_collectives.mesh is None and program_collectives.collectives:
            self.unknown.append("no mesh")
        return program_collectives

    def is_several_runs(self, every: Sequence[Collective]) -> bool:
        """Whether the devices of a collective are fewer than those that ran it."""
        for collective in every:
            ran = {occurrence[1] for occurrence in self.traced.occurrences.get(collective.name, ())}
            groups = self.groups(collective) if ran else None
            if groups and sum(map(len, groups)) < len(ran):
                return True
        return False

    @cached_property
    def theirs(self) -> Mapping[str, Collective]:
        """By name, what they are in the program that is named, where it has the same ones."""
        if (
            self.program is None
            or self.compiled_collectives is None
            or not self.compiled_collectives.collectives
        ):
            return {}
        compiled = collectives_under(self.program, self.partitioner, self.on)
        theirs = defaultdict(list)
        for collective in compiled.collectives:
            theirs[_likeness(collective)].append(collective)
        ours = Counter(map(_likeness, self.compiled_collectives.collectives))
        if ours != {key: len(members) for key, members in theirs.items()}:
            self.unknown.append("other program")
            return {}
        return {
            collective.name: theirs[_likeness(collective)].pop(0)
            for collective in self.compiled_collectives.collectives
        }

    @cached_property
    def cost(self) -> Cost | None:
        """What the program that ran costs by the rates of what it ran on; None without rates."""
        if self.module is None or self.compiled_collectives is None:
            return None
        on = None if self.program is None else self.on
        if on is None and not self.given.bandwidths and self.given.compute is None:
            return None
        compiled = None
        if on is not None and self.program is not None:
            compiled = self.program.compiled(self.partitioner, on)
        mesh = self.compiled_collectives.mesh
        try:
            return traced_cost(self.traced, self.module, mesh, self.given, compiled)
        except TargetError:  # The rates are of axes that this mesh does not have.
            return None

    @cached_property
    def predicted(self) -> Mapping[str, float]:
        """Seconds of one run of a collective that are predicted, by name, where they are."""
        every = () if self.cost is None else self.cost.collectives
        return {timed.collective.name: timed.each for timed in every if timed.each is not None}

    def schedule(self) -> Schedule | None:
        """The step as it is predicted; None where no rates are known."""
        try:
            return None if self.cost is None else schedule_of(self.cost)
        except TargetError:
            return None

    def predicted_step(self, schedule: Schedule | None) -> float | None:
        """Seconds of a step that are predicted."""
        if schedule is None or schedule.unknown:
            return None
        stretch = self.given.stretch
        return schedule.seconds * (1.0 if stretch is None else stretch)

    def predicted_op(self, op: OpTime) -> float | None:
        """Seconds of a step that are predicted of what is no collective."""
        cost = self.cost
        if cost is None or cost.compute.seconds is None or cost.memory.seconds is None:
            return None
        work = None if op.name in self.parts else known_work(op)
        return None if work is None else work_seconds(cost, work) * op.count

    # Times.

    @property
    def device_steps(self) -> int:
        return max(self.traced.devices * self.traced.steps, 1)

    def ops(self) -> Iterator[OpTime]:
        instructions: dict[str, Instruction] = {}
        works: dict[str, Callable[[], Work]] = {}
        if self.module is not None:
            count = instruction_work(self.module)
            for computation in self.module.computations.values():
                instructions |= computation.instructions
                for op in computation.instructions.values():
                    works[op.name] = partial(count, computation, op)
        differentiated = is_differentiated(
            instruction.rest for instruction in instructions.values()
        )
        for name, occurrences in self.traced.occurrences.items():
            instruction = instructions.get(name)
            if instruction is not None and instruction.opcode in _AROUND:
                continue
            of_device: dict[int, float] = defaultdict(float)
            for _, device, _, seconds in occurrences:
                of_device[device] += seconds
            steps = max(self.traced.steps, 1)
            op_name = "" if instruction is None else self.op_name(instruction)
            scope, primitive = scope_of(op_name) if op_name else ("", "")
            source = None if instruction is None else self.source(instruction)
            if (known := self.parts.get(_begun(name))) is not None:
                # What several ops communicate together is named after the largest of them.
                scope, source = known.scope or scope, known.source or source
            each = [of_device.get(device, 0.0) / steps for device in range(self.traced.devices)]
            timed = OpTime(
                name,
                "" if instruction is None else instruction.opcode,
                scope,
                primitive,
                phase_of(op_name, differentiated),
                source,
                len(occurrences) / self.device_steps,
                sum(each) / max(len(each), 1),
                min(each, default=0.0),
                max(each, default=0.0),
                None
                if name in self.traced.handed_on
                else statistics.median(occurrence[3] for occurrence in occurrences),
                works[name]() if name in works else None,
            )
            yield replace(timed, predicted=self.predicted_op(timed))

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """The largest tensor of each collective, by name."""
        every = () if self.compiled_collectives is None else self.compiled_collectives.collectives
        return {collective.name: collective.largest for collective in every}

    @cached_property
    def speakers(self) -> Speakers | None:
        return None if self.module is None else Speakers(self.module)

    def op_name(self, instruction: Instruction) -> str:
        assert self.speakers is not None
        speaker = self.speakers.of(instruction)
        return speaker.op_name if "/" in speaker.op_name else ""

    def source(self, instruction: Instruction) -> SourceLocation | None:
        assert self.module is not None
        assert self.speakers is not None
        return self.module.source(self.speakers.of(instruction))

    @cached_property
    def collective_times(self) -> tuple[CollectiveTime, ...]:
        every = (
            []
            if self.compiled_collectives is None
            else list(map(self.collective, self.compiled_collectives.collectives))
        )
        every += [] if self.compiled_collectives is not None else list(self.nameless())
        return tuple(
            sorted(
                (timed for timed in every if timed.count),
                key=lambda timed: -timed.seconds,
            )
        )

    def collective(self, collective: Collective) -> CollectiveTime:
        """What one collective took: from its start to its end, what begins and ends it together."""
        occurrences = self.occurrences(collective.name)
        seconds = sum(occurrence[3] for occurrence in occurrences) / self.device_steps
        waits, late = self.waits(collective, occurrences)
        waiting = None if waits is None else sum(waits.values()) / self.device_steps
        moving = None if waiting is None else max(seconds - waiting, 0.0)
        part, same = collective.largest, self.theirs.get(collective.name)
        count, each = len(occurrences) / self.device_steps, self.predicted.get(collective.name)
        sent = collective.sent
        if collective.unknown_trips or collective.conditional:
            # The program does not say how often it runs, and counts it once.
            sent = round(sum(part.sent for part in collective.parts) * count)
        return CollectiveTime(
            collective.name,
            collective.kind,
            collective.axes,
            count,
            sent,
            part.scope,
            part.source,
            seconds,
            waiting,
            moving,
            late,
            sent / moving if moving and sent else None,
            _typical(occurrences, waits or {}),
            None if each is None else each * count,
            None if same is None else same.largest.origin,
            "" if same is None else same.name,
        )

    def nameless(self) -> Iterator[CollectiveTime]:
        """Collectives of a trace without its program, by what instructions are called."""
        for name in self.traced.occurrences:
            kind = next((known_kind for known_kind in KINDS if name.startswith(known_kind)), None)
            if kind is None or "-done" in name:
                continue
            occurrences = self.occurrences(name)
            seconds = sum(occurrence[3] for occurrence in occurrences) / self.device_steps
            count = len(occurrences) / self.device_steps
            typical = _typical(occurrences, {})
            yield CollectiveTime(
                *(name, kind, None, count, 0, "", None, seconds),
                *(None, None, None, None, typical, None, None),
            )

    def occurrences(self, name: str) -> Sequence[Occurrence]:
        """Each time that a collective runs: from its start to its end where these are two."""
        begun = self.traced.occurrences.get(name, ())
        ended = self.traced.occurrences.get(_ended(name), ())
        if not ended or _ended(name) == name:
            return begun
        ends: dict[tuple[int, int], list[float]] = defaultdict(list)
        for step, device, start, seconds in ended:
            ends[step, device].append(start + seconds)
        whole = []
        for step, device, start, seconds in begun:
            after = next((end for end in ends[step, device] if end >= start), start + seconds)
            if after in ends[step, device]:
                ends[step, device].remove(after)
            whole.append((step, device, start, after - start))
        return whole

    def waits(
        self, collective: Collective, occurrences: Sequence[Occurrence]
    ) -> tuple[Mapping[Occurrence, float] | None, int | None]:
        """Seconds until the last of a group arrives, by run on a device, and whom most wait for."""
        groups = self.groups(collective)
        if groups is None or self.traced.hosts > 1:
            return None, None
        of_device: dict[tuple[int, int], list[Occurrence]] = defaultdict(list)
        for occurrence in occurrences:
            of_device[occurrence[0], occurrence[1]].append(occurrence)
        waits: dict[Occurrence, float] = {}
        caused: dict[int, float] = defaultdict(float)
        for step in range(self.traced.steps):
            for group in groups:
                members = [of_device.get((step, device), []) for device in group]
                # The first of each device meet, then the second, as they do in a loop.
                for meeting in zip(*members, strict=False):
                    last = max(meeting, key=lambda occurrence: occurrence[2])
                    for occurrence in meeting:
                        waits[occurrence] = min(last[2] - occurrence[2], occurrence[3])
                        caused[last[1]] += waits[occurrence]
        late = max(caused, key=caused.__getitem__, default=None)
        return waits, late if any(waits.values()) else None

    def groups(self, collective: Collective) -> list[list[int]] | None:
        """The devices that work together in a collective; None of a permutation."""
        assert self.module is not None
        instruction = next(
            (
                instruction
                for computation in self.module.computations.values()
                if (instruction := computation.instructions.get(collective.name)) is not None
            ),
            None,
        )
        try:
            device_list = None if instruction is None else instruction.replica_groups
            return None if device_list is None else device_list.groups(self.traced.devices)
        except SdyscopeError:
            return None

    def step_seconds(self) -> Iterator[float]:
        """From the first start to the last end, on the host where that is longest."""
        spans: dict[tuple[int, int], list[float]] = {}
        for occurrences in self.traced.occurrences.values():
            for step, device, start, seconds in occurrences:
                key = (step, self.traced.host_of[device])
                span = spans.setdefault(key, [start, start + seconds])
                span[0], span[1] = min(span[0], start), max(span[1], start + seconds)
        for step in range(self.traced.steps):
            yield max(
                (end - start for (number, _), (start, end) in spans.items() if number == step),
                default=0.0,
            )

    def over_time(self) -> MeasuredStep | None:
        """The step in the middle, on the device that is least in collectives, over time."""
        lengths = list(self.step_seconds())
        if not any(lengths):
            return None
        step = sorted(range(len(lengths)), key=lengths.__getitem__)[(len(lengths) - 1) // 2]
        begun: dict[int, list[tuple[float, float]]] = defaultdict(list)
        sent: dict[int, list[_Sending]] = defaultdict(list)
        of_collectives = {timed.name: timed for timed in self.collective_times}
        instructions = self.around()
        for name, occurrences in self.traced.occurrences.items():
            timed = of_collectives.get(name)
            if timed is not None:
                for number, device, start, seconds in self.occurrences(name):
                    if number == step:
                        sent[device].append((timed.axes, name, start, start + seconds))
            elif name not in instructions and _begun(name) not in of_collectives:
                for number, device, start, seconds in occurrences:
                    if number == step:
                        begun[device].append((start, start + seconds))
        devices = begun.keys() | sent.keys()
        device = min(
            sorted(devices), key=lambda each: sum(end - start for *_, start, end in sent[each])
        )
        host = self.traced.host_of[device]
        starts = [
            start
            for each in devices
            if self.traced.host_of[each] == host
            for start in (
                *(start for start, _ in begun[each]),
                *(start for *_, start, _ in sent[each]),
            )
        ]
        lanes = _lanes(begun[device], sent[device], min(starts), lengths[step] * CLOSE)
        return MeasuredStep(step, device, lengths[step], tuple(lanes))

    def around(self) -> frozenset[str]:
        """Instructions whose events have those of others in them."""
        if self.module is None:
            return frozenset()
        return frozenset(
            name
            for computation in self.module.computations.values()
            for name, instruction in computation.instructions.items()
            if instruction.opcode in _AROUND
        )

    def busy(self) -> float:
        """Seconds of a step in which a device runs anything."""
        of_device: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for occurrences in self.traced.occurrences.values():
            for _, device, start, seconds in occurrences:
                of_device[device].append((start, start + seconds))
        total = 0.0
        for spans in of_device.values():
            spans.sort()
            reached = float("-inf")
            for start, end in spans:
                total += max(end - max(start, reached), 0.0)
                reached = max(reached, end)
        return total / self.device_steps


def _lanes(
    computed: Sequence[tuple[float, float]],
    sent: Sequence[_Sending],
    begin: float,
    close: float,
) -> Iterator[Lane]:
    """What a device computes and sends when, from the beginning of the step on."""
    compute = list(merged_spans(((start - begin, end - begin) for start, end in computed), 0.0))
    busy = sum(segment.end - segment.start for segment in compute)
    spans = ((segment.start, segment.end) for segment in compute)
    yield Lane("compute", None, busy, tuple(merged_spans(spans, close)))
    starts = [segment.start for segment in compute]
    by_axes: dict[tuple[AxisRef, ...] | None, list[Segment]] = defaultdict(list)
    times: dict[tuple[AxisRef, ...] | None, float] = defaultdict(float)
    for axes, name, start, end in sorted(sent, key=lambda each: each[2:]):
        times[axes] += end - start
        at, end = start - begin, end - begin
        # Alone but where something is computed.
        for segment in compute[max(bisect_right(starts, at) - 1, 0) : bisect_right(starts, end)]:
            first, last = max(segment.start, at), min(segment.end, end)
            if first >= last:
                continue
            if at < first:
                by_axes[axes].append(Segment(at, first, name, True))
            by_axes[axes].append(Segment(first, last, name))
            at = last
        if at < end:
            by_axes[axes].append(Segment(at, end, name, True))
    for axes in sorted(by_axes, key=lambda each: -times[each]):
        yield Lane("links", axes, times[axes], tuple(by_axes[axes]))


def _deviations(
    ops: Sequence[OpTime], collectives: Sequence[CollectiveTime]
) -> Iterator[Deviation]:
    """Ops and collectives that are alike, measured beside predicted."""
    named = {timed.name for timed in collectives}
    every: list[OpTime | CollectiveTime] = [op for op in ops if _begun(op.name) not in named]
    every += collectives
    folded = folded_names(each.scope for each in every)
    alike: dict[object, list[OpTime | CollectiveTime]] = defaultdict(list)
    for each in every:
        source = None if each.source is None else replace(each.source, column=0)
        kind = isinstance(each, CollectiveTime), _what(each), _axes_of(each)
        alike[*kind, folded[each.scope], source].append(each)
    deviations = [
        Deviation(
            _what(members[0]),
            isinstance(members[0], CollectiveTime),
            _axes_of(members[0]),
            folded[members[0].scope],
            members[0].source,
            len(members),
            sum(each.seconds for each in members),
            _sum(each.waiting if isinstance(each, CollectiveTime) else None for each in members),
            _sum(each.predicted for each in members),
        )
        for members in alike.values()
    ]
    yield from sorted(
        deviations,
        key=lambda each: (each.difference is None, -(each.difference or 0.0), -each.seconds),
    )


def _what(timed: OpTime | CollectiveTime) -> str:
    if isinstance(timed, CollectiveTime):
        return timed.kind
    return timed.primitive or timed.opcode or timed.name


def _axes_of(timed: OpTime | CollectiveTime) -> tuple[AxisRef, ...] | None:
    return timed.axes if isinstance(timed, CollectiveTime) else None


def _sum(seconds: Iterable[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    total = 0.0
    for each in seconds:
        if each is None:
            return None
        total += each
    return total


def _likeness(collective: Collective) -> object:
    """What is the same of one collective in two compiles of a program."""
    shapes = tuple(str(part.shape) for part in collective.parts)
    return collective.kind, collective.channel_id, collective.groups, shapes


def _typical(occurrences: Sequence[Occurrence], waits: Mapping[Occurrence, float]) -> float:
    """What one run takes without waiting, in the median."""
    moving = [occurrence[3] - waits.get(occurrence, 0.0) for occurrence in occurrences]
    return statistics.median(moving) if moving else 0.0


def _begun(name: str) -> str:
    """What begins what an instruction ends: ``all-gather-start.3`` of ``all-gather-done.3``."""
    return name.replace("-done", "-start", 1)


def _ended(name: str) -> str:
    return name.replace("-start", "-done", 1)


def _lines(ops: Iterable[OpTime], named: Mapping[str, CollectiveTime]) -> Iterator[LineTime]:
    by_line: dict[SourceLocation | None, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for op in ops:
        line = None if op.source is None else replace(op.source, column=0, function="")
        by_line[line][0] += op.seconds
        by_line[line][1] += op.seconds if _begun(op.name) in named else 0.0
    for line, (seconds, sent) in sorted(by_line.items(), key=lambda pair: -pair[1][0]):
        yield LineTime(line, seconds, sent)


def _scopes(ops: Sequence[OpTime], named: Mapping[str, CollectiveTime]) -> Iterator[ScopeTime]:
    folded = folded_names(op.scope for op in ops)
    by_scope: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for op in ops:
        scope = folded[op.scope]
        by_scope[scope][0] += op.seconds
        by_scope[scope][1] += op.seconds if _begun(op.name) in named else 0.0
    for scope, (seconds, sent) in sorted(by_scope.items(), key=lambda pair: -pair[1][0]):
        yield ScopeTime(scope, seconds, sent)


def _axes(times: Iterable[CollectiveTime]) -> Iterator[MeasuredAxes]:
    by_axes: dict[tuple[AxisRef, ...] | None, list[CollectiveTime]] = defaultdict(list)
    for timed in times:
        by_axes[timed.axes].append(timed)
    every = []
    for axes, members in by_axes.items():
        known = [
            timed for timed in members if timed.waiting is not None and timed.moving is not None
        ]
        moving = sum((timed.moving or 0.0 for timed in known), 0.0)
        moved = sum(timed.sent for timed in known)
        waiting = sum((timed.waiting or 0.0 for timed in known), 0.0)
        every.append(
            MeasuredAxes(
                axes,
                sum(timed.seconds for timed in members),
                waiting if len(known) == len(members) else None,
                sum(timed.sent for timed in members),
                moved / moving if moved and moving else None,
                _predicted(members),
            )
        )
    yield from sorted(every, key=lambda timed: -timed.seconds)


def _predicted(members: Sequence[CollectiveTime]) -> float | None:
    """Bytes a second by what is predicted for each of some collectives."""
    seconds = sum(timed.predicted or 0.0 for timed in members)
    known = all(timed.predicted is not None for timed in members)
    return sum(timed.sent for timed in members) / seconds if known and seconds else None


def _annotations(times: Iterable[CollectiveTime]) -> Iterator[AnnotationTime]:
    by_annotation: dict[object, tuple[OriginAnnotation, float]] = {}
    for timed in times:
        annotations = () if timed.origin is None else timed.origin.annotations
        for key, annotation in {each.key: each for each in annotations}.items():
            before = by_annotation.get(key, (annotation.written(), 0.0))
            by_annotation[key] = before[0], before[1] + timed.seconds
    for annotation, seconds in sorted(by_annotation.values(), key=lambda pair: -pair[1]):
        yield AnnotationTime(annotation, seconds)
