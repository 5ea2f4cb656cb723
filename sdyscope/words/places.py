"""Where things are in the program: source lines, scopes, ops and tensors, as users read them."""

from __future__ import annotations

import os
import re
from typing import Protocol

from sdyscope.annotations import split_scope
from sdyscope.graph import Op

__all__ = [
    "file_text",
    "op_text",
    "scope_of",
    "shortened",
    "shown_name",
    "source_text",
]

#: Where a package was installed says nothing about it.
_PACKAGES = rf"{re.escape(os.sep)}(?:site|dist)-packages{re.escape(os.sep)}"
_INSTALLED = re.compile(rf"^.*{_PACKAGES}")
_INSTALLED_IN_TEXT = re.compile(rf"{re.escape(os.sep)}\S*{_PACKAGES}")


class _Line(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


def file_text(file: str) -> str:
    """A path as short as it is clear: below the working directory, or below `site-packages`."""
    return _INSTALLED.sub("", file.removeprefix(os.getcwd() + os.sep))


def source_text(source: _Line | None) -> str:
    """`models/mlp.py:98`, or the line of a module's own text; empty for None."""
    if source is None:
        return ""
    if source.file == "-":
        return f"line {source.line}"  # Of the text that MLIR was given, which had no locations.
    return f"{file_text(source.file)}:{source.line}"


def shortened(words: str) -> str:
    """Words in which each path is as short as ``file_text`` makes it."""
    return _INSTALLED_IN_TEXT.sub("", words).replace(os.getcwd() + os.sep, "")


def shown_name(name: str, kind: str) -> str:
    """A tensor's name without the program's own, which every scope begins with.

    Of a `shard_map`, whether it is one of its inputs or of its outputs.
    """
    first, _, rest = name.partition("/")
    own = rest if rest and first.startswith("jit(") else name
    return f"{own} {kind.partition(' ')[2]}" if kind.startswith("shard_map ") else own


def op_text(kind: str) -> str:
    """`dot_general` for `stablehlo.dot_general`."""
    return kind.rpartition(".")[2]


def scope_of(op: Op) -> tuple[str, str]:
    """The scope of an op without the program's own name, and the primitive."""
    scope, primitive = split_scope(op.scope)
    if "/" not in scope and scope.startswith("jit("):
        return "", primitive  # The program's own name alone.
    return shown_name(scope, "op"), primitive
