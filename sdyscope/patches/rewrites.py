"""Edits of code that is no annotation: collectives left out, and a loop's sum taken behind it."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import libcst as cst

from sdyscope.errors import TargetError
from sdyscope.patches.source import Source, Span, Splice, last_name


def _call(source: Source, span: Span) -> cst.Call:
    call = source.expression(span)
    if not isinstance(call, cst.Call) or not call.args:
        raise TargetError("It is not written as a call that could be edited.")
    return call


def first_argument(source: Source, span: Span) -> list[Splice]:
    """A call replaced by its first argument.

    Raises:
        TargetError: there is no call.
    """
    return without_call(source, _call(source, span))


#: JAX's and Flax's functions that constrain what they are given first.
_CONSTRAINING = frozenset({"reshard", "with_logical_constraint", "with_sharding_constraint"})


def constrained_value(
    source: Source, call: cst.Call, others: Iterable[Source] = ()
) -> cst.BaseExpression:
    """What a call constrains: its first argument, unless its function constrains another.

    As of ``constrain(mesh, x, "data")``, whose function returns ``with_sharding_constraint(x,
    ...)``.

    Args:
        source: the file that the call is in.
        call: the call.
        others: other files that its function may be in.
    """
    own = _given_first(call)
    name = last_name(call.func)
    functions = [
        (each, node)
        for each in (source, *others)
        for node in each.nodes()
        if isinstance(node, cst.FunctionDef) and node.name.value == name
    ]
    if len(functions) != 1:
        return own
    file, function = functions[0]
    is_method = any(isinstance(each, cst.ClassDef) for each in file.parents(function))
    if is_method or not (isinstance(call.func, cst.Name) or file is not source):
        return own
    given = function.params
    by_place = [each.name.value for each in (*given.posonly_params, *given.params)]
    wanted = _constrained_parameter(
        file, function, {*by_place, *(each.name.value for each in given.kwonly_params)}
    )
    if wanted is None:
        return own
    by_name = {each.keyword.value: each.value for each in call.args if each.keyword}
    places = [] if any(each.star for each in call.args) else by_place
    positional = [each.value for each in call.args if each.keyword is None]
    return by_name.get(wanted) or dict(zip(places, positional, strict=False)).get(wanted, own)


def _given_first(call: cst.Call) -> cst.BaseExpression:
    """What JAX's functions constrain: their first argument, also where it is given by its name."""
    by_name = {each.keyword.value: each.value for each in call.args if each.keyword}
    if last_name(call.func) in _CONSTRAINING and call.args[0].keyword is not None:
        return by_name.get("x") or by_name.get("xs") or call.args[0].value
    return call.args[0].value


def _constrained_parameter(
    file: Source, function: cst.FunctionDef, parameters: Collection[str]
) -> str | None:
    """The parameter that a function constrains, or returns what a call makes of; None if unknown.

    The author may call JAX's function by another name.
    """
    constrained, returned = set[str](), set[str]()
    for node in file.nodes():
        if not (isinstance(node, cst.Call) and node.args):
            continue
        around = (each for each in file.parents(node) if isinstance(each, cst.FunctionDef))
        value = _given_first(node)
        if (
            next(around, None) is not function
            or not isinstance(value, cst.Name)
            or value.value not in parameters
        ):
            continue
        if last_name(node.func) in _CONSTRAINING:
            constrained.add(value.value)
        elif isinstance(next(iter(file.parents(node)), None), cst.Return):
            returned.add(value.value)
    names = constrained or returned
    return names.pop() if len(names) == 1 else None


def without_constraint(source: Source, span: Span, others: Iterable[Source] = ()) -> list[Splice]:
    """A call replaced by what it constrains; arguments as of ``constrained_value``.

    Raises:
        TargetError: there is no call.
    """
    call = _call(source, span)
    return without_call(source, call, constrained_value(source, call, others))


