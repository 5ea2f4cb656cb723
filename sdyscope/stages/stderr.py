"""What C++ writes to standard error, which Python's `sys.stderr` never sees."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sdyscope.process.scratch import scratch_file

_STDERR = 2


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Sends file descriptor 2 to a temporary file inside the block.

    Yields a function that returns what was written so far, during the block and after it. What
    Python had buffered before goes where it belongs. The descriptor is put back on every way out.
    Without a usable descriptor 2 (a closed standard error) nothing is captured. Where it is a log
    already, as in a child process of the command line, it is read in place: the last words before
    an abort must not be lost with a file of ours.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        saved = os.dup(_STDERR)
    except OSError:
        yield lambda: ""
        return
    text: list[str] = []

    def read() -> str:
        if text:
            return text[0]
        return os.pread(source, os.fstat(source).st_size - start, start).decode("utf-8", "replace")

    try:
        if _is_readable_log(saved):
            source, start = saved, os.fstat(saved).st_size
            try:
                yield read
            finally:
                text.append(read())
            return
        with scratch_file() as file:
            source, start = file.fileno(), 0
            os.dup2(source, _STDERR)
            try:
                yield read
            finally:
                if sys.stderr is not None:
                    sys.stderr.flush()
                os.dup2(saved, _STDERR)
                text.append(read())
    finally:
        os.close(saved)


def _is_readable_log(descriptor: int) -> bool:
    """Whether it was opened to append and to read, as nobody does by chance."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    return bool(flags & os.O_APPEND) and flags & os.O_ACCMODE == os.O_RDWR
