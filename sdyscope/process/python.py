"""Other processes of Python, which find modules where this one does."""

from __future__ import annotations

import os
import sys

from sdyscope.process import lifeline

__all__ = ["add_folder", "python"]

#: Folders of TARGETs, from which alone their own modules are imported.
_added: list[str] = []


def add_folder(folder: str) -> None:
    """Lets modules be imported from a folder of the user's, before all others, as Python does."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
        _added.append(folder)


def python(code: str) -> list[str]:
    """The command line of a Python that runs some code, and finds modules where this process does.

    It ends with this process. Not in the working directory; and folders that were added come last:
    a ``types.py`` beside a TARGET is no module of the standard library.
    """
    own = [entry for entry in sys.path if entry not in _added]
    return [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path[:] = {[*own, *_added]!r}; "
        "from sdyscope.process import lifeline; "
        f"lifeline.end_with({os.getpid()}, {lifeline.wire()}); {code}",
    ]