def without_call(
    source: Source, call: cst.Call, value: cst.BaseExpression | None = None
) -> list[Splice]:
    """A call replaced by one of its arguments, by default the first."""
    value = value or _given_first(call)
    text = source.written(value)
    if (line := source.whole_line(call, text)) is not None:
        return [Splice(*line, "")]
    around = source.parent(call)
    is_atom = isinstance(value, cst.Name | cst.Call | cst.Attribute | cst.Subscript)
    stands_alone = isinstance(
        around, cst.Arg | cst.Assign | cst.AnnAssign | cst.Return | cst.Element
    )
    if not (is_atom or stands_alone):
        text = f"({text})"
    return [Splice(*source.extent(call), text)]


def scattered(source: Source, span: Span, dimension: int) -> list[Splice]:
    """``psum(x, axis)`` as ``psum_scatter(x, axis, scatter_dimension=1, tiled=True)``.

    Raises:
        TargetError: there is no call of psum with two arguments.
    """
    call = _call(source, span)
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    if not isinstance(name, cst.Name) or name.value != "psum" or len(call.args) != 2:
        raise TargetError("It is not written as psum(x, axis).")
    if not isinstance(call.func, cst.Attribute):
        raise TargetError("psum is imported by its name alone.")
    end = source.whole(call.args[1].value)[1]
    return [
        Splice(*source.extent(name), "psum_scatter"),
        Splice(end, end, f", scatter_dimension={dimension}, tiled=True"),
    ]


@dataclass(frozen=True)
class Accumulation:
    """A scan that adds up, and what it takes to map it.

    Attributes:
        source: the file.
        scan: the statement ``acc, _ = jax.lax.scan(body, init, xs)``.
        body: the definition of ``body``, in the same block.
        names: the names that both take from outside, of those that are the function's arguments.
        targets: the names that the statement assigns, in order; ``_`` for what is not used.
    """

    source: Source = field(repr=False, compare=False)
    scan: cst.SimpleStatementLine = field(repr=False, compare=False)
    body: cst.FunctionDef = field(repr=False, compare=False)
    names: tuple[str, ...]
    targets: tuple[str, ...]

    def mapped(
        self, call: str, specs: Mapping[str, str], settings: str, reduce: str
    ) -> list[Splice]:
        """The edits after which the scan runs on each device's own data, and is summed behind it.

        Args:
            call: what ``jax.shard_map`` is called.
            specs: how each name is mapped, as text.
            settings: further arguments of the call, such as ``mesh=mesh, out_specs=P()``.
            reduce: ``jax.lax.pmean({}, 'data')``, with braces for what is reduced.
        """
        text = self.source.text
        scan_start, scan_end = self._lines(self.scan)
        body_start, body_end = self._lines(self.body)
        first = text[scan_start : text.index("\n", scan_start)]
        indent = first[: len(first) - len(first.lstrip())]
        inner = textwrap.indent(
            textwrap.dedent(text[body_start:body_end]).rstrip("\n")
            + "\n"
            + textwrap.dedent(text[scan_start:scan_end]).rstrip("\n"),
            f"{indent}    ",
        )
        kept = [name for name in self.targets if name != "_"]
        returned = kept[0] if len(kept) == 1 else f"({', '.join(kept)})"
        arguments = ", ".join(self.names)
        in_specs = ", ".join(specs[name] for name in self.names)
        comma = "," if len(self.names) == 1 else ""
        lines = [
            f"{indent}def accumulate({arguments}):",
            inner,
            f"{indent}    return {reduce.format(returned)}",
            "",
            f"{indent}{', '.join(kept)} = {call}(",
            f"{indent}    accumulate,",
            f"{indent}    in_specs=({in_specs}{comma}),",
            *(f"{indent}    {setting}," for setting in settings.split("; ")),
            f"{indent})({arguments})",
            "",
        ]
        return [
            Splice(body_start, body_end, ""),
            Splice(scan_start, scan_end, "\n".join(lines)),
        ]

    def _lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """The whole lines of a statement."""
        text = self.source.text
        start, end = self.source.extent(node)
        begin = text.rfind("\n", 0, start) + 1
        after = text.find("\n", max(end - 1, start))
        return begin, len(text) if after < 0 else after + 1


