"""`sdyscope show`."""

from __future__ import annotations

import click

from sdyscope.commands import opening, options
from sdyscope.errors import TargetError
from sdyscope.facts.program import KindFilter, Partitioner
from sdyscope.process import output


@options.command(
    examples=(
        "show mlp",
        "show train.py:step --mesh data=4,model=2",
        "show train.py:step --match 'params*' --slices",
        "show run",
    ),
)
@opening.target
@options.partitioner()
@click.option(
    "--match",
    metavar="GLOB",
    help="Only tensors whose path or scope matches: * matches anything, ? one character.",
)
@click.option(
    "--kind",
    "kinds",
    type=options.choice(KindFilter),
    multiple=True,
    help="Only tensors of this kind. Can be repeated.",
)
@click.option(
    "--notation",
    type=click.Choice(["spec", "jax"]),
    default="spec",
    show_default=True,
    help="How to write shardings: P('data', None), or in the type, as JAX does: f32[16@data,8].",
)
@click.option("--written", is_flag=True, help="Show shardings as each module writes them.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="One row for each tensor of repeated layers; in a recorded run, list JAX's own functions.",
)
@click.option("--slices", is_flag=True, help="Show which devices hold which slice of each tensor.")
@options.strict
@options.json("analysis.show:Show")
def command(
    target: opening.Opening,
    partitioners: tuple[Partitioner, ...],
    match: str | None,
    kinds: tuple[KindFilter, ...],
    notation: str,
    written: bool,
    everything: bool,
    slices: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Show every tensor: what was requested, and what was lowered.

    One row per tensor (repeated layers share a row), one column per partitioner; then the
    shape of the block that a device holds, its bytes, and how many devices hold the same.
    --slices shows which devices hold which part. For a directory of dumps, one row per module;
    for a recorded run also how often and for how long each was compiled, and why again. Exit
    status 1 if one of its files can't be read.
    """
    from sdyscope.analysis.show import UnreadFile, show
    from sdyscope.terminal import document
    from sdyscope.terminal.answer import Block, account_paragraphs, print_blocks
    from sdyscope.terminal.paragraphs import Paragraph
    from sdyscope.views import show as view
    from sdyscope.views import show_recorded
    from sdyscope.views import slices as slices_view
    from sdyscope.words.mesh import mesh_axes

    opened = target.opened(partitioners).lowered
    shown = show(
        opened.programs,
        target.word,
        [UnreadFile(str(file.path), str(file.error)) for file in opened.unread],
        opened.record,
        match=match,
        kinds=kinds,
        slices=slices,
    )
    if match is not None and not any(program.tensors for program in shown.programs):
        raise TargetError(
            f"No tensor's path or scope matches {match!r}.",
            hint="The pattern must match the whole path; use '*name*' to match part of it.",
        )
    parts: list[Block] = []
    if as_json:
        output.answers().write_bytes(document.encode(shown))
    elif shown.slices is not None:
        for program, held in zip(shown.programs, shown.slices, strict=True):
            account = account_paragraphs(program.account)
            axes = mesh_axes(program.meshes)
            parts.append([Paragraph(view.heading(program), axes=axes)])
            parts.append([*slices_view.paragraphs(held, program.hidden, axes), *account])
    elif opened.record is not None and opened.several:
        columns = output.answers().columns
        parts += [
            show_recorded.overview(columns, shown, opened.record, everything=everything),
            show_recorded.overview_footer(shown, opened.record, everything=everything),
        ]
    elif opened.is_directory and opened.several:
        parts += [
            view.overview(output.answers().columns, shown),
            view.overview_footer(shown),
        ]
    else:
        for program in shown.programs:
            rows = view.table(
                output.answers().columns,
                program,
                written=written,
                in_types=notation == "jax",
                everything=everything,
            )
            parts += [[Paragraph(view.heading(program))], rows, view.footer(program, rows)]
    print_blocks(parts)
    unknown = any(program.account for program in shown.programs)
    return 1 if shown.unread or (strict and unknown) else 0
