"""`sdyscope explain`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options, propagation

if TYPE_CHECKING:
    from sdyscope.terminal.paragraphs import Paragraph

#: What a VALUE looks like that the compiler makes.
_COMPILERS_OWN = re.compile(
    r"(?:all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?(?:\.\d+)*"
    r"|full-rematerialization|first-difference"
)


@options.command(
    examples=(
        "explain mlp \"params['w1']\"",
        "explain fsdp-transformer layer0/mlp/dot_general",
        "explain train.py:step train.py:42 --all",
        "explain fsdp-transformer layer0/mlp/dot_general --remove-axis model",
        "explain fsdp-transformer first-difference --set constrained=false",
    ),
)
@opening.target
@click.argument("value", metavar="VALUE")
@propagation.partitioner
@click.option("--all", "everything", is_flag=True, help="Explain every value that VALUE names.")
@click.option(
    "--remove-axis",
    "axis",
    metavar="AXIS",
    help="Find what keeps this mesh axis on the value, and the fewest removals without it. Of a "
    "collective, what has it run over the axis.",
)
@click.option(
    "--want",
    metavar="SPEC",
    help="Find the fewest removals that shard the value like this, such as \"P('data', None)\".",
)
@propagation.what_if
@options.strict
@options.json("analysis.propagation.explain:ExplainDocument")
def command(
    target: opening.Opening,
    value: str,
    partitioner: str | None,
    everything: bool,
    axis: str | None,
    want: str | None,
    shardings: tuple[str, ...],
    priorities: tuple[str, ...],
    conservative: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Explain why a value is sharded as it is.

    VALUE is a pytree path (params['w1']), a scope or the end of one (layer0/dot_general), a source
    line (model.py:42), a variable (logits) or an SSA name (%12); or a collective of the compiled
    program (all-gather.3), or a kind of these (all-gather); full-rematerialization, or
    first-difference (between the partitioners).

    For each axis on each dimension: the annotation that it comes from, and each step from there to
    the value. For each axis that a neighbouring tensor has and the value lacks: what stopped it.

    With --remove-axis or --want, annotations are changed in a copy of the module and propagated
    again: whether the one that is named is necessary, which others suffice on their own, and the
    smallest set of edits that does what is asked for. Of what the compiler makes that is always
    tried, and --remove-axis only takes the axis off the annotations.
    """
    if axis is not None and want is not None:
        raise click.UsageError("--remove-axis and --want are two questions: ask one of them.")
    from sdyscope.analysis.diff.sides import FIRST_DIFFERENCE
    from sdyscope.analysis.propagation.counterfactuals import with_counterfactuals
    from sdyscope.analysis.propagation.explain import explain_document
    from sdyscope.analysis.propagation.removals import explained_removals
    from sdyscope.syntax.partition_spec import parse_partition_spec
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import explain

    if value == FIRST_DIFFERENCE and partitioner is None:
        partitioner = "both"
    inspection = target.inspection_under(partitioner)
    if _COMPILERS_OWN.fullmatch(value):
        if want is not None:
            raise click.UsageError(
                f"--want is for a value's sharding, which {value} has none of. Name the value."
            )
        if shardings or priorities or conservative:
            raise click.UsageError(
                "--set-sharding, --priority and --conservative are for values. What removes "
                f"{value} is always tried."
            )
        explained = explained_removals(inspection, value, axis or "")
        print_answer(
            explained,
            lambda: [[*explain.heading(explained), *explain.removals(explained)]],
            as_json=as_json,
        )
        return 1 if strict and explained.account else 0
    what_if = propagation.wished(inspection, shardings, priorities, conservative)
    explained = explain_document(
        what_if.inspection,
        value,
        what_if.before,
        conservative=conservative,
        changes=what_if.changes,
    )
    if axis is not None or want is not None:
        wanted = None if want is None else parse_partition_spec(want)
        explained = with_counterfactuals(explained, what_if.inspection, axis or "", wanted)

    def answer() -> Iterator[Paragraph]:
        yield from explain.heading(explained)
        yield from explain.details(explained, everything=everything)
        yield from explain.footer(explained)

    print_answer(explained, lambda: [answer()], as_json=as_json)
    return 1 if strict and explained.account else 0
