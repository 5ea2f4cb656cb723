"""Predicts many candidates of one program: in child processes, once they are worth their start.

MLIR's bindings of JAX 0.10 to 0.12 keep Python's lock while they run passes, which take most of the
time, so threads of one process win nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from sdyscope.analysis.trials import predict_child
from sdyscope.analysis.trials.cost import Prediction
from sdyscope.analysis.trials.trials import Trials, Written
from sdyscope.errors import SdyscopeError
from sdyscope.process.children import cores
from sdyscope.process.worker import Worker, WorkerDiedError

if TYPE_CHECKING:
    from sdyscope.stages.propagated.annotate import ModuleEdit

#: Seconds of predictions in this process before children are started: a shorter search has none.
_START = 2.0

#: More children than this wait for each other: there are rarely more candidates at a time.
_CHILDREN = 8


class PredictAll:
    """Predicts candidates, several at a time, with the same answers as ``Trials.predict``.

    The first are predicted in this process. Where that takes longer than a child's start, as many
    children as there are cores are started, and take over once they have the module. Each takes the
    next candidate that is waiting; the answers are in the order of the candidates. A child that has
    died is not started again, and what it was asked is predicted in this process, as is what comes
    alone. As a context manager, it ends the children.

    Args:
        trials: the program.
    """

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._seconds = 0.0
        self._children: list[Worker] = []
        self._waiters: ThreadPoolExecutor | None = None
        #: For each child whether it has the module.
        self._warm: list[Future[bool]] = []

    def __enter__(self) -> PredictAll:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()
        if self._waiters is not None:
            self._waiters.shutdown()

    def __call__(self, candidates: Sequence[Sequence[Written]]) -> list[Prediction | SdyscopeError]:
        """What each would send, compute and hold, or why nothing is predicted.

        Raises:
            TargetError: the module has no such constraint.
        """
        edits = [self._trials.changes(written) for written in candidates]
        answers: list[Prediction | SdyscopeError | None] = [None] * len(candidates)
        if len(candidates) > 1 and self._is_warm():
            self._ask(candidates, answers)
        return [
            self._here(each) if answer is None else answer
            for each, answer in zip(edits, answers, strict=True)
        ]

    def _here(self, edits: Sequence[ModuleEdit]) -> Prediction | SdyscopeError:
        if self._waiters is None and self._seconds > _START:
            self.start()
        began = time.perf_counter()
        try:
            return self._trials.predict(edits)
        except SdyscopeError as error:
            return error
        finally:
            self._seconds += time.perf_counter() - began

    # --- children ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the children, and goes on while they import and read the module."""
        count = min(cores(), _CHILDREN)
        self._waiters = ThreadPoolExecutor(count)
        if count < 2:
            return
        given = msgspec.msgpack.encode(predict_child.given(self._trials))
        for _ in range(count):
            child = Worker(
                f"from {__package__} import predict_child; predict_child.serve()", again=False
            )
            try:
                child.start()
            except OSError:
                return
            self._children.append(child)
            self._warm.append(self._waiters.submit(_has_answered, child, given))

    def _is_warm(self) -> bool:
        """Whether there are children that can be asked; one alone wins nothing."""
        return len(self._children) > 1 and all(warm.done() for warm in self._warm)

    def _ask(
        self,
        candidates: Sequence[Sequence[Written]],
        answers: list[Prediction | SdyscopeError | None],
    ) -> None:
        """Has the children answer; None stays where one died."""
        assert self._waiters is not None
        waiting: SimpleQueue[int] = SimpleQueue()
        for number in range(len(candidates)):
            waiting.put(number)

        def ask(child: Worker) -> bool:
            while True:
                try:
                    number = waiting.get_nowait()
                    request = predict_child.encoded(candidates[number])
                    answers[number] = predict_child.answer(child.ask(request))
                except Empty:
                    return True
                except (WorkerDiedError, OSError):
                    return False

        alive = [self._waiters.submit(ask, child) for child in self._children]
        self._children = [
            child for child, lives in zip(self._children, alive, strict=True) if lives.result()
        ]


def _has_answered(child: Worker, request: bytes) -> bool:
    try:
        child.ask(request)
    except (WorkerDiedError, OSError):
        return False
    return True
