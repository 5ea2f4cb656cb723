"""`sdyscope verify`."""

from __future__ import annotations

import click

from sdyscope.commands import opening, options
from sdyscope.facts.program import Partitioner
from sdyscope.process import output, progress


@options.command(
    examples=(
        "verify mlp",
        "verify --corpus dumps",
    ),
)
@opening.target
@click.option(
    "--corpus",
    is_flag=True,
    help="TARGET is a directory: audit every module in it, and print a table of all.",
)
@click.option(
    "--causes",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    metavar="N",
    help="Sets of annotations to remove, those of the largest collectives first; each takes a "
    "compile.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    metavar="S",
    help="With --corpus, the time limit per module.",
)
@options.partitioner()
@options.top(20, "disagreements to list")
@options.strict
@options.json("analysis.verify.audited:VerifyDocument")
def command(
    target: opening.Opening,
    corpus: bool,
    causes: int,
    seconds: float,
    partitioners: tuple[Partitioner, ...],
    top: int,
    strict: bool,
    as_json: bool,
) -> int:
    """Audit what sdyscope shows of a program against XLA's own dumps.

    The program is compiled once more, plainly, and every value, collective and byte is read
    from XLA's dumps by a separate reader. Exit status 1 if they disagree with what the other
    commands show.
    """
    from sdyscope.commands import verify_corpus
    from sdyscope.terminal import document, paragraphs, table
    from sdyscope.views import verify

    if corpus:
        verify_corpus.check(target)
        result = verify_corpus.audit(target.word, partitioners, causes, seconds, progress.step)
    else:
        result = target.inspection(partitioners).verify(causes)
    if as_json:
        output.answers().write_bytes(document.encode(result))
    else:
        paragraphs.print_paragraphs(verify.heading(result))
        if result.programs:
            output.answers().write("")
            table.print_table(verify.stages(result))
        paragraphs.print_paragraphs(verify.left_out(result))
        paragraphs.print_paragraphs(verify.exceptions(result, top))
        paragraphs.print_paragraphs(verify.accounts(result, top))
    return 0 if result.agrees and not (strict and result.not_known) else 1
