"""The picture of a program: its ops and arguments in groups, what flows between them, what moves.

Values, their types and shardings are those of the tensors' table, found by SSA name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.analysis.naming.resolve import ssa_name
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.graph import OpGraph
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.page.graph_collectives import sent_by_node
from sdyscope.page.graph_groups import groups_of
from sdyscope.page.graph_marks import Mark, marks
from sdyscope.page.graph_nodes import Nodes, nodes_of
from sdyscope.words.marks import MARKS, plain_calls_text, unmarked_text


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """The columns of the graph; `reports/js/graph/model.js` reads them.

    Args:
        report: the inspection.
        pool: takes source lines.
        inspection: the program.

    Raises:
        TargetError: the module has no function to draw.
    """
    first = next(iter(inspection.lowered))
    graph = inspection.graph(first)
    nodes = nodes_of(graph)
    if not nodes.nodes:
        raise TargetError("The module has no function with ops in it, so there is no graph.")
    groups, inputs = groups_of(nodes, graph)
    notes: list[str] = []
    marked: dict[Partitioner, list[Mark]] = {}
    try:
        marked = marks(inspection, first)
    except SdyscopeError as error:
        notes.append(unmarked_text(error.message))
    if nodes.plain_calls:
        notes.append(plain_calls_text(nodes.plain_calls))
    sent = sent_by_node(report, inspection, nodes, notes)
    return {
        "partitioners": list(report.partitioners),
        "first": first,
        "notes": notes,
        "words": MARKS,
        "nodes": table(
            {
                "kind": (node.kind for node in nodes.nodes),
                "name": (node.name for node in nodes.nodes),
                "ssa": _ssa(nodes, graph),
                "group": groups.of,
                "results": (node.results for node in nodes.nodes),
                "type": (_type(graph, node.op, node.results) for node in nodes.nodes),
                "splat": (int(node.splat) for node in nodes.nodes),
                "operands": (
                    [
                        number - operand if not result else [number - operand, result]
                        for operand, result in node.operands
                    ]
                    for number, node in enumerate(nodes.nodes)
                ),
            }
        ),
        "groups": table(
            {
                "parent": (group.parent for group in groups.groups),
                "name": (group.name for group in groups.groups),
                "kind": (group.kind for group in groups.groups),
                "ssa": (
                    "" if group.op is None else graph.ops[group.op].name for group in groups.groups
                ),
            }
        ),
        "inputs": {
            "node": [argument for argument, _ in inputs],
            "group": [group for _, group in inputs],
        },
        "marks": {p: _marks(marks, nodes) for p, marks in marked.items()},
        "sent": sent,
    }


def _ssa(nodes: Nodes, graph: OpGraph) -> Iterator[str]:
    for node in nodes.nodes:
        op = graph.ops[node.op]
        named = node.kind != "result" and op.types
        yield ssa_name(graph, (op.id, 0)).partition("#")[0] if named else ""


def _type(graph: OpGraph, op: int, results: int) -> str:
    """`f32[8,128]` of the first result."""
    types = graph.ops[op].types
    if not types:
        return ""
    type_ = types[0]
    if type_.shape is None:
        return type_.text
    sizes = ",".join("?" if size is None else str(size) for size in type_.shape)
    return f"{type_.dtype}[{sizes}]"


def _marks(marks: list[Mark], nodes: Nodes) -> dict[str, Any]:
    """Columns of the marks, each on every node that its op is."""
    rows = [(node, mark) for mark in marks for node in nodes.of_op.get(mark.op, ())]
    return table(
        {
            "node": (node for node, _ in rows),
            "kind": (mark.kind for _, mark in rows),
            "operand": (mark.operand for _, mark in rows),
            "dims": (mark.dims for _, mark in rows),
        }
    )
