"""Temporary folders and files, and what is left of those of processes that were killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sdyscope.errors import TargetError

_PREFIX = "sdyscope-scratch-"

#: A file in each folder that says whose it is: nothing else in a temporary folder is ever removed,
#: whatever it is called.
_MARK = ".made-by-sdyscope"

#: Seconds that a folder is left alone: its owner may be about to lock it.
_YOUNG = 60.0


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder that is removed at the end, or by the next `sweep` when the process was killed.

    Raises:
        TargetError: there is no place for one.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
    except OSError as error:
        raise _no_place(error) from error
    with folder as name, _locked(name):
        Path(name, _MARK).touch()
        yield name


def scratch_file() -> BinaryIO:
    """A file without a name, which goes away when it is closed, or with its process.

    Raises:
        TargetError: there is no place for one.
    """
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise _no_place(error) from error


def _no_place(error: OSError) -> TargetError:
    return TargetError(
        f"There is no temporary folder to write to: {error.strerror or error}",
        hint="Set TMPDIR to a folder that can be written.",
    )


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """While it is locked its owner lives, in whichever container: the kernel lets go at its end."""
    handle = os.open(name, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # of a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def sweep() -> None:
    """Removes this user's folders whose owners were killed."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return
    if time.time() - status.st_mtime < _YOUNG or not stat.S_ISREG((path / _MARK).lstat().st_mode):
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(handle)
