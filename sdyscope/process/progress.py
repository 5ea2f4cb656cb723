"""What is being done, and for how long, on standard error, while a command has no answer yet.

On a terminal a line that goes away again; elsewhere, as in the log of a CI job, a plain line now
and then. Stages tell what they do with `doing`, wherever they run: where nothing is shown, nothing
happens. In a notebook it begins by itself, and ends with the cell.
"""

from __future__ import annotations

import contextlib
import html
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdyscope.process import output
from sdyscope.words.visible import visible

#: Seconds until a terminal shows something, in less than two since the command was entered; and
#: until a log has one more line.
_PATIENCE = 1.0
_LOGGED = 30.0

#: How often a terminal is looked after.
_TICK = 0.25


class _Shown:
    """One command's display."""

    def __init__(self, name: str, shell: Any = None) -> None:
        self.name = name
        self.shell = shell
        self.begun = time.monotonic()
        self.what, self.done, self.total = "starting", 0, 0
        self.within = ""
        self.ended = threading.Event()
        self.has_steps = False

    def watch(self) -> None:
        if self.shell is not None:
            self._in_notebook()
        elif sys.stderr.isatty():
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
                    description=visible(self._doing()),
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
            output.say(f"{self.name}: {self._text()}")

    def _in_notebook(self) -> None:
        if self.ended.wait(_PATIENCE):
            return
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        shown = display(self._picture(), raw=True, display_id=True)
        while not self.ended.wait(_PATIENCE):
            shown.update(self._picture(), raw=True)
        shown.update({"text/plain": "", "text/html": ""}, raw=True)

    def _picture(self) -> dict[str, str]:
        """The display of a notebook, by MIME type."""
        text = visible(f"{self.name}: {self._text()}")
        part = f' value="{self.done}" max="{self.total}"' if self.total > 1 else ""
        return {
            "text/plain": text,
            "text/html": f"<progress{part}></progress> {html.escape(text)}",
        }

    def _text(self) -> str:
        steps = f" ({self.done:,} of {self.total:,})" if self.total > 1 else ""
        return f"{self._doing()}{steps}, {self._seconds()}"

    def _doing(self) -> str:
        return f"{self.what}: {self.within}" if self.within else self.what

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
    end = _begun(_Shown(name))
    try:
        yield
    finally:
        end()


def _begun(shown: _Shown) -> Callable[[], None]:
    """Begins to show something; ended by what is returned."""
    _shown.append(shown)
    watcher = threading.Thread(target=shown.watch, name="progress", daemon=True)
    watcher.start()

    def end() -> None:
        _shown.clear()
        shown.ended.set()
        watcher.join()

    return end


def _begin_in_a_notebook() -> None:
    """Shows what is being done until the cell ends, in a notebook's own process."""
    ipython = sys.modules.get("IPython")
    shell: Any = None if ipython is None else ipython.get_ipython()
    if not hasattr(shell, "kernel") or os.environ.get("SDYSCOPE_PROGRESS") == "0":
        return
    end = _begun(_Shown("sdyscope", shell))

    def cell_ended(*_: object) -> None:
        shell.events.unregister("post_run_cell", cell_ended)
        end()

    shell.events.register("post_run_cell", cell_ended)


#: A part of the compiler, in the file that says what a process was doing when it was ended.
_PART = "\t"

_trail: list[int] = []


def leave_trail(path: str) -> None:
    """Writes down from now on what is being done, for a parent that must say what ended this."""
    _trail[:] = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)]


def is_trailed() -> bool:
    """Whether what is being done is written down."""
    return bool(_trail)


def passing(part: str) -> None:
    """Writes down which part of the compiler runs, which may crash; empty for none."""
    _leave(_PART + part)


def _leave(what: str) -> None:
    if _trail:
        os.write(_trail[0], f"{what}\n".encode())


@dataclass(frozen=True, slots=True)
class Trail:
    """What a process had done before it was ended.

    Attributes:
        doing: what it was doing, such as `compiling mlp for cpu:8 with Shardy`; empty where that is
            not known.
        inside: the part of the compiler that ran, such as `Shardy's pass sdy-close-shardings`;
            empty likewise.
        lowered: whether JAX had traced the program and begun to lower it.
    """

    doing: str = ""
    inside: str = ""
    lowered: bool = False

    @classmethod
    def read(cls, path: str) -> Trail:
        """What was written down; nothing where there is no such file."""
        try:
            lines = Path(path).read_text(errors="replace").splitlines()
        except OSError:
            return cls()
        steps = [line for line in lines if not line.startswith(_PART)]
        inside = lines[-1].removeprefix(_PART) if lines and lines[-1].startswith(_PART) else ""
        lowered = any(step.startswith("lowering ") for step in steps)
        return cls(steps[-1] if steps else "", inside, lowered)


UNKNOWN = Trail()


def doing(what: str) -> None:
    """Tells what is being done from now on; a command that counts its own steps tells it itself."""
    _leave(what)
    if not _shown:
        _begin_in_a_notebook()
    for shown in _shown:
        if not shown.has_steps:
            shown.what = what


@contextlib.contextmanager
def within(what: str) -> Iterator[None]:
    """Tells of something that is done, over and over, as part of what is being done."""
    _leave(what)
    for shown in _shown:
        shown.within = what
    try:
        yield
    finally:
        for shown in _shown:
            shown.within = ""


def part(what: str, done: float) -> None:
    """Tells what is being done, and how much of it is done, from 0 to 1."""
    step(what, round(100 * done), 100)


def step(what: str, done: int, total: int) -> None:
    """Tells what is being done, how many steps of it are done, and how many there are."""
    for shown in _shown:
        shown.has_steps = True
        shown.what, shown.done, shown.total = what, done, total
