"""What `sdyscope ci` found, on the terminal, for GitHub and in files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdyscope.errors import TargetError

if TYPE_CHECKING:
    from sdyscope.views.ci import Ci

__all__ = ["check_writable", "tell", "write"]


def check_writable(*files: str | None) -> None:
    """Finds a folder that is not there before anything takes time."""
    for file in files:
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise TargetError("There is no such folder to write to.", file=file)


def tell(found: Ci, *, as_json: bool, notes: bool, budgets: bool, github: bool | None) -> None:
    """Prints what was found, and annotations for GitHub where they are wanted.

    Args:
      found: it.
      as_json: one document in place of tables.
      notes: tell notes, too.
      budgets: list what of each budget is used.
      github: whether there are annotations; None for where GitHub runs this.
    """
    from sdyscope import child
    from sdyscope.views import ci_github, ci_text, document, output, paragraphs, table

    real = output.answers()
    answer = io.BytesIO()
    stream = io.TextIOWrapper(answer, encoding=real.stream.encoding, errors="backslashreplace")
    here = output.Output(stream, real.terminal, real.columns)
    if as_json:
        here.write_bytes(document.encode(found))
    else:
        table.print_table(ci_text.overview(found), here)
        paragraphs.print_paragraphs(ci_text.paragraphs(found, notes=notes), here)
        for target in (one for one in found.targets if budgets and one.budgets):
            here.write("")
            table.print_table(ci_text.budgets(target), here)
    if github if github is not None else os.environ.get("GITHUB_ACTIONS") == "true":
        # The runner reads both streams; a document is alone on its own.
        for line in ci_github.annotation_lines(found):
            if as_json:
                click.echo(line, err=True)
            else:
                here.write(line)
    stream.flush()
    child.pass_on(answer, real)


def write(
    found: Ci, summary: str | None, junit: str | None, sarif: str | None, *, notes: bool
) -> None:
    """Writes the summary, JUnit's XML and SARIF to the files that are named.

    The summary goes to the step's own where GitHub has one and no other is named.
    """
    from sdyscope.views import ci_junit, ci_markdown, ci_sarif
    from sdyscope.views.output import write_atomically

    step = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if summary is not None:
        write_atomically(summary, ci_markdown.markdown(found, notes=notes) + "\n")
    elif step:
        _append(step, ci_markdown.markdown(found, notes=notes))
    if junit is not None:
        write_atomically(junit, ci_junit.junit(found))
    if sarif is not None:
        write_atomically(sarif, ci_sarif.sarif(found))


def _append(file: str, text: str) -> None:
    """Adds to the step's summary, which other commands of the step may have begun."""
    try:
        with open(file, "a", encoding="utf-8") as summary:
            summary.write(text + "\n")
    except OSError as error:
        raise TargetError(
            f"cannot write the step's summary: {error.strerror or error}", file=file
        ) from error
