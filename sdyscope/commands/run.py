"""`sdyscope run`."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from sdyscope.commands import mesh_choice, opening, options
from sdyscope.commands.command_help import Command
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner, Program
from sdyscope.hardware.names import Devices
from sdyscope.process import child, child_wire, launch

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection
    from sdyscope.stages.executed.processes import ProcessGroup

#: How a word begins that is a mesh: `data=4`.
_MESH = re.compile(r"[^=\s-][^=\s]*=-?[0-9]")

#: Seconds that processes may take for one thing, unless --timeout says otherwise.
TIMEOUT = 300.0


class _Processes(click.ParamType[int | str]):
    """A number of processes, or `auto`."""

    name = "processes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        text = str(value)
        if text == "auto":
            return text
        if not (text.isascii() and text.isdecimal() and int(text)):
            self.fail(f"{text!r} is neither a positive number nor 'auto'.", param, ctx)
        return int(text)


class _WithMeshes(Command):
    """A command line on which several meshes can follow one `--meshes`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_each_mesh(args)))


def _each_mesh(words: Sequence[str]) -> Iterator[str]:
    """The same words, with `--meshes` before each mesh that follows one."""
    follows = False
    for before, word in itertools.pairwise(("", *words)):
        if follows and before != "--meshes" and _MESH.match(word):
            yield "--meshes"
        elif before != "--meshes":
            follows = word == "--meshes"
        yield word


def _read_meshes(
    _: click.Context, __: click.Parameter, words: Sequence[str]
) -> tuple[dict[str, int], ...]:
    shapes = tuple(options.mesh_sizes(shape) for word in words for shape in word.split())
    for shape in shapes:
        if any(size < 1 for size in shape.values()):
            raise click.BadParameter("the sizes of several meshes are written out, without -1.")
    return shapes


def environment(
    mesh: Mapping[str, int] | None,
    devices: int | Devices | None = None,
    platform: str | None = None,
    mesh_config: str | None = None,
    mesh_selector: str | None = None,
    processes: int | str | None = None,
    meshes: Sequence[Mapping[str, int]] = (),
    target: str = "",
    rerun: bool = False,
    **_: Any,
) -> dict[str, str]:
    """What JAX reads once, when it is imported: how many CPU devices, and whether only those."""
    if rerun:
        return options.lowering(target=target, rerun=rerun)
    wanted = dict(child.SHARING)
    given = devices.count if isinstance(devices, Devices) else devices
    if given or processes != "auto":
        asked = max(
            mesh_choice.known_devices(mesh, mesh_config, mesh_selector),
            *(math.prod(shape.values()) for shape in meshes),
            0,
        )
        several = processes if isinstance(processes, int) else 1
        wanted |= child.virtual_devices(given or math.ceil(max(child.VIRTUAL, asked) / several))
    if platform == "cpu" or isinstance(processes, int):
        wanted["JAX_PLATFORMS"] = "cpu"
    return wanted


def launcher(
    processes: int | str | None,
    timeout: float | None,
    platform: str | None,
    partitioners: tuple[Partitioner, ...],
    **_: Any,
) -> Callable[..., int]:
    """What starts the child, or as many as there are to be."""
    if isinstance(processes, int) and platform not in (None, "cpu"):
        raise click.UsageError(
            f"--processes {processes} uses virtual CPU devices. For --platform {platform} have "
            "the cluster start one process per host, each with --processes auto."
        )
    alone = processes is None
    return functools.partial(
        launch.run,
        count=None if processes == "auto" else int(processes or 1),
        timeout=timeout if alone else timeout or TIMEOUT,
        partitioners=partitioners,
    )


