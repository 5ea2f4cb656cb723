"""The text of source files that a program names."""

from __future__ import annotations

import linecache
import tokenize
from pathlib import Path
from typing import Literal, TypeAlias

Unread: TypeAlias = Literal["not Python", "not there", "too large", "unreadable", "left out"]
"""Why there is no text of a file: it is no ``.py`` file (a module can name any file of this
machine), it is not there, it is larger than ``MOST``, it can't be read as Python's text, or it was
not to be read."""

#: Bytes of the largest file that is read.
MOST = 8 << 20


def read_lines(file: str) -> tuple[str, ...] | Unread:
    """The lines of a source file without their ends, or why there are none.

    A module from elsewhere can name any file of this machine, so only regular files ending in
    ``.py`` are read, and what this Python runs itself, such as the cells of a notebook.

    Args:
        file: its path, as the program has it.
    """
    if file in linecache.cache:
        return tuple(line.rstrip("\r\n") for line in linecache.getlines(file))
    try:
        path = Path(file).resolve()  # A link named x.py can lead to any file.
        if path.suffix != ".py":
            return "not Python"
        if not path.is_file():
            return "not there"
        if path.stat().st_size > MOST:
            return "too large"
        with tokenize.open(path) as lines:
            return tuple(lines.read().split("\n"))
    except (OSError, SyntaxError, ValueError):  # no permission; no such encoding; not in it
        return "unreadable"
