"""`sdyscope comms`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.facts.program import Partitioner

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.comms import CommsDocument
    from sdyscope.hardware.names import Hardware


@options.command(
    examples=(
        "comms mlp",
        "comms fsdp-transformer --on tpu:v5e:4x4 --mesh fsdp=8,model=2",
        "comms train.py:step --predicted --mesh data=512,model=64",
        "comms train.py:step --schedule --on cuda:h100:1x1x8",
    ),
)
@options.target
@options.mesh
@options.on
@options.partitioner()
@options.settings
@opening.module
@click.option(
    "--predicted",
    is_flag=True,
    help="Predict from Shardy's reshards instead of compiling: any mesh, no devices.",
)
@click.option(
    "--schedule",
    is_flag=True,
    help="Show a step over time: which communication nothing hides. For TPUs and GPUs, "
    "present or not.",
)
@click.option("--scopes", is_flag=True, help="List scopes instead of single collectives.")
@click.option("--all", "everything", is_flag=True, help="List every collective, or every scope.")
@options.strict
@options.json("analysis.collectives.comms:CommsDocument")
def command(
    target: str,
    mesh: dict[str, int] | None,
    partitioners: tuple[Partitioner, ...],
    settings: dict[str, str],
    module: str | None,
    on: Hardware | None,
    predicted: bool,
    schedule: bool,
    scopes: bool,
    everything: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Show every collective: kind, mesh axes, bytes, line, and why.

    The program is compiled ahead of time; nothing is run. Shows how many collectives a step
    executes, loops included, over which mesh axes, how many bytes a device sends for them, for
    which line of the program, and which annotations made them necessary. With --predicted
    nothing is compiled either: the collectives are those Shardy's own passes insert.

    With --schedule: a step over time, by the schedule of the compiled program and the times of
    `sdyscope cost`: what a device computes and sends when, which communication nothing hides, and
    what could hide it.

    TARGET may also be the HLO text of a compiled program, as `compiled.as_text()` and XLA's dumps
    have it; --mesh then names the mesh.
    """
    from sdyscope.analysis.collectives.comms import comms_document, predicted_document
    from sdyscope.errors import TargetError
    from sdyscope.process import output
    from sdyscope.terminal import blocks, document
    from sdyscope.views import comms

    if predicted and schedule:
        raise TargetError(
            "--predicted compiles nothing, and only a compiled program has an order of time.",
            hint="Leave --predicted out.",
        )
    if schedule and scopes:
        raise TargetError(
            "--scopes adds up bytes, which have no order of time.",
            hint="Leave --scopes or --schedule out.",
        )
    if predicted:
        partitioners = _predictable(target, partitioners, on)
    inspection = opening.open_one(
        target, mesh=mesh, settings=settings, partitioners=partitioners, module=module
    )
    if predicted:
        opening.check_predictable(inspection)
    answer = predicted_document(inspection) if predicted else comms_document(inspection, on)
    if schedule:
        from sdyscope.analysis.cost.schedule import with_schedules

        answer = with_schedules(answer, inspection, on)
    status = 1 if strict and answer.account else 0
    here = output.answers()
    if as_json:
        here.write_bytes(document.encode(answer))
        return status
    if schedule:
        _print_schedules(answer, everything)
        return status
    blocks.print_blocks(
        [
            comms.heading(answer),
            *comms.tables(answer, everything=everything, by_scope=scopes, columns=here.columns),
            comms.footer(answer, everything=everything),
        ]
    )
    return status


def _print_schedules(document: CommsDocument, everything: bool) -> None:
    from sdyscope.process import output
    from sdyscope.terminal import chart, paragraphs, steps, table
    from sdyscope.terminal.account import account_paragraphs
    from sdyscope.views import schedule
    from sdyscope.words.rates import time_text

    here = output.answers()
    # All timelines on one scale.
    longest = max((step.seconds for step in document.schedules), default=0.0)
    for number, (step, partitioners) in enumerate(steps.distinct_schedules(document.schedules)):
        if number:
            here.write("")
        paragraphs.print_paragraphs(schedule.heading(document, step, partitioners))
        here.write("")
        tracks = steps.tracks(step.lanes, longest)
        chart.print_timeline(chart.Timeline(tracks, time_text(longest)))
        here.write("")
        table.print_table(schedule.lanes(step))
        here.write("")
        if step.collectives:
            table.print_table(schedule.exposed(step, everything, here.columns))
            here.write("")
        paragraphs.print_paragraphs(schedule.footer(step, everything))
    paragraphs.print_paragraphs(account_paragraphs(document.account))


def _predictable(
    target: str, partitioners: tuple[Partitioner, ...], on: Hardware | None
) -> tuple[Partitioner, ...]:
    """Which partitioners to lower under; a file is for one already, whichever that is."""
    from sdyscope.errors import TargetError

    if on is not None:
        raise TargetError(
            "--predicted compiles for no hardware.", hint="Leave --on out, or --predicted."
        )
    if "shardy" not in partitioners:
        raise TargetError(
            "Only Shardy's reshards predict collectives; GSPMD's are known only once compiled.",
            hint="Leave --predicted out.",
        )
    return partitioners if opening.is_read(target) else ("shardy",)
