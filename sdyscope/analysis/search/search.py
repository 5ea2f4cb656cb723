"""search: which other shardings of a program's arguments would cost less.

Candidates are predicted, with Shardy's own passes; the best are partitioned by XLA, and the best of
those is compiled. Only what both confirm is called better.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sdyscope.analysis.search.decisions import Space
from sdyscope.analysis.search.refine import refine
from sdyscope.analysis.search.space import Setting, block_bytes
from sdyscope.analysis.search.strategy import WORTH, Assignment, Budget, Goal, Strategy, effort
from sdyscope.analysis.search.values import Candidate, Crash, Search, Trial, changes_of
from sdyscope.analysis.trials.cost import Prediction, Rates, front
from sdyscope.analysis.trials.trials import CompiledCandidate
from sdyscope.errors import CompilerError, CrashError, SdyscopeError
from sdyscope.facts.remarks import Remark
from sdyscope.facts.traffic import Traffic

Predict: TypeAlias = Callable[[Sequence[Sequence[Setting]]], Sequence[Prediction | SdyscopeError]]
Expect: TypeAlias = Callable[[Iterable[Sequence[Setting]]], None]
Partition: TypeAlias = Callable[[Sequence[Setting]], tuple[Traffic, ...]]
Compile: TypeAlias = Callable[[Sequence[Setting]], CompiledCandidate]


@dataclass
class _Predictions:
    """Predicts assignments, and counts what can't be."""

    space: Space
    predict: Predict
    expect: Expect | None = None
    refused: int = 0
    refusal: str = ""
    count: int = 0
    crashed: int = 0
    crash: Crash | None = None

    def __call__(self, assignments: Sequence[Assignment]) -> list[Prediction | None]:
        predictions: list[Prediction | None] = []
        answers = self.predict([self.space.settings(assignment) for assignment in assignments])
        for assignment, answer in zip(assignments, answers, strict=True):
            if isinstance(answer, SdyscopeError):
                self.refused += 1
                if isinstance(answer, CrashError):
                    self.crashed += 1
                    changes = changes_of(self.space, assignment)
                    self.crash = self.crash or Crash(answer.how, changes)
                else:
                    self.refusal = self.refusal or answer.message
                predictions.append(None)
            else:
                shared = shared_bytes(self.space, assignment)
                predictions.append(replace(answer, shared=shared))
        self.count += len(predictions)
        return predictions

    def ahead(self, assignments: Iterable[Assignment]) -> None:
        """These will probably be asked for next."""
        if self.expect is not None:
            self.expect(map(self.space.settings, assignments))

    def as_it_is(self, assignment: Assignment) -> Prediction:
        (answer,) = self.predict([()])
        if isinstance(answer, SdyscopeError):
            raise answer
        return replace(answer, shared=shared_bytes(self.space, assignment))


