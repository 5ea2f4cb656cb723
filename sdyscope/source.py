"""Where in the user's source code something was written."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SourceLocation"]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One frame of a traceback: a place in a source file.

    Attributes:
      file: Path of the file, as Python or MLIR gives it.
      line: Line, counted from 1; 0 when not known.
      column: Column, counted from 1; 0 when not known.
      function: Name of the function that contains the line; empty when not known.
    """

    file: str
    line: int
    column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
