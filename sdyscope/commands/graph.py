"""`sdyscope graph`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from sdyscope.commands import opening, options
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import Stage
from sdyscope.process import output
from sdyscope.terminal.messages import tell

if TYPE_CHECKING:
    from sdyscope.facts.propagated import ValueId
    from sdyscope.facts.sharded import Sharded
    from sdyscope.graph import OpGraph
    from sdyscope.inspection import Inspection

_Format: TypeAlias = Literal["graphml", "model-explorer"]


@options.command(
    examples=(
        "graph mlp -o mlp.json",
        "graph mlp --at propagated --format graphml -o mlp.graphml",
    ),
)
@opening.target
@click.option(
    "--partitioner",
    type=options.choice(Partitioner),
    help="The partitioner whose module to write. By default Shardy, or that of the file.",
)
@click.option(
    "--at",
    type=options.choice(Stage),
    multiple=True,
    default=("lowered",),
    show_default=True,
    help="Which shardings to write: those in the lowered module, those after propagation, those "
    "that were requested, or those of arguments and results that the program is compiled with. "
    "Can be repeated.",
)
@click.option(
    "--format",
    "form",
    type=options.choice(_Format),
    help="GraphML, or JSON for Model Explorer. By default JSON that NetworkX reads, as with "
    "--json.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write to this file instead of standard output.",
)
@click.option(
    "--node-data",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="With --format model-explorer, also write Model Explorer's node data into this folder: "
    "shardings and bytes after propagation, and, compiled, the bytes that each op's collectives "
    "send.",
)
@options.on
@options.strict
@options.json("views.graph_json:Graph")
def command(
    target: opening.Opening,
    partitioner: Partitioner | None,
    at: tuple[Stage, ...],
    form: _Format | None,
    path: Path | None,
    folder: Path | None,
    on: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Write the op graph: ops, edges, scopes and shardings.

    Every op of the module with its scope, source line, types, shardings and regions, and every use
    of a value. Its size is printed on standard error.
    """
    from sdyscope.terminal.answer import say_account
    from sdyscope.views import graph
    from sdyscope.words.partitioners import module_text

    if as_json and form is not None:
        raise TargetError(f"--json and --format {form} exclude each other.", hint="Leave one out.")
    if folder is not None and form != "model-explorer":
        raise TargetError("--node-data is for Model Explorer.", hint="Add --format model-explorer.")
    partitioners = target.under(partitioner)
    # A compiled program has ops, but what is propagated is not in it.
    as_module = at == ("lowered",) and folder is None
    inspection = target.inspection(partitioners, as_module=as_module)
    chosen = inspection.chosen(None)
    op_graph = inspection.graph(chosen, at=at, on=on)
    account = inspection.account
    content = graph.encoded(op_graph, form or "json", account)
    if path is None:
        output.answers().write_bytes(content)
    else:
        output.write_atomically(path, content)
        # With --json the document is in the file, and standard output has nothing to say.
        output.say(f"{path}: {len(content):,} bytes")
    if folder is not None:
        _node_data(folder, inspection, chosen, op_graph, on)
    under = None if inspection.lowered[chosen].is_compiled else chosen
    tell(graph.statistics(op_graph, module_text(inspection.name, under)))
    say_account(account)
    return 1 if strict and account else 0


def _node_data(
    folder: Path,
    inspection: Inspection,
    partitioner: Partitioner,
    op_graph: OpGraph,
    on: str | None,
) -> None:
    """Writes a file for each kind of node data; says which there are not, and why."""
    import json

    from sdyscope.analysis.propagation.decided import Decisions
    from sdyscope.views import graph_node_data

    def decided() -> Callable[[ValueId], Sharded | None]:
        decisions = Decisions.of(inspection, inspection.propagated(partitioner))

        def of(value: ValueId) -> Sharded | None:
            known = decisions.decided(value)
            return None if known is None else known.sharding

        return of

    kinds: dict[str, Callable[[], graph_node_data.NodeData]] = {
        "shardings": lambda: graph_node_data.shardings(op_graph, decided()),
        "bytes": lambda: graph_node_data.held(op_graph, decided()),
        "sent": lambda: graph_node_data.sent(
            op_graph, inspection.collectives(partitioner, on, origins=False)
        ),
    }
    output.make_folder(folder)
    for name, make in kinds.items():
        file = folder / f"{name}.json"
        try:
            content = json.dumps(make()).encode() + b"\n"
        except SdyscopeError as error:
            output.say(f"{file} was not written: {error.message}")
            continue
        output.write_atomically(file, content)
        output.say(f"{file}: {len(content):,} bytes")