def _together(function: Callable[..., int]) -> Callable[..., int]:
    """Makes this process one of several, where there are any, before the target is looked at.

    In place of `processes` and `timeout` the command gets `group`, and `moved_on`, which is told
    what this process goes on to.
    """

    @functools.wraps(function)
    def command(
        *, processes: int | str | None, timeout: float | None, as_json: bool, **parameters: Any
    ) -> int:
        from sdyscope.stages.executed.processes import ALONE, alone, join

        wire = child_wire.wire()
        if wire is None:
            return function(group=ALONE, moved_on=_nobody, as_json=as_json, **parameters)
        place, patience = child_wire.place(), timeout or TIMEOUT
        if place is not None and place[1] == 1:
            group = alone()
        else:
            wire.tell(doing="waiting for the others to join")
            # Where all of them have one parent, that sees who is late.
            group = join(place, patience if place is None else 2 * patience)
            wire.tell(process=(group.number, group.count))
        group.waiting = lambda: wire.tell(doing="waiting for the others")
        group.under = lambda partitioner: wire.tell(under=partitioner)
        group.crashed = child_wire.crashed()

        def moved_on(what: str, done: int, total: int) -> None:
            wire.tell(doing=what if total <= 1 else f"{what}, {done} of {total} done")

        moved_on("reading the program", 0, 1)
        try:
            status = function(group=group, moved_on=moved_on, as_json=as_json, **parameters)
        except Exception as error:
            if group.count > 1 and not group.agreed:
                wire.tell(failed=str(error) if isinstance(error, SdyscopeError) else "")
            raise
        group.leave()
        return status

    return command


def _nobody(what: str, done: int, total: int) -> None:
    pass


@options.command(
    environment=environment,
    launcher=launcher,
    cls=_WithMeshes,
    examples=(
        "run mlp",
        "run train.py:step --processes 2 --devices 4",
        "run train.py:step --meshes data=8 data=4,model=2",
        "run mlp --train --steps 40",
    ),
)
@_together
@options.target
@options.mesh
@click.option(
    "--meshes",
    multiple=True,
    metavar="MESH...",
    callback=_read_meshes,
    help="Also run it on each of these meshes, such as data=4,model=2 data=8, with the same "
    "values, and compare the results. One device is always among them. Without --mesh the "
    "first that can hold the program takes its place.",
)
@click.option(
    "--reference",
    metavar="FILE:FUNCTION",
    help="Compare the results with those of this function, which is called with the program's "
    "arguments, whole and on one device. By default with its own jaxpr without shardings.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Run a few more steps under JAX's profiler, and show how long each line and "
    "collective takes.",
)
@options.partitioner()
@options.settings
@options.rerun
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="N",
    help="Devices per process: at most this many are used, and this many virtual CPU devices "
    "are made. All processes together must have enough for the mesh.",
)
@click.option(
    "--processes",
    type=_Processes(),
    metavar="N|auto",
    help="Start N processes with virtual CPU devices, joined by jax.distributed; or auto, inside "
    "Slurm, MPI, Kubernetes or a TPU pod: this process is one of the cluster's.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when no process makes progress for this long (a compilation is one step).  "
    f"[default: {TIMEOUT:g} for several --processes, else never]",
)
@click.option(
    "--platform",
    type=click.Choice(["cpu", "gpu", "tpu"]),
    help="What to run on. By default an accelerator that has enough devices, else the CPU.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Steps to time, after a warm-up; with --train, steps in a row.",
)
@click.option(
    "--train",
    is_flag=True,
    help="Also run the steps in a row, each on what the one before returned, and compare the loss "
    "of each with the same steps on one device.",
)
@options.strict
@options.json("analysis.run.values:Run")
def command(
    target: str,
    mesh: dict[str, int] | None,
    meshes: tuple[dict[str, int], ...],
    reference: str | None,
    profile: bool,
    partitioners: tuple[Partitioner, ...],
    settings: dict[str, str],
    rerun: bool,
    devices: int | None,
    platform: str | None,
    steps: int,
    train: bool,
    strict: bool,
    as_json: bool,
    group: ProcessGroup,
    moved_on: Callable[[str, int, int], None],
) -> int:
    """Run the program on real devices; compare shards and numbers.

    Every shard of every argument and result is compared with the placement that was asked for and
    lowered, every result with the same step on one device, within a tolerance for its dtype. Steps
    are timed and memory is counted. Exit status 1 if there is anything worse than a note.

    With --meshes the same values go through the program on several meshes, and with --reference
    through a function of yours. Where results differ, the first value inside that does is named.

    With --train the results that are the next values of arguments go into the next step, on the
    same batch. The loss of every step is compared with one device's, and the shards of the last
    step's results are checked.

    With --processes each process checks the shards of its own devices, and the first one answers.
    """
    from sdyscope import targets
    from sdyscope.process import output, progress
    from sdyscope.stages.executed import devices as finding
    from sdyscope.terminal.answer import Block, heading, print_answer
    from sdyscope.views import profile as profile_view
    from sdyscope.views import run

    def opened() -> Inspection:
        for option, given in (("--meshes", meshes), ("--processes", group.count > 1)):
            if rerun and given:
                raise TargetError(
                    f"{option} and --rerun exclude each other: a script says its own mesh, and is "
                    "run again in one process.",
                    hint=f"Leave {option} out.",
                )
        opened_target = opening.Opening(target, settings=settings, rerun=rerun)
        inspection = _first_that_holds(
            _in_order(meshes) if meshes and mesh is None else [mesh],
            opened_target,
            partitioners,
        )
        if inspection.program is None:
            raise opened_target.no_program(inspection, "a module has no values to run on")
        if devices is None:
            most = max((math.prod(shape.values()) for shape in meshes), default=1)
            needed = max(child.VIRTUAL, finding.devices_needed(inspection.program), most)
            finding.more_cpu_devices(math.ceil(needed / group.count))
        moved_on("lowering the program", 0, 1)
        return inspection

    def chosen() -> tuple[Any, ...] | None:
        return devices_for(inspection, platform, devices)

    inspection = group.together(opened, "read the program")
    run_on = group.together(chosen, "lowered the program")

    def notify(what: str, done: int, total: int) -> None:
        progress.step(what, done, total)
        moved_on(what, done, total)

    answer = inspection.run(
        steps=steps,
        devices=run_on,
        notify=notify,
        group=group,
        on_mesh=None if rerun else _on_mesh(target, settings),
        meshes=meshes,
        reference=None if reference is None else targets.function_of(reference),
        profile=profile,
        train=train,
    )
    moved_on("ending", 0, 1)
    unknown = bool(answer.account) or any(mesh.failure for mesh in answer.meshes)
    status = 0 if answer.passed and not (strict and unknown) else 1
    if group.number:
        return status

    def parts() -> Iterator[Block | None]:
        yield heading(run.heading(answer))
        yield run.summary(answer)
        if answer.training is not None:
            yield run.training(answer.training)
            yield run.trained(answer.training)
        yield run.meshes(answer) if answer.meshes else None
        yield run.processes(answer) if answer.processes else None
        ran = any(partitioner.ran for partitioner in answer.partitioners)
        yield run.tensors(answer) if ran else None
        compared = any(partitioner.errors for partitioner in answer.partitioners)
        yield run.numerics(answer) if compared else None
        yield run.footer(answer)
        for measured in answer.measured:
            title = heading(run.measured_heading(measured))
            yield from profile_view.measured(measured, 5, output.answers().columns, title)

    print_answer(answer, parts, as_json=as_json)
    return status


