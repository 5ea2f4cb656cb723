"""What is reached from somewhere, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)


def reached(
    starts: Iterable[_Node], step: Callable[[_Node], Iterable[_Node]], most: int | None = None
) -> Iterator[_Node]:
    """Some nodes and all that is reached from them, each once, the nearest first.

    By hand: NetworkX walks graphs that are there. Where each question has edges of its own, making
    its graph and walking that takes 3 to 12 times as long, by question, on the train step of 80
    layers (benchmarks/walks.py).

    Args:
        starts: the nodes.
        step: what is next to a node; asked for once it has been yielded, so it can go by what was
            done with that.
        most: how many nodes may be seen before no more steps are made; None for any number.
    """
    queue = deque(dict.fromkeys(starts))
    seen = set(queue)
    while queue:
        node = queue.popleft()
        yield node
        if most is None or len(seen) < most:
            for other in step(node):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
