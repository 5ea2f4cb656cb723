"""What C++ writes to standard error, which Python's `sys.stderr` never sees."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["captured_stderr"]

_STDERR = 2


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Sends file descriptor 2 to a temporary file inside the block.

    Yields a function that returns what was written so far, during the block and after it. What
    Python had buffered before goes where it belongs. The descriptor is put back on every way out.
    Without a usable descriptor 2 (a closed standard error) nothing is captured.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        saved = os.dup(_STDERR)
    except OSError:
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:
        text: list[str] = []

        def read() -> str:
            if text:
                return text[0]
            end = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), end, 0).decode("utf-8", "replace")

        os.dup2(file.fileno(), _STDERR)
        try:
            yield read
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(saved, _STDERR)
            os.close(saved)
            text.append(read())
