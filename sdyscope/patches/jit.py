"""Where a source jits a function, and what it says of arguments and results there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from sdyscope.patches.source import Source, Splice, last_name

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
    """

    source: Source = field(repr=False, compare=False)
    line: int
    node: cst.BaseExpression = field(repr=False, compare=False)

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


def jit_sites(source: Source) -> Iterator[JitSite]:
    """Every place of a source that jits a function."""
    for node in source.nodes():
        if isinstance(node, cst.Call):
            name = last_name(node.func)
            first = node.args[0].value if node.args and node.args[0].keyword is None else None
            if name in _JIT or (
                name in _PARTIAL and first is not None and last_name(first) in _JIT
            ):
                yield JitSite(source, source.line(node), node)
        elif (
            isinstance(node, cst.Name | cst.Attribute)
            and last_name(node) in _JIT
            and isinstance(source.parent(node), cst.Decorator)
        ):
            yield JitSite(source, source.line(node), node)
