"""The document of `sdyscope profile`: one trace, or two beside each other."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.account import account_of
from sdyscope.analysis.cost.cost import Given, read_given
from sdyscope.analysis.profile.measured import measured
from sdyscope.errors import TargetError, one_of
from sdyscope.facts.account import Account
from sdyscope.facts.calibration import Calibration
from sdyscope.facts.measured import (
    Difference,
    Measured,
    MeasuredDifference,
    NotCompared,
    Trace,
    TracedProgram,
)
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.staged import Staged
from sdyscope.values.mesh import AxisRef, Mesh

#: What is compared in two traces: its name, and of a collective its axes and scope.
_Compared: TypeAlias = tuple[str, tuple[AxisRef, ...] | None, str]

#: So many programs of a trace are compared with the one that is named.
_TRIED = 8
#: Two traces are of different programs where less of their time is in scopes of both.
_OTHER_PROGRAM = 0.1


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """A program of the trace.

    Attributes:
        name: its name in HLO.
        module: what names it as `--module`: the name, with a number where others have it too.
        steps: how often it runs.
        seconds: what all its runs take on all devices.
    """

    name: str
    module: str
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDocument:
    """The document of `sdyscope profile --json`.

    Attributes:
        schema: name and version of this form.
        traces: files of the trace, one a host.
        programs: what ran, what took most time first.
        module: which of them is looked at.
        measured: the program that is looked at.
        before: the same of the first trace, where two are compared.
        difference: how the two differ; null where one is looked at.
        calibration: the traces whose rates predict; null where those of the hardware do, or none.
        account: what is not known of the program that was named.
    """

    schema: Literal["sdyscope.profile/1"] = "sdyscope.profile/1"
    traces: tuple[str, ...]
    programs: tuple[ProgramTime, ...]
    module: str
    measured: Measured
    before: Measured | None = None
    difference: MeasuredDifference | None = None
    calibration: Calibration | None = None
    account: Account


def profile_document(
    trace: Trace,
    program: Staged | None = None,
    partitioner: Partitioner | None = None,
    *,
    on: Hardware | None = None,
    mesh: Mesh | None = None,
    module: str | None = None,
    before: Trace | None = None,
    calibration: Calibration | None = None,
) -> ProfileDocument:
    """What a program took.

    Args:
        trace: the trace.
        program: the program that ran; None where it is not named.
        partitioner: under which it ran; by default the first of the program's under which it has
            the collectives that ran.
        on: on what, as ``Staged.compiled`` takes it; by default CPU devices.
        mesh: the mesh whose axes to name, where the program does not say.
        module: name of the program in the trace, ``NAME:2`` for the second of that name; by
            default the one with the collectives of the program that is named, or what took most
            time.
        before: another trace to compare with.
        calibration: rates of other traces that predict what this one measured.

    Raises:
        CompilerError: the program that is named can't be compiled.
        TargetError: there is no such program in a trace, or none at all.
    """
    chosen = traced_program(trace, module)
    meshes = [mesh] if mesh is not None else []
    if program is not None:
        meshes += program.meshes.values()
    modules = _modules(trace)
    given = None if calibration is None else read_given({}, {}, calibration)
    measurement = _measured(chosen, meshes, program, partitioner, on, given)
    if module is None and "other program" in measurement.unknown:
        for other in trace.programs[1:_TRIED]:
            theirs = _measured(other, meshes, program, partitioner, on, given)
            if theirs.collectives and not {"other program", "no program"} & set(theirs.unknown):
                chosen, measurement = other, theirs
                break
    earlier = None if before is None else measured(_earlier(before, module, chosen), meshes)
    return ProfileDocument(
        traces=tuple(map(str, trace.files)),
        programs=tuple(
            ProgramTime(program.name, name, program.steps, program.seconds)
            for name, program in modules.items()
        ),
        module=next(name for name, program in modules.items() if program is chosen),
        measured=measurement,
        before=earlier,
        difference=None if earlier is None else compared(earlier, measurement),
        calibration=calibration,
        account=Account() if program is None else account_of(program),
    )


def _measured(
    traced: TracedProgram,
    meshes: Sequence[Mesh],
    program: Staged | None,
    partitioner: Partitioner | None,
    on: Hardware | None,
    given: Given | None,
) -> Measured:
    """What a program took, under the partitioner that it ran under."""
    if program is None or partitioner is not None:
        return measured(traced, meshes, program, partitioner, on, given)
    every, _ = program.under_each(
        lambda under: measured(traced, meshes, program, under, on, given), on
    )
    return next((each for each in every if "other program" not in each.unknown), every[0])


def _modules(trace: Trace) -> Mapping[str, TracedProgram]:
    """The programs of a trace by what names them as ``--module``."""
    numbers: Counter[str] = Counter()
    modules = {}
    for program in trace.programs:
        numbers[program.name] += 1
        number = numbers[program.name]
        modules[program.name if number == 1 else f"{program.name}:{number}"] = program
    return modules


def traced_program(trace: Trace, module: str | None = None) -> TracedProgram:
    """A program of a trace by name; by default what took most time.

    Raises:
        TargetError: there is no such program in it, or none at all.
    """
    file = trace.files[0]
    if not trace.programs:
        raise TargetError(
            "No instruction of any program ran while this trace was made.",
            file=file,
            hint="Wait for the results inside the trace: jax.block_until_ready(step(...)).",
        )
    if module is None:
        return trace.programs[0]
    modules = _modules(trace)
    program = modules.get(module) or modules.get(f"jit_{module}")
    if program is None:
        raise TargetError(
            f"No program of this trace is called {module}.",
            file=file,
            hint=f"Name {one_of(list(modules)[:8])}.",
        )
    return program


def _earlier(before: Trace, module: str | None, chosen: TracedProgram) -> TracedProgram:
    """The program of an earlier trace: that of the same name, or else what took most time."""
    if module is None and all(program.name != chosen.name for program in before.programs):
        return traced_program(before)
    return traced_program(before, module or chosen.name)


def compared(before: Measured, after: Measured) -> MeasuredDifference:
    """Two traces beside each other."""
    totals = [
        Difference("step", _step(before), _step(after)),
        Difference("compute", before.compute, after.compute),
        Difference("collectives", before.collective, after.collective),
    ]
    not_compared: list[NotCompared] = []
    known = [each.waiting is not None for each in (before, after)]
    if all(known):
        totals.append(Difference("waiting", before.waiting, after.waiting))
    if any("no program" in each.unknown for each in (before, after)):
        noise = max(map(_noise, (before.step_seconds, after.step_seconds)))
        return MeasuredDifference(tuple(totals), (), (), (), noise, ("no program",))
    if any(known) and not all(known):
        not_compared.append("waiting")
    if _in_common(before, after) < _OTHER_PROGRAM:
        not_compared.append("other program")
    return MeasuredDifference(
        totals=tuple(totals),
        scopes=_differences(
            {(each.scope, None, ""): each.seconds for each in before.by_scope},
            {(each.scope, None, ""): each.seconds for each in after.by_scope},
        ),
        lines=_differences(_lines(before), _lines(after)),
        collectives=_differences(_collectives(before), _collectives(after)),
        noise=max(map(_noise, (before.step_seconds, after.step_seconds))),
        not_compared=tuple(not_compared),
    )


def _in_common(before: Measured, after: Measured) -> float:
    """The part of their time that is in scopes of both traces, the smaller of the two."""
    scopes = [
        {each.scope: each.seconds for each in measurement.by_scope if each.scope}
        for measurement in (before, after)
    ]
    both = scopes[0].keys() & scopes[1].keys()
    return min(
        sum(each[scope] for scope in both) / total if (total := sum(each.values())) else 1.0
        for each in scopes
    )


def _step(measurement: Measured) -> float:
    return statistics.median(measurement.step_seconds) if measurement.step_seconds else 0.0


def _noise(seconds: Iterable[float]) -> float:
    steps = list(seconds)
    middle = statistics.median(steps) if steps else 0.0
    return max((abs(step - middle) for step in steps), default=0.0) / middle if middle else 0.0


def _lines(measurement: Measured) -> Mapping[_Compared, float]:
    return {
        (f"{line.source.file}:{line.source.line}", None, ""): line.seconds
        for line in measurement.by_line
        if line.source
    }


def _collectives(measurement: Measured) -> Mapping[_Compared, float]:
    totals: dict[_Compared, float] = defaultdict(float)
    for timed in measurement.collectives:
        totals[timed.kind, timed.axes, timed.scope] += timed.seconds
    return totals


def _differences(
    before: Mapping[_Compared, float], after: Mapping[_Compared, float]
) -> tuple[Difference, ...]:
    differences = (
        Difference(name, before.get(key), after.get(key), axes, scope)
        for key in dict.fromkeys([*before, *after])
        for name, axes, scope in [key]
    )
    return tuple(sorted(differences, key=lambda difference: -abs(difference.change)))
