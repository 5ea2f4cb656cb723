"""The picture of a program: its ops and arguments in groups, what flows between them, what moves.

Values, their types and shardings are those of the tensors' table, found by SSA name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import ssa_name
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.graph import OpGraph
from sdyscope.graph.scalars import type_text
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.page.graph_groups import groups_of
from sdyscope.page.graph_marks import Mark, marks
from sdyscope.page.graph_nodes import Nodes, nodes_of
from sdyscope.words.marks import MARKS, not_drawn_text, plain_calls_text, unmarked_text
from sdyscope.words.mesh import names_text
from sdyscope.words.origins import origin_text


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
    return type_text(types[0]) if types else ""


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


# --- Collectives ----------------------------------------------------------------------------------
# Those of the compiled program, at the ops that they were made for.


def sent_by_node(
    report: Report, inspection: Inspection, nodes: Nodes, notes: list[str]
) -> dict[str, Any]:
    """For each partitioner the tensors of collectives, a row each; none where nothing was compiled.

    Args:
        report: the inspection.
        inspection: the program.
        nodes: the nodes. Tags are those of the module that is drawn, so other partitioners' are
            found by scope and line only, and are left to their own view where they are not.
        notes: takes what could not be placed.
    """
    if report.comms is None:
        return {}
    columns_by_partitioner: dict[str, Any] = {}
    for program in report.comms.programs:
        partitioner = program.partitioner
        if partitioner is None:
            continue
        try:
            columns, lost = _rows(report, inspection, nodes, partitioner)
        except SdyscopeError as error:
            notes.append(unmarked_text(error.message, "sent"))
            continue
        columns_by_partitioner[partitioner] = columns
        if lost:
            notes.append(not_drawn_text(lost, partitioner))
    return columns_by_partitioner


def _rows(
    report: Report, inspection: Inspection, picture: Nodes, partitioner: Partitioner
) -> tuple[dict[str, Any], int]:
    all_of = inspection.collectives(partitioner, report.hardware)
    first = next(iter(inspection.lowered))
    paired = {}
    if partitioner != first:
        paired = _ops_of(inspection, first, partitioner)
    rows: list[tuple[int, Collective, Part]] = []
    lost = 0
    for collective in all_of.collectives:
        for part in collective.parts:
            node = next(
                (
                    nodes
                    for path in part.tags
                    if path and (nodes := _node(path, picture, paired, partitioner == first)) >= 0
                ),
                -1,
            )
            lost += node < 0
            if node >= 0:
                rows.append((node, collective, part))
    return table(
        {
            "node": (node for node, _, _ in rows),
            "kind": (collective.kind for _, collective, _ in rows),
            "axes": (
                names_text(collective.axes) if collective.axes else "" for _, collective, _ in rows
            ),
            "count": (collective.count for _, collective, _ in rows),
            "sent": (collective.count * part.sent for _, collective, part in rows),
            "shape": (str(part.shape) for _, _, part in rows),
            "why": (_why(part) for _, _, part in rows),
            "name": (collective.name for _, collective, _ in rows),
        }
    ), lost


def _why(part: Part) -> str:
    """Why it is there, in a line; empty where that is not known."""
    return "" if part.origin is None else origin_text(part.origin)


def _ops_of(inspection: Inspection, first: Partitioner, other: Partitioner) -> dict[int, int]:
    """The op of the first partitioner's module for each of the other's."""
    pairs = value_pairs(inspection.graph(first), inspection.graph(other))
    return {theirs[0]: ours[0] for ours, theirs in pairs.items()}


def _node(path: tuple[int, ...], picture: Nodes, paired: dict[int, int], own: bool) -> int:
    """The node that an op is at the end of a path of calls; -1 without one."""
    ops = list(path) if own else [paired[op] for op in path if op in paired]
    if not ops or (not own and path[-1] not in paired):
        return -1
    nodes = picture.of_op.get(ops[-1], [])
    if len(nodes) < 2:
        return nodes[0] if nodes else -1
    for node in nodes:
        owner = picture.nodes[node].owner
        if owner is not None and picture.owners[owner].op == (ops[-2] if len(ops) > 1 else -1):
            return node
    return nodes[0]
