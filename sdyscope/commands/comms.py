"""`sdyscope comms`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.facts.program import Partitioner

if TYPE_CHECKING:
    from sdyscope.hardware.names import Hardware


@options.command(
    examples=(
        "comms mlp",
        "comms fsdp-transformer --on tpu:v5e:4x4 --mesh fsdp=8,model=2",
        "comms train.py:step --predicted --mesh data=512,model=64",
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

    TARGET may also be the HLO text of a compiled program, as `compiled.as_text()` and XLA's dumps
    have it; --mesh then names the mesh.
    """
    from sdyscope.analysis.collectives.comms import comms_document, predicted_document
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs, table
    from sdyscope.views import comms

    if predicted:
        partitioners = _predictable(target, partitioners, on)
    inspection = opening.open_one(
        target, mesh=mesh, settings=settings, partitioners=partitioners, module=module
    )
    if predicted:
        opening.check_predictable(inspection)
    found = predicted_document(inspection) if predicted else comms_document(inspection, on)
    status = 1 if strict and found.account else 0
    here = output.answers()
    if as_json:
        here.write_bytes(document.encode(found))
        return status
    paragraphs.print_paragraphs(comms.heading(found))
    here.write("")
    for part in comms.tables(found, everything=everything, by_scope=scopes, columns=here.columns):
        table.print_table(part)
        here.write("")
    paragraphs.print_paragraphs(comms.footer(found, everything=everything))
    return status


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
