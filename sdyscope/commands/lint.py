"""`sdyscope lint`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from sdyscope.commands import completing, named_axes, opening, options

if TYPE_CHECKING:
    from sdyscope.hardware.names import Hardware
    from sdyscope.inspection import Inspection
    from sdyscope.lint import Linted


def _globs(_: click.Context, __: click.Parameter, words: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


@options.command(
    examples=(
        "lint mlp",
        "lint train.py:step --select 'donation-*,under-sharded'",
        "lint --rules",
        "lint --explain under-sharded",
    ),
)
@click.argument("target", metavar="TARGET", required=False, shell_complete=completing.targets)
@options.mesh
@options.on
@options.one_partitioner("The partitioner to check under.")
@options.settings
@opening.module
@options.rerun
@click.option(
    "--select",
    shell_complete=completing.rules,
    multiple=True,
    metavar="GLOB,...",
    callback=_globs,
    help="Run only these rules, such as 'donation-*'. Can be repeated.",
)
@click.option(
    "--ignore",
    shell_complete=completing.rules,
    multiple=True,
    metavar="GLOB,...",
    callback=_globs,
    help="Leave these rules out. Can be repeated.",
)
@click.option(
    "--no-compile",
    is_flag=True,
    help="Do not compile the program: rules that need that are then listed as not run.",
)
@click.option("--rules", "list_rules", is_flag=True, help="List the rules.")
@click.option(
    "--explain",
    shell_complete=completing.rules,
    metavar="RULE",
    help="Explain one rule; `sdyscope explain` explains a value.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="In a recorded run, also check JAX's own functions, and single ops of a shard_map that "
    "is called outside of jit.",
)
@options.strict
@options.json("lint.document:Lint")
def command(
    target: str | None,
    mesh: dict[str, int] | None,
    mesh_config: str | None,
    on: Hardware | None,
    partitioner: str | None,
    settings: dict[str, str],
    module: str | None,
    rerun: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    no_compile: bool,
    list_rules: bool,
    explain: str | None,
    everything: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Look for what is wrong, or costs more than it should.

    Rules with stable names look at every stage: annotations that were lost, constraints that
    contradict each other, unused donations, replicated tensors in sharded groups, avoidable
    collectives. Exit status 1 if there is anything worse than a note.

    Of a directory that `record` made, or of dumps, every program is checked; DIR:NAME is one.

    --rules lists the rules and --explain says what one finds, why, and what it does not find; both
    take no TARGET.
    """
    from sdyscope.errors import TargetError
    from sdyscope.lint import chosen_rules, linted, rule
    from sdyscope.lint.document import directory_document, lint_document, rules_document
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs
    from sdyscope.terminal.answer import print_answer
    from sdyscope.terminal.messages import tell
    from sdyscope.views import lint
    from sdyscope.words.lint import single_ops_text

    if explain is not None or list_rules:
        rules = [rule(explain)] if explain is not None else chosen_rules(select, ignore)
        if target is not None:
            raise TargetError("--rules and --explain are about rules.", hint="Leave TARGET out.")
        if as_json:
            output.answers().write_bytes(document.encode(rules_document(rules)))
        elif explain is not None:
            paragraphs.print_paragraphs(lint.explained(rules[0]))
        else:
            paragraphs.print_paragraphs(lint.rules_paragraphs(rules))
        return 0
    if target is None:
        raise TargetError(
            "There is no TARGET to look at.", hint="Name one, or list the rules with --rules."
        )
    chosen_rules(select, ignore)  # a wrong name is told before anything is compiled
    if no_compile and on is not None:
        raise TargetError("--no-compile compiles for no hardware.", hint="Leave one of them out.")
    subject = opening.Opening(target, mesh, settings, module, rerun)
    opened = subject.opened(subject.under(partitioner)).with_mesh(mesh)
    programs = opened.programs if everything else opened.whole
    if left := 0 if everything else len(opened.own) - len(programs):
        tell(f"note: {single_ops_text(left)}")
    if not programs:
        raise opened.unread[0].error

    def look(inspection: Inspection) -> Linted:
        logical, why_not = named_axes.logical_axes(inspection, mesh_config)
        run = partial(
            linted,
            inspection,
            select=select,
            ignore=ignore,
            logical=logical,
            no_logical=why_not,
        )
        try:
            return run(compiled=not no_compile, on=on)
        except TargetError as error:
            if len(programs) == 1:
                raise
            # The programs of a run are not all for as many devices.
            return run(compiled=False, not_compiled=error.message)

    if len(programs) == 1 and not opened.unread:
        answer = lint_document(look(programs[0]))
    else:
        unread = {str(file.path): file.error.message for file in opened.unread}
        answer = directory_document(target, [look(program) for program in programs], unread)
    print_answer(answer, lambda: [lint.paragraphs(answer)], as_json=as_json)
    known = answer.is_known if strict else not opened.unread
    return 0 if answer.passed and known else 1
