"""What one of several processes says to the parent that started it; see `launch`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import NoReturn

from sdyscope.facts.program import Partitioner
from sdyscope.process import child


class Wire:
    """A child's end of the socket.

    Args:
        descriptor: its file descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> NoReturn:
        with contextlib.suppress(OSError):
            while self._socket.recv(1):
                pass
        os._exit(2)  # The parent is gone: nobody waits for an answer.

    def tell(self, **what: object) -> None:
        """Says something to the parent.

        Args:
            what: who this is (`process`: number and count), what it goes on to (`doing`), under
                which partitioner it has the program (`under`), or that it has met an error of its
                own (`failed`: the text, empty for what nobody foresaw).
        """
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(what).encode() + b"\n")


def wire() -> Wire | None:
    """This child's wire; None where it is not one of several processes."""
    task = child.errand()
    return None if task is None or task.wire is None else Wire(task.wire)


def place() -> tuple[str, int, int] | None:
    """Address of the coordinator, how many processes there are, and which one this is.

    None for what the cluster says; one of 1 joins nobody.
    """
    task = child.errand()
    return None if task is None else task.place


def crashed() -> dict[Partitioner, str]:
    """The partitioners under which a process has crashed in an earlier try, and how."""
    task = child.errand()
    return {} if task is None else dict(task.crashed)
