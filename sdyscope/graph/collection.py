"""Python's garbage collector, held off while a graph is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Python 3.12 starts with some hundred objects frozen; who freezes his own has more by far.
_PYTHONS_OWN = 1000


@contextmanager
def no_collection() -> Iterator[None]:
    """Run the inside without garbage collection.

    All that a reader makes stays, and would be walked again and again, which takes a third of the
    time of reading a large module.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if gc.get_freeze_count() < _PYTHONS_OWN:
                # Counts all there is as old; else the next new object has all of it walked at once.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
