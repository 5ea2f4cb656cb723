"""A git work tree whose files are to be written: it has to be clean; all are written or none."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sdyscope.errors import TargetError


def root_of(file: str) -> str:
    """The root of the git work tree that a file is in; empty for none, and without git."""
    return _git(os.path.dirname(os.path.realpath(file)), "rev-parse", "--show-toplevel") or ""


def write_clean(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Writes files where nothing is lost by it, all or none.

    Args:
        before: the text that each is known to have.
        after: the text that it gets.

    Raises:
        TargetError: a file is in no git work tree, its work tree has uncommitted changes, or its
            text is another by now.
    """
    _check_clean(before)
    _write_files(after)


def _check_clean(files: Mapping[str, str]) -> None:
    for file, text in files.items():
        root = root_of(file)
        if not root:
            raise TargetError(
                "--apply only writes into a git work tree, and this file is in none.",
                file=file,
                hint="Without --apply the patch is printed: `patch -p1` applies it.",
            )
        if _git(root, "ls-files", "--error-unmatch", "--", os.path.realpath(file)) is None:
            raise TargetError("--apply only writes files that git tracks.", file=file)
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
        if changed:
            first = changed.splitlines()[0][3:]
            raise TargetError(
                f"--apply only writes into a clean work tree, and {root} has uncommitted changes "
                f"({first}).",
                hint="Commit or stash them first.",
            )
        with open(file, encoding="utf-8", newline="") as opened:
            if opened.read() != text:
                raise TargetError("The file has changed since it was read.", file=file)


def _write_files(texts: Mapping[str, str]) -> None:
    """Writes all files, or none of them: beside each first, then into its place."""
    beside: list[tuple[str, str]] = []
    try:
        for file, text in texts.items():
            real = os.path.realpath(file)
            mode = Path(real).stat().st_mode
            handle, temporary = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".sdyscope-")
            beside.append((temporary, real))
            with open(handle, "w", encoding="utf-8", newline="") as opened:
                opened.write(text)
            os.chmod(temporary, mode & 0o7777)
        for temporary, real in beside:
            os.replace(temporary, real)
    finally:
        for temporary, _ in beside:
            if os.path.exists(temporary):
                os.unlink(temporary)


def _git(folder: str, *words: str) -> str | None:
    """What git answers; None where it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, *words], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
