"""`sdyscope fix`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from sdyscope.commands import mesh_choice, opening, options
from sdyscope.process import child

if TYPE_CHECKING:
    from sdyscope.hardware.names import Hardware
    from sdyscope.terminal.answer import Block


def environment(
    mesh: Mapping[str, int] | None,
    mesh_config: str | None = None,
    mesh_selector: str | None = None,
    target: str = "",
    rerun: bool = False,
    **_: Any,
) -> dict[str, str]:
    """As many virtual CPU devices as the mesh needs: numbers are compared on these."""
    if rerun:
        return options.lowering(target=target, rerun=rerun)
    asked = mesh_choice.known_devices(mesh, mesh_config, mesh_selector)
    return child.lowering(max(child.VIRTUAL, asked))


@options.command(
    environment=environment,
    examples=(
        "fix fsdp-transformer --set constrained=false",
        "fix train.py:step --on tpu:v5e:2x4",
        "fix train.py:step \"params['w1']\" --apply",
        "fix run:train_step --rerun",
    ),
)
@options.target
@click.argument("finding", metavar="[FINDING]", default="")
@options.mesh
@options.on
@click.option(
    "--edits",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Edits to take together at most.",
)
@click.option(
    "--predictions",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="N",
    help="Edits to predict at most; an eighth of it are traced, where only that tells.",
)
@click.option(
    "--compiles",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Edited programs to compile at most.",
)
@options.settings
@options.rerun
@click.option("--all", "everything", is_flag=True, help="Show every remedy with its patch.")
@click.option(
    "--apply",
    "write",
    is_flag=True,
    help="Write the first remedy into the source, if it is proven and the git work tree is clean.",
)
@click.option(
    "--sarif",
    metavar="FILE",
    help="Also write SARIF 2.1.0, which carries the proven edits as fixes.",
)
@options.strict
@options.json("analysis.fix.values:Fix")
def command(
    target: str,
    finding: str,
    mesh: dict[str, int] | None,
    on: Hardware | None,
    edits: int,
    predictions: int,
    compiles: int,
    settings: dict[str, str],
    rerun: bool,
    everything: bool,
    write: bool,
    sarif: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Propose edits of the source that send or hold less, with proof.

    Edits of constraints, of the shardings of arguments and results, and of donation are tried with
    Shardy's own passes, without tracing again. The best are written into a copy of the source,
    which is traced and compiled. What is printed is a patch, what it changes, and whether the
    edited program computes the same numbers. Exit status 1 if there is a proven remedy.

    FINDING is what to fix: a rule of lint (under-sharded), a kind of collective (all-gather), a
    tensor (params['w1']), a line (train.py:42), mesh: the order and sizes of its axes, or
    first-difference: where the partitioners begin to differ. By default anything but other sizes of
    the mesh.
    """
    from sdyscope.analysis.fix.effort import Effort
    from sdyscope.process import output, progress
    from sdyscope.process.work_tree import write_clean
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import fix

    output.check_folders(sarif)
    subject = opening.Opening(target, mesh, settings, rerun=rerun)
    inspection = subject.inspection(subject.under(None))
    bench = subject.bench(inspection)
    answer = bench.fix(
        finding,
        on=on,
        effort=Effort(edits=edits, predictions=predictions, compiles=compiles),
        notify=progress.part,
    )
    best = answer.proven[0] if answer.proven else None
    if write and best is not None:
        write_clean(best.before_texts, best.texts)
    if sarif is not None:
        from sdyscope.ci.forms.sarif import render_fix

        output.write_atomically(sarif, render_fix(answer, bench.root))

    def parts() -> Iterator[Block]:
        yield fix.heading(answer)
        for number, remedy in enumerate(fix.shown(answer, everything=everything), 1):
            yield from fix.blocks(answer, remedy, number)
        yield fix.footer(answer, everything=everything, applied=write and best is not None)

    print_answer(answer, parts, as_json=as_json)
    return 1 if answer.proven or (strict and answer.account) else 0
