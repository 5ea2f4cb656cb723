"""What a program prints while it is run several times with the same values."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import TextIO


class Printed(io.TextIOBase):
    """A stream that passes each line on where it is new, and counts it where it is not.

    Attributes:
        lines: how many lines were written.
        again: how many of them had been written before, and were not passed on.
    """

    def __init__(self, stream: TextIO) -> None:
        self.lines = self.again = 0
        self._stream = stream
        self._seen: set[str] = set()
        self._begun: dict[int, str] = {}
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self._stream.isatty()

    def write(self, text: str) -> int:
        """Writes text; a line when it is whole. Callbacks of JAX print in threads of their own."""
        with self._lock:
            thread = threading.get_ident()
            *whole, rest = (self._begun.pop(thread, "") + text).split("\n")
            if rest:
                self._begun[thread] = rest
            for line in whole:
                self._line(line)
        return len(text)

    def flush(self) -> None:
        """Nothing waits but lines that are not whole."""
        self._stream.flush()

    def finish(self) -> None:
        """Writes what did not end with a newline."""
        with self._lock:
            for rest in self._begun.values():
                self._line(rest)
            self._begun.clear()

    def _line(self, line: str) -> None:
        self.lines += 1
        if line in self._seen:
            self.again += 1
            return
        self._seen.add(line)
        self._stream.write(f"{line}\n")


@contextlib.contextmanager
def each_line_once() -> Iterator[Printed]:
    """Lets what is printed inside appear once, however often the same is printed."""
    printed = Printed(sys.stdout)
    try:
        with contextlib.redirect_stdout(printed):
            yield printed
    finally:
        printed.finish()
