"""The modules' text for the report: a line an op, with its source line and its row of the tensors.

Long lines are broken, which MLIR's syntax allows anywhere between tokens, and large constants are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sdyscope.analysis.value_pairs import value_pairs
from sdyscope.graph import Op, OpGraph
from sdyscope.inspection import Inspection
from sdyscope.program import Partitioner
from sdyscope.views.propagate_rows import ssa_name
from sdyscope.views.report import Report
from sdyscope.views.report_columns import Pool, column
from sdyscope.views.shardings import shown_name, source_document

#: Lines are broken from this many characters on.
WIDTH = 150

#: Constants from this many characters on are left out.
CONSTANT = 240

_DEFINES = re.compile(r"\s*(%[\w.$-]+)(?::\d+)? = ")
_CONSTANT = re.compile(rf'(?<=dense<)("0x[0-9A-Fa-f]{{{CONSTANT},}}"|\[[^>]{{{CONSTANT},}}\])(?=>)')
_RESOURCE = re.compile(rf'"0x[0-9A-Fa-f]{{{CONSTANT},}}"')


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """The text under each partitioner; `reports/js/ir.js` shows it.

    Args:
      report: not needed.
      pool: takes the source lines.
      inspection: the program.
    """
    first = next(iter(inspection.lowered))
    return {
        "modules": [_module(inspection, pool, name, first) for name in inspection.lowered],
        "failures": [(name, error.message) for name, error in inspection.failures.items()],
    }


def _module(
    inspection: Inspection, pool: Pool, partitioner: Partitioner, first: Partitioner
) -> dict[str, Any]:
    graph = inspection.graph(partitioner)
    names = _names(inspection, first, partitioner)
    text: list[str] = []
    wrapped: list[int] = []
    sources: list[int | None] = []
    scopes: list[str] = []
    tensors: list[str] = []
    left_out = 0
    for line, op in _lines(inspection.lowered[partitioner].text(debug_info=False), graph):
        short, found = elided(line)
        left_out += found
        for number, piece in enumerate(broken(short)):
            if number:
                wrapped.append(len(text))
            text.append(piece)
            sources.append(None if op is None else pool.source(source_document(op.source)))
            scopes.append("" if op is None else shown_name(op.scope, ""))
            tensors.append("" if op is None else names.get(op.id, ""))
    return {
        "partitioner": partitioner,
        "text": "\n".join(text),
        "wrapped": _steps(wrapped),
        "sources": column(sources),
        "scopes": column(scopes),
        "tensors": _own(tensors, text),
        "leftOut": left_out,
    }


def _names(inspection: Inspection, first: Partitioner, partitioner: Partitioner) -> dict[int, str]:
    """For each op the SSA name of its first result in the first module, where it is known."""
    graph = inspection.graph(first)
    if partitioner == first:
        return {op.id: ssa_name(graph, (op.id, 0)) for op in graph.ops if op.types and op.name}
    pairs = value_pairs(graph, inspection.graph(partitioner))
    return {
        theirs[0]: ssa_name(graph, ours)
        for ours, theirs in pairs.items()
        if ours[1] == theirs[1] == 0
    }


def _lines(text: str, graph: OpGraph) -> Iterator[tuple[str, Op | None]]:
    """Each line, with the op that it defines.

    Ops are printed in their order, except those that stand for a whole region, as in `stablehlo.
    reduce(...) applies stablehlo.add`: what is in that region is not printed.
    """
    ops = (op for op in graph.ops if op.name and not op.is_argument)
    hidden: set[int] = set()
    for line in text.splitlines():
        match = _DEFINES.match(line)
        found = None
        if match is not None:
            found = next(
                (op for op in ops if op.parent not in hidden and op.name == match[1]), None
            )
            if found is not None and " applies " in line:
                hidden.add(found.id)
        yield line, found


def elided(line: str) -> tuple[str, int]:
    """The line without its large constants, and how many there were."""
    line, one = _CONSTANT.subn(lambda found: f"/* {len(found[0]):,} characters */", line)
    line, two = _RESOURCE.subn(lambda found: f'"0x… {len(found[0]):,} characters"', line)
    return line, one + two


def broken(line: str) -> Iterator[str]:
    """A long line in pieces, which are indented further; a function's arguments each on a line."""
    if len(line) <= WIDTH:
        yield line
        return
    own = len(line) - len(line.lstrip())
    indent = " " * (own + 4)
    if line.lstrip().startswith("func.func"):
        pieces = re.split(r"(?<=[>}]), (?=%\w+: )|(?<=[>}]), (?=tensor<)|(?<=\)) (?=-> \()", line)
        for number, piece in enumerate(pieces):
            end = (
                "," if number + 1 < len(pieces) and not pieces[number + 1].startswith("->") else ""
            )
            yield f"{indent if number else ''}{piece}{end}"
        return
    piece = ""
    for token in re.split(r"(?<=,) ", line):
        if piece and len(piece) + len(token) > WIDTH:
            yield piece
            piece = indent + token
        else:
            piece = f"{piece} {token}" if piece else token
    yield piece


def _steps(numbers: list[int]) -> list[int]:
    """Rising numbers as the steps between them, which pack better."""
    return [b - a for a, b in zip([0, *numbers], numbers, strict=False)]


def _own(names: list[str], text: list[str]) -> dict[str, Any]:
    """Names of tensors; `=` where it is the name that the line itself defines."""
    return column(
        "=" if (match := _DEFINES.match(line)) and match[1] == name else name
        for name, line in zip(names, text, strict=True)
    )
