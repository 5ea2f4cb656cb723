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
@opening.target
@options.partitioner()
@options.strict
@options.json("words.findings:Check")
def command(
    target: opening.Opening,
    partitioners: tuple[Partitioner, ...],
    strict: bool,
    as_json: bool,
) -> int:
    """Compare what was requested with what was lowered.

    Every argument, result, sharding constraint and shard_map boundary under each partitioner, and
    the partitioners with each other: by placement, with what is left open. Exit status 1 if there
    is anything worse than a note.
    """
    from sdyscope.terminal.answer import print_answer
    from sdyscope.terminal.findings import check_paragraphs

    inspection = target.inspection(partitioners)
    checked = inspection.check()
    print_answer(checked, lambda: [check_paragraphs(checked)], as_json=as_json)
    return 0 if checked.passed and not (strict and checked.account) else 1
