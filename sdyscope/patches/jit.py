"""Where a source jits a function, and what it says of arguments and results there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import libcst as cst

from sdyscope.patches.source import Source, Splice, last_name
from sdyscope.values.source import SourceLocation

#: What jit is called. Equinox's `filter_jit` takes none of jit's own keywords.
_JIT = frozenset({"jit", "pjit"})
#: What passes it arguments.
_PARTIAL = frozenset({"partial"})


@dataclass(frozen=True)
class JitSite:
    """A call or decorator that jits a function.

    Attributes:
        source: the file.
        line: its line.
        node: the call ``jax.jit(f, ...)`` or ``partial(jax.jit, ...)``, or the bare decorator.
        function: name of the function that it jits, where that is surely one of the source's own;
            else empty.
        lines: the first and last line on which that function may begin, its first decorator's and
            its ``def``.
        is_shared: whether it jits what a function is given that is called at several places: what
            it says then holds for other programs, too.
    """

    source: Source = field(repr=False, compare=False)
    line: int
    node: cst.BaseExpression = field(repr=False, compare=False)
    function: str = ""
    lines: tuple[int, int] = (0, 0)
    is_shared: bool = False

    def may_jit(self, function: SourceLocation | None) -> bool:
        """Whether it may be what jits the function that begins there; None for an unknown one."""
        if function is None or not self.function:
            return True
        first, last = self.lines
        named = (function.file, function.function) == (self.source.file, self.function)
        return named and first <= function.line <= last

    def donating(self, numbers: Sequence[int]) -> list[Splice] | None:
        """The edits after which these positional arguments are donated, too.

        None where what it donates is not written as numbers.
        """
        if not isinstance(self.node, cst.Call):
            end = self.source.extent(self.node)[1]
            return [Splice(end, end, f"(donate_argnums={_numbers(numbers)})")]
        for argument in self.node.args:
            name = "" if argument.keyword is None else argument.keyword.value
            if name == "donate_argnames":
                return None
            if name == "donate_argnums":
                start, end = self.source.whole(argument.value)
                try:
                    before = ast.literal_eval(self.source.text[start:end])
                except (SyntaxError, ValueError):
                    return None
                known = (before,) if isinstance(before, int) else tuple(before)
                return [Splice(start, end, _numbers(sorted({*known, *numbers})))]
        close = self.source.extent(self.node)[1] - 1
        last = self.node.args[-1] if self.node.args else None
        separator = ", "
        if last is None:
            separator = ""
        elif isinstance(last.comma, cst.Comma):
            # The call ends with a comma, most likely on a line of its own.
            close = self.source.extent(last.value)[1]
            close = self.source.text.index(",", close) + 1
            return [Splice(close, close, self._on_own_line(last, numbers))]
        else:
            close = self.source.whole(last.value)[1]
        return [Splice(close, close, f"{separator}donate_argnums={_numbers(numbers)}")]

    def without(self, keyword: str) -> list[Splice] | None:
        """The edit after which a keyword is not given; None where it is not."""
        if not isinstance(self.node, cst.Call):
            return None
        arguments = list(self.node.args)
        for at, argument in enumerate(arguments):
            if argument.keyword is None or argument.keyword.value != keyword or not at:
                continue
            # From behind the argument before it, with the comma in between.
            start, end = (self.source.whole(arguments[n].value)[1] for n in (at - 1, at))
            return [Splice(start, end, "")]
        return None

    def _on_own_line(self, last: cst.Arg, numbers: Sequence[int]) -> str:
        """One more argument behind the last, where each has its line."""
        text, start = self.source.text, self.source.extent(last.value)[0]
        head = text[: text.rfind("\n", 0, start) + 1]
        begin = text[len(head) : start]
        indent = begin[: len(begin) - len(begin.lstrip())]
        on_lines = "\n" in text[self.source.extent(self.node)[0] : start]
        return f"{chr(10) + indent if on_lines else ' '}donate_argnums={_numbers(numbers)},"


def _numbers(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    return f"({', '.join(map(str, numbers))})"


def jit_sites(source: Source, others: Iterable[Source] = ()) -> Iterator[JitSite]:
    """Every place of a source that jits a function, which others may call, too."""
    for node in source.nodes():
        if isinstance(node, cst.Call):
            name = last_name(node.func)
            first = node.args[0].value if node.args and node.args[0].keyword is None else None
            is_partial = name in _PARTIAL and first is not None and last_name(first) in _JIT
            if name in _JIT or is_partial:
                jitted = _decorated(source, node)
                is_shared = False
                if name in _JIT and isinstance(first, cst.Name):
                    jitted = _named(source, node, first.value)
                    is_shared = jitted is None and _is_given(
                        source, node, first.value, (source, *others)
                    )
                yield replace(_site(source, node, jitted), is_shared=is_shared)
        elif (
            isinstance(node, cst.Name | cst.Attribute)
            and last_name(node) in _JIT
            and isinstance(source.parent(node), cst.Decorator)
        ):
            yield _site(source, node, _decorated(source, node))


def _site(source: Source, node: cst.BaseExpression, jitted: cst.FunctionDef | None) -> JitSite:
    if jitted is None:
        return JitSite(source, source.line(node), node)
    begin = jitted.decorators[0] if jitted.decorators else jitted.name
    lines = source.line(begin), source.line(jitted.name)
    return JitSite(source, source.line(node), node, jitted.name.value, lines)


def _decorated(source: Source, node: cst.BaseExpression) -> cst.FunctionDef | None:
    """The function right below a decorator; of one that another decorator changes first, None."""
    decorator = source.parent(node)
    below = None if decorator is None else source.parent(decorator)
    is_last = isinstance(below, cst.FunctionDef) and below.decorators[-1] is decorator
    return below if is_last and isinstance(below, cst.FunctionDef) else None


def _named(source: Source, node: cst.Call, name: str) -> cst.FunctionDef | None:
    """The function that a name stands for; None where anything else may be called so there."""
    bound: dict[cst.CSTNode | None, list[cst.CSTNode]] = {}
    for other in source.nodes():
        target: cst.CSTNode | None = None
        if isinstance(other, cst.FunctionDef | cst.Param):
            target = other.name
        elif isinstance(other, cst.AssignTarget):
            target = other.target
        if isinstance(target, cst.Name) and target.value == name:
            bound.setdefault(_scope(source, other), []).append(other)
    scope = _scope(source, node)
    while scope is not None and scope not in bound:
        scope = _scope(source, scope)
    function, *others = bound.get(scope, [node])
    is_sure = isinstance(function, cst.FunctionDef) and not (others or function.decorators)
    return function if is_sure and isinstance(function, cst.FunctionDef) else None


def _is_given(source: Source, node: cst.Call, name: str, calling: Iterable[Source]) -> bool:
    """Whether a name stands for what a function is given that is called at several places."""
    around = _scope(source, node)
    if not isinstance(around, cst.FunctionDef):
        return False
    given = around.params
    parameters = (*given.posonly_params, *given.params, *given.kwonly_params)
    if name not in (parameter.name.value for parameter in parameters):
        return False
    nodes = chain.from_iterable(other.nodes() for other in calling)
    calls = (other for other in nodes if isinstance(other, cst.Call))
    return sum(last_name(call.func) == around.name.value for call in calls) > 1


def _scope(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    """The function or class that a node is in; None for the module."""
    scopes = cst.FunctionDef | cst.ClassDef
    return next((at for at in source.parents(node) if isinstance(at, scopes)), None)
