"""Where answers go: standard output, and files that are either whole or not there at all.

In a child process (see `sdyscope.process.child`) the real standard output is kept apart from
`sys.stdout`, so that a user's program that prints while it is traced cannot spoil an answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sdyscope.errors import TargetError
from sdyscope.process.lifeline import end_if_orphaned
from sdyscope.words.visible import visible


@dataclass(frozen=True, slots=True)
class Output:
    """The stream that answers are written to, and what its reader can show.

    Attributes:
        stream: where text goes; its `encoding` is the reader's.
        terminal: whether a person's terminal shows it: then colours are used and lines folded.
        columns: width in characters that a table should keep to; None for as wide as it needs.
    """

    stream: TextIO
    terminal: bool
    columns: int | None

    def write(self, text: str) -> None:
        """Writes text, adding the newline at the end if it has none.

        Control and bidirectional characters are escaped: they may be a stranger's.
        """
        self.stream.write(visible(text if text.endswith("\n") else text + "\n"))

    def write_bytes(self, data: bytes) -> None:
        """Writes a document in UTF-8, whatever the reader's encoding; to a terminal like text."""
        self.stream.flush()
        self.stream.buffer.write(escaped(data) if self.terminal else data)


_kept_apart: list[Output] = []


def keep_apart(output: Output) -> None:
    """Makes `output`, not `sys.stdout`, the place where answers go from now on."""
    _kept_apart[:] = [output]


def answers() -> Output:
    """The place where a command writes its answer."""
    if _kept_apart:
        return _kept_apart[0]
    terminal = sys.stdout.isatty()
    return Output(sys.stdout, terminal, columns(terminal))


def messages() -> Output:
    """The place for what is no answer: standard error."""
    terminal = sys.stderr.isatty()
    return Output(sys.stderr, terminal, columns(terminal, sys.stderr))


def escaped(data: bytes) -> bytes:
    """A document in UTF-8, its control and bidirectional characters escaped."""
    text = data.decode("utf-8", "surrogateescape")
    return visible(text).encode("utf-8", "surrogateescape")


_silent: list[bool] = []


def silence() -> None:
    """Says nothing from now on: this process was told to stop, and what follows is no error."""
    _silent.append(True)


def say(text: str) -> None:
    """Writes a line to standard error, escaped like an answer; where it is closed, nowhere."""
    if sys.stderr is not None and not _silent:
        with contextlib.suppress(OSError):
            sys.stderr.write(visible(text).encode("utf-8", "replace").decode() + "\n")
            sys.stderr.flush()


def tidy() -> None:
    """Clears the line of a process that was killed while it showed one, and shows the cursor."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K\x1b[?25h")
        sys.stderr.flush()


def columns(terminal: bool, stream: TextIO | None = None) -> int | None:
    """The width to keep to: COLUMNS if it is set, else the terminal's; None when neither is there.

    A pipe or a file gets whole rows, so that `grep` finds them.

    Args:
        terminal: whether a terminal shows it.
        stream: what writes to that; standard output, where it is another.
    """
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if not terminal:
        return None
    try:
        return os.get_terminal_size((stream or sys.stdout).fileno()).columns or 80
    except OSError:
        return 80


def make_folder(folder: Path) -> None:
    """Makes a folder to write into, and those around it, unless they are there.

    Raises:
        TargetError: it can't be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"cannot make this folder: {error.strerror or error}", file=str(folder)
        ) from error


def check_folders(*files: str | None) -> None:
    """Finds files that can't be written for want of a folder, before anything takes time.

    Raises:
        TargetError: there is no such folder.
    """
    for file in filter(None, files):
        if not Path(file).absolute().parent.is_dir():
            raise TargetError("There is no such folder to write to.", file=file)


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Writes a file beside `path` and renames it, so that nobody ever sees half of it.

    The permissions of a file that was there are kept. A device or a pipe is written directly.

    Raises:
        TargetError: when the file cannot be written.
    """
    content = data.encode() if isinstance(data, str) else data
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            target.write_bytes(content)
            return
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(beside, _new_file_mode() if mode is None else stat.S_IMODE(mode))
            end_if_orphaned()
            os.replace(beside, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise TargetError(
            f"cannot write this file: {error.strerror or error}",
            file=str(path),
            hint="Nothing was written.",
        ) from error


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Keeps other processes from what is read, changed and written anew inside the block.

    The folder of the file is what is locked, so that nothing is left beside it; a folder that is
    not there yet, and a file system without locks, locks nobody out.

    Args:
        path: a file, there or not; or a folder whose files are written.
    """
    folder = Path(os.path.realpath(path))
    try:
        handle = os.open(folder if folder.is_dir() else folder.parent, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _new_file_mode() -> int:
    """The permissions that `open` would give a new file."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
