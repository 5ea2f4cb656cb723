"""This very sdyscope, for the Python of another environment.

It is Python alone, so another Python runs the same files: a folder with links to them is put at the
front of its path, however this sdyscope was installed. What it depends on has to be there.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from sdyscope.values.source import PACKAGE

#: Packages that a checkout has beside the others.
_MAPPED = ("docs", "grammars", "models", "reports")


def linked(folder: Path) -> Path:
    """Makes links to this sdyscope in a folder, and says what to put at the front of the path.

    The last part of that is `site-packages`, so that lines in it are told as those of a package.
    """
    path = folder / "site-packages"
    package = path / "sdyscope"
    package.mkdir(parents=True, exist_ok=True)
    children = {
        child.name: child for child in PACKAGE.resolve().iterdir() if child.name != "__pycache__"
    }
    for name in _MAPPED:
        children[name] = Path(str(files(f"sdyscope.{name}")))
    for name, child in children.items():
        link = package / name
        if not link.is_symlink():
            link.symlink_to(child)
    return path
