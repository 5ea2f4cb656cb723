"""`sdyscope profile`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options, rates
from sdyscope.errors import TargetError
from sdyscope.hardware.names import Hardware
from sdyscope.process import output

if TYPE_CHECKING:
    from sdyscope.terminal.answer import Block


@options.command(
    examples=(
        "profile /tmp/trace",
        "profile /tmp/trace train.py:step --mesh data=4,model=2",
        "profile /tmp/trace train.py:step --on cuda:h100:1x1x8",
        "profile /tmp/tuesday train.py:step --calibrate /tmp/monday",
        "profile /tmp/before /tmp/after",
    ),
)
@click.argument("trace", metavar="TRACE")
@click.argument("target", metavar="[TARGET]", required=False)
@options.mesh
@options.on
@options.one_partitioner("The partitioner that the program ran under.")
@options.settings
@click.option(
    "--module",
    metavar="NAME",
    help="Which program of the trace, such as jit_step; by default the one with the "
    "collectives of TARGET, or that took most time. NAME:2 is the second of that name.",
)
@rates.traces(
    "Another trace: fit rates to it, as `sdyscope cost` does, and show measured beside what they "
    "predict."
)
@options.top(8, "rows of each table to show")
@options.strict
@options.json("analysis.profile.profile:ProfileDocument")
def command(
    trace: str,
    target: str | None,
    mesh: dict[str, int] | None,
    on: Hardware | None,
    partitioner: str | None,
    settings: dict[str, str],
    module: str | None,
    calibrate: tuple[str, ...],
    top: int,
    strict: bool,
    as_json: bool,
) -> int:
    """Show how long each line and collective took, from a trace.

    TRACE is the folder that `jax.profiler.trace` was given, or a .xplane.pb file. Shows the time
    of each source line, scope and collective; of collectives, waiting for the slowest device apart
    from moving bytes, and the bandwidth by mesh axis; and one step over time. With TARGET, the
    program that ran, collectives have the annotations that caused them, and with the hardware that
    it ran on (--on) every op and collective has the time that is predicted. Where no figures of it
    are known, --calibrate takes rates of another trace. TARGET may also be another trace: then the
    two are compared.
    """
    from pathlib import Path

    from sdyscope.analysis.profile.profile import profile_document
    from sdyscope.stages.executed.traces import is_trace, read_trace
    from sdyscope.terminal.answer import print_answer
    from sdyscope.values.mesh import Mesh
    from sdyscope.views import profile

    if on is not None and target is None:
        raise TargetError(
            "--on names what the program ran on, and no TARGET is named.",
            hint="Name it behind the trace.",
        )
    if settings and target is None:
        raise TargetError(
            "--set changes a setting of TARGET, and none is named.",
            hint="Name it behind the trace.",
        )
    other = target is not None and is_trace(Path(target))
    if other and calibrate:
        raise TargetError(
            "Two traces are compared with each other, not with what is predicted.",
            hint="Leave --calibrate or the second trace out.",
        )
    inspection = None
    if target is not None and not other:
        subject = opening.Opening(target, mesh, settings)
        inspection = subject.inspection(subject.under(partitioner))
    first = read_trace(Path(trace))
    second = read_trace(Path(target)) if target is not None and other else None
    own = None if mesh is None else Mesh.of(mesh)
    meshes = [
        *([] if own is None else [own]),
        *({} if inspection is None else inspection.meshes).values(),
    ]
    answer = profile_document(
        first if second is None else second,
        inspection,
        None if inspection is None else inspection.partitioners[0],
        on=on,
        mesh=own,
        module=module,
        calibration=rates.calibration(calibrate, meshes),
        before=None if second is None else first,
    )

    def parts() -> Iterator[Block | None]:
        if answer.before is not None and answer.difference is not None:
            yield from profile.compared(answer.before, answer.measured, answer.difference, top)
        else:
            yield from profile.measured(answer.measured, top, output.answers().columns)
            yield profile.footer(answer, top)

    print_answer(answer, parts, as_json=as_json)
    return 1 if strict and (answer.account or answer.measured.unknown) else 0
