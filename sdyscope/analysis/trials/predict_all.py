"""Predicts many candidates of one program in child processes.

A candidate can crash Shardy, which then takes a child and not the search. And MLIR's bindings of
JAX 0.10 to 0.12 keep Python's lock while they run passes, which take most of the time, so threads
of one process win nothing.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from sdyscope.analysis.trials import predict_child
from sdyscope.analysis.trials.child import Child
from sdyscope.analysis.trials.cost import Prediction
from sdyscope.analysis.trials.trials import Trials, Written
from sdyscope.errors import CrashError, SdyscopeError
from sdyscope.process.children import cores

_Answer: TypeAlias = Prediction | SdyscopeError

#: Seconds of predictions in the first child before more are started: a shorter search has one.
_START = 1.0

#: More children than this wait for each other: there are rarely more candidates at a time.
_CHILDREN = 8

#: How many expected candidates there are for each child, until others are expected.
_AHEAD = 2


class PredictAll:
    """Predicts candidates, several at a time, with the same answers as ``Trials.predict``.

    The first child is started with the first candidate, and as many as there are cores once they
    are worth their start. Each takes the next candidate that is waiting, or else one that is
    expected; the answers are in the order of the candidates. Of a candidate that crashes a child
    the answer is a ``CrashError``, and the child is started anew. Where there can be no child,
    this process predicts. As a context manager, it ends the children but one.

    Args:
        trials: the program.

    Attributes:
        unasked: how many candidates were predicted that nobody has asked for.
    """

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._given = b""
        self._most = max(min(cores(), _CHILDREN), 1)
        self._began = 0.0
        self._children: list[Child] = []
        self._threads: list[threading.Thread] = []
        #: Guards all that follows; told of each answer, and of each request.
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._expected: Iterator[bytes] = iter(())
        self._predicting: set[bytes] = set()
        self._answers: dict[bytes, _Answer] = {}
        self._alive = 0
        self._ended = False

    def __enter__(self) -> PredictAll:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        # The first one ends what it is at, and can have another program then.
        for child in self._children[0 if error else 1 :]:
            child.end()
        for thread in self._threads:
            thread.join()
        for child in self._children:
            child.release()

    def __call__(self, candidates: Sequence[Sequence[Written]]) -> list[_Answer]:
        """What each would send, compute and hold, or why nothing is predicted.

        Raises:
            TargetError: the module has no such constraint.
        """
        for written in candidates:
            self._trials.changes(written)
        requests = [predict_child.encoded(candidate) for candidate in candidates]
        self._start()
        with self._changed:
            known = {*self._answers, *self._predicting}
            self._waiting.extend(each for each in dict.fromkeys(requests) if each not in known)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not self._alive or all(each in self._answers for each in requests)
            )
            self._waiting.clear()
            answers = {each: self._answers.pop(each, None) for each in dict.fromkeys(requests)}
        return [
            self._here(candidate) if (answer := answers[request]) is None else answer
            for candidate, request in zip(candidates, requests, strict=True)
        ]

    def expect(self, candidates: Iterable[Sequence[Written]]) -> None:
        """Has candidates predicted that will probably be asked for, where a child has nothing else.

        Args:
            candidates: in the order in which they will be asked for; taken one by one, in threads.
                They are in place of those that were expected before.
        """
        with self._changed:
            ahead = itertools.islice(candidates, _AHEAD * self._most)
            self._expected = map(predict_child.encoded, ahead)

    def _here(self, candidate: Sequence[Written]) -> _Answer:
        try:
            return self._trials.predict(self._trials.changes(candidate))
        except SdyscopeError as error:
            return error

    # --- children ---------------------------------------------------------------------------------

    def _start(self) -> None:
        """Starts the first child, or the others once the first has had enough to do."""
        if self._ended or (self._threads and not self._alive):
            return
        if not self._threads:
            self._given = predict_child.given_of(self._trials)
            self._add()
        elif self._began and time.perf_counter() - self._began > _START:
            while len(self._threads) < self._most:
                self._add()

    def _add(self) -> None:
        child = Child(self._given)
        self._children.append(child)
        self._threads.append(threading.Thread(target=self._serve, args=(child,), daemon=True))
        with self._changed:
            self._alive += 1
        self._threads[-1].start()

    def _serve(self, child: Child) -> None:
        """Has one child answer what there is, until the search has ended or there is no child."""
        try:
            while (request := self._next()) is not None:
                answer: _Answer
                try:
                    answer = predict_child.answer(child.ask(request))
                except CrashError as error:
                    answer = error
                self._began = self._began or time.perf_counter()
                with self._changed:
                    self._answers[request] = answer
                    self._predicting.discard(request)
                    self._changed.notify_all()
        except OSError:
            pass
        finally:
            with self._changed:
                self._alive -= 1
                self._changed.notify_all()

    def _next(self) -> bytes | None:
        """The next candidate to predict, as soon as there is one; None at the end."""
        with self._changed:
            while not self._ended:
                request = self._waiting.popleft() if self._waiting else next(self._expected, None)
                if request is None:
                    self._changed.wait()
                elif request not in self._answers and request not in self._predicting:
                    self._predicting.add(request)
                    return request
            return None
