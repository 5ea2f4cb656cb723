"""What a step costs at least: the time of every collective, of arithmetic and of memory.

An estimate from documented models and figures (``docs/cost.md``), never a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.account import collectives_unknowns
from sdyscope.analysis.collectives.comms import collectives_under, predicted_collectives
from sdyscope.analysis.collectives.slices import collectives_of
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.cost.beside import work_beside
from sdyscope.analysis.cost.links import Level, axes_levels, flat_level
from sdyscope.analysis.cost.lookups import looked_up
from sdyscope.analysis.cost.pipelines import pipelines
from sdyscope.analysis.cost.roofline import Arithmetic, MemoryTraffic, Roof, arithmetic, memory
from sdyscope.analysis.cost.time import group_seconds
from sdyscope.analysis.cost.work import WorkCount, count_work
from sdyscope.analysis.memory.memory import Group, memory_of
from sdyscope.analysis.memory.predicted import predicted_memory
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.calibration import Calibration, ComputeRates
from sdyscope.facts.compiled import Compiled, OfCompiled
from sdyscope.facts.cost import ArgumentCost, LevelName, Pipeline
from sdyscope.facts.over_time import PHASES, Phase
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.facts.work import Work
from sdyscope.formatters import Summarized, in_place
from sdyscope.graph import OpGraph
from sdyscope.hardware.names import Hardware
from sdyscope.hardware.rates import parse_bandwidth, parse_latency
from sdyscope.hardware.specs import (
    Chip,
    EstimateError,
    chip_of,
    chips,
    estimate_errors,
    measured_rates,
)
from sdyscope.hlo import HloModule
from sdyscope.staged import Staged
from sdyscope.values.mesh import AxisRef, Mesh

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says about mesh axes, in place of the table of hardware.

    Attributes:
        bandwidths: bytes a second that a device sends over an axis, by axis.
        latencies: seconds a hop, by axis.
        fitted: the axes whose rates were not given, but fitted to measured runs.
        compute: rates of arithmetic and memory that were fitted; None where none were.
        stretch: how many times as long as its schedule a step takes; None where that is not known.
        measured: whether the rates of arithmetic and memory are those that the table of hardware
            has of such a device, and not of traces.
    """

    bandwidths: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, float] = field(default_factory=dict)
    fitted: frozenset[str] = frozenset()
    compute: ComputeRates | None = None
    stretch: float | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """A collective and its time.

    Attributes:
        collective: the collective.
        levels: what its group is connected by, from the inside out; None where it is not known.
        each: seconds of one run; None where a bandwidth is not known.
        seconds: seconds in a step; None likewise.
    """

    collective: Collective
    levels: tuple[Level, ...] | None
    each: float | None

    __document__ = ("collective", "levels", "each", "seconds")

    @property
    def seconds(self) -> float | None:
        """Seconds in a step."""
        return None if self.each is None else self.each * self.collective.count

    def of_part(self, part: Part) -> float | None:
        """Seconds in a step for one of its tensors, by its share of the bytes."""
        if self.seconds is None:
            return None
        whole = self.collective.bytes
        return self.seconds * (part.bytes / whole if whole else 1 / len(self.collective.parts))


@dataclass(frozen=True, slots=True)
class TimeTally:
    """Some collectives taken together.

    Attributes:
        count: how many a step runs.
        tensors: of how many tensors.
        sent: bytes that a device sends for them in a step.
        seconds: of those whose time is known.
        unknown: how many of the tensors have no known time.
    """

    count: int = 0
    tensors: int = 0
    sent: int = 0
    seconds: float = 0.0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class AxesTime:
    """Those over the same axes.

    Attributes:
        axes: the mesh axes; None where no set of axes has their groups.
        time: what they come to.
    """

    axes: tuple[AxisRef, ...] | None
    time: TimeTally


@dataclass(frozen=True, slots=True)
class KindAxesTime:
    """Those of one kind over the same axes.

    Attributes:
        kind: HLO's opcode.
        axes: the mesh axes; None where no set of axes has their groups.
        time: what they come to.
    """

    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    time: TimeTally


