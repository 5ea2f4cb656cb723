"""How a search goes through its candidates; each is a number for each decision, and has a cost.

First simple ways to shard everything (the program's own, nothing, each axis on the largest, first
or last dimension of everything), then from the best of them downhill: one decision at a time, or
those of one shape at once, moving one axis. What is left of the budget goes into starting again
from the best with some decisions thrown, and into finding what holds less memory. At last every
change that brings nothing is taken back. The same seed and number of candidates give the same
search.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, permutations
from typing import TypeAlias

from sdyscope.analysis.search.space import Decision, Option, kept, opened
from sdyscope.analysis.trials.cost import Prediction

Assignment: TypeAlias = tuple[int, ...]
"""The number of an option for each decision."""

#: What is not better by this part is not better.
WORTH = 1e-3

#: Parts of the budget after which the next thing is begun.
_DESCENTS, _AGAIN, _MEMORY = 0.6, 0.8, 0.93

#: From how many beginnings to go downhill.
_BEGINNINGS = 3

#: How many candidates are evaluated at a time.
_TOGETHER = 16

#: How many throws are drawn ahead, so that what they will ask for can be expected.
_DRAWN = 3

#: Rounds without a candidate that was not seen yet, after which there are no more.
_IDLE_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to search, before anything is partitioned: whichever ends first.

    Attributes:
        candidates: how many to evaluate; None for any number.
        seconds: for how long; None for ever.
    """

    candidates: int | None = 300
    seconds: float | None = None


@dataclass(frozen=True)
class Goal:
    """What is better.

    Attributes:
        cost: what to make small.
        limit: bytes that a device may hold; None for any number.
    """

    cost: Callable[[Prediction], float]
    limit: int | None = None

    def key(self, prediction: Prediction | None, effort: float = 0) -> tuple[float, ...]:
        """The smaller the better: within the limit, at least cost, memory, effort."""
        if prediction is None:
            return (math.inf, math.inf, math.inf, math.inf)
        over = 0 if self.limit is None else max(prediction.held - self.limit, 0)
        return (over, self.cost(prediction), prediction.held, effort)

    def better(self, prediction: Prediction | None, other: Prediction | None) -> bool:
        """Whether one is better than another by more than a trifle."""
        a, b = self.key(prediction), self.key(other)
        if a[0] != b[0]:
            return a[0] < b[0]
        if abs(a[1] - b[1]) > WORTH * abs(b[1]):
            return a[1] < b[1]
        return a[2] < b[2] * (1 - WORTH) if a[1] <= b[1] else False


class _SpentError(Exception):
    """The budget, or the part of it that this was to take, is spent."""


