"""A progress bar on standard error, where a person is there to see it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sdyscope.words.visible import visible


@contextmanager
def progress_bar(wanted: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """Shows what is being done while the block runs; nothing is left of it afterwards.

    Yields a function that is told what is being done, how many steps of it are done, and how many
    there are. It does nothing unless `wanted` and standard error is a terminal.
    """
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=None)

        def notify(what: str, done: int, total: int) -> None:
            # What is one step long has no progress to show.
            bar.update(
                task,
                description=visible(what),
                completed=done,
                total=total if total > 1 else None,
            )

        yield notify