def _in_order(meshes: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Meshes with all the axes that one of them has; those of one device last."""
    axes = list(dict.fromkeys(axis for shape in meshes for axis in shape))
    filled = [{axis: shape.get(axis, 1) for axis in axes} for shape in meshes]
    return sorted(filled, key=lambda shape: math.prod(shape.values()) == 1)


def _first_that_holds(
    meshes: Sequence[dict[str, int] | None],
    target: opening.Opening,
    partitioners: Sequence[Partitioner],
) -> Inspection:
    """The program on the first mesh that it can be built and lowered on.

    Raises:
        SdyscopeError: why not on the first, where there is none.
    """
    failures = []
    for mesh in meshes:
        try:
            inspection = replace(target, mesh=mesh).inspection(partitioners)
            if len(meshes) == 1 or inspection.lowered:
                return inspection
        except SdyscopeError as error:
            failures.append(error)
    raise failures[0]


def _on_mesh(target: str, settings: dict[str, str]) -> Callable[[Mapping[str, int]], Program]:
    """Makes the target's program on another mesh."""

    def make(mesh: Mapping[str, int]) -> Program:
        program = opening.Opening(target, mesh, settings).inspection().program
        assert program is not None
        return program

    return make


def devices_for(
    inspection: Inspection, platform: str | None = None, at_most: int | None = None
) -> tuple[Any, ...] | None:
    """What to run on; None for a program that names its devices, and for what can't be run."""
    from sdyscope.stages import compat
    from sdyscope.stages.executed.devices import find_devices

    if inspection.program is None:
        return None
    modules = inspection.lowered.values()
    if any(compat.lowering_devices(module.lowered) is not None for module in modules):
        return None
    needed = max(module.num_devices for module in modules)
    return find_devices(needed, platform, at_most)
