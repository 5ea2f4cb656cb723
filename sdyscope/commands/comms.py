"""`sdyscope comms`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.errors import TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.process import output

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.comms import CommsDocument
    from sdyscope.terminal.answer import Block


@options.command(
    examples=(
        "comms mlp",
        "comms fsdp-transformer --on tpu:v5e:4x4 --mesh fsdp=8,model=2",
        "comms train.py:step --predicted --mesh data=512,model=64",
        "comms train.py:step --schedule --on cuda:h100:1x1x8",
    ),
)
@opening.target
@options.on
@options.partitioner()
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
    target: opening.Opening,
    partitioners: tuple[Partitioner, ...],
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
    from sdyscope.terminal.answer import print_answer
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
        partitioners = _predictable(target.word, partitioners, on)
    inspection = target.inspection(partitioners)
    if predicted:
        opening.check_predictable(inspection)
    answer = predicted_document(inspection) if predicted else comms_document(inspection, on)
    if schedule:
        from sdyscope.analysis.cost.schedule import with_schedules

        answer = with_schedules(answer, inspection, on)
    columns = output.answers().columns

    def parts() -> Iterator[Block | None]:
        if schedule:
            yield from _schedules(answer, everything, columns)
            return
        yield comms.heading(answer)
        yield from comms.tables(answer, everything=everything, by_scope=scopes, columns=columns)
        yield comms.footer(answer, everything=everything, by_scope=scopes)

    print_answer(answer, parts, as_json=as_json)
    return 1 if strict and answer.account else 0


def _schedules(document: CommsDocument, everything: bool, columns: int | None) -> Iterator[Block]:
    from sdyscope.terminal import chart, steps
    from sdyscope.views import schedule
    from sdyscope.words.rates import time_text

    # All timelines on one scale.
    longest = max((step.seconds for step in document.schedules), default=0.0)
    for step, partitioners in steps.distinct_schedules(document.schedules):
        yield schedule.heading(document, step, partitioners)
        yield chart.Timeline(steps.tracks(step.lanes, longest), time_text(longest))
        yield schedule.lanes(step)
        if step.collectives:
            yield schedule.exposed(columns, step, everything)
        yield schedule.footer(step, everything)


def _predictable(
    target: str, partitioners: tuple[Partitioner, ...], on: Hardware | None
) -> tuple[Partitioner, ...]:
    """Which partitioners to lower under; a file is for one already, whichever that is."""
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
