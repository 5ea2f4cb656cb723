"""What is being done, and for how long, on standard error, while a command has no answer yet.

On a terminal a line that goes away again; elsewhere, as in the log of a CI job, a plain line now
and then. Stages tell what they do with `doing`, wherever they run: where nothing is shown, nothing
happens.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

from sdyscope.process import output
from sdyscope.words.visible import visible

__all__ = ["doing", "shown", "step"]

#: Seconds until a terminal shows something, in less than two since the command was entered; and
#: until a log has one more line.
_PATIENCE = 1.0
_LOGGED = 30.0

#: How often a terminal is looked after.
_TICK = 0.25


class _Shown:
    """One command's display."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.begun = time.monotonic()
        self.what, self.done, self.total = "starting", 0, 0
        self.ended = threading.Event()
        self.has_steps = False

    def watch(self) -> None:
        if sys.stderr.isatty():
            self._on_terminal()
        else:
            self._in_log()

    def _on_terminal(self) -> None:
        if self.ended.wait(_PATIENCE):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[seconds]}", markup=False),
            console=Console(file=sys.stderr),
            transient=True,
            auto_refresh=False,
        ) as bar:
            task = bar.add_task("", total=None, seconds="")
            while True:
                bar.update(
                    task,
                    description=visible(self.what),
                    completed=self.done,
                    # What is one step long has no progress to show.
                    total=self.total if self.total > 1 else None,
                    seconds=self._seconds(),
                    refresh=True,
                )
                if self.ended.wait(_TICK):
                    return

    def _in_log(self) -> None:
        while not self.ended.wait(_LOGGED):
            steps = f" ({self.done:,} of {self.total:,})" if self.total > 1 else ""
            output.say(f"{self.name}: {self.what}{steps}, {self._seconds()}")

    def _seconds(self) -> str:
        seconds = int(time.monotonic() - self.begun)
        return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"


_shown: list[_Shown] = []


@contextlib.contextmanager
def shown(name: str) -> Iterator[None]:
    """Shows what is being done while the block runs; on a terminal nothing is left of it.

    Args:
        name: what a line in a log begins with, such as `sdyscope show`.
    """
    if sys.stderr is None or _shown or os.environ.get("SDYSCOPE_PROGRESS") == "0":
        yield
        return
    shown = _Shown(name)
    _shown.append(shown)
    watcher = threading.Thread(target=shown.watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        _shown.clear()
        shown.ended.set()
        watcher.join()


def doing(what: str) -> None:
    """Tells what is being done from now on; a command that counts its own steps tells it itself."""
    for shown in _shown:
        if not shown.has_steps:
            shown.what = what


def step(what: str, done: int, total: int) -> None:
    """Tells what is being done, how many steps of it are done, and how many there are."""
    for shown in _shown:
        shown.has_steps = True
        shown.what, shown.done, shown.total = what, done, total
