"""`sdyscope symptoms`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sdyscope.commands import options
from sdyscope.commands.command_help import Command
from sdyscope.errors import TargetError
from sdyscope.process import output


@click.command(
    cls=Command,
    examples=(
        "symptoms",
        "symptoms train.log",
        "symptoms RESOURCE_EXHAUSTED",
        "symptoms compiled again",
    ),
)
@click.argument("words", metavar="[FILE | WORDS...]", nargs=-1)
@options.json("words.symptoms:Symptoms")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Name the commands that find the cause of an error or a hang.

    Searches a log, or - for standard input, or the words of an error for what JAX and XLA say when
    something goes wrong, and names the commands that find the cause. Without words, all symptoms
    are listed. Exit status 1 if no known symptom is in it.
    """
    from sdyscope.commands.docs import pages
    from sdyscope.terminal import document, paragraphs
    from sdyscope.views import symptoms as view
    from sdyscope.words.symptoms import Symptoms, read_symptoms, searched

    known = read_symptoms(pages()["symptoms"].read_text(encoding="utf-8"))
    source, matching = None, known
    if words:
        source = " ".join(words)
        if source == "-":
            matching = searched(known, sys.stdin)
        elif len(words) == 1 and Path(source).is_file():
            try:
                with open(source, encoding="utf-8", errors="replace") as log:
                    matching = searched(known, log)
            except OSError as error:
                raise TargetError(
                    f"The log can't be read: {error.strerror}", file=source
                ) from error
        else:
            matching = searched(known, [source], words=True)
    symptoms = Symptoms(source=source, symptoms=matching)
    if as_json:
        output.answers().write_bytes(document.encode(symptoms))
    else:
        paragraphs.print_paragraphs(view.paragraphs(symptoms))
    return 0 if matching else 1