@dataclass(frozen=True, repr=False, kw_only=True)
class Cost(OfCompiled, Summarized):
    """What a step costs.

    Attributes:
        compiled: the program.
        predicted: whether nothing was compiled: collectives are those of Shardy's reshards,
            operations those of matmuls by the shapes of their blocks, and memory is what it takes
            to read the arguments once.
        partitioner: under which it was compiled; None for a compiled program's text.
        hardware: what it was compiled for, such as `tpu:v5e:4x4`; None likewise.
        device_kind: what the compiler calls such a device; empty likewise.
        devices: how many devices run the program.
        chip: what the table of hardware knows of the device; None where it does not have it.
        mesh: the mesh whose axes are named; None where none fits.
        given: what the user said.
        differentiated: whether the program has a backward pass.
        limit: what is busy the longest; None where that is not known of anything that is busy.
        roofs: how long each resource is busy, the longest first and the unknown last; mesh axes of
            size 1 are left out.
        overlapped: seconds of a step in which everything goes on at the same time.
        sequential: seconds of a step in which nothing is computed while something is sent.
        collectives: each of them with its time, in the order of the text; in a document the longest
            first.
        counted: the collectives as they were read.
        work: what a device computes and moves, counted from the program.
        compute: the time of computing.
        memory: the time of reading and writing.
        arguments: what of it each top-level argument takes at least, which is read once; the most
            first, and none where the program's text does not say how it stores them.
        communication: all collectives, one after the other.
        pipelines: loops that hand values on along a mesh axis, as a pipeline does.
        by_axes: times by mesh axes, longest first.
        by_kind_and_axes: times by kind and axes, longest first.
        by_phase: times of the forward and the backward pass, and of the rest.
        by_scope: times by scope, longest first.
        not_understood_count: lines of HLO that could not be read.
        axes: for each mesh axis what its devices are connected by; None where it is not known.
        step: seconds of a step in the order of the compiled program, by rates that were fitted or
            measured, and as much longer as measured steps were; None where none were.
        notes: what else is worth knowing.
    """

    compiled: Compiled
    chip: Chip | None
    mesh: Mesh | None
    given: Given
    step: float | None = None
    compute: Arithmetic
    memory: MemoryTraffic
    arguments: tuple[ArgumentCost, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    collectives: tuple[CollectiveCost, ...]
    work: WorkCount
    counted: Collectives
    axes: Mapping[str, tuple[Level, ...] | None]

    __document__ = in_place(
        compiled=("predicted", "partitioner", "hardware", "device_kind", "devices"),
        given=("differentiated", "limit", "roofs", "overlapped", "sequential"),
        pipelines=(
            *("communication", "pipelines", "by_axes", "by_kind_and_axes", "by_phase", "by_scope"),
        ),
        counted=("not_understood_count", "notes"),
        axes=(),
    )

    @property
    def predicted(self) -> bool:
        """Whether nothing was compiled."""
        return self.counted.predicted

    @property
    def differentiated(self) -> bool:
        """Whether it has a backward pass."""
        return self.counted.differentiated

    @property
    def not_understood_count(self) -> int:
        """How many lines of HLO could not be read."""
        return self.counted.not_understood_count

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What else is worth knowing."""
        if not self.predicted:
            return self.compiled.notes
        predicted = (note for note in self.counted.notes if isinstance(note, Remark))
        return (*self.compiled.notes, *predicted)

    @cached_property
    def communication(self) -> TimeTally:
        """All collectives, one after the other."""
        return self.tallied(lambda *_: None).get(None, TimeTally())

    @cached_property
    def by_axes(self) -> tuple[AxesTime, ...]:
        """By the axes that they run over, longest first."""
        times = _longest_first(self.tallied(lambda collective, _: collective.axes))
        return tuple(AxesTime(axes, time) for axes, time in times.items())

    @cached_property
    def by_kind_and_axes(self) -> tuple[KindAxesTime, ...]:
        """By kind and axes, longest first."""
        times = _longest_first(
            self.tallied(lambda collective, _: (collective.kind, collective.axes))
        )
        return tuple(KindAxesTime(*key, time) for key, time in times.items())

    @cached_property
    def by_phase(self) -> dict[Phase, TimeTally]:
        """By pass."""
        times = self.tallied(lambda _, part: part.phase)
        return {phase: times[phase] for phase in PHASES if phase in times}

    @cached_property
    def by_scope(self) -> dict[str, TimeTally]:
        """By scope, longest first; what has none is under the empty one."""
        return _longest_first(self.tallied(lambda _, part: part.scope))

    def tallied(self, key: Callable[[Collective, Part], _Key]) -> dict[_Key, TimeTally]:
        """Times by any key of a collective and one of its tensors, in the order of the text."""
        totals: dict[_Key, TimeTally] = {}
        for timed in sorted(self.collectives, key=lambda collective: collective.collective.line):
            collective = timed.collective
            for part in collective.parts:
                name = key(collective, part)
                before = totals.get(name, TimeTally())
                times = collective.count
                seconds = timed.of_part(part)
                totals[name] = TimeTally(
                    before.count + times * (part is collective.largest),
                    before.tensors + times,
                    before.sent + times * part.sent,
                    before.seconds + (seconds or 0.0),
                    before.unknown + times * (seconds is None),
                )
        return totals

    @cached_property
    def roofs(self) -> tuple[Roof, ...]:
        """How long each resource is busy, the longest first and the unknown last.

        A mesh axis is busy with every collective that runs over it or a part of it, whatever other
        axes this one runs over. Nothing is sent along an axis of size 1.
        """
        roofs = [
            Roof("compute", "", 1, self.compute.seconds),
            Roof("memory", "", 1, self.memory.seconds),
        ]
        for name, size in ({} if self.mesh is None else self.mesh.shape).items():
            if size == 1:
                continue
            over = [
                collective
                for collective in self.collectives
                if any(ref.name == name for ref in collective.collective.axes or ())
            ]
            known = [collective.seconds for collective in over if collective.seconds is not None]
            seconds = sum(known) if known or not over else None
            roofs.append(Roof("axis", name, size, seconds, self.axes[name]))
        return tuple(sorted(roofs, key=lambda roof: (roof.seconds is None, -(roof.seconds or 0.0))))

    @property
    def limit(self) -> Roof | None:
        """What is busy the longest; None where that is not known of anything that is busy."""
        longest, *others = self.roofs
        # An idle axis does not limit a step whose other times are unknown.
        if longest.seconds or all(roof.seconds is not None for roof in (longest, *others)):
            return longest
        return None

    @property
    def overlapped(self) -> float | None:
        """Seconds of a step in which everything goes on at the same time."""
        return None if self.limit is None else self.limit.seconds

    @property
    def sequential(self) -> float | None:
        """Seconds of a step in which nothing is computed while something is sent."""
        work = [
            seconds
            for seconds in (self.compute.seconds, self.memory.seconds)
            if seconds is not None
        ]
        sent = self.communication
        if not work and sent.unknown == sent.tensors:
            return None
        return max(work, default=0.0) + sent.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CostDocument:
    """The document of `sdyscope cost --json`: an estimate, no measurement.

    Attributes:
        schema: name and version of this form.
        estimate: what kind of numbers these are.
        name: the program's name, or the module's.
        programs: one a partitioner.
        calibration: the traces that rates were fitted to; null where they are of the table of
            hardware, or given.
        errors: how far such estimates are known to be off, by what they are of; empty where none
            was compared with a run.
        account: what is not known.
        compiled_by: the JAX that compiled it, such as `JAX 0.10.2`; null for a file of HLO, and for
            a prediction.
    """

    schema: Literal["sdyscope.cost/2"] = "sdyscope.cost/2"
    estimate: Remark = field(default_factory=lambda: Remark("estimate"))
    name: str
    programs: tuple[Cost, ...]
    calibration: Calibration | None = None
    errors: tuple[EstimateError, ...] = ()
    account: Account
    compiled_by: str | None = None


def cost_document(
    program: Staged,
    on: Hardware | str | None = None,
    bandwidths: Mapping[str, str | float] | None = None,
    latencies: Mapping[str, str | float] | None = None,
    calibration: Calibration | None = None,
) -> CostDocument:
    """Compiles a program under each of its partitioners, and estimates what a step costs.

    Args:
        program: the program.
        on: what to compile for, as ``Staged.compiled`` takes it.
        bandwidths: as ``cost_of`` takes them.
        latencies: likewise.
        calibration: likewise.

    Raises:
        CompilerError: it can't be compiled under any of them.
        TargetError: it can't be compiled for this hardware, or has no such mesh axis.
    """
    costs, _ = program.under_each(
        lambda partitioner: cost_of(program, partitioner, on, bandwidths, latencies, calibration),
        on,
    )
    unknowns = Account.of(
        unknown for program_cost in costs for unknown in collectives_unknowns(program_cost.counted)
    )
    by_rates = any(program_cost.given.compute is not None for program_cost in costs)
    return CostDocument(
        estimate=Remark("estimate by rates" if by_rates else "estimate"),
        name=program.name,
        programs=tuple(
            replace(
                program_cost,
                collectives=tuple(
                    sorted(
                        program_cost.collectives,
                        key=lambda collective: -(collective.seconds or 0.0),
                    )
                ),
            )
            for program_cost in costs
        ),
        calibration=calibration,
        errors=_errors(costs[0].device_kind, calibration),
        account=account_of(program) + unknowns,
        compiled_by=program.compiler_of(program.compiled(costs[0].partitioner, on)),
    )


def cost_of(
    program: Staged,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
    bandwidths: Mapping[str, str | float] | None = None,
    latencies: Mapping[str, str | float] | None = None,
    calibration: Calibration | None = None,
    *,
    scopes: bool = True,
) -> Cost:
    """What a step of a program costs; see ``Inspection.cost``.

    Args:
        program: the program.
        partitioner: under which; by default the first there is.
        on: what to compile for.
        bandwidths: given rates.
        latencies: given latencies.
        calibration: measured rates.
        scopes: whether each scope's part is asked for: XLA can name a collective after another op
            than the one that needs it, which its origins tell.
    """
    given = read_given(bandwidths or {}, latencies or {}, calibration)
    meshes = program.meshes.values()
    check_given(given, meshes)
    compiled = program.compiled(partitioner, on)
    read = compiled.module, collectives_under(program, partitioner, on, origins=scopes)
    step = cost(compiled, meshes, given, read)
    return replace(step, arguments=_arguments(program, partitioner, on, step.memory.bandwidth))


def _arguments(
    program: Staged,
    partitioner: Partitioner | None,
    on: Hardware | str | None,
    bandwidth: float | None,
) -> tuple[ArgumentCost, ...]:
    """What reading each of the arguments in the device's memory takes at least."""
    try:
        held = memory_of(program, partitioner, on).groups
    except CompilerError:  # The text does not say how it stores its parameters.
        return ()
    return _read_once(held, bandwidth)


def _read_once(held: Iterable[Group], bandwidth: float | None) -> tuple[ArgumentCost, ...]:
    """What it takes to read each argument in the device's memory once."""
    arguments = (
        ArgumentCost(
            group.name,
            group.tensors,
            group.stored,
            None if bandwidth is None else group.stored / bandwidth,
        )
        for group in held
        if group.kind == "argument" and group.memory == "device"
    )
    return tuple(sorted(arguments, key=lambda argument: -argument.bytes))


def _looked_up(graph: OpGraph) -> tuple[Remark, ...]:
    """That not all of some arguments is read, where they are counted whole."""
    names = looked_up(graph)
    return (Remark("looked up", names=tuple((name, 0) for name in names)),) if names else ()


def predicted_cost_document(
    program: Staged,
    on: Hardware | None = None,
    bandwidths: Mapping[str, str | float] | None = None,
    latencies: Mapping[str, str | float] | None = None,
    calibration: Calibration | None = None,
) -> CostDocument:
    """Estimates what a step costs by propagation alone; nothing is compiled.

    Args:
        program: a program that is lowered for Shardy.
        on: hardware whose chip's figures to take; where its devices stand is not known without
            its compiler, so that axes need a bandwidth.
        bandwidths: as ``cost_of`` takes them.
        latencies: likewise.
        calibration: likewise.

    Raises:
        CompilerError: the module can't be propagated.
        TargetError: it has no such mesh axis.
    """
    given = read_given(bandwidths or {}, latencies or {}, calibration)
    check_given(given, program.meshes.values())
    prediction = predicted_collectives(program)
    counted, mesh = prediction.collectives, prediction.collectives.mesh
    chip = chips().get(on.chip) if on is not None and on.chip else None
    compiled = Compiled(
        name=program.name,
        partitioner=counted.partitioner,
        hardware=on,
        devices=counted.devices,
        device_kind="" if chip is None else chip.name,
        hlo="",
        notes=_looked_up(program.graph("shardy")),
    )
    linker = _Linker(compiled, chip, mesh, given)
    held = predicted_memory(program, counted.partitioner).groups
    read = sum(group.stored for group in held if group.kind == "argument")
    flow = prediction.control_flow
    counts = flow.loops, flow.unknown_trips, flow.conditionals
    work = WorkCount(Work(), Work(other=prediction.flops, bytes=read), *counts, {}, {})
    devices_a_chip = 1 if chip is None else chip.devices
    reading = memory(work, None, chip, devices_a_chip, given.compute)
    program_cost = Cost(
        compiled=compiled,
        chip=chip,
        mesh=mesh,
        given=given,
        collectives=tuple(linker.timed(collective) for collective in counted.collectives),
        counted=counted,
        work=work,
        compute=arithmetic(work, None, chip, devices_a_chip, _of_matmuls(given.compute)),
        memory=reading,
        axes=linker.by_axis,
        arguments=_read_once(held, reading.bandwidth),
    )
    longest = sorted(program_cost.collectives, key=lambda timed: -(timed.seconds or 0.0))
    return CostDocument(
        name=program.name,
        programs=(replace(program_cost, collectives=tuple(longest)),),
        calibration=calibration,
        errors=_errors(program_cost.device_kind, calibration),
        account=account_of(program) + Account.of(collectives_unknowns(counted)),
    )


def _errors(device_kind: str, calibration: Calibration | None) -> tuple[EstimateError, ...]:
    return estimate_errors(device_kind) if calibration is None else calibration.errors


def _of_matmuls(fitted: ComputeRates | None) -> ComputeRates | None:
    """Rates for arithmetic that is all in matmuls of types that are not known."""
    if fitted is None:
        return None
    return replace(fitted, other=min(fitted.matmuls.values(), default=fitted.other))


def read_given(
    bandwidths: Mapping[str, str | float],
    latencies: Mapping[str, str | float],
    calibration: Calibration | None = None,
) -> Given:
    """What the user says, as numbers or as text such as ``90GB/s`` and ``1us``.

    What is given for an axis takes the place of what was fitted.

    Raises:
        TargetError: a text is no bandwidth or no latency.
    """
    fitted = [
        rate
        for rate in (() if calibration is None else calibration.rates)
        if rate.axis not in bandwidths
    ]
    return Given(
        {rate.axis: rate.bandwidth or math.inf for rate in fitted}
        | {k: parse_bandwidth(v) if isinstance(v, str) else v for k, v in bandwidths.items()},
        {rate.axis: rate.latency for rate in fitted}
        | {k: parse_latency(v) if isinstance(v, str) else v for k, v in latencies.items()},
        frozenset(rate.axis for rate in fitted),
        None if calibration is None else calibration.compute,
        None if calibration is None else calibration.stretch,
    )


def check_given(given: Given, meshes: Iterable[Mesh]) -> None:
    """Checks that what the user says is said of axes that there are.

    Raises:
        TargetError: there is no such axis.
    """
    axes = list(dict.fromkeys(name for mesh in meshes for name in mesh.shape))
    for name in (*given.bandwidths, *given.latencies):
        if name not in axes:
            has = f"the axes {', '.join(axes)}" if axes else "no mesh that is known"
            raise TargetError(f"The program has {has}, so nothing can run over {name!r}.")


def _with_measured(given: Given, device_kind: str) -> Given:
    """What was given, with the rates of programs that ran on such a device in place of peaks."""
    rates = dict(measured_rates(device_kind))
    if given.compute is not None or not rates:
        return given
    stretch = rates.pop("stretch")
    return replace(given, compute=ComputeRates(**rates), stretch=stretch, measured=True)


def cost(
    compiled: Compiled,
    meshes: Iterable[Mesh],
    given: Given | None = None,
    read: tuple[HloModule, Collectives] | None = None,
) -> Cost:
    """What a step of a compiled program costs.

    Args:
        compiled: the program.
        meshes: its meshes, of which the axes are named of one that fits.
        given: bandwidths and latencies of mesh axes, where the user knows better.
        read: its text and its collectives, where they were read before.

    Raises:
        TargetError: a bandwidth is given for an axis that the mesh does not have; or none is given
            for a compiled program's text, which does not say what it was compiled for.
    """
    given = given or Given()
    if compiled.is_text and not given.bandwidths and given.compute is None:
        raise TargetError(
            f"{compiled.path} is a compiled program, which does not say what it was compiled for.",
            hint="Give --bandwidth and --mesh, or name the program itself; `sdyscope comms` shows "
            "what it sends.",
        )
    chip = chip_of(compiled.device_kind)
    given = _with_measured(given, compiled.device_kind)
    topology = compiled.topology
    if read is None:
        module = compiled.module
        read = module, collectives_of(compiled, module, meshes)
    module, counted = read
    mesh = counted.mesh
    check_given(given, () if mesh is None else (mesh,))
    linker = _Linker(compiled, chip, mesh, given)
    work = count_work(module)
    timed = [linker.timed(collective) for collective in counted.collectives]
    if given.compute is not None and given.compute.beside:
        timed = _lengthened(timed, module, given.compute)
    by_xla = compiled.cost or {}
    devices_a_chip = 1 if topology is None else topology.size("core")
    return Cost(
        compiled=compiled,
        chip=chip,
        mesh=mesh,
        given=given,
        collectives=tuple(timed),
        counted=counted,
        work=work,
        compute=arithmetic(work, by_xla.get("flops"), chip, devices_a_chip, given.compute),
        memory=memory(work, by_xla.get("bytes accessed"), chip, devices_a_chip, given.compute),
        axes=linker.by_axis,
        pipelines=pipelines(module, mesh),
    )


def _lengthened(
    timed: Iterable[CollectiveCost], module: HloModule, rates: ComputeRates
) -> list[CollectiveCost]:
    """Collectives with what other devices compute meanwhile on the cores that they share."""
    by_name = {each.collective.name: each for each in timed}
    beside = work_beside(module, by_name)
    return [
        cost
        if cost.each is None
        else replace(cost, each=cost.each + rates.of_beside(beside.get(name, ())))
        for name, cost in by_name.items()
    ]


class _Linker:
    """What groups of devices along mesh axes are connected by."""

    def __init__(
        self, compiled: Compiled, chip: Chip | None, mesh: Mesh | None, given: Given
    ) -> None:
        self.topology, self.chip, self.mesh, self.given = compiled.topology, chip, mesh, given
        self.known: dict[tuple[AxisRef, ...], tuple[Level, ...] | None] = {}

    def timed(self, collective: Collective) -> CollectiveCost:
        """A collective with its time."""
        levels = self.levels(collective.axes)
        return CollectiveCost(
            collective,
            levels,
            None
            if levels is None
            else group_seconds(collective.kind, collective.bytes, levels, self.chip),
        )

    @property
    def by_axis(self) -> dict[str, tuple[Level, ...] | None]:
        """The levels of each mesh axis alone."""
        axes = () if self.mesh is None else self.mesh.axes
        return {axis.name: self.levels((AxisRef(axis.name),)) for axis in axes}

    def levels(self, axes: tuple[AxisRef, ...] | None) -> tuple[Level, ...] | None:
        """The levels, from the inside out; None where they are not known."""
        if axes is None or self.mesh is None:
            return None
        if axes not in self.known:
            self.known[axes] = self._levels(axes, self.mesh)
        return self.known[axes]

    def _levels(self, axes: tuple[AxisRef, ...], mesh: Mesh) -> tuple[Level, ...] | None:
        if not any(ref.name in self.given.bandwidths for ref in axes):
            hardware_levels = self._of_hardware(axes, mesh)
            return None if hardware_levels is None else self._with_latency(hardware_levels, axes)
        # One axis after the other, the last of the mesh inside.
        levels: list[Level] = []
        for ref in reversed(axes):
            latency = self.given.latencies.get(ref.name)
            if ref.name in self.given.bandwidths:
                bandwidth = self.given.bandwidths[ref.name]
                how: LevelName = "fitted" if ref.name in self.given.fitted else "given"
                levels.append(flat_level(mesh.axis_size(ref), bandwidth, latency, how))
                continue
            hardware_levels = self._of_hardware((ref,), mesh)
            if hardware_levels is None:
                return None
            levels += self._with_latency(hardware_levels, (ref,))
        return tuple(level for level in levels if level.size > 1)

    def _of_hardware(self, axes: tuple[AxisRef, ...], mesh: Mesh) -> tuple[Level, ...] | None:
        if all(mesh.axis_size(ref) == 1 for ref in axes):
            return ()
        if self.topology is None or self.chip is None or self.topology.num_devices != mesh.size:
            return None
        return axes_levels(axes, mesh, self.topology, self.chip)

    def _with_latency(
        self, levels: tuple[Level, ...], axes: tuple[AxisRef, ...]
    ) -> tuple[Level, ...]:
        """With the longest latency that is given for one of the axes."""
        latencies = [
            self.given.latencies[ref.name] for ref in axes if ref.name in self.given.latencies
        ]
        if not latencies:
            return levels
        return tuple(Level(level.name, level.spans, max(latencies)) for level in levels)


def _longest_first(tallies: dict[_Key, TimeTally]) -> dict[_Key, TimeTally]:
    """Sorted by time; by bytes where that is not known."""
    return dict(sorted(tallies.items(), key=lambda item: (-item[1].seconds, -item[1].sent)))
