"""The command line, one file a subcommand.

A subcommand is a module here with a click command called `command`; its name is the module's. The
modules import nothing heavy when they are loaded: what they need, they import inside the function.
"""

from __future__ import annotations

import importlib

import click

#: The subcommands, in the order in which help lists them.
COMMANDS = (
    "models",
    "lower",
    "show",
    "graph",
    "check",
    "diff",
    "propagate",
    "explain",
    "memory",
    "comms",
    "cost",
    "search",
    "run",
    "report",
    "lint",
    "snapshot",
    "ci",
    "record",
    "verify",
    "doctor",
)


class _LazyGroup(click.Group):
    """Loads the module of a subcommand when its name is used, or when help lists it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{cmd_name}")
        command: click.Command = module.command
        command.name = cmd_name
        return command


def document_type(name: str) -> type:
    """The class of the document that a command prints with `--json`."""
    from sdyscope.commands.options import Json

    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    (option,) = (each for each in command.params if isinstance(each, Json))
    module, _, of_document = option.document.partition(":")
    made: type = getattr(importlib.import_module(f"sdyscope.{module}"), of_document)
    return made


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    click.echo(f"sdyscope {version('sdyscope')}")
    ctx.exit()


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog="Exit status: 0 all well, 1 findings or differences, 2 bad usage or input.",
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
