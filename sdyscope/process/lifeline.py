"""A child ends with its parent, however that ends: a killed one can't tell it to."""

from __future__ import annotations

import os
import signal
import threading
import time

__all__ = ["end_if_orphaned", "end_with"]

#: Seconds between two looks at the parent.
_PERIOD = 0.5

#: This process and the parent that it ends with, by their ids; empty for one that goes on.
_tie: list[tuple[int, int]] = []


def end_with(parent: int) -> None:
    """From now on this process ends when its parent, of this process id, is gone."""
    _tie[:] = [(os.getpid(), parent)]
    end_if_orphaned()
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    # A signal that this thread got would not wake the main one, which alone handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(_PERIOD)
        end_if_orphaned()


def end_if_orphaned() -> None:
    """Ends this process where its parent is gone: nobody waits for what it would write."""
    # A forked process has another parent than the child that it comes from.
    if _tie and _tie[0][0] == os.getpid() and os.getppid() != _tie[0][1]:
        os._exit(2)
