"""`sdyscope cost`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options, rates
from sdyscope.hardware.names import Hardware

if TYPE_CHECKING:
    from sdyscope.terminal.answer import Block


@options.command(
    examples=(
        "cost mlp --on tpu:v5e:2x4",
        "cost fsdp-transformer --on tpu:v5p:2x2x2 --mesh fsdp=4,model=2",
        "cost train.py:step --predicted --mesh data=512,model=64 --bandwidth data=90GB/s",
        "cost train.py:step --calibrate /tmp/trace",
    ),
)
@opening.target
@options.on
@options.one_partitioner("The partitioner to compile under.")
@rates.bandwidths("the figures of the hardware table")
@rates.latencies
@rates.traces(
    "A trace of a run (`sdyscope profile`): fit the rates of axes, arithmetic and memory to it."
)
@click.option(
    "--predicted",
    is_flag=True,
    help="Use propagated shardings instead of compiling: any mesh, no devices.",
)
@options.top(8, "scopes to show")
@options.strict
@options.json("analysis.cost.cost:CostDocument")
def command(
    target: opening.Opening,
    on: Hardware | None,
    partitioner: str | None,
    bandwidths: dict[str, float],
    latencies: dict[str, float],
    calibrate: tuple[str, ...],
    predicted: bool,
    top: int,
    strict: bool,
    as_json: bool,
) -> int:
    """Estimate what limits a step: compute, memory or a mesh axis.

    The program is compiled, not run. Shows the minimum time of arithmetic, memory and the
    links of each mesh axis, from models of rings, tori and switches and from published figures
    of the hardware; and thus of a step, with full overlap and with none. It is an estimate,
    not a measurement. --calibrate fits the rates of axes, arithmetic and memory to measured runs,
    estimates the step by them, and says the error that is left.

    With --predicted nothing is compiled: collectives are those Shardy's own passes insert,
    operations those of matmuls, and memory is what it takes to read the arguments once. --on then
    only names the chip, and axes take their --bandwidth.
    """
    from sdyscope.analysis.cost.cost import cost_document, predicted_cost_document
    from sdyscope.analysis.cost.schedule import with_steps
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import cost

    inspection = target.inspection_under(partitioner)
    calibration = rates.calibration(calibrate, inspection.meshes.values())
    if predicted:
        opening.check_predictable(inspection)
        answer = predicted_cost_document(inspection, on, bandwidths, latencies, calibration)
    else:
        answer = with_steps(cost_document(inspection, on, bandwidths, latencies, calibration))

    def parts() -> Iterator[Block | None]:
        if calibration is not None:
            yield from (
                cost.calibrated(calibration),
                cost.rates(calibration),
                cost.errors(calibration),
            )
        for program, partitioners in cost.distinct(answer):
            yield cost.heading(answer, program, partitioners)
            yield cost.roofs(program)
            yield cost.arguments(program) if program.arguments else None
            yield cost.kinds(program) if program.collectives else None
            yield cost.scopes(program, top) if program.collectives else None
            yield cost.footer(program, top, calibration)

    print_answer(answer, parts, as_json=as_json)
    return 1 if strict and answer.account else 0
