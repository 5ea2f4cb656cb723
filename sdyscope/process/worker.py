"""A child process that answers one request after another, for calls that could abort in C++.

A worker starts when it is first asked and again after it has died, and ends when its parent closes
the pipe or ends itself. A request and an answer are bytes, each behind its length (8 bytes, little
endian). Where each request ends the process, or may, the worker answers it in a fork of itself,
which has imported already what takes long to import.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import IO, NoReturn

from sdyscope.process import lifeline, progress
from sdyscope.process.compiler_log import CRASHES, last_words, signal_name
from sdyscope.process.python import python

_LENGTH = struct.Struct("<Q")

#: Bytes of a log among which its last words are.
_TAIL = 1 << 16

#: Whether this process is a worker.
_serving = False

#: Whether it has others do what may crash, though its own crash would cost nobody anything.
_guarding = False
#: Seconds that a process may take to end of itself: what it has loaded takes its time.
_ENDING = 30.0


class WorkerDiedError(Exception):
    """The worker ended before it had answered.

    Attributes:
        how: the signal that ended it (``SIGSEGV``), or its exit status, in words.
        by_signal: whether it was a signal.
        crashed: whether it was one by which an error in C++ ends a process.
        words: what C++ said last; empty where it said nothing.
    """

    def __init__(self, status: int, log: str = "") -> None:
        self.by_signal = status < 0
        self.crashed = -status in CRASHES
        self.how = signal_name(-status) if status < 0 else f"exit status {status}"
        self.words = last_words(log)
        super().__init__(self.how)


class Worker:
    """A child process, of which one request is asked at a time.

    Args:
        start: the Python code that it runs, which calls ``serve``.
        again: whether it starts again after it has died or was ended.
    """

    def __init__(self, start: str, *, again: bool = True) -> None:
        self._start, self._again = start, again
        #: Exit status of the last process that has ended.
        self._status: int | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        #: What it writes to standard error.
        self._log: IO[bytes] | None = None
        self._parent = 0

    def ask(self, request: bytes, seconds: float | None = None) -> bytes:
        """The answer to a request.

        Args:
            request: what is asked.
            seconds: after how long the worker is killed, which raises ``WorkerDiedError``; by
                default never.

        Raises:
            WorkerDiedError: the process ended before it had answered.
            OSError: there can be no process.
        """
        with self._lock:
            process = self._running()
            sent, received = process.stdin, process.stdout
            assert sent is not None
            assert received is not None
            timer = threading.Timer(seconds or 0.0, process.kill)
            timer.daemon = True
            if seconds is not None:
                timer.start()
            try:
                sent.write(_LENGTH.pack(len(request)) + request)
                sent.flush()
                answer = _frame(received)
            except (BrokenPipeError, ConnectionResetError):
                answer = None
            except BaseException:
                # Interrupted: what it answers now belongs to no request.
                self._end()
                raise
            finally:
                timer.cancel()
            if answer is None:
                log, self._log = self._log, None
                status = self._end(_ENDING)
                raise WorkerDiedError(status, _tail(log))
            return answer

    def begin(self, request: bytes) -> Callable[[], bytes]:
        """Asks while the caller does something else.

        Returns:
            What waits for the answer; it raises what ``ask`` does.
        """
        answer: Future[bytes] = Future()

        def ask() -> None:
            try:
                answer.set_result(self.ask(request))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        return answer.result

    @property
    def is_running(self) -> bool:
        """Whether there is a process of this one's that can be asked."""
        process = self._process
        return process is not None and self._parent == os.getpid() and process.poll() is None

    def end(self) -> None:
        """Ends the process, also while another thread waits for its answer."""
        process = self._process
        if process is not None and self._parent == os.getpid():
            process.kill()
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None and self._status is not None and not self._again:
            raise WorkerDiedError(self._status)
        # A forked process must not read the answers of its parent's worker.
        if self._process is None or self._parent != os.getpid():
            self._log = _empty_log()
            self._process = subprocess.Popen(
                python(self._start),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
            )
            self._parent = os.getpid()
            atexit.register(self._end)
        return self._process

    def _end(self, patience: float = 1.0) -> int:
        """Ends the process, if it has not ended after so many seconds; its exit status."""
        process, self._process = self._process, None
        atexit.unregister(self._end)
        if self._log is not None:
            self._log.close()
            self._log = None
        if process is None or self._parent != os.getpid():
            return 0
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What was still to be written to a process that has died is of no use.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._status = process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            self._status = process.wait()
        return self._status


def is_apart() -> bool:
    """Whether this process is one of sdyscope's own, whose end costs nobody else anything."""
    return _serving or (progress.is_trailed() and not _guarding)


def guard() -> None:
    """Has others do from now on what may crash, also for a process of sdyscope's own."""
    global _guarding
    _guarding = True


def serve(answer: Callable[[bytes], bytes]) -> NoReturn:
    """Answers requests until the parent closes the pipe; what a child process runs."""
    global _serving
    _serving = True
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What the compiler prints is no answer.
    os.dup2(2, 1)
    while (request := _frame(requests)) is not None:
        answered = answer(request)
        answers.write(_LENGTH.pack(len(answered)) + answered)
        answers.flush()
    lifeline.end_now(0)


def forked(run: Callable[[], int], said: Path, log: Path) -> int:
    """Runs something in a fork of this process, which C++ may end.

    Args:
        run: what is run, and the exit status.
        said: the file that takes its standard output.
        log: the file that takes its standard error.

    Returns:
        The exit status, negative when a signal ended it.
    """
    process = lifeline.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    status = 1
    try:
        for path, descriptor in ((said, 1), (log, 2)):
            with path.open("wb") as file:
                os.dup2(file.fileno(), descriptor)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # What C++ cleans up at the end is of no use.
        os._exit(status)


def _empty_log() -> IO[bytes]:
    """A file without a name, opened as `captured_stderr` reads it in place."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    fcntl.fcntl(log, fcntl.F_SETFL, fcntl.fcntl(log, fcntl.F_GETFL) | os.O_APPEND)
    return log


def _tail(log: IO[bytes] | None) -> str:
    """The end of a log, which is closed."""
    if log is None:
        return ""
    with log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
        return log.read().decode(errors="replace")


def _frame(source: IO[bytes]) -> bytes | None:
    """The next request or answer; None at the end."""
    length = source.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (count,) = _LENGTH.unpack(length)
    data = source.read(count)
    return data if len(data) == count else None
