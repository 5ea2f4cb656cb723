"""A child ends with its parent, however that ends: a killed one can't tell it to.

On Linux the kernel ends it, even while C++ holds the interpreter's lock. Elsewhere a thread polls
the parent's process id, and ends the process once it gets the lock.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

#: Seconds between two looks at the parent.
_PERIOD = 0.5

#: This process and the parent that it ends with, by their ids; empty for one that goes on.
_tie: list[tuple[int, int]] = []

#: The process that has the pipe, and the pipe's ends.
_pipe: list[int] = []


def wire() -> int:
    """File descriptor of the read end of a pipe to which only this process can write.

    Nothing is written; the pipe breaks when this process ends.
    """
    # After a fork, the parent's pipe tells when the parent ends, not this process.
    if _pipe[:1] != [os.getpid()]:
        _pipe[:] = [os.getpid(), *os.pipe()]
    return _pipe[1]


def end_with(parent: int, pipe: int) -> None:
    """From now on this process ends when its parent is gone.

    Args:
        parent: the parent's process id.
        pipe: the parent's file descriptor of its `wire`.
    """
    _tie[:] = [(os.getpid(), parent)]
    with contextlib.suppress(OSError):
        _be_signalled(parent, pipe)
    end_if_orphaned()
    threading.Thread(target=_watch, daemon=True).start()


def _be_signalled(parent: int, pipe: int) -> None:
    """Has the kernel send SIGIO, which ends this process, when the pipe breaks.

    Linux's parent-death signal would also come when the thread that started this process ends.

    Raises:
        OSError: this is not Linux.
    """
    # Opened anew: children that inherited one file description would share its one receiver.
    handle = os.open(f"/proc/{parent}/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(handle, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(handle, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)


def _watch() -> None:
    # A signal that this thread got would not wake the main one, which alone handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(_PERIOD)
        end_if_orphaned()


def fork() -> int:
    """Forks this process; the new one ends with it.

    Returns:
        The new process's id; 0 in the new process.
    """
    parent, pipe = os.getpid(), wire()
    process = os.fork()
    if process == 0:
        os.close(_pipe[2])  # While anyone has this end, the pipe does not break.
        end_with(parent, pipe)
    return process


def end_if_orphaned() -> None:
    """Ends this process where its parent is gone: nobody waits for what it would write."""
    # A forked process has another parent than the child that it comes from.
    if _tie and _tie[0][0] == os.getpid() and os.getppid() != _tie[0][1]:
        os._exit(2)


def end_now(status: int) -> NoReturn:
    """Ends this process as Python does, but without freeing all that it holds, which takes long.

    Args:
        status: the exit status.
    """
    ending: Any = threading
    with contextlib.suppress(Exception):  # Python has then said what went wrong.
        ending._shutdown()  # Waits for the threads that Python waits for.
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)
