"""A child process that tries edits of a program, started anew where Shardy crashes on one."""

from __future__ import annotations

import threading
import weakref

from sdyscope.errors import CrashError
from sdyscope.process.worker import Worker, WorkerDiedError

#: A process that has done its work and can have another program, which saves its start.
_spare: list[Worker] = []


class Child:
    """A process that is given one program and then answers requests about it.

    It starts when it is first asked. Where this object ends, it waits for another one's program.

    Args:
        given: the program, which the child is given whenever it starts; see ``predict_child``.
    """

    def __init__(self, given: bytes) -> None:
        self._given = given
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._is_ended = False
        self.release = weakref.finalize(self, _released, self._workers)
        self.release.atexit = False

    def ask(self, request: bytes) -> bytes:
        """The answer to a request.

        What the child crashes on is not asked again; where it was killed otherwise, the request is
        asked once more.

        Raises:
            CrashError: the child died of the request.
            OSError: there can be no child that has the program, or this one was ended.
        """
        for attempt in (1, 2):
            worker = self._workers[-1] if self._workers else self._started()
            try:
                return worker.ask(request)
            except WorkerDiedError as death:
                self._workers.clear()
                if self._is_ended:
                    raise ChildProcessError(death.how) from None
                if death.crashed or attempt == 2:
                    raise CrashError(death.how, words=death.words) from None
        raise AssertionError

    def end(self) -> None:
        """Ends the process, also while another thread waits for its answer."""
        with self._lock:
            self._is_ended = True
            for worker in [*self._workers]:
                worker.end()

    def _started(self) -> Worker:
        with self._lock:
            if self._is_ended:
                raise ChildProcessError("ended")
            worker = _spare.pop() if _spare else _worker()
            self._workers.append(worker)
        try:
            worker.ask(self._given)
        except WorkerDiedError as death:
            self._workers.clear()
            raise ChildProcessError(death.how) from None
        return worker


def _worker() -> Worker:
    start = f"from {__package__} import predict_child; predict_child.serve()"
    return Worker(start, again=False)


def _released(workers: list[Worker]) -> None:
    """What becomes of a child that nobody asks any more."""
    while workers:
        worker = workers.pop()
        if _spare or not worker.is_running:
            worker.end()
        else:
            _spare.append(worker)
