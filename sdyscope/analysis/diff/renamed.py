"""Rows that only one side has, put together where they can only be the same under another name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

_Row = TypeVar("_Row")


def renamed(
    rows: Iterable[_Row], sides: Callable[[_Row], tuple[Any, Any]], key: Callable[[_Row], Hashable]
) -> Iterator[tuple[_Row, _Row | None]]:
    """The rows in order; what only the first side has comes with what the second has in its place.

    Two belong together where both sides have as many rows of their own with the same key: the first
    with the first, and so on. Where they have more or fewer, it is not known which is which.

    Args:
        rows: what differs.
        sides: what the first and the second side have of a row; falsy for nothing.
        key: what does not change with a name, such as a type and a sharding.
    """
    rows = list(rows)
    alone: dict[Hashable, tuple[list[int], list[int]]] = {}
    for number, row in enumerate(rows):
        first, second = map(bool, sides(row))
        if first != second:
            alone.setdefault(key(row), ([], []))[second].append(number)
    pairs = {
        gone: come
        for firsts, seconds in alone.values()
        if len(firsts) == len(seconds)
        for gone, come in zip(firsts, seconds, strict=True)
    }
    taken = set(pairs.values())
    for number, row in enumerate(rows):
        if number not in taken:
            yield row, rows[pairs[number]] if number in pairs else None
