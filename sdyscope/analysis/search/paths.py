"""Which tensors of a program are one and the same thing to whoever shards them, by their paths.

The same matrix of every layer (``params['layers'][*]['w1']``), what an optimizer keeps of a
parameter (``opt_state[0].mu['layers'][0]['w1']``), and the result that is its next value
(``result[0]['layers'][0]['w1']``) are sharded alike, or the program buys a reshard each step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Leaf", "followed", "kept_of", "mirrored", "pattern", "split"]

_KEY = re.compile(r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]]*)\]|\.[^.\[]+")
_DIGITS = re.compile(r"\d+")
_RESULT = "result"


@dataclass(frozen=True)
class Leaf:
    """An array of the arguments or results.

    Attributes:
        path: pytree path.
        shape: shape of the whole array.
        dtype: MLIR element type.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The path in parts; see ``split``."""
        return split(self.path)


def split(path: str) -> tuple[str, ...]:
    """``opt_state[0].mu['w1']`` as ``('opt_state', '[0]', '.mu', "['w1']")``."""
    first = _KEY.search(path)
    root = path if first is None else path[: first.start()]
    return (root, *(match[0] for match in _KEY.finditer(path, len(root))))


def pattern(path: str) -> str:
    """``params['layers'][0]['w1']`` as ``params['layers'][*]['w1']``.

    Numbers in the last part tell tensors apart that do different things (``w1``, ``w2``), so they
    stay; those before it number the layers (``[0]``, ``['layer_0']``).
    """
    root, *keys = split(path)
    return root + "".join(_DIGITS.sub("*", key) for key in keys[:-1]) + "".join(keys[-1:])


def followed(leaf: Leaf, leaders: Sequence[Leaf]) -> int | None:
    """Which of some arguments another argument belongs to, as an optimizer's state to a parameter.

    It is in another tree, at the place where the other is in its own: ``opt_state[0].mu['w1']``
    belongs to ``params['w1']``, ``state.opt_state[0].mu['w1']`` to ``state.params['w1']``; and it
    has its shape. Of several the first is meant whose path they share most of.
    """
    best: tuple[int, int] | None = None
    for number, leader in enumerate(leaders):
        if leader.shape != leaf.shape or leader.keys == leaf.keys:
            continue
        shared = _same_place(leaf.keys, leader.keys)
        if shared and (best is None or shared > best[0]):
            best = shared, number
    return None if best is None else best[1]


def kept_of(leaves: Sequence[Leaf]) -> dict[int, int]:
    """Of each argument that an optimizer keeps of a parameter that parameter, by number."""
    # Only those that end alike can belong together.
    alike: dict[object, list[int]] = {}
    for number, leaf in enumerate(leaves):
        alike.setdefault((leaf.shape, leaf.keys[-1]), []).append(number)
    found: dict[int, int] = {}
    for number, leaf in enumerate(leaves):
        others = alike[leaf.shape, leaf.keys[-1]]
        lead = followed(leaf, [leaves[other] for other in others])
        # What belongs together in both directions is two of a kind, such as two sets of
        # parameters; the shorter path is the parameter's.
        if lead is not None and len(leaves[others[lead]].keys) < len(leaf.keys):
            found[number] = others[lead]
    return found


def _same_place(keys: tuple[str, ...], leader: tuple[str, ...]) -> int:
    """How long the path is that both have behind their trees; 0 where they are no such two."""
    # The tree of the leader is a whole argument, or a part of one that both are in.
    for depth in range(1, len(leader)):
        rest = leader[depth:]
        if keys[-len(rest) :] != rest or keys[: depth - 1] != leader[: depth - 1]:
            continue
        tree = keys[: -len(rest)]
        if tree == leader[:depth]:
            continue
        # Two parts of one argument (two blocks of a layer) are alike without belonging together.
        if depth == 1 or len(tree) > depth:
            return len(rest)
    return 0


def mirrored(results: Sequence[Leaf], arguments: Sequence[Leaf]) -> dict[int, int]:
    """Which results are the next values of arguments: result number -> argument number.

    By path where there is one, ``result[0]['w1']`` for ``params['w1']``. Arguments that are arrays
    by themselves are matched in order with the results that are, where there are as many of a shape
    and type.
    """
    found: dict[int, int] = {}
    # Only those that end alike can be the same.
    alike: dict[object, list[int]] = {}
    for other, argument in enumerate(arguments):
        alike.setdefault((argument.shape, argument.dtype, argument.keys[-1]), []).append(other)
    for number, result in enumerate(results):
        best = 0
        for other in alike.get((result.shape, result.dtype, result.keys[-1]), ()):
            shared = _same_value(result.keys[1:], arguments[other].keys[1:])
            if shared > best:
                best, found[number] = shared, other
    bare: dict[tuple[object, ...], tuple[list[int], list[int]]] = {}
    for number, result in enumerate(results):
        if number not in found and all(map(_is_index, result.keys[1:])):
            bare.setdefault((result.shape, result.dtype), ([], []))[0].append(number)
    for other, argument in enumerate(arguments):
        key = (argument.shape, argument.dtype)
        if key in bare and all(map(_is_index, argument.keys[1:])):
            bare[key][1].append(other)
    for (shape, _), (ours, theirs) in bare.items():
        # A scalar, such as a loss, is nothing's next value by its shape.
        if shape and len(ours) == len(theirs):
            found.update(zip(ours, theirs, strict=True))
    return found


def _is_index(key: str) -> bool:
    return key.startswith("[") and key[1:-1].isdecimal()


def _same_value(result: tuple[str, ...], argument: tuple[str, ...]) -> int:
    """How long the path is that both end in, if it is all of one of them; else 0."""
    shared = 0
    for a, b in zip(reversed(result), reversed(argument), strict=False):
        if a != b:
            break
        shared += 1
    if all(map(_is_index, argument[len(argument) - shared :])):
        return 0
    # The places in a tuple of results are no part of what they are called.
    whole = shared == len(argument) or all(map(_is_index, result[: len(result) - shared]))
    return shared if whole else 0
