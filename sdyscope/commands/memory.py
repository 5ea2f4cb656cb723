"""`sdyscope memory`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options, varying
from sdyscope.hardware.rates import parse_size

if TYPE_CHECKING:
    from sdyscope.analysis.memory.memory import MemoryDocument
    from sdyscope.facts.zero import TrainingState
    from sdyscope.hardware.names import Hardware


def _size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    with options.usage():
        return None if value is None else parse_size(value)


@options.command(
    examples=(
        "memory mlp",
        "memory fsdp-transformer --on cuda:h100:1x1x8",
        "memory train.py:step --predicted --mesh data=512,model=64",
        "memory train.py:step --on tpu:v5e:4x4 --peak",
        "memory train.py:step --on tpu:v5e:4x4 --fits 16GiB --vary batch",
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
@click.option(
    "--peak",
    is_flag=True,
    help="Show memory over the step, what is held at the peak, and what lowers it.",
)
@click.option(
    "--try",
    "tries",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="With --peak: compile up to N changes that may lower the peak.",
)
@click.option(
    "--fits",
    "limit",
    metavar="SIZE",
    callback=_size,
    help="Say whether the program fits in a device of this size, such as 16GiB. Exit status 1 if "
    "it does not.",
)
@click.option(
    "--vary",
    metavar="NAME",
    help="With --fits: find the largest value of this setting that fits, such as batch, or the "
    "fewest devices along this mesh axis. Each value is compiled.",
)
@options.top(10, "rows to show of what could be sharded further, or is held at the peak")
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
    peak: bool,
    tries: int,
    limit: int | None,
    vary: str | None,
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

    With --peak: what a device holds from the first instruction to the last, in the order in which
    the compiled program runs; at the peak, each tensor with its source line and the annotations
    that its sharding comes from; and which changes lower it, each compiled.
    """
    from sdyscope.analysis.memory.memory import memory_document, predicted_document
    from sdyscope.analysis.memory.peak import with_fits, with_peak
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
    if predicted and (peak or limit is not None):
        raise TargetError(
            "--predicted compiles nothing, and the peak is known of a compiled program alone.",
            hint="Leave --predicted out.",
        )
    if vary is not None and limit is None:
        raise TargetError("--vary needs a limit.", hint="Give one, such as --fits 16GiB.")
    inspection = opening.open_under(
        target, partitioner, mesh=mesh, settings=settings, module=module
    )
    if axes is not None and not training:
        raise TargetError("--axes names the axes of --training.", hint="Add --training.")
    found = predicted_document(inspection) if predicted else memory_document(inspection, on)
    if training:
        over = [axis.strip() for axis in axes.split(",")] if axes else []
        found = dataclasses.replace(found, training=training_state(inspection, over))
    if peak:
        found = with_peak(found, inspection, on, tries)
    if limit is not None:
        varied = (
            None
            if vary is None
            else varying.varying(vary, target, inspection, partitioner, mesh, settings, on)
        )
        found = with_fits(found, inspection, on, limit, varied)
    fit = all(one.fits for one in found.fits)
    status = 0 if found.passed and fit and not (strict and found.account) else 1
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
    if peak:
        _print_peak(found, top)
    if limit is not None:
        _print_fits(found, limit)
    if peak or limit is not None:
        if found.training is not None:
            _print_training(found.training)
        paragraphs.print_paragraphs(account_paragraphs(found.account))
        return status
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
        _print_training(found.training)
    paragraphs.print_paragraphs(account_paragraphs(found.account))
    return status


def _print_training(state: TrainingState) -> None:
    from sdyscope.process import output
    from sdyscope.terminal import paragraphs, table
    from sdyscope.views import memory

    here = output.answers()
    here.write("")
    table.print_table(memory.training(state))
    here.write("")
    if state.stages:
        table.print_table(memory.stages(state))
        here.write("")
        table.print_table(memory.stages_traffic(state))
        here.write("")
    paragraphs.print_paragraphs(memory.training_footer(state))


def _print_peak(document: MemoryDocument, top: int) -> None:
    from sdyscope.process import output
    from sdyscope.terminal import chart, paragraphs, steps, table
    from sdyscope.views import memory, over_time
    from sdyscope.words.over_time import peak_sentence

    here = output.answers()
    # All pictures on one scale.
    scale = max(one.peak for one in document.over_time)
    compiled = {one.partitioner: one for one in document.compiled}
    for number, (found, partitioners) in enumerate(steps.distinct_memory(document.over_time)):
        if number:
            here.write("")
        heading = memory.heading(document, compiled[found.partitioner], partitioners)
        table.print_text(heading, "heading")
        here.write("")
        chart.print_area(over_time.picture(found, scale))
        here.write("")
        table.print_text(peak_sentence(found))
        here.write("")
        table.print_table(over_time.categories(found))
        here.write("")
        table.print_table(over_time.held(found, top, here.columns))
        here.write("")
        paragraphs.print_paragraphs(over_time.footer(found, top))
    if document.remedies:
        here.write("")
        table.print_table(over_time.remedies(document.remedies, document.over_time[0]))
        here.write("")
        paragraphs.print_paragraphs([over_time.remedies_footer(document.remedies)])


def _print_fits(document: MemoryDocument, limit: int) -> None:
    from sdyscope.process import output
    from sdyscope.terminal import paragraphs, table
    from sdyscope.views import over_time

    here = output.answers()
    if document.over_time:
        here.write("")
    paragraphs.print_paragraphs(over_time.fits(document.fits))
    if document.varied is not None:
        here.write("")
        table.print_table(over_time.trials(document.varied, limit))
        here.write("")
        paragraphs.print_paragraphs([over_time.varied_paragraph(document.varied)])
