"""Scripts that Python runs, by their command lines."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

#: Options of Python whose value is the next word.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")

#: How many characters of a command line are shown in a line of other words.
_LINE = 60

ScriptKind: TypeAlias = Literal["file", "module", "code", "none"]


@dataclass(frozen=True, slots=True)
class PythonScript:
    """What a Python is started with.

    Attributes:
        kind: a file, the name of a module (`-m`), code (`-c`), or none of these: what it reads from
            standard input.
        name: the path of the file as it is written, or the module; empty of the others.
        arguments: the words behind it.
        directory: where it is started.
    """

    kind: ScriptKind
    name: str
    arguments: tuple[str, ...]
    directory: str = ""

    @property
    def file(self) -> str:
        """The path of the file; empty of a module."""
        return os.path.join(self.directory, self.name) if self.kind == "file" else ""

    @property
    def folder(self) -> str:
        """The folder that Python looks for its modules in first."""
        return os.path.dirname(os.path.realpath(self.file)) if self.file else self.directory

    @property
    def shown(self) -> str:
        """The first of its words, for a line."""
        return textwrap.shorten(self.words, _LINE, placeholder=" ...")

    @property
    def words(self) -> str:
        """As it is typed: `train.py --steps 10`, `-m package.train`."""
        return " ".join(("-m",) * (self.kind == "module") + (self.name, *self.arguments))


def script_of(words: Sequence[str], directory: str | Path = "") -> PythonScript:
    """What a command line of Python runs.

    Args:
        words: the command line, the interpreter first.
        directory: where it is started.
    """
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-m", "-c"):
        rest = rest[2 if rest[0] in _WITH_VALUE else 1 :]
    kind: ScriptKind = "file"
    if not rest or rest[0] == "-":
        kind = "none"
    elif rest[0] in ("-m", "-c"):
        kind = "module" if rest[0] == "-m" else "code"
        rest = rest[1:]
    name = rest[0] if rest and kind in ("file", "module") else ""
    return PythonScript(kind, name, tuple(rest[1:]), str(directory))
