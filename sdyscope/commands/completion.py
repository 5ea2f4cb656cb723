"""`sdyscope completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sdyscope.commands.command_help import Command
from sdyscope.process import output

#: The variable by which a shell asks; click's rule for it.
_VARIABLE = "_SDYSCOPE_COMPLETE"


@click.command(
    cls=Command,
    examples=(
        "completion bash >> ~/.bashrc",
        "completion zsh >> ~/.zshrc",
        "completion fish > ~/.config/fish/completions/sdyscope.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print a shell completion script.

    It completes commands, options and their choices, reference models and files, mesh axes and
    settings of a reference model, hardware, lint's rules, the targets of ci and the pages of docs.
    bash must be 4.4 or newer.
    """
    from sdyscope.commands import cli

    completion = get_completion_class(shell)
    assert completion is not None, shell
    # click's own `source` also looks for the version of the bash that runs, which need not be this.
    source = completion(cli, {}, "sdyscope", _VARIABLE)
    output.answers().write(source.source_template % source.source_vars())
    return 0
