"""`sdyscope docs`."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

import click

from sdyscope.commands import completing
from sdyscope.commands.command_help import Command
from sdyscope.errors import TargetError, did_you_mean
from sdyscope.process import output

#: The page that lists the others.
_INDEX = "README"

#: Columns of text that is easily read.
_WIDEST = 100


@click.command(cls=Command, has_page=False, examples=("docs", "docs propagate", "docs models/mlp"))
@click.argument("name", metavar="[NAME]", default=_INDEX, shell_complete=completing.pages)
@click.option("--raw", is_flag=True, help="Print the raw Markdown.")
def command(name: str, raw: bool) -> int:
    """Read the documentation installed with the tool.

    NAME is a page, such as the name of a command, models/mlp, or schema/show for the form of its
    --json; without it the list of all pages. If standard output is not a terminal, the page is
    printed as raw Markdown.
    """
    known = pages()
    wanted = name.removeprefix("docs/").removesuffix(".md").removesuffix(".json")
    page = known.get(wanted) or known.get(f"{wanted}/{_INDEX}")
    if page is None:
        hint = did_you_mean(wanted, known, "`sdyscope docs` lists the pages.")
        raise TargetError(f"There is no page {name!r}.", hint=hint)
    text, answers = page.read_text(encoding="utf-8"), output.answers()
    if raw or not answers.terminal or not page.name.endswith(".md"):
        answers.write(text)
        return 0
    # As Git does: what fits on the screen is not paged.
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(_shown(text, min(answers.columns or _WIDEST, _WIDEST)), color=True)
    return 0


def pages() -> Mapping[str, Traversable]:
    """The pages and schemas by name, such as `show` or `models/mlp`."""
    # By name: the folder is mapped into the package only when it is installed.
    top = files("sdyscope.docs")
    return {
        prefix + name: entry
        for prefix, folder in (("", top), ("models/", top / "models"), ("schema/", top / "schema"))
        for entry in sorted(folder.iterdir(), key=lambda file: file.name)
        for name, dot, kind in (entry.name.rpartition("."),)
        if dot and kind in ("md", "json")
    }


def _shown(text: str, columns: int) -> str:
    """Markdown for a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=columns)
    console.print(Markdown(text, hyperlinks=False))
    return stream.getvalue()
