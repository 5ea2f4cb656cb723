"""`sdyscope lower`."""

from __future__ import annotations

from pathlib import Path

import click

from sdyscope.commands import opening, options
from sdyscope.errors import TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.process import output
from sdyscope.terminal.messages import tell


@options.command(
    examples=(
        "lower mlp --partitioner shardy",
        "lower mlp -o dumps --bytecode",
    ),
)
@opening.target
@options.partitioner()
@click.option(
    "-o",
    "--output",
    "target_path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Write to this file, or to NAME.shardy.mlir and NAME.gspmd.mlir in this directory.",
)
@click.option("--bytecode", is_flag=True, help="Write MLIR bytecode. Needs --output.")
@click.option("--no-locations", is_flag=True, help="Leave source locations out of the text.")
@options.strict
@options.json("views.lower:Lower")
def command(
    target: opening.Opening,
    partitioners: tuple[Partitioner, ...],
    target_path: Path | None,
    bytecode: bool,
    no_locations: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Print or write the modules that JAX hands to XLA.

    One under each partitioner. A file is read and printed as text, whatever its form.
    """
    from sdyscope.terminal import document
    from sdyscope.terminal.answer import say_account
    from sdyscope.views import lower
    from sdyscope.words.partitioners import partitioner_name

    if bytecode and target_path is None:
        raise TargetError("Bytecode is not for the terminal.", hint="Name a file with --output.")
    inspection = target.inspection(partitioners, as_module=True)
    modules = lower.document(inspection, locations=not no_locations, bytecode=bytecode)
    if target_path is not None:
        modules = lower.write(modules, inspection, target_path)
    answer = output.answers()
    if as_json:
        answer.write_bytes(document.encode(modules))
        return 1 if strict and modules.account else 0
    for each in modules.modules:
        if each.text is None:
            answer.write(lower.written(each))
        else:
            answer.write(lower.header(modules, each))
            answer.write(each.text)
    for failure in modules.failures:
        name = partitioner_name(failure.partitioner)
        tell(f"nothing under {name}: {failure.reason}")
    say_account(modules.account)
    return 1 if strict and modules.account else 0
