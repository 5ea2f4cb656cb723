"""Which values an author's variable stands for, by the statements that assign it."""

from __future__ import annotations

import ast

from sdyscope.analysis.naming.evaluations import evaluated, results
from sdyscope.analysis.source.text import read_lines
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph
from sdyscope.values.source import SourceLocation, python_tree

#: How Python calls functions that are a part of a statement.
_EXPRESSIONS = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def values_of_variable(graph: OpGraph, name: str) -> list[ValueId]:
    """What the statements that assign a variable give, each time that they are evaluated.

    The lines of an op say which statement it is of; the text of the files is read here, as far as
    they are there and Python. Of what a statement computes it is what others use: of a pytree, or
    where several variables are unpacked, every value, for nobody says which is which. What is
    assigned without an op, as in ``y = x``, is not known.

    Args:
        graph: op graph of the lowered module.
        name: ``logits`` or ``self.scale``, of any function of the program's files.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        return []
    files = dict.fromkeys(op.source.file for op in graph.ops if op.source is not None)
    statements = {file: lines for file in files if (lines := _assignments(file, name))}
    if not statements:
        return []

    def place(frame: SourceLocation) -> tuple[str, int | None]:
        """The statement that a frame is in, by its first line, and any other line for itself."""
        for lines in statements.get(frame.file, ()):
            if frame.line in lines:
                return frame.file, lines.start
        return frame.file, frame.line

    framed = ((op, op.location.frames) for op in graph.operations())
    values: dict[ValueId, None] = {}
    for _, frame, ops in evaluated(framed, place):
        is_of = any(frame.line in lines for lines in statements.get(frame.file, ()))
        if is_of and not frame.function.endswith(_EXPRESSIONS):
            values |= dict.fromkeys(results(graph, ops))
    return sorted(values)


def _assignments(file: str, name: str) -> list[range]:
    """The lines of each statement of a file that assigns a variable."""
    lines = read_lines(file)
    if isinstance(lines, str):
        return []
    tree = python_tree("\n".join(lines))
    places = []
    for node in () if tree is None else ast.walk(tree):
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
