"""Other processes of Python, which find sdyscope's modules where this one does."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from sdyscope.process import lifeline

#: Folders of TARGETs, from which alone their own modules are imported.
_added: list[str] = []


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of another environment.

    Attributes:
        executable: path of its executable.
        folder: where it finds sdyscope; searched before its own folders.
    """

    executable: str
    folder: str


def add_folder(folder: str) -> None:
    """Lets modules be imported from a folder of the user's, before all others, as Python does."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
        _added.append(folder)


def python(code: str, interpreter: Interpreter | None = None) -> list[str]:
    """The command line of a Python that runs some code, and ends with this process.

    Not in the working directory; and folders that were added come last: a ``types.py`` beside a
    TARGET is no module of the standard library.

    Args:
        code: what it runs.
        interpreter: which Python; by default this one, which finds modules where this process does.
    """
    if interpreter is None:
        own = [entry for entry in sys.path if entry not in _added]
        executable, path = sys.executable, f"sys.path[:] = {[*own, *_added]!r}"
    else:
        executable, path = interpreter.executable, f"sys.path.insert(0, {interpreter.folder!r})"
    return [
        executable,
        "-P",
        "-c",
        f"import sys; {path}; from sdyscope.process import lifeline; "
        f"lifeline.end_with({os.getpid()}, {lifeline.wire()}); {code}",
    ]
