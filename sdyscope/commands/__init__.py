"""The command line, one file a subcommand.

A subcommand is a module here with a click command called `command`; its name is the module's. The
modules import nothing heavy when they are loaded: what they need, they import inside the function.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from sdyscope.commands.command_help import CommandGroup

#: The subcommands by what they answer, in the order in which help lists them.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Where every tensor is": (
        "show",
        "check",
        "propagate",
        "explain",
        "source",
        "run",
    ),
    "What it costs": (
        "comms",
        "memory",
        "cost",
        "profile",
        "lint",
        "fix",
        "search",
        "symptoms",
    ),
    "What changed": (
        "diff",
        "upgrade",
        "bisect",
        "snapshot",
        "ci",
    ),
    "Output": (
        "report",
        "lower",
        "graph",
    ),
    "Input": (
        "record",
        "models",
    ),
    "sdyscope itself": (
        "docs",
        "doctor",
        "verify",
        "skill",
        "completion",
    ),
}

COMMANDS = tuple(name for names in SECTIONS.values() for name in names)


def load(name: str) -> click.Command | None:
    """The subcommand of a name; None where there is none."""
    if name not in COMMANDS:
        return None
    module = importlib.import_module(f"{__name__}.{name}")
    command: click.Command = module.command
    command.name = name
    return command


def document_type(name: str) -> type | None:
    """The class of the document that a command prints with `--json`; None where it has none."""
    from sdyscope.commands.options import Json

    command = load(name)
    assert command is not None, name
    option = next((param for param in command.params if isinstance(param, Json)), None)
    if option is None:
        return None
    module, _, of_document = option.document.partition(":")
    type_: type = getattr(importlib.import_module(f"sdyscope.{module}"), of_document)
    return type_


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from sdyscope.version import FROM_SOURCE, own_version

    text = own_version()
    click.echo(f"sdyscope {'from its source, not installed' if text == FROM_SOURCE else text}")
    ctx.exit()


@click.group(
    cls=CommandGroup,
    sections=SECTIONS,
    load=load,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog="`sdyscope COMMAND --help` shows examples, `sdyscope docs` the documentation. Exit "
    "status: 0 all well, 1 findings or differences, 2 bad usage or input.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """Where every tensor of a JAX program lives on the mesh, and who decided that.

    TARGET is a reference model (`sdyscope models` lists them), `package.module:name` or
    `path/file.py:name`, a StableHLO or HLO file, or a directory of dumps, of which `DIR:name` is
    one program.
    """