def search(
    space: Space,
    predict: Predict,
    partition: Partition | None = None,
    compile_: Compile | None = None,
    *,
    expect: Expect | None = None,
    rates: Rates = Rates(),  # noqa: B008 (frozen)
    limit: int | None = None,
    budget: Budget = Budget(),  # noqa: B008
    seed: int = 0,
    checks: int = 24,
    compiles: int = 3,
    notify: Callable[[str, float], None] | None = None,
) -> Search:
    """Searches, and has what is best confirmed.

    Args:
        space: what to search.
        predict: what the program sends, computes and holds, each time with some settings; why not
            where it can't be sharded so.
        partition: what XLA's partitioner makes it send; None to leave that out.
        compile_: what the compiler makes of it; None to leave that out.
        expect: told which settings will probably be predicted next.
        rates: how bytes and FLOPs are weighed.
        limit: bytes that a device may hold; None for any number.
        budget: how long to predict, before anything is partitioned.
        seed: of the random numbers.
        checks: how many candidates to have partitioned, the program itself included.
        compiles: how many candidates to compile at most, until one is confirmed.
        notify: told what is being done, and how much of it is done, from 0 to 1.

    Raises:
        CompilerError: the program as it is can't be propagated.
    """
    progress = notify or (lambda _, __: None)
    predictions = _Predictions(space, predict, expect)
    nothing = (0,) * len(space.decisions)
    start = _candidate(space, nothing, predictions.as_it_is(nothing), None, rates)
    goal = Goal(rates.cost, limit)
    strategy = Strategy(
        space.decisions,
        space.axes,
        predictions,
        goal,
        budget,
        seed,
        lambda part, _: progress("searching", part),
        predictions.ahead,
    )
    began = time.perf_counter()
    chosen = strategy.run()
    seconds = time.perf_counter() - began
    in_budget = predictions.count
    predicted = strategy.evaluated
    textbook = [
        candidate for candidate in dict.fromkeys(strategy.textbook()) if candidate in predicted
    ]
    traffics: dict[Assignment, Prediction] = {}
    refused, refusal = 0, ""
    began = time.perf_counter()
    notes: list[Remark | str] = list(space.notes)
    if partition is not None and checks > 1:
        try:
            refined = refine(
                space.decisions,
                predicted,
                predictions,
                lambda at: partition(space.settings(at)),
                goal,
                checks,
                lambda part: progress("partitioning the best", part),
                textbook=textbook,
            )
            traffics = {checked.assignment: checked.partitioned for checked in refined.checked}
            chosen, refused, refusal = refined.best.assignment, refined.refused, refined.refusal
        except CompilerError as error:
            notes.append(Remark("not partitioned", error.message))
    check_seconds = time.perf_counter() - began
    candidates = [
        _candidate(space, assignment, prediction, traffics.get(assignment), rates)
        for assignment, prediction in predicted.items()
        if prediction is not None and (not traffics or assignment in traffics)
    ]
    start = _as_written(start, candidates, space.settings(nothing))
    best = next((candidate for candidate in candidates if candidate.assignment == chosen), start)
    if not goal.better(best.known, start.known):
        best = start
    search = Search(
        space=space,
        rates=rates,
        limit=limit,
        seed=seed,
        start=start,
        best=best,
        front=tuple(
            front([best, *candidates], lambda candidate: (candidate.cost, candidate.known.held))
        ),
        partitioned=tuple(candidates) if traffics else (),
        tried=predictions.count,
        near=predictions.count - in_budget,
        refused=predictions.refused + refused,
        refusal=predictions.refusal or refusal,
        crashed=predictions.crashed,
        crash=predictions.crash,
        seconds=seconds,
        check_seconds=check_seconds,
        notes=tuple(notes),
    )
    if compile_ is None or compiles == 0 or best is start:
        return search
    progress("compiling the program as it is", 0.0)
    try:
        before = compile_(())
    except CompilerError as error:
        why = Remark("not compiled", error.message)
        return replace(search, notes=(*search.notes, why))
    trials: list[Trial] = []
    turn = _in_turn(space, best, candidates, goal, start.known)
    first = list(itertools.islice(turn, compiles))
    # What was promised most can fail for one reason: then what people write is compiled.
    others = [
        candidate
        for candidate in candidates
        # One of them may be the program as it is, which was compiled.
        if candidate.changes and candidate.assignment in textbook and candidate not in first
    ]
    others.sort(key=lambda candidate: goal.key(candidate.known))
    for candidate in (*first, *others[:_TEXTBOOK]):
        if trials and trials[-1].better:
            break
        progress(f"compiling candidate {len(trials) + 1}", 0.0)
        trials.append(_trial(search, candidate, before, compile_))
    return replace(search, compiled_start=_weighed(search, start, before), trials=tuple(trials))


def _as_written(
    start: Candidate, candidates: Sequence[Candidate], pinned: Sequence[Setting]
) -> Candidate:
    """The program as it is, with what XLA makes of it where that was asked.

    Where results were left open, what was partitioned has them as the arguments they come from,
    and is all that others can be compared with.
    """
    same = next(
        (candidate for candidate in candidates if candidate.assignment == start.assignment), None
    )
    if same is None:
        return start
    return same if not pinned or same.partitioned is not None else start


