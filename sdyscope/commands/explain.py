"""`sdyscope explain`."""

from __future__ import annotations

import click

from sdyscope.commands import opening, options, propagation


@options.command(
    examples=(
        "explain mlp \"params['w1']\"",
        "explain fsdp-transformer layer0/mlp/dot_general",
        "explain train.py:step train.py:42 --all",
    ),
)
@options.target
@click.argument("value", metavar="VALUE")
@options.mesh
@propagation.partitioner
@options.settings
@opening.module
@click.option("--all", "everything", is_flag=True, help="Explain every value that VALUE names.")
@propagation.what_if
@options.strict
@options.json("analysis.propagation.explain:ExplainDocument")
def command(
    target: str,
    value: str,
    mesh: dict[str, int] | None,
    partitioner: str | None,
    settings: dict[str, str],
    module: str | None,
    everything: bool,
    shardings: tuple[str, ...],
    priorities: tuple[str, ...],
    conservative: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Explain why a value is sharded as it is.

    VALUE is a pytree path (params['w1']), a scope or the end of one (layer0/dot_general), a source
    line (model.py:42) or an SSA name (%12).

    For each axis on each dimension: the annotation that it comes from, and each step from there to
    the value. For each axis that a neighbouring tensor has and the value lacks: what stopped it.
    """
    from sdyscope.analysis.propagation.explain import explain_document
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs
    from sdyscope.terminal.account import account_paragraphs
    from sdyscope.views import explain

    inspection = opening.open_under(
        target, partitioner, mesh=mesh, settings=settings, module=module
    )
    what_if = propagation.wished(inspection, shardings, priorities, conservative)
    explained = explain_document(
        what_if.inspection,
        value,
        what_if.before,
        conservative=conservative,
        changes=what_if.changes,
    )
    if as_json:
        output.answers().write_bytes(document.encode(explained))
    else:
        paragraphs.print_paragraphs(explain.heading(explained))
        paragraphs.print_paragraphs(explain.details(explained, everything=everything))
        paragraphs.print_paragraphs(explain.footer(explained))
        paragraphs.print_paragraphs(account_paragraphs(explained.account))
    return 1 if strict and explained.account else 0
