"""`sdyscope source`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.errors import TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware

if TYPE_CHECKING:
    from sdyscope.terminal.answer import Block


@options.command(
    examples=(
        "source mlp",
        "source train.py:step --mesh data=4,model=2 --context 0",
        "source fsdp-transformer --partitioner shardy --on tpu:v5e:2x4 --stacks",
    ),
)
@opening.target
@options.on
@options.partitioner()
@click.option(
    "--context",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="How many lines to show above and below each.",
)
@click.option(
    "--stacks",
    is_flag=True,
    help="Show the library calls between a line and its ops, and the calls that lead to it.",
)
@click.option("--no-compile", is_flag=True, help="Leave collectives out, and what needs a compile.")
@click.option("--all", "everything", is_flag=True, help="Show every value, and library files.")
@options.strict
@options.json("lint.source:SourceDocument")
def command(
    target: opening.Opening,
    on: Hardware | None,
    partitioners: tuple[Partitioner, ...],
    context: int,
    stacks: bool,
    no_compile: bool,
    everything: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Show your source, each line with its shardings and bytes.

    Only the lines that the program's ops come from, and a few around them. In the margin are the
    bytes a device sends per step for the line, and the largest block that it has of one of its
    values; below the line the shardings of its values, its collectives and why they are there,
    where Shardy and GSPMD differ, and what `lint` finds. Ops inside a library count for the line
    that calls it.

    The program is compiled, not run. The text comes from the `.py` files on this machine.
    """
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import source

    if no_compile and on is not None:
        raise TargetError("--no-compile compiles for no hardware.", hint="Leave one of them out.")
    inspection = target.inspection(partitioners)
    lines = inspection.source_lines(on, compiled=not no_compile, context=context)

    def parts() -> Iterator[Block]:
        yield source.heading(lines)
        yield from source.listings(lines, everything=everything, stacks=stacks)
        yield source.footer(lines, everything=everything)

    print_answer(lines, parts, as_json=as_json)
    return 1 if strict and lines.account else 0
