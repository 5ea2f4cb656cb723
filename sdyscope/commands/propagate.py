"""`sdyscope propagate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options, propagation
from sdyscope.errors import TargetError
from sdyscope.process import output

if TYPE_CHECKING:
    from sdyscope.terminal.answer import Block


@options.command(
    examples=(
        "propagate mlp",
        "propagate mlp --steps",
        "propagate mlp --set-sharding \"params['w1']=P('data', None)\"",
    ),
)
@opening.target
@propagation.partitioner
@click.option(
    "--match",
    metavar="GLOB",
    help="Only values with this path, scope or source line: * matches anything, ? one character.",
)
@click.option("--all", "everything", is_flag=True, help="List every value, or every step.")
@click.option("--steps", is_flag=True, help="List Shardy's steps: which axis moved from where.")
@click.option(
    "--at-step",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show the table as it stands after this step.",
)
@propagation.what_if
@options.strict
@options.json("analysis.propagation.propagate:PropagateDocument")
def command(
    target: opening.Opening,
    partitioner: str | None,
    match: str | None,
    everything: bool,
    steps: bool,
    at_step: int | None,
    shardings: tuple[str, ...],
    priorities: tuple[str, ...],
    conservative: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Show how every value is sharded after propagation.

    One row per value; repeated layers share a row. The first line says whether this is exactly
    what XLA decides, and where it was taken from. Shardy's passes run here, for a mesh of any
    size; GSPMD's propagation is part of XLA, which compiles the program for CPU up to there.

    With --set-sharding, --priority or --conservative: what would be sharded differently, by
    where it begins. The program is not traced again.
    """
    from sdyscope.analysis.propagation.propagate import propagate_document
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import propagate

    if steps and at_step is not None:
        raise TargetError("--steps and --at-step exclude each other.", hint="Give one of them.")
    inspection = target.inspection_under(partitioner)
    wished = propagation.wished(inspection, shardings, priorities, conservative)
    before, after = wished.before, wished.inspection
    changed = None
    if before is not None:
        from sdyscope.analysis.diff.sides import what_if

        changed = tuple(what_if(before, after, conservative=conservative))
    answer = propagate_document(
        after,
        match=match,
        steps=steps,
        at_step=at_step,
        conservative=conservative,
        changes=wished.changes,
        changed=changed,
    )
    if match is not None and not answer.values and not answer.steps:
        raise TargetError(
            f"Nothing has a path, scope or source line that matches {match!r}.",
            hint="The pattern must match the whole path; use '*name*' to match part of it.",
        )

    def parts() -> Iterator[Block]:
        yield propagate.heading(answer)
        if answer.changed is not None:
            yield propagate.changed(answer, everything=everything)
        if steps:
            yield propagate.steps_table(answer, everything=everything)
            yield propagate.steps_footer(answer, everything=everything)
        elif answer.changed is None or match is not None or at_step is not None:
            columns = output.answers().columns
            values = propagate.table(answer, everything=everything, columns=columns)
            yield values
            yield propagate.footer(answer, values, everything=everything)

    print_answer(answer, parts, as_json=as_json)
    return 1 if strict and answer.account else 0
