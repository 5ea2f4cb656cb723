"""`sdyscope memory`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options

if TYPE_CHECKING:
    from sdyscope.hardware.names import Hardware


@options.command(
    examples=(
        "memory mlp",
        "memory fsdp-transformer --on cuda:h100:1x1x8",
        "memory train.py:step --predicted --mesh data=512,model=64",
        "memory fsdp-transformer --training",
    ),
)
@options.target
@options.mesh
@options.on
@options.one_partitioner("The partitioner to compile under.")
@options.settings
@opening.module
@click.option(
    "--predicted",
    is_flag=True,
    help="Use propagated shardings instead of compiling: any mesh, no devices.",
)
@click.option(
    "--training",
    is_flag=True,
    help="Also show what a train step keeps of its parameters, gradients and optimizer state, and "
    "what data parallelism and each ZeRO stage would hold and send.",
)
@click.option(
    "--axes",
    metavar="AXIS,...",
    help="With --training: the mesh axes that the stages shard over.  [default: the batch's]",
)
@options.top(10, "rows to show of what could be sharded further")
@options.strict
@options.json("analysis.memory.memory:MemoryDocument")
def command(
    target: str,
    mesh: dict[str, int] | None,
    on: Hardware | None,
    partitioner: str | None,
    settings: dict[str, str],
    module: str | None,
    predicted: bool,
    training: bool,
    axes: str | None,
    top: int,
    strict: bool,
    as_json: bool,
) -> int:
    """Show what a device holds, and which bytes it could save.

    The program is compiled, not run. Shows the bytes per device of each argument and result,
    which of them share a buffer, what else the program needs, and which tensors could be
    sharded further along which axes. Exit status 1 if a donation is unused, or bytes disagree
    with the compiler's.

    TARGET may also be the HLO text of a compiled program, as `compiled.as_text()` and XLA's dumps
    have it, which says what arguments and results take, and which share a buffer; --mesh names its
    mesh.

    With --predicted nothing is compiled: arguments and results are where propagation puts them, and
    temporaries are not known.

    With --training the ZeRO stages are tried on the program: its state gets their shardings, and
    XLA's partitioner says what a device sends then.
    """
    from sdyscope.analysis.memory.memory import memory_document, predicted_document
    from sdyscope.analysis.search.zero import training_state
    from sdyscope.errors import TargetError
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs, table
    from sdyscope.terminal.account import account_paragraphs
    from sdyscope.views import memory

    if predicted and on is not None:
        raise TargetError(
            "--predicted compiles for no hardware.", hint="Leave --on out, or --predicted."
        )
    inspection = opening.open_under(
        target, partitioner, mesh=mesh, settings=settings, module=module
    )
    if axes is not None and not training:
        raise TargetError("--axes names the axes of --training.", hint="Add --training.")
    found = predicted_document(inspection) if predicted else memory_document(inspection, on)
    if training:
        over = [axis.strip() for axis in axes.split(",")] if axes else []
        found = dataclasses.replace(found, training=training_state(inspection, over))
    status = 0 if found.passed and not (strict and found.account) else 1
    here = output.answers()
    if as_json:
        here.write_bytes(document.encode(found))
        return status
    if found.predicted is not None:
        table.print_text(memory.predicted_heading(found, found.predicted), "heading")
        here.write("")
        table.print_table(memory.groups(found.predicted))
        here.write("")
        if found.predicted.savings:
            table.print_table(memory.savings(found.predicted, top, here.columns))
            here.write("")
        paragraphs.print_paragraphs(memory.predicted_footer(found.predicted, top))
    for number, (compiled, partitioners) in enumerate(memory.told(found)):
        if number:
            here.write("")
        table.print_text(memory.heading(found, compiled, partitioners), "heading")
        here.write("")
        table.print_table(memory.groups(compiled))
        here.write("")
        if compiled.savings:
            table.print_table(memory.savings(compiled, top, here.columns))
            here.write("")
        elif compiled.hardware is None:
            table.print_table(memory.largest(compiled, top))
            here.write("")
        paragraphs.print_paragraphs(memory.footer(compiled, top, partitioners))
    if found.training is not None:
        here.write("")
        table.print_table(memory.training(found.training))
        here.write("")
        if found.training.stages:
            table.print_table(memory.stages(found.training))
            here.write("")
            table.print_table(memory.stages_traffic(found.training))
            here.write("")
        paragraphs.print_paragraphs(memory.training_footer(found.training))
    paragraphs.print_paragraphs(account_paragraphs(found.account))
    return status