def shared_bytes(space: Space, assignment: Assignment) -> int:
    """Bytes a device of results that lie in the buffers of donated arguments."""
    sizes: Mapping[str, int] = space.mesh.shape
    total = 0
    for decision, number in zip(space.decisions, assignment, strict=True):
        option = decision.options[number]
        if option is not None and not decision.is_constraint:
            block = block_bytes(decision.shape, decision.dtype, option, sizes)
            results = sum(member.kind == "result" for member in decision.members)
            total += block * min(sum(member.donated for member in decision.members), results)
    return total


def _candidate(
    space: Space,
    assignment: Assignment,
    prediction: Prediction,
    partitioned: Prediction | None,
    rates: Rates,
) -> Candidate:
    return Candidate(
        assignment,
        prediction,
        rates.cost(prediction),
        changes_of(space, assignment),
        partitioned,
        None if partitioned is None else rates.cost(partitioned),
        rates.seconds(partitioned or prediction),
    )


def _in_turn(
    space: Space, best: Candidate, candidates: Sequence[Candidate], goal: Goal, start: Prediction
) -> Iterator[Candidate]:
    """The best, then the next that differ from those before in cost or memory."""
    predictions: list[Prediction] = []
    ordered = sorted(
        candidates,
        key=lambda candidate: goal.key(
            candidate.known, effort(space.decisions, candidate.assignment)
        ),
    )
    for candidate in (best, *ordered):
        mine = candidate.known
        if any(_alike(goal, mine, other) for other in predictions) or not goal.better(mine, start):
            continue
        predictions.append(mine)
        yield candidate


#: How many plans of textbooks are compiled where none of the best is confirmed.
_TEXTBOOK = 2

#: Candidates that differ by a smaller part in cost and memory are taken for one.
_ALIKE = 0.01


def _alike(goal: Goal, prediction: Prediction, other: Prediction) -> bool:
    a, b = goal.cost(prediction), goal.cost(other)
    return (
        abs(a - b) <= _ALIKE * max(a, b)
        and abs(prediction.held - other.held) <= _ALIKE * other.held
    )


def _trial(
    search: Search, candidate: Candidate, before: CompiledCandidate, compile_: Compile
) -> Trial:
    try:
        compiled = compile_(search.space.settings(candidate.assignment))
    except CompilerError as error:
        return Trial(candidate, None, False, Remark("refused", error.message))
    why = _why_not(search, candidate, compiled, before)
    return Trial(candidate, _weighed(search, candidate, compiled), why is None, why or "")


def _why_not(
    search: Search, candidate: Candidate, compiled: CompiledCandidate, before: CompiledCandidate
) -> Remark | None:
    """Why a compiled candidate is no better than the compiled program; None where it is."""
    needs = compiled.measured.held if compiled.total is None else compiled.total
    needed = before.measured.held if before.total is None else before.total
    if search.limit is not None:
        if needs > search.limit:
            return Remark("over the limit")
        if needed > search.limit:
            return None  # the program as it is does not fit
    cost = search.rates.cost(_with_flops(compiled, candidate))
    start = search.rates.cost(_with_flops(before, search.start))
    if cost < start * (1 - WORTH) or (cost <= start and needs < needed * (1 - WORTH)):
        return None
    return Remark("costs no less")


def _weighed(
    search: Search, candidate: Candidate, compiled: CompiledCandidate
) -> CompiledCandidate:
    """With the FLOPs that are predicted, and what that comes to."""
    measured = _with_flops(compiled, candidate)
    return replace(compiled, measured=measured, cost=search.rates.cost(measured))


def _with_flops(compiled: CompiledCandidate, candidate: Candidate) -> Prediction:
    return replace(compiled.measured, flops=candidate.prediction.flops)
