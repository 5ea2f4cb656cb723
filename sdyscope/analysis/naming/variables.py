"""Which values an author's variable stands for, by the statements that assign it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sdyscope.analysis.naming.evaluations import is_backward, results_and_cotangents
from sdyscope.analysis.source.text import read_lines
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.values.source import SourceLocation

_Stack: TypeAlias = tuple[SourceLocation, ...]

#: How Python calls functions that are a part of a statement.
_EXPRESSIONS = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def values_of_variable(graph: OpGraph, name: str) -> list[ValueId]:
    """What the statements that assign a variable give, each time that they are evaluated.

    The lines of an op say which statement it is of; the text of the files is read here, as far as
    they are there and Python. Of what a statement computes it is the last value that others use.
    What is assigned without an op, as in ``y = x``, is not known.

    Args:
        graph: op graph of the lowered module.
        name: ``logits`` or ``self.scale``, of any function of the program's files.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        return []
    files = dict.fromkeys(op.source.file for op in graph.ops if op.source is not None)
    statements = {file: lines for file in files if (lines := _assignments(file, name))}
    placed = [op for op in graph.operations() if op.location.frames] if statements else []
    values: dict[ValueId, None] = {}
    for file, spans in statements.items():
        for span in spans:
            for ops in _evaluations(placed, file, span):
                values |= dict.fromkeys(results_and_cotangents(graph, ops)[0])
    return sorted(values)


def _evaluations(placed: Sequence[Op], file: str, span: range) -> Iterator[list[Op]]:
    """The ops of a statement, each time that it is evaluated.

    It is, again, once its call or one around that has gone on to another line. A loop of nothing
    but the statement can't be told from one evaluation of it.
    """
    current: dict[_Stack, list[Op]] = {}
    for op in placed:
        frames = op.location.frames
        outers = [
            frames[depth + 1 :]
            for depth, frame in enumerate(frames)
            if frame.file == file and frame.line in span
            if not frame.function.endswith(_EXPRESSIONS)
        ]
        for outer, ops in [*current.items()]:
            beside = op.parent == ops[0].parent and not is_backward(op)
            if outer not in outers and beside and _has_gone_on(frames, outer, file, span):
                yield current.pop(outer)
        for outer in outers:
            current.setdefault(outer, []).append(op)
    yield from current.values()


def _has_gone_on(frames: _Stack, outer: _Stack, file: str, span: range) -> bool:
    """Whether an op of these frames is traced after a statement that was called by ``outer``."""
    for frame, other in zip(reversed(frames), reversed(outer), strict=False):
        if frame != other:
            return frame.file == other.file and frame.line != other.line
    if len(frames) <= len(outer):
        return False
    frame = frames[-len(outer) - 1]
    return frame.file == file and frame.line not in span


def _assignments(file: str, name: str) -> list[range]:
    """The lines of each statement of a file that assigns a variable."""
    lines = read_lines(file)
    if isinstance(lines, str):
        return []
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return []
    places = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = [node.target]
        else:
            continue
        if any(_is(target, name) for target in targets):
            places.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return places


def _is(target: ast.expr, name: str) -> bool:
    """Whether a target is the variable, or unpacks what is assigned to it."""
    if isinstance(target, ast.Tuple | ast.List):
        return any(_is(each, name) for each in target.elts)
    if isinstance(target, ast.Starred):
        return _is(target.value, name)
    return isinstance(target, ast.Name | ast.Attribute) and ast.unparse(target) == name
