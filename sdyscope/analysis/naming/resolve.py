"""What a user calls a value: a pytree path, a scope path, a source line, or an SSA name.

All are of the lowered module, which is what the user's program became before any compiler touched
it: ``params['layers'][0]['wq']``, ``result[0]``, ``layer0/attention/dot_general``, ``model.py:42``,
``%12``, ``func:%3``, ``%5~2`` for the second ``%5`` of a function; where no path is known
``main(0)``, ``main[0]``, ``add``, ``line 42``. And what the rows of tables are called:
``tanh model.py:42``, ``layer0 #1 input of attention line 42``, ``params['layers'][{0..7}] (8)``.
What nothing else is called may be a variable of the author's: ``logits``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from sdyscope.analysis.naming.evaluations import evaluated, results
from sdyscope.analysis.source.text import read_lines
from sdyscope.annotations import (
    annotated_value,
    op_name,
    op_path,
    read_annotations,
    within_program,
)
from sdyscope.errors import TargetError, did_you_mean
from sdyscope.facts.propagated import NamedValue, ValueId
from sdyscope.facts.tensors import TensorTable
from sdyscope.graph import Op, OpGraph, written_scope
from sdyscope.values.source import IN_TEXT, SourceLocation, python_tree

#: How many close matches an error names.
CLOSE_MATCHES = 3

_SSA = re.compile(
    r"(?:(?P<function>[^%]+):)?(?P<name>%[\w$.-]+)(?:~(?P<number>\d+))?(?:#(?P<result>\d+))?"
)
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")
#: A line of a module's own text, as tables have it.
_OWN_LINE = re.compile(r"line (?P<line>\d+)")
#: The name of a row: with the line where it is, and how many it stands for.
_ROW = re.compile(r"(?P<name>.*?)(?:(?:^| )(?P<place>line \d+|\S+:\d+))?(?P<count> \(×?[\d,]+\))?")
#: That of what goes into or out of a `shard_map`.
_BOUNDARY = re.compile(r"(?:(?P<scope>.*) )?#(?P<index>\d+) (?P<side>input|output)(?: of .+)?")
#: The numbers of repeated layers in one.
_NUMBERS = re.compile(r"\\\{[\d.,\\]+\\\}")
#: What JAX's transformations wrap around a scope: ``transpose(jvp(layer0))`` is about ``layer0``.
_WRAPPED = re.compile(r"[A-Za-z_]\w*\((?P<inside>.*)\)")


def named_value(graph: OpGraph, value: ValueId) -> NamedValue:
    """A value of ``graph`` with its names."""
    op = graph.within_calls(graph.ops[value[0]])
    ssa, source = ssa_name(graph, value), op.source
    if op.is_result and op.result in graph.returned:
        source = graph.ops[graph.returned[op.result][0]].source
    name = op_name(op)
    if op.is_result or op.is_argument:
        name = _entry_name(graph, op) or graph.ops[op.id].scope or ssa
    return NamedValue(value, name, ssa, op.kind, op.types[value[1]], source)


def _entry_name(graph: OpGraph, op: Op) -> str:
    """What an argument or result of main is called; empty of any other."""
    main = graph.main
    if main is None or not (op.is_result or op.parent == main.op):
        return ""
    if op.is_result:
        return main.name_of(main.results[op.result])
    return main.name_of(main.arguments[op.argument])


def ssa_name(graph: OpGraph, value: ValueId) -> str:
    """``%3``, or ``silu:%3`` outside the main function; of what main returns, what is returned.

    ``%3~2`` is the second ``%3`` of the function: regions beside each other have the same names.
    """
    op = graph.ops[value[0]]
    if op.is_result:
        returned = graph.returned.get(op.result)
        return "" if returned is None else ssa_name(graph, returned)
    number = graph.repeated_names.get(op.id)
    again = "" if number is None else f"~{number}"
    result = "" if len(op.types) == 1 else f"#{value[1]}"
    return _in_function(graph, op, f"{op.name}{again}{result}")


def written_name(graph: OpGraph, op: Op) -> str:
    """The name of an op's only value as the module's text has it, ``silu:%3`` outside main."""
    return _in_function(graph, op, op.name)


def _in_function(graph: OpGraph, op: Op, name: str) -> str:
    main = graph.main
    return name if main is not None and op.function == main.name else f"{op.function}:{name}"


def resolve_value(
    graph: OpGraph, text: str, table: TensorTable | None = None
) -> tuple[NamedValue, ...]:
    """The values of the lowered module's ``graph`` that ``text`` names, in program order.

    Args:
        graph: op graph of the lowered module.
        text: a pytree path of an argument or result; an SSA name (``%12``, ``%2#1``, or
            ``func:%3`` outside main; ``%5~2`` for the second of that name alone); a source line
            (``model.py:42``, or a longer path); a scope path or its end, with or without what JAX's
            transformations wrap around scopes (``jvp(layer0)/dot_general`` is
            ``layer0/dot_general``), with or without the primitive at its end; parts in the middle
            may be left out; the name of a row of a table; or a variable that a statement of the
            program's source assigns.
        table: the program's tensors, which know of arguments that are not in the module.

    Raises:
        TargetError: nothing has this name; names what comes close.
    """
    wanted = text.strip()
    for find in (_by_path, _by_ssa_name, _by_line, _by_scope, _by_row, _by_variable):
        if named_values := find(graph, wanted):
            return tuple(named_values)
    for tensor in () if table is None else table.tensors:
        if tensor.requested is not None and tensor.requested.dropped and tensor.name == wanted:
            raise TargetError(
                f"{wanted} is not in the module: nothing uses it, and jit drops such arguments."
            )
    raise _unknown(graph, wanted)


def plain_scope(scope: str) -> str:
    """A scope path without what JAX's transformations add.

    ``jit(step)/transpose(jvp(layer0))/mlp/dot_general`` is ``step/layer0/mlp/dot_general``.
    """
    parts = (_unwrapped(part) for part in scope.split("/"))
    return "/".join(part for part in parts if part)


def _unwrapped(part: str) -> str:
    while match := _WRAPPED.fullmatch(part):
        part = match["inside"]
    return part


def _by_path(graph: OpGraph, wanted: str) -> list[NamedValue]:
    main = graph.main
    if main is None:
        return []
    named_values = [
        named_value(graph, (argument.node, 0))
        for argument in main.arguments
        if main.name_of(argument) == wanted
    ]
    results = graph.results()
    named_values += [
        named_value(graph, (op.id, 0)) for op in results if _entry_name(graph, op) == wanted
    ]
    if not named_values and wanted == "result" and len(results) == 1:
        named_values.append(named_value(graph, (results[0].id, 0)))
    return named_values


def _by_ssa_name(graph: OpGraph, wanted: str) -> list[NamedValue]:
    match = _SSA.fullmatch(wanted)
    if match is None:
        return []
    main = graph.main
    function = match["function"] or (main.name if main else "")
    named_values = []
    for op in graph.ops:
        if op.name != match["name"] or op.function != function.removeprefix("@"):
            continue
        number = match["number"]
        if number is not None and graph.repeated_names.get(op.id, 1) != int(number):
            continue
        chosen = match["result"]
        results = range(len(op.types)) if chosen is None else (int(chosen),)
        named_values += [named_value(graph, (op.id, r)) for r in results if r < len(op.types)]
    return named_values


def _by_line(graph: OpGraph, wanted: str) -> list[NamedValue]:
    own = _OWN_LINE.fullmatch(wanted)
    match = own or _LINE.fullmatch(wanted)
    if match is None:
        return []
    file = IN_TEXT if own else match["file"].replace("\\", "/")
    line = int(match["line"])

    innermost = [op for op in graph.ops if _is_at(op.source, file, line)]
    # A line that only calls what the ops are written in is further out in their call stacks.
    chosen = innermost or [
        op for op in graph.ops if any(_is_at(frame, file, line) for frame in op.location.frames)
    ]
    return _results_of(graph, chosen)


def _is_at(place: SourceLocation | None, file: str, line: int) -> bool:
    """Whether a place is that line of a file, of whose path there may be the end: `…/train.py`."""
    if place is None or place.line != line:
        return False
    path, file = place.file.replace("\\", "/"), file.removeprefix("…/")
    return path == file or path.endswith(f"/{file}")


def _by_scope(graph: OpGraph, wanted: str, place: str | None = None) -> list[NamedValue]:
    plain = plain_scope(written_scope(wanted))
    if not plain:
        return []
    ops = [op for op in graph.operations() if op.types and _is_of(graph, op, place)]
    named = [(op, path) for op in ops if (path := op_path(op))]
    tests: tuple[Callable[[str], bool], ...] = (
        lambda scope: scope == wanted,
        lambda scope: scope.endswith(f"/{wanted}"),
        lambda scope: _ends_with(plain_scope(scope), plain),
        lambda scope: _ends_with(plain_scope(scope.rpartition("/")[0]), plain),
        lambda scope: _ends_in_order(plain_scope(scope).split("/"), plain.split("/")),
    )
    # In a function of its own an op's scope begins with the function, not with the program.
    for whole in (False, True):
        scopes = [(op, _called_scope(graph, op, path)) for op, path in named] if whole else named
        for test in tests:
            if named_values := _results_of(graph, [op for op, scope in scopes if test(scope)]):
                return named_values
    # Without a scope, an op is called after its kind alone.
    return _results_of(graph, [op for op in ops if op_name(op) == wanted])


def _by_row(graph: OpGraph, wanted: str) -> list[NamedValue]:
    match = _ROW.fullmatch(wanted)
    if match is None:
        return []
    name, place = match["name"], match["place"]
    if not name:
        return _by_line(graph, place) if place and match["count"] else []
    if name == "argument":  # of a region, without a name
        entries = [op for op in graph.ops if op.is_argument and not op.scope]
        unnamed = [op for op in entries if not _entry_name(graph, op)]
        return _results_of(graph, [op for op in unnamed if _is_of(graph, op, place)])
    return (
        _by_boundary(graph, name, place)
        or (name != wanted and (_by_path(graph, name) or _by_scope(graph, name, place)))
        or _by_numbers(graph, name, place)
    )


def _by_variable(graph: OpGraph, wanted: str) -> list[NamedValue]:
    return [named_value(graph, value) for value in values_of_variable(graph, wanted)]


def _is_of(graph: OpGraph, op: Op, place: str | None) -> bool:
    """Whether an op is at the line that is named, if any is."""
    return place is None or _is_line(graph.within_calls(op).source, place)


def _is_line(source: SourceLocation | None, place: str) -> bool:
    """Whether a line is the one that is named; ``line 42`` stands below the name of its file."""
    if own := _OWN_LINE.fullmatch(place):
        return source is not None and source.line == int(own["line"])
    match = _LINE.fullmatch(place)
    return match is not None and _is_at(
        source, match["file"].replace("\\", "/"), int(match["line"])
    )


def _by_boundary(graph: OpGraph, name: str, place: str | None) -> list[NamedValue]:
    """What goes into a `shard_map`, and what comes out of it."""
    match = _BOUNDARY.fullmatch(name)
    if match is None:
        return []
    values: dict[ValueId, None] = {}
    for annotation in read_annotations(graph):
        index = None if annotation.index is None else annotation.index - annotation.tokens
        if (annotation.kind, index) != (f"shard_map {match['side']}", int(match["index"])):
            continue
        scope = match["scope"] or ""
        if scope not in (annotation.path, within_program(annotation.path)):
            continue
        if place is not None and not _is_line(annotation.source, place):
            continue
        value = annotated_value(graph, annotation)
        if value is not None:
            values[value] = None
    return [named_value(graph, value) for value in values]


def _by_numbers(graph: OpGraph, name: str, place: str | None) -> list[NamedValue]:
    """Arguments, results and ops of repeated layers, whose numbers are told together."""
    pattern, count = _NUMBERS.subn(r"\\d+", re.escape(name))
    if not count:
        return []
    is_alike = re.compile(pattern).fullmatch
    entries = [op for op in graph.ops if is_alike(_entry_name(graph, op))]
    ops = [
        op
        for op in graph.operations()
        if op.types
        and (is_alike(path := op_name(graph.within_calls(op))) or is_alike(path.rpartition("/")[0]))
        and _is_of(graph, op, place)
    ]
    return _results_of(graph, entries or ops)


def _called_scope(graph: OpGraph, op: Op, scope: str) -> str:
    """The scope of an op with those of the calls around it, of each function the first one."""
    _, *calls = graph.called_from(op)
    return "/".join([*map(op_path, reversed(calls)), scope])


def _ends_with(scope: str, end: str) -> bool:
    return scope == end or scope.endswith(f"/{end}")


def _ends_in_order(scope: list[str], wanted: list[str]) -> bool:
    """Whether a scope ends as wanted and has the other parts in order, with others between them.

    JAX adds parts that nobody would type: an einsum's equation, ``while/body``, ``checkpoint``.
    """
    if scope[-1] != wanted[-1]:
        return False
    parts = iter(scope[:-1])
    return all(part in parts for part in wanted[:-1])


def _results_of(graph: OpGraph, ops: list[Op]) -> list[NamedValue]:
    return [named_value(graph, (op.id, result)) for op in ops for result in range(len(op.types))]


def _unknown(graph: OpGraph, wanted: str) -> TargetError:
    main = graph.main
    candidates: dict[str, None] = {}
    if main is not None:
        names = [
            *map(main.name_of, main.arguments),
            *map(main.name_of, main.results),
        ]
        candidates = dict.fromkeys(names)
    if "/" in wanted or not candidates:
        for op in graph.operations():
            if op.types and (path := op_path(op)):
                candidates[plain_scope(path)] = None
    elif _SSA.fullmatch(wanted):
        candidates = {op.name: None for op in graph.ops if op.name}
    elif match := _LINE.fullmatch(wanted):
        return _no_line(graph, wanted, match["file"], int(match["line"]))
    hint = did_you_mean(
        wanted,
        candidates,
        "Name a pytree path (params['w']), a scope (layer0/dot_general), a source line "
        "(model.py:42), a variable (logits) or an SSA name (%12).",
        most=CLOSE_MATCHES,
        cutoff=0.5,
        quoted=False,
    )
    return TargetError(f"No value is called {wanted}.", hint=hint)


def _no_line(graph: OpGraph, wanted: str, file: str, line: int) -> TargetError:
    lines = {
        frame.line
        for op in graph.ops
        for frame in op.location.frames
        if frame.file.replace("\\", "/").endswith(file.replace("\\", "/"))
    }
    if lines:
        near = sorted(lines, key=lambda other: abs(other - line))[:CLOSE_MATCHES]
        hint = f"Lines of {file} with values: {', '.join(map(str, sorted(near)))}, ..."
    else:
        hint = f"No value comes from a file that ends with {file}."
    return TargetError(f"No value comes from {wanted}.", hint=hint)


# --- Variables ------------------------------------------------------------------------------------
# Which values an author's variable stands for, by the statements that assign it.

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
