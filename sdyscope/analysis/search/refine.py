"""What XLA makes of the candidates that are predicted to be best.

Shardy's reshards predict what XLA's partitioner does, and a search finds just those candidates for
which they promise too much. So the best are partitioned by XLA, one by one; what it sends besides
is charged to the options that the candidate has and the program has not; and with the costs
corrected so the next is chosen, or looked for near the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sdyscope.analysis.search.space import Decision
from sdyscope.analysis.search.strategy import WORTH, Assignment, Goal, effort
from sdyscope.analysis.trials.cost import Prediction
from sdyscope.errors import CompilerError
from sdyscope.facts.traffic import Traffic

#: How much a single check is believed: 1 / (1 + this) of what differs is charged to its options.
_DOUBT = 0.1

#: Part of the checks that goes to what holds less memory.
_MEMORY = 0.25

#: Part of the checks that goes to taking single changes back.
_SIMPLER = 0.2


@dataclass(frozen=True, slots=True)
class Checked:
    """A candidate that XLA partitioned.

    Attributes:
        assignment: the option of each decision.
        partitioned: its collectives, as XLA makes them; memory and FLOPs as predicted.
    """

    assignment: Assignment
    partitioned: Prediction


@dataclass(frozen=True)
class Refinement:
    """What came of it.

    Attributes:
        checked: the candidates, the program itself first.
        best: the best of them.
        refused: how many XLA refused.
        refusal: why, of the first; empty for none.
    """

    checked: tuple[Checked, ...]
    best: Checked
    refused: int
    refusal: str


class _SpentError(Exception):
    """There are no checks left."""


@dataclass(eq=False)
class _Refiner:
    decisions: Sequence[Decision]
    predicted: dict[Assignment, Prediction | None]
    predict: Callable[[Sequence[Assignment]], Sequence[Prediction | None]]
    partition: Callable[[Assignment], tuple[Traffic, ...]]
    goal: Goal
    checks: int
    notify: Callable[[float], None]

    def __post_init__(self) -> None:
        self.left = self.checks
        self.checked: dict[Assignment, Prediction | None] = {}
        self.refused = 0
        self.refusal = ""
        starts = np.cumsum([0, *(len(decision.options) for decision in self.decisions)])
        self.first = [int(number) for number in starts]
        self.charges = np.zeros(self.first[-1])

    # --- checking ---------------------------------------------------------------------------------

    def check(self, at: Assignment) -> Prediction | None:
        if at in self.checked:
            return self.checked[at]
        prediction = self.value(at)
        if prediction is None:
            return None
        if self.left <= 0:
            raise _SpentError
        self.left -= 1
        try:
            checked: Prediction | None = replace(prediction, traffic=self.partition(at))
        except CompilerError as error:
            if not self.checked:
                raise
            self.refused += 1
            self.refusal = self.refusal or error.message
            checked = None
        self.checked[at] = checked
        self.learn()
        self.notify(1 - self.left / self.checks)
        return checked

    def value(self, at: Assignment) -> Prediction | None:
        if at not in self.predicted:
            (self.predicted[at],) = self.predict([at])
        return self.predicted[at]

    def learn(self) -> None:
        """Charges what was sent besides to options: ridge regression over the candidates."""
        origin = next(iter(self.checked))
        known = [
            (at, prediction) for at, prediction in self.checked.items() if prediction is not None
        ]
        base = self.besides(origin)
        rows = np.array([self.features(at, origin) for at, _ in known])
        besides = np.array([self.besides(at) - base for at, _ in known])
        # As many unknowns as options, and few candidates: solve in the space of the candidates.
        kernel = rows @ rows.T + _DOUBT * np.eye(len(known))
        self.charges = rows.T @ np.linalg.solve(kernel, besides)

    def besides(self, at: Assignment) -> float:
        checked, predicted = self.checked[at], self.predicted[at]
        assert checked is not None
        assert predicted is not None
        return self.goal.cost(checked) - self.goal.cost(predicted)

    def features(self, at: Assignment, origin: Assignment) -> np.ndarray:
        vector = np.zeros(self.first[-1])
        for number, (option, was) in enumerate(zip(at, origin, strict=True)):
            if option != was:
                vector[self.first[number] + option] = 1
        return vector

    def corrected(self, at: Assignment) -> float:
        """What a candidate will cost, going by those that were checked."""
        prediction = self.predicted[at]
        assert prediction is not None
        origin = next(iter(self.checked))
        besides = self.besides(origin) + sum(
            self.charges[self.first[number] + option]
            for number, (option, was) in enumerate(zip(at, origin, strict=True))
            if option != was
        )
        # It can't send less than nothing.
        return max(self.goal.cost(prediction) + float(besides), 0.0)

    # --- choosing ---------------------------------------------------------------------------------

    def key(self, at: Assignment, goal: Goal) -> tuple[float, ...]:
        prediction = self.predicted[at]
        over, _, held, asked = goal.key(prediction, effort(self.decisions, at))
        return (over, self.corrected(at), held, asked)

    def unchecked(self) -> Iterator[Assignment]:
        return (
            at
            for at, prediction in self.predicted.items()
            if prediction is not None and at not in self.checked
        )

    def best(self, goal: Goal) -> Assignment:
        checked = {
            at: prediction for at, prediction in self.checked.items() if prediction is not None
        }
        return min(checked, key=lambda at: goal.key(checked[at], effort(self.decisions, at)))

    def improve(self, goal: Goal, until: int) -> None:
        """Checks what promises most, until nothing promises to be better or few checks are left."""
        while self.left > until:
            best = self.best(goal)
            self.look_around(best)
            chosen = min(self.unchecked(), key=lambda at: self.key(at, goal), default=None)
            if chosen is None:
                return
            mine, there = self.key(chosen, goal), goal.key(self.checked[best])
            if mine[0] > there[0]:
                return
            if mine[0] == there[0] and mine[1] >= there[1] * (1 - WORTH):
                return
            self.check(chosen)

    def look_around(self, at: Assignment) -> None:
        """Predicts what is one step from a candidate."""
        around = [
            other
            for number, decision in enumerate(self.decisions)
            for option in decision.near(at[number])
            if (other := (*at[:number], option, *at[number + 1 :])) not in self.predicted
        ]
        self.predicted.update(zip(around, self.predict(around), strict=True))

    def simplify(self, goal: Goal) -> None:
        """Takes single changes of the best back, and keeps what is no worse."""
        at = self.best(goal)
        for number, option in enumerate(at):
            if option:
                other = (*at[:number], 0, *at[number + 1 :])
                if not goal.better(self.check(at), self.check(other)):
                    at = other

    def less_memory(self, goal: Goal) -> None:
        """Checks what costs least with less than the best holds."""
        checked = self.checked[self.best(goal)]
        held = [prediction.held for prediction in self.predicted.values() if prediction is not None]
        if checked is None:
            return
        limit = checked.held
        while limit > min(held) and self.left > 0:
            limit = max(limit // 2, min(held))
            self.improve(Goal(goal.cost, limit), max(0, self.left - 2))


def refine(
    decisions: Sequence[Decision],
    predicted: dict[Assignment, Prediction | None],
    predict: Callable[[Sequence[Assignment]], Sequence[Prediction | None]],
    partition: Callable[[Assignment], tuple[Traffic, ...]],
    goal: Goal,
    checks: int,
    notify: Callable[[float], None] = lambda _: None,
    textbook: Sequence[Assignment] = (),
) -> Refinement:
    """Has the best candidates partitioned, and finds better ones with what is learnt from them.

    Args:
        decisions: what is decided.
        predicted: what was predicted so far; the first is the program itself. More is added.
        predict: predicts more.
        partition: what XLA sends for a candidate; raises ``CompilerError`` where it refuses.
        goal: what is better.
        checks: how many to have partitioned, the program itself included.
        notify: told which part of the checks is done.
        textbook: candidates of which the best are partitioned whatever is predicted of them.

    Raises:
        CompilerError: XLA refuses the program itself.
    """
    refiner = _Refiner(decisions, predicted, predict, partition, goal, checks, notify)
    try:
        refiner.check(next(iter(predicted)))
        # What people write is checked whatever is predicted of it.
        by_cost = [assignment for assignment in textbook if refiner.value(assignment) is not None]
        by_cost.sort(key=lambda assignment: goal.key(predicted[assignment]))
        for assignment in by_cost[: max(checks // 4, 1)]:
            refiner.check(assignment)
        for_memory = int(checks * _MEMORY)
        for_simpler = int(checks * _SIMPLER)
        refiner.improve(goal, for_memory + for_simpler)
        refiner.simplify(goal)
        refiner.less_memory(goal)
        refiner.improve(goal, 0)
    except _SpentError:
        pass
    checked = [
        Checked(at, prediction)
        for at, prediction in refiner.checked.items()
        if prediction is not None
    ]
    best = refiner.best(goal)
    return Refinement(
        tuple(checked),
        next(candidate for candidate in checked if candidate.assignment == best),
        refiner.refused,
        refiner.refusal,
    )
