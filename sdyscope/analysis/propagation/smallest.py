"""The smallest sets of edits that do what is asked for, whatever it takes to try one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeAlias

#: The numbers of some edits.
EditSet: TypeAlias = tuple[int, ...]


def smallest_sets(
    count: int,
    does: Callable[[EditSet], bool],
    is_affordable: Callable[[Sequence[EditSet]], bool],
) -> tuple[list[EditSet], bool]:
    """The smallest sets of edits that do something, else one of which none can be left out.

    Args:
        count: how many edits there are.
        does: whether some of them do; asked again of the same set, it answers at once.
        is_affordable: whether so many sets can still be tried.

    Returns:
        The sets, and whether every smaller one was tried; where no set does and that is so, every
        set was tried.
    """
    for size in range(1, count + 1):
        sets = list(combinations(range(count), size))
        if not is_affordable(sets):
            return _irreducible(tuple(range(count)), does), False
        if those_that_do := [numbers for numbers in sets if does(numbers)]:
            return those_that_do, True
    return [], True


def _irreducible(kept: EditSet, does: Callable[[EditSet], bool]) -> list[EditSet]:
    """A set of edits that does, and none of which can be left out; none if all of them do not."""
    if not does(kept):
        return []
    for number in kept[::-1]:
        fewer = tuple(other for other in kept if other != number)
        if fewer and does(fewer):
            kept = fewer
    return [kept]
