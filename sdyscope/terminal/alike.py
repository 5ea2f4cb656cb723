"""What looks the same is told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from sdyscope.facts.program import Partitioner

_Item = TypeVar("_Item")


class _Under(Protocol):
    @property
    def partitioner(self) -> Partitioner | None: ...


_UnderPartitioner = TypeVar("_UnderPartitioner", bound=_Under)


def by_partitioner(
    items: Iterable[_UnderPartitioner], bare: Callable[[_UnderPartitioner], object]
) -> Iterator[tuple[_UnderPartitioner, tuple[Partitioner, ...]]]:
    """Items that look different, each with the partitioners under which it looks so.

    Args:
        items: the items.
        bare: what is left of one when it does not matter whose it is.
    """
    for same in alike(items, bare):
        yield same[0], tuple(item.partitioner for item in same if item.partitioner is not None)


def alike(items: Iterable[_Item], bare: Callable[[_Item], object]) -> list[list[_Item]]:
    """Items in groups of those that look the same, by the first of each group.

    Args:
        items: the items.
        bare: what is left of one when it does not matter whose it is.
    """
    groups: list[tuple[object, list[_Item]]] = []
    for item in items:
        looks = bare(item)
        for known, members in groups:
            if known == looks:
                members.append(item)
                break
        else:
            groups.append((looks, [item]))
    return [members for _, members in groups]
