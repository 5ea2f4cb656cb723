"""Where in the user's source code something was written."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["PACKAGE", "SourceLocation", "innermost_line", "is_installed", "own_line"]

#: The folder of this package.
PACKAGE = Path(__file__).parents[1]

_TOOL = os.path.join(PACKAGE, "")
_MODELS = os.path.join(_TOOL, "models", "")
_STANDARD_LIBRARY = re.compile(r"[/\\]lib(?:64)?[/\\]python3[.\d]*[/\\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One frame of a traceback: a place in a source file.

    Attributes:
      file: Path of the file, as Python or MLIR gives it.
      line: Line, counted from 1; 0 when not known.
      column: Column, as Python and MLIR give it (JAX counts from 0); 0 when not known.
      function: Name of the function that contains the line; empty when not known.
    """

    file: str
    line: int
    column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def innermost_line(error: BaseException, outside: Iterable[Path]) -> SourceLocation | None:
    """The last line that `error` came through in a file outside all of the given folders.

    That is where the author of a program can do something about it, so lines of installed packages
    only count where there is no other. Of a `SyntaxError`, the line that Python could not read.
    """
    folders = tuple(os.path.join(folder, "") for folder in outside)
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return SourceLocation(error.filename, error.lineno, error.offset or 0)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*folders, "<"))
    ]
    own = [frame for frame in frames if not is_installed(frame.filename)]
    for frame in reversed(own or frames):
        return SourceLocation(frame.filename, frame.lineno or 0, frame.colno or 0, frame.name)
    return None


def own_line(stack: Sequence[SourceLocation]) -> SourceLocation | None:
    """The line of a call stack, innermost first, at which its program's author can do something.

    A constraint that stands in Flax is the line of the model that calls Flax. Lines of installed
    packages only count where there is no other; None for no stack.
    """
    for line in stack:
        if line.file.startswith(_TOOL) and not line.file.startswith(_MODELS):
            break  # What is further out called this tool, and did not write the program.
        if _is_own(line.file):
            return line
    return stack[0] if stack else None


def is_installed(file: str) -> bool:
    """Whether a file is an installed package's, by the names of Python's and Debian's folders."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


@lru_cache(1 << 12)
def _is_own(file: str) -> bool:
    """Whether a file is no package's, nor Python's, and no script that an installer made."""
    path = Path(file)
    return not (
        is_installed(file)
        or _STANDARD_LIBRARY.search(file)
        or (path.parent.name == "bin" and not path.suffix)
        or file.startswith("<frozen ")
        or file == "<string>"
    )