def accumulation(source: Source, span: Span, arguments: Collection[str]) -> Accumulation:
    """The scan that an expression is, where its body is a function beside it.

    Args:
        source: the file.
        span: the call of scan.
        arguments: names of the arguments of the function that it is in.

    Raises:
        TargetError: it is written in another way.
    """
    call = _call(source, span)
    assign = source.parent(call)
    line = None if assign is None else source.parent(assign)
    block = None if line is None else source.parent(line)
    if (
        not isinstance(assign, cst.Assign)
        or not isinstance(line, cst.SimpleStatementLine)
        or not isinstance(block, cst.IndentedBlock)
        or len(assign.targets) != 1
        or len(line.body) != 1
    ):
        raise TargetError("The scan is not a statement of its own.")
    if not isinstance(call.args[0].value, cst.Name) or len(call.args) < 3:
        raise TargetError("The scan's body is not a function with a name.")
    name = call.args[0].value.value
    bodies = [
        statement
        for statement in block.body
        if isinstance(statement, cst.FunctionDef) and statement.name.value == name
    ]
    if len(bodies) != 1:
        raise TargetError("The scan's body is not defined beside it.")
    used = set(_loaded(bodies[0])) | set(_loaded(call))
    uses = sum(loaded == name for loaded in _loaded(block))
    if uses != 1:
        raise TargetError("The scan's body is used elsewhere, too.")
    own = set(_assigned(bodies[0]))
    names = tuple(argument for argument in arguments if argument in used and argument not in own)
    between = {
        assigned
        for each in block.body
        for assigned in _assigned(each)
        if each not in (line, bodies[0])
    }
    if (used - own) & between - {name}:
        raise TargetError("The scan uses what is computed beside it.")
    target = assign.targets[0].target
    parts = (
        [element.value for element in target.elements]
        if isinstance(target, cst.Tuple)
        else [target]
    )
    if not all(isinstance(part, cst.Name) for part in parts) or not names:
        raise TargetError("The scan is not assigned to a name.")
    targets = tuple(part.value for part in parts if isinstance(part, cst.Name))
    if not isinstance(target, cst.Tuple):
        raise TargetError("What the scan returns is not taken apart.")
    return Accumulation(source, line, bodies[0], names, targets)


def set_false(source: Source, setting: str) -> Iterator[tuple[int, Splice]]:
    """Where a source sets one of JAX's settings to False: the line, and the edit to True.

    Args:
        source: the file.
        setting: its name, as ``jax.config.update`` takes it.
    """
    for node in source.nodes():
        if not isinstance(node, cst.Call) or not node.args:
            continue
        name = source.written(node.func)
        values = [source.written(argument.value) for argument in node.args]
        by_name = name.endswith("config.update") and values[0].strip("'\"") == setting
        by_context = name.rpartition(".")[2] == setting.removeprefix("jax_")
        if (by_name or by_context) and values[-1] == "False":
            yield source.line(node), Splice(*source.extent(node.args[-1].value), "True")


def _loaded(node: cst.CSTNode) -> Iterator[str]:
    """Every name in a piece of code, attributes and keywords left out."""
    if isinstance(node, cst.Name):
        yield node.value
        return
    for child in node.children:
        if isinstance(node, cst.Attribute) and child is node.attr:
            continue
        if isinstance(node, cst.Arg) and child is node.keyword:
            continue
        if isinstance(node, cst.FunctionDef) and child is node.name:
            continue
        yield from _loaded(child)


def _assigned(node: cst.CSTNode) -> Iterator[str]:
    """Every name that a piece of code assigns, or takes as a parameter."""
    if isinstance(node, cst.Param):
        yield node.name.value
    elif isinstance(node, cst.AssignTarget):
        yield from _loaded(node.target)
    elif isinstance(node, cst.FunctionDef):
        yield node.name.value
    for child in node.children:
        yield from _assigned(child)