class Strategy:
    """One search.

    Args:
        decisions: what is decided.
        axes: the axes that are placed.
        evaluate: what candidates cost; None for what can't be.
        goal: what is better.
        budget: how long to search.
        seed: of the random numbers.
        notify: told how much of the budget is spent, from 0 to 1, and the best so far.
        expect: told, before it evaluates, what will be evaluated next if nothing gets better.
    """

    def __init__(
        self,
        decisions: Sequence[Decision],
        axes: Sequence[str],
        evaluate: Callable[[Sequence[Assignment]], Sequence[Prediction | None]],
        goal: Goal,
        budget: Budget = Budget(),
        seed: int = 0,
        notify: Callable[[float, Prediction | None], None] | None = None,
        expect: Callable[[Iterable[Assignment]], None] | None = None,
    ) -> None:
        self._decisions = decisions
        self._axes = axes
        self._evaluate = evaluate
        self._goal = goal
        self._budget = budget
        self._random = random.Random(seed)
        self._notify = notify
        self._expect = expect
        self._drawn: deque[dict[int, int]] = deque()
        self._began = time.perf_counter()
        self._until = 1.0
        self._size = math.prod(len(decision.options) for decision in decisions)
        #: Every candidate that was looked at, in order.
        self.evaluated: dict[Assignment, Prediction | None] = {}

    # --- what it all comes to ---------------------------------------------------------------------

    def run(self) -> Assignment:
        """Searches, and returns the best; all that was looked at is in ``found``."""
        goal = self._goal
        with self._up_to(_DESCENTS):
            seeds = list(dict.fromkeys(self.seeds()))
            self._evaluate_all(seeds)
            seeds.sort(
                key=lambda seed: goal.key(self.evaluated[seed], effort(self._decisions, seed))
            )
            for assignment in seeds[:_BEGINNINGS]:
                self._descend(assignment, goal)
        with self._up_to(_AGAIN):
            self._throw(goal)
        with self._up_to(_MEMORY):
            self._less_memory()
        with self._up_to(1.0):
            self._simplify(self.best(goal), goal)
            self._throw(goal)
        return self.best(goal)

    def best(self, goal: Goal) -> Assignment:
        """The best of all that were looked at; of those that are hardly different the simplest."""
        least = min(
            (goal.key(prediction) for prediction in self.evaluated.values()),
            default=goal.key(None),
        )
        alike = [
            assignment
            for assignment, prediction in self.evaluated.items()
            if prediction is not None
            and (key := goal.key(prediction))[0] == least[0]
            and key[1] <= least[1] * (1 + WORTH)
        ]
        if not alike:
            return (0,) * len(self._decisions)

        # Of what costs the same, what holds much less is better than what changes less.
        keys = {
            assignment: goal.key(self.evaluated[assignment], effort(self._decisions, assignment))
            for assignment in alike
        }
        least_held = min(held for _, _, held, _ in keys.values())
        alike = [
            assignment for assignment in alike if keys[assignment][2] <= least_held * (1 + WORTH)
        ]
        return min(alike, key=lambda assignment: (keys[assignment][3], *keys[assignment]))

    def seeds(self) -> Iterator[Assignment]:
        """Simple ways to shard everything, the program's own first.

        Constraints inside stay as they are, or all of them leave what they are on to the compiler.
        """
        arguments = list(dict.fromkeys(self._seeds()))
        yield from arguments
        yield from map(self._unconstrained, arguments)

    def _seeds(self) -> Iterator[Assignment]:
        start = (0,) * len(self._decisions)
        yield start
        unplaced = self._each(start, lambda decision, _: _without(decision, self._axes))
        yield unplaced
        everywhere = unplaced
        for axis in self._axes:
            everywhere = self._each(everywhere, _on(axis, _largest))
        yield everywhere
        yield from self._textbook()
        for axis in self._axes:
            yield self._each(start, _on(axis, None))
            for base in (start, unplaced):
                for place in (_largest, _first, _last):
                    yield self._each(base, _on(axis, place))

    def textbook(self) -> Iterator[Assignment]:
        """The plans of textbooks: a batch axis on the width of the residual stream, another across.

        The width is the size that most tensors have a dimension of. Under FSDP every tensor is
        sharded on it; tensor parallelism shards the other dimension: heads, hidden features, the
        vocabulary. Constraints inside stay, or go.
        """
        plans = list(self._textbook())
        yield from dict.fromkeys((*plans, *map(self._unconstrained, plans)))

    def _textbook(self) -> Iterator[Assignment]:
        start = (0,) * len(self._decisions)
        unplaced = self._each(start, lambda decision, _: _without(decision, self._axes))
        counts = Counter(
            size
            for decision in self._decisions
            if not decision.is_constraint
            for size in {*decision.shape}
            if size > 1
        )
        width = max(counts, key=lambda size: (counts[size], size), default=0)
        along, across = (
            partial(_along, width),
            (partial(_first_across, width), partial(_most_across, width)),
        )
        plans: dict[Assignment, None] = {}
        for axis in self._axes:
            plans[self._each(unplaced, _on(axis, along))] = None
            for place in across:
                plans[self._each(unplaced, _on(axis, place))] = None
        for first, other in permutations(self._axes, 2):
            for place in across:
                sharded = self._each(unplaced, _on(first, along))
                plans[self._each(sharded, _on(other, place))] = None
        yield from plans

    # --- moves ------------------------------------------------------------------------------------

    def _descend(self, at: Assignment, goal: Goal) -> Assignment:
        """Downhill by one decision at a time, until none gets better."""
        while True:
            before = at
            steps = [*self._families(at), *((number,) for number in range(len(at)))]
            for done, numbers in enumerate(steps, 1):
                again = steps if at != before else []
                ahead = self._all_near(at, chain(steps[done:], again))
                at = self._best_of(at, numbers, goal, ahead)
            if at == before:
                return at

    def _best_of(
        self,
        at: Assignment,
        numbers: Sequence[int],
        goal: Goal,
        ahead: Iterable[Assignment] = (),
    ) -> Assignment:
        """The best of what some decisions, all with the same option, could be moved to."""
        best = at
        others = self._near(at, numbers)
        self._evaluate_all(others, ahead)
        for other in others:
            if goal.better(self._value(other), self._value(best)):
                best = other
        return best

    def _near(self, at: Assignment, numbers: Sequence[int]) -> list[Assignment]:
        """What some decisions, all with the same option, could be moved to."""
        first = numbers[0]
        near = self._decisions[first].near(at[first])
        return [_with(at, dict.fromkeys(numbers, option)) for option in near]

    def _all_near(self, at: Assignment, steps: Iterable[Sequence[int]]) -> Iterator[Assignment]:
        """What several steps would evaluate, one after the other, if none got better."""
        for numbers in steps:
            yield from self._near(at, numbers)

    def _families(self, at: Assignment) -> list[tuple[int, ...]]:
        """Decisions that have the same options and the same one chosen, where there are several."""
        groups: dict[object, list[int]] = {}
        for number, decision in enumerate(self._decisions):
            same = (decision.is_constraint, decision.shape, decision.options, at[number])
            groups.setdefault(same, []).append(number)
        return [tuple(numbers) for numbers in groups.values() if len(numbers) > 1]

    def _throw(self, goal: Goal) -> None:
        """Throws some decisions of the best and goes downhill from there, again and again."""
        idle, at = 0, self.best(goal)
        while idle < _IDLE_ROUNDS and len(self.evaluated) < self._size:
            seen = len(self.evaluated)
            throw, *others = self._throws()
            self._drawn.popleft()
            thrown = _with(at, throw)
            if self._value(thrown, self._thrown(at, (throw, *others))) is not None:
                for number in throw:
                    thrown = self._best_of(thrown, (number,), goal, self._thrown(at, others))
                if goal.better(self._value(thrown), self._value(at)):
                    self._descend(thrown, goal)
                    at = self.best(goal)
            idle = idle + 1 if len(self.evaluated) == seen else 0

    def _throws(self) -> list[dict[int, int]]:
        """The next throws: for some decisions the number of an option."""
        while len(self._drawn) < _DRAWN:
            count = self._random.choice((1, 2, 2, 3))
            numbers = self._random.sample(
                range(len(self._decisions)), min(count, len(self._decisions))
            )
            self._drawn.append(
                {n: self._random.randrange(len(self._decisions[n].options)) for n in numbers}
            )
        return list(self._drawn)

    def _thrown(self, at: Assignment, throws: Iterable[dict[int, int]]) -> Iterator[Assignment]:
        """What throws evaluate first: what follows is near to the best of that."""
        for throw in throws:
            thrown = _with(at, throw)
            yield thrown
            yield from self._near(thrown, (next(iter(throw)),))

    def _less_memory(self) -> None:
        """Looks for what costs least with half, a quarter, ... of what the best holds."""
        best = self.evaluated[self.best(self._goal)]
        held = [prediction.held for prediction in self.evaluated.values() if prediction is not None]
        if best is None or not held:
            return
        limit = best.held
        while limit > min(held):
            limit = max(limit // 2, min(held))
            goal = Goal(self._goal.cost, limit)
            self._descend(self.best(goal), goal)

    def _simplify(self, at: Assignment, goal: Goal) -> Assignment:
        """Takes every change back that brings nothing."""
        for number, option in enumerate(at):
            if option:
                other = _with(at, {number: 0})
                ahead = self._each_back(at, number + 1)
                if not goal.better(self._value(at), self._value(other, ahead)):
                    at = other
        return at

    def _each_back(self, at: Assignment, first: int) -> Iterator[Assignment]:
        """Each change taken back alone, from a decision on."""
        for number in range(first, len(at)):
            if at[number]:
                yield _with(at, {number: 0})

    # --- the budget -------------------------------------------------------------------------------

    def _value(self, at: Assignment, ahead: Iterable[Assignment] = ()) -> Prediction | None:
        self._evaluate_all([at], ahead)
        return self.evaluated[at]

    def _evaluate_all(
        self, assignments: Iterable[Assignment], ahead: Iterable[Assignment] = ()
    ) -> None:
        """Evaluates what was not yet, some at a time, and in order.

        Args:
            assignments: what to evaluate.
            ahead: what will be evaluated behind it if nothing gets better.

        Raises:
            _SpentError: the budget does not last; what it did last for is evaluated.
        """
        unknown = [at for at in dict.fromkeys(assignments) if at not in self.evaluated]
        while unknown:
            if self._spent() >= self._until:
                raise _SpentError
            room = self._room()
            some, unknown = unknown[:room], unknown[room:]
            if self._expect is not None:
                following = chain(unknown, ahead)
                self._expect(each for each in following if each not in self.evaluated)
            self.evaluated.update(zip(some, self._evaluate(some), strict=True))
            if self._notify is not None:
                self._notify(min(self._spent(), 1.0), self.evaluated[some[-1]])

    def _room(self) -> int:
        """How many candidates to evaluate at a time, within what is left of the budget."""
        if self._budget.candidates is None:
            return _TOGETHER
        left = math.ceil(self._until * self._budget.candidates) - len(self.evaluated)
        return max(min(left, _TOGETHER), 1)

    def _spent(self) -> float:
        parts = [0.0]
        if self._budget.candidates is not None:
            parts.append(len(self.evaluated) / self._budget.candidates)
        if self._budget.seconds is not None:
            parts.append((time.perf_counter() - self._began) / self._budget.seconds)
        return max(parts)

    @contextmanager
    def _up_to(self, part: float) -> Iterator[None]:
        self._until = part
        with suppress(_SpentError):
            yield

    # --- candidates -------------------------------------------------------------------------------

    def _each(
        self, base: Assignment, change: Callable[[Decision, Option], Option | None]
    ) -> Assignment:
        """A candidate with all arguments changed in the same way, where they can be."""
        choices = []
        for decision, number in zip(self._decisions, base, strict=True):
            option = None if decision.is_constraint else decision.options[number]
            wanted = change(decision, option) if option is not None else None
            choices.append(decision.options.index(wanted) if wanted in decision.options else number)
        return tuple(choices)

    def _unconstrained(self, base: Assignment) -> Assignment:
        """A candidate with every constraint left to the compiler, where it can be."""
        return tuple(
            decision.options.index(none)
            if decision.is_constraint and (none := opened(len(decision.shape))) in decision.options
            else number
            for decision, number in zip(self._decisions, base, strict=True)
        )


def effort(decisions: Sequence[Decision], at: Assignment) -> float:
    """How much a candidate asks of who writes the program."""
    return sum(decision.effort(number) for decision, number in zip(decisions, at, strict=True))


def _with(at: Assignment, changes: dict[int, int]) -> Assignment:
    return tuple(changes.get(number, option) for number, option in enumerate(at))


_Place: TypeAlias = Callable[[Decision, Option], int]


def _without(decision: Decision, axes: Sequence[str]) -> Option | None:
    first = decision.options[0] or decision.options[-1] or ()
    return kept(first, axes)


def _on(axis: str, place: _Place | None) -> Callable[[Decision, Option], Option | None]:
    """A change that puts an axis somewhere, or with no place takes it away."""

    def change(decision: Decision, option: Option) -> Option | None:
        bare = kept(option, (axis,))
        if place is None:
            return bare
        at = place(decision, bare)
        return tuple((*(part or ()), axis) if dim == at else part for dim, part in enumerate(bare))

    return change


def _along(width: int, decision: Decision, option: Option) -> int:
    """The dimension of the residual stream's width, or none."""
    return next((at for at, size in enumerate(decision.shape) if size == width), -1)


def _first_across(width: int, decision: Decision, option: Option) -> int:
    """The first other dimension, or none."""
    return next((at for at, size in enumerate(decision.shape) if size != width), -1)


def _most_across(width: int, decision: Decision, option: Option) -> int:
    """The largest other dimension, or none."""
    others = [at for at, size in enumerate(decision.shape) if size != width]
    return max(others, key=lambda at: decision.shape[at], default=-1)


def _largest(decision: Decision, option: Option) -> int:
    """The dimension with the largest block that nothing shards yet, or else the largest."""
    return max(range(len(option)), key=lambda dim: (not option[dim], decision.shape[dim]))


def _first(decision: Decision, option: Option) -> int:
    return 0


def _last(decision: Decision, option: Option) -> int:
    return len(option) - 1
