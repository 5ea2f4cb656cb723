"""`sdyscope check`."""

from __future__ import annotations

from sdyscope.commands import opening, options
from sdyscope.facts.program import Partitioner


@options.command(
    examples=(
        "check mlp",
        "check train.py:step --partitioner shardy",
        "check dumps/jit_step.mlir",
    ),
)
@options.target
@options.mesh
@options.partitioner()
@options.settings
@opening.module
@options.strict
@options.json("words.findings:Check")
def command(
    target: str,
    mesh: dict[str, int] | None,
    partitioners: tuple[Partitioner, ...],
    settings: dict[str, str],
    module: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Compare what was requested with what was lowered.

    Every argument, result, sharding constraint and shard_map boundary under each partitioner, and
    the partitioners with each other: by placement, with what is left open. Exit status 1 if there
    is anything worse than a note.
    """
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs
    from sdyscope.terminal.account import account_paragraphs
    from sdyscope.views import check

    inspection = opening.open_one(
        target, mesh=mesh, settings=settings, partitioners=partitioners, module=module
    )
    checked = inspection.check()
    if as_json:
        output.answers().write_bytes(document.encode(checked))
    else:
        paragraphs.print_paragraphs(check.paragraphs(checked))
        paragraphs.print_paragraphs(account_paragraphs(checked.account))
    return 0 if checked.passed and not (strict and checked.account) else 1
