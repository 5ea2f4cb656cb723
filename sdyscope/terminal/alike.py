"""What looks the same is told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")


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
