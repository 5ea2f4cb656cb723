"""`sdyscope search`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options, rates
from sdyscope.commands.fix import environment
from sdyscope.hardware.names import Hardware
from sdyscope.process import output, progress

if TYPE_CHECKING:
    from sdyscope.terminal.answer import Block


def _axes(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    axes = tuple(axis.strip() for axis in value.split(","))
    if not all(axes) or len(set(axes)) < len(axes):
        raise click.BadParameter(f"{value!r} is not a list of distinct axes, such as fsdp,model.")
    return axes


@options.command(
    environment=environment,
    examples=(
        "search mlp",
        "search fsdp-transformer --max-memory 12MiB --budget 100",
        "search train.py:step --patch",
    ),
)
@opening.target
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="GLOB",
    help='Arguments to search, such as "params*": * matches anything, ? one character. Can be '
    "repeated. By default those whose next value the program returns.",
)
@click.option(
    "--constraints/--no-constraints",
    default=None,
    help="Whether to change or remove constraints inside the program, too. By default yes, unless "
    "--argument names what to search.",
)
@click.option(
    "--axes",
    metavar="AXIS,...",
    callback=_axes,
    help="Mesh axes to place, such as fsdp,model. By default all.",
)
@click.option(
    "--max-memory",
    metavar="SIZE",
    callback=options.byte_count,
    help="Limit on the arguments and results a device holds, such as 16GiB.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Candidates to predict before the best are partitioned. By default 300, or as many as "
    "--seconds allow. More are predicted near those that were partitioned.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="How long to predict before the best are partitioned.",
)
@click.option(
    "--checks",
    type=click.IntRange(min=0),
    default=24,
    show_default=True,
    metavar="N",
    help="Candidates that XLA partitions, a second each, the program itself included; 0 for none.",
)
@click.option(
    "--compiles",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Candidates to compile at most, until one is confirmed; 0 for none.",
)
@options.on
@rates.bandwidths("all axes count the same")
@click.option(
    "--flops-per-byte",
    type=click.FloatRange(min=0),
    metavar="N",
    help="FLOPs a device computes in the time it sends a byte; 0 to leave arithmetic out. By "
    "default 2200, as on TPU v5e and H100.",
)
@click.option("--untied", is_flag=True, help="Decide on each layer's tensors separately.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="The random seed; with it and --budget a search is reproducible.",
)
@click.option(
    "--patch",
    is_flag=True,
    help="Write the best into a copy of the source, run it against the program as it is, and show "
    "the patch.",
)
@click.option(
    "--apply",
    "write",
    is_flag=True,
    help="--patch, and write it into the source, if it is proven and the git work tree is clean.",
)
@click.option("--all", "everything", is_flag=True, help="Show all decisions and all changes.")
@options.strict
@options.json("analysis.search.values:Search")
def command(
    target: opening.Opening,
    arguments: tuple[str, ...],
    constraints: bool | None,
    axes: tuple[str, ...] | None,
    max_memory: int | None,
    budget: int | None,
    seconds: float | None,
    checks: int,
    compiles: int,
    on: Hardware | None,
    bandwidths: dict[str, float],
    flops_per_byte: float | None,
    untied: bool,
    seed: int,
    patch: bool,
    write: bool,
    everything: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Search for shardings that send less or hold less.

    Tries other shardings of arguments and constraints, hundreds per minute: Shardy's own passes
    predict what each sends, computes and holds. XLA partitions the best of them, and the best of
    those is compiled. What is printed is what to change in the program. Nothing is run, except with
    --patch.

    The same tensor of every layer is sharded alike, and an optimizer's state and the results that
    are arguments' next values go with their parameters.
    """
    from sdyscope.analysis.search.strategy import Budget
    from sdyscope.analysis.trials.cost import FLOPS_PER_BYTE, Rates
    from sdyscope.process.work_tree import write_clean
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import search

    inspection = target.inspection(target.under(None))
    per_byte = FLOPS_PER_BYTE if flops_per_byte is None else flops_per_byte or math.inf
    searched = inspection.search(
        arguments,
        axes,
        max_memory=max_memory,
        rates=Rates(bandwidths, per_byte),
        budget=Budget(budget or (None if seconds else 300), seconds),
        seed=seed,
        tied=not untied,
        constraints=constraints,
        on=on,
        checks=checks,
        compiles=compiles,
        notify=progress.part,
    )
    if (patch or write) and searched.plan:
        bench = target.bench(inspection)
        answer = bench.fix(plan=searched.plan, on=on, notify=progress.part)
        searched = replace(searched, patch=answer)
    proven = () if searched.patch is None else searched.patch.proven
    if write and proven:
        write_clean(proven[0].before_texts, proven[0].texts)

    def parts() -> Iterator[Block | None]:
        yield search.heading(searched)
        yield search.decisions(searched) if everything else None
        yield search.candidates(searched)
        changes = search.changes(searched, everything=everything)
        traffic = search.traffic(searched, output.answers().columns)
        yield from (part for part in (changes, traffic) if part is not None and part.rows)
        yield search.footer(searched, everything=everything)
        yield from search.patch(searched, applied=write and bool(proven))

    print_answer(searched, parts, as_json=as_json)
    return 1 if strict and searched.account else 0
