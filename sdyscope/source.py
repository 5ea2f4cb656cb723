"""Where in the user's source code something was written."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SourceLocation", "innermost_line", "is_installed"]


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


def is_installed(file: str) -> bool:
    """Whether a file is an installed package's, by the names of Python's and Debian's folders."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
