"""Runs a program on real devices, and judges what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdyscope.analysis.account import account_of
from sdyscope.analysis.profile.measured import measured
from sdyscope.analysis.run.blocks import compared
from sdyscope.analysis.run.inside import first_difference
from sdyscope.analysis.run.judge import judge, judge_shards
from sdyscope.analysis.run.meshes import Make, across_meshes, on_one_device
from sdyscope.analysis.run.numerics import (
    coarsest,
    other_on_one_device,
    relative_error,
    tolerance,
)
from sdyscope.analysis.run.processes import execution_of_all, reference_of_all
from sdyscope.analysis.run.reference import (
    Movement,
    Rounding,
    arguments_before,
    compared_with_one_device,
)
from sdyscope.analysis.run.training import TrainingPlan, training, training_plan
from sdyscope.analysis.run.values import MeshRun, Run
from sdyscope.errors import TargetError
from sdyscope.facts.execution import Execution, Reference, Trained
from sdyscope.facts.findings import (
    SEVERITIES,
    DependsOnMesh,
    Inside,
    NeverRan,
    NothingTold,
    Observation,
    OtherNumbers,
)
from sdyscope.facts.measured import Measured
from sdyscope.facts.program import Partitioner, Program
from sdyscope.facts.training import Training
from sdyscope.process.scratch import scratch_folder
from sdyscope.staged import Staged
from sdyscope.values.mesh import Mesh, only_mesh

if TYPE_CHECKING:
    from sdyscope.stages.executed.execute import Runner
    from sdyscope.stages.executed.processes import ProcessGroup


def ran(
    lowered: Staged,
    *,
    steps: int = 10,
    devices: Sequence[Any] | None = None,
    notify: Callable[[str, int, int], None] | None = None,
    group: ProcessGroup | None = None,
    on_mesh: Make | None = None,
    meshes: Sequence[Mapping[str, int]] = (),
    reference: Callable[..., Any] | None = None,
    profile: bool = False,
    train: bool = False,
) -> Run:
    """See ``Inspection.run``."""
    settings = (lowered, steps, devices, notify, group, on_mesh, meshes, reference, train)
    if not profile:
        return _ran(*settings, None)
    with scratch_folder() as name:
        folder = Path(name)
        run = _ran(*settings, folder)
        return replace(run, measured=tuple(_measured(run, lowered, folder)))


def _measured(run: Run, lowered: Staged, folder: Path) -> Iterator[Measured]:
    """What each op took under each partitioner that ran."""
    from sdyscope.stages.executed.traces import read_trace

    on = None if run.machine.platform == "cpu" else "devices"
    for partitioner, execution in run.executions.items():
        if execution.failure or not (folder / partitioner).exists():
            continue
        trace = read_trace(folder / partitioner)
        if trace.programs:
            meshes = lowered.meshes.values()
            yield measured(trace.programs[0], meshes, lowered, partitioner, on)


def _ran(
    lowered: Staged,
    steps: int,
    devices: Sequence[Any] | None,
    notify: Callable[[str, int, int], None] | None,
    group: ProcessGroup | None,
    on_mesh: Make | None,
    meshes: Sequence[Mapping[str, int]],
    reference: Callable[..., Any] | None,
    train: bool,
    traces: Path | None,
) -> Run:
    from sdyscope.stages.executed.execute import Runner
    from sdyscope.stages.executed.processes import ALONE

    if lowered.program is None:
        lowered.chosen(None)  # Of a compiled program that raises, with a better reason.
        raise TargetError(
            f"{lowered.name} is a module without input values.",
            hint="Name the program that it was lowered from.",
        )
    group, program = group or ALONE, lowered.program
    if meshes and on_mesh is None:
        raise TargetError("The program cannot be built on another mesh.")
    if meshes and group.count > 1:
        raise TargetError(
            "Several meshes are compared in one process.", hint="Leave --processes or --meshes out."
        )
    if train and group.count > 1:
        raise TargetError(
            "Steps of training are compared in one process.",
            hint="Leave --processes or --train out.",
        )
    plan = None
    if train:
        under = lowered.chosen(None)
        plan = training_plan(lowered.name, lowered.tensors, (under, lowered.graph(under)))
    mesh = only_mesh(lowered.meshes.values())
    runner = group.together(
        lambda: Runner(
            program,
            lowered.traced,
            lowered.lowered,
            devices,
            steps,
            notify,
            group,
            _on_one_device(on_mesh, mesh),
            reference,
            traces=traces,
        ),
        "made its inputs",
    )
    runner.check_same()
    before = arguments_before(lowered, runner)
    rounding = Rounding(runner, lowered.tensors, before)
    # What is wrong with the user's function is said before anything is compiled.
    given = replace(runner.reference(), before=before) if reference is not None else None
    executions = [runner.run(partitioner) for partitioner in lowered.partitioners]

    def against(reference: Reference) -> tuple[Reference, Run]:
        mine = [compared(execution, reference) for execution in executions]
        bare = replace(reference, outputs=(), before=(), alone=(), jumps=())
        answers = group.all_of(
            (mine, bare), "compared its results", tuple[list[Execution], Reference]
        )
        return reference, judge(
            lowered.name,
            runner.machine,
            runner.inputs,
            lowered.tensors,
            [execution_of_all(parts) for parts in zip(*(own for own, _ in answers), strict=True)],
            reference_of_all([answer for _, answer in answers]),
        )

    def with_one_device(moved: Movement) -> tuple[Reference, Run]:
        reference = given or replace(runner.reference(), before=before)
        reference = replace(reference, moved=moved.norms, jumps=moved.jumps)
        return against(_beside_alone(reference, lowered))

    compared_with, judged = compared_with_one_device(
        rounding,
        with_one_device,
        lambda outcome: _differing(outcome[1]),
        is_own=given is None,
    )
    findings = [*_located(judged, lowered, runner, executions), *_never_ran(judged, runner)]
    if meshes:
        assert on_mesh is not None
        # What agrees on its own mesh may be noise that does not on others.
        moved = compared_with.moved or rounding.norms()
        compared_with = replace(compared_with, moved=moved)
        rows, more = across_meshes(
            runner, executions, mesh, on_mesh, meshes, compared_with, lowered.tensors
        )
        # The mesh of one device is one of them.
        findings = [finding for finding in findings if finding.rule != "depends-on-mesh"]
        judged = replace(judged, meshes=rows)
        findings = [*more, *findings, *_noise_elsewhere(rows, findings)]
    if plan is not None:
        of_training, more_of_it = _trained(plan, steps, lowered, runner, executions)
        judged = replace(judged, training=of_training)
        findings = [*more_of_it, *findings]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return replace(judged, findings=tuple(findings), account=account_of(lowered))


def _never_ran(run: Run, runner: Runner) -> Iterator[Observation]:
    """Loops and branches that did not run, where results agree."""
    from sdyscope.stages.executed.turns import idle_parts

    if _differing(run) != 0 or not any(run.numerics.values()):
        return
    idle = idle_parts(runner)
    if idle.loops or idle.branches:
        fact = NeverRan(idle.loops, idle.branches, idle.is_known)
        yield Observation("not-compared", "note", fact)


def _noise_elsewhere(
    rows: Sequence[MeshRun], findings: Sequence[Observation]
) -> Iterator[Observation]:
    """Results that are noise on other meshes, and of which that is not said already."""
    facts = [finding.fact for finding in findings]
    known = {path for fact in facts if isinstance(fact, NothingTold) for path in fact.noise}
    every = (compared.noise for row in rows for compared in row.compared.values())
    noise = [path for path in dict.fromkeys(chain.from_iterable(every)) if path not in known]
    if noise:
        yield Observation("not-compared", "note", NothingTold((), (), tuple(noise)))


def _differing(run: Run) -> int | None:
    """How many results differ from the reference, and how many that from a mesh of one device."""
    if run.reference.failure:
        return None
    errors = chain.from_iterable(run.numerics.values())
    return sum(not error.within for error in errors) + len(run.reference.others)


def _trained(
    plan: TrainingPlan,
    steps: int,
    lowered: Staged,
    runner: Runner,
    executions: Sequence[Execution],
) -> tuple[Training, list[Observation]]:
    """Steps in a row under each partitioner under which the program runs, and on one device."""
    from sdyscope.stages.executed.training import trained, trained_on_one

    watched = [row.index or 0 for row in plan.watched]
    under = [
        trained(runner, execution.partitioner, plan.carried, watched, steps)
        for execution in executions
        if not execution.failure
    ]
    alone = trained_on_one(runner, plan.carried, watched, steps)

    def shards(trainee: Trained) -> tuple[int, int, int, list[Observation]]:
        assert trainee.partitioner is not None
        return judge_shards(lowered.tensors, trainee.partitioner, trainee.arrays, runner.machine)

    return training(plan, steps, under, alone, runner.compute_dtypes, shards)


def _on_one_device(on_mesh: Make | None, mesh: Mesh | None) -> Callable[[], Program] | None:
    """Makes the program on a mesh of one device; None where there is no mesh to name."""
    if on_mesh is None or mesh is None:
        return None
    return lambda: on_mesh(on_one_device([*mesh.shape]).shape)


def _located(
    run: Run, lowered: Staged, runner: Runner, executions: Sequence[Execution]
) -> list[Observation]:
    """What was found, with the first value inside that differs, where results do."""
    search = _Inside(run, runner, executions, lowered)
    findings = []
    for finding in run.findings:
        if isinstance(finding.fact, OtherNumbers):
            fact = replace(
                finding.fact, inside=search.of_numbers(finding.fact, finding.partitioner)
            )
            finding = replace(finding, fact=fact)
        elif isinstance(finding.fact, DependsOnMesh) and finding.severity == "error":
            # A note is of what may well depend on how blocks are cut: that is not worth a search.
            finding = replace(
                finding, fact=replace(finding.fact, inside=search.of_one_device(finding.fact))
            )
        findings.append(finding)
    return findings


class _Inside:
    """Looks for the first value that differs, with what a result is compared with."""

    def __init__(
        self, run: Run, runner: Runner, executions: Sequence[Execution], lowered: Staged
    ) -> None:
        self._run, self._runner, self._executions = run, runner, executions
        self._lowered = lowered
        self._searched: dict[tuple[str, str], Inside | None] = {}
        self._results = {
            row.path: (row.index or 0, row.dtype)
            for row in lowered.tensors.tensors
            if row.kind == "result"
        }

    def of_numbers(self, fact: OtherNumbers, partitioner: Partitioner | None) -> Inside | None:
        """Of a result that is not what one device, or the user's function, computes."""
        if partitioner is None or fact.by_change:
            return None  # Where values begin to differ is told by all of each.
        # What both partitioners compute alike is looked for once.
        key = fact.worst, f"{fact.error:.2g}"
        if key not in self._searched:
            self._searched[key] = self._of_numbers(fact, partitioner)
        return self._searched[key]

    def _of_numbers(self, fact: OtherNumbers, partitioner: Partitioner) -> Inside | None:
        if not self._run.reference.function:
            return self._search(fact.worst, partitioner, None)
        if self._runner.group.count > 1:
            return Inside(fact.worst, why="processes")
        # The function has other ops. The program's own on one device may differ as well.
        own = _beside_alone(self._runner.own_reference(), self._lowered)
        index, dtype = self._results[fact.worst]
        execution = next(
            execution for execution in self._executions if execution.partitioner == partitioner
        )
        blocks = execution.outputs[index] if execution.outputs else None
        if own.outputs and blocks is not None and own.outputs[index] is not None:
            error = relative_error(blocks[0].values, own.outputs[index])
            if error > tolerance(coarsest(dtype, own.compute_dtypes)):
                return self._search(fact.worst, partitioner, None)
        if any(other.index == index for other in own.others):
            return self._search(fact.worst, partitioner, self._runner.traced_alone)
        return Inside(fact.worst, why="other structure")

    def of_one_device(self, fact: DependsOnMesh) -> Inside | None:
        """Of a result that the program computes otherwise on a mesh of one device."""
        if fact.by_change:
            return None
        ran = (execution.partitioner for execution in self._executions if not execution.failure)
        partitioner = next(ran, None)
        if partitioner is None:
            return None
        return self._search(fact.result, partitioner, self._runner.traced_alone)

    def _search(
        self, result: str, partitioner: Partitioner, alone: Callable[[], Any] | None
    ) -> Inside | None:
        from sdyscope.stages.executed.inside import Insides

        if result not in self._results:
            return None
        if self._runner.group.count > 1:
            return Inside(result, why="processes")
        self._runner.notify("looking inside", 0, 1)
        index, _ = self._results[result]
        mesh = self._run.mesh
        return first_difference(
            Insides(self._runner, partitioner, None if alone is None else alone()),
            index,
            result,
            self._run.reference.compute_dtypes,
            mesh,
            None if alone is None or mesh is None else on_one_device([*mesh.shape]),
        )


def _beside_alone(reference: Reference, lowered: Staged) -> Reference:
    """What is computed with the bodies of shard_maps, beside what a mesh of one device computes."""
    if not reference.alone:
        return reference
    dtypes = {row.index: row.dtype for row in lowered.tensors.tensors if row.kind == "result"}
    pairs = enumerate(zip(reference.outputs, reference.alone, strict=True))
    apart = (
        other_on_one_device(
            index,
            here,
            alone,
            dtypes[index],
            reference.compute_dtypes,
            reference.before_result(index),
            reference.moved_result(index),
        )
        for index, (here, alone) in pairs
        if here is not None and alone is not None and index in dtypes
    )
    others = [other for other in apart if other is not None]
    return replace(
        reference,
        others=tuple(other for other in others if not other.is_noise),
        noise=tuple(other.index for other in others if other.is_noise),
    )
