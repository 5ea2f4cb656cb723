"""Where things are in the program: source lines, scopes, ops and tensors, as users read them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import getcwd, sep
from typing import Protocol

from sdyscope.annotations import op_name, op_text, scope_of, shown_name
from sdyscope.graph import Op
from sdyscope.values.source import SourceLocation

__all__ = [
    "OpDocument",
    "callers_text",
    "file_text",
    "op_document",
    "op_text",
    "paths_from",
    "scope_of",
    "shortened",
    "shown_name",
    "source_text",
]

#: Where a package was installed says nothing about it.
_PACKAGES = rf"{re.escape(sep)}(?:site|dist)-packages{re.escape(sep)}"
_INSTALLED = re.compile(rf"^.*{_PACKAGES}")
_INSTALLED_IN_TEXT = re.compile(rf"{re.escape(sep)}\S*{_PACKAGES}")


#: The folders that files are named relative to; empty for the working directory.
_folders: list[str] = []


class _Line(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


@contextlib.contextmanager
def paths_from(*folders: str) -> Iterator[None]:
    """Names files relative to these folders: the reader is in another one than this process.

    Args:
        folders: absolute paths; of those that a file is below, the first counts.
    """
    before = _folders[:]
    _folders[:] = folders
    try:
        yield
    finally:
        _folders[:] = before


def _here() -> list[str]:
    return [folder + sep for folder in _folders or [getcwd()]]


def file_text(file: str) -> str:
    """A path as short as it is clear: below the working directory, or below `site-packages`."""
    for folder in _here():
        if file.startswith(folder):
            file = file.removeprefix(folder)
            break
    return _INSTALLED.sub("", file)


def source_text(source: _Line | None) -> str:
    """`models/mlp.py:98`, or the line of a module's own text; empty for None."""
    if source is None:
        return ""
    if source.file == "-":
        return f"line {source.line}"  # Of the text that MLIR was given, which had no locations.
    return f"{file_text(source.file)}:{source.line}"


def callers_text(lines: Sequence[_Line]) -> str:
    """`attentions.py:703 < llama2.py:170`: the files without their folders; empty for none."""
    return " < ".join(f"{line.file.rpartition(sep)[2]}:{line.line}" for line in lines)


def shortened(words: str) -> str:
    """Words in which each path is as short as ``file_text`` makes it."""
    words = _INSTALLED_IN_TEXT.sub("", words)
    for folder in _here():
        words = words.replace(folder, "")
    return words


@dataclass(frozen=True, slots=True)
class OpDocument:
    """An operation.

    Attributes:
      op: its kind.
      name: its scope without the program's own name, and what JAX calls it.
      ssa: its SSA name in the lowered module; empty where it has no result.
      source: its line of user code.
    """

    op: str
    name: str
    ssa: str
    source: SourceLocation | None


def op_document(op: Op) -> OpDocument:
    """The document of an operation."""
    return OpDocument(op.kind, op_name(op), op.name if op.types else "", op.source)
