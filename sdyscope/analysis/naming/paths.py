"""Which tensors of a program are one and the same thing to whoever shards them, by their paths.

The same matrix of every layer (``params['layers'][*]['w1']``), what an optimizer keeps of a
parameter (``opt_state[0].mu['layers'][0]['w1']``), and the result that is its next value
(``result[0]['layers'][0]['w1']``) are sharded alike, or the program buys a reshard each step.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from sdyscope.annotations import Annotation
from sdyscope.facts.program import RequestedTensor
from sdyscope.facts.tensors import Tensor

_KEY = re.compile(r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]]*)\]|\.[^.\[]+")
_DIGITS = re.compile(r"\d+")
_INDEX = re.compile(r"\[\d+\]")
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

    @classmethod
    def of(cls, tensor: Tensor | Annotation | RequestedTensor) -> Leaf:
        """An argument or result, as its path is read."""
        return cls(tensor.path, tensor.shape or (), tensor.dtype)

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


def without_indices(path: str) -> str:
    """``params['layers'][0]['down'][1]`` as ``params['layers'][*]['down'][*]``."""
    return _INDEX.sub("[*]", path)


def kept_for(
    leaves: Sequence[Leaf],
    in_passes: Collection[int] | None = None,
    carried: Collection[int] | None = None,
    among: Collection[int] | None = None,
) -> dict[int, int]:
    """Of each array that an optimizer keeps of a parameter that parameter, by number.

    It is in another tree, at the place where the parameter is in its own: ``opt_state[0].mu['w1']``
    is kept of ``params['w1']``, ``state.opt_state[0].mu['w1']`` of ``state.params['w1']``; and it
    has its shape. By that alone the layers of a model are alike as well (``model.head.kernel``,
    ``model.blocks[0].up.kernel``), so nothing that a pass uses is kept of another. A parameter that
    no pass is known to use has a tree that is a whole argument, and the shorter path. What no next
    value is returned of is kept of nothing, though it may have the same tree, as a model that a
    policy is held against.

    Args:
        leaves: all arguments, in order.
        in_passes: numbers of those that the passes use; None where that is not known.
        carried: numbers of those whose next values are returned; None where all are.
        among: numbers of those that can be parameters; by default ``carried``.
    """
    used = frozenset(in_passes or ())
    carried = frozenset(range(len(leaves)) if carried is None else carried)
    # By what is around the tree, and the path in it: layers are many, and these few.
    alike: dict[object, list[int]] = {}
    for number in sorted(carried if among is None else among):
        keys = leaves[number].keys
        for depth in range(1, len(keys) if number in used else min(2, len(keys))):
            key = (leaves[number].shape, keys[: depth - 1], keys[depth:])
            alike.setdefault(key, []).append(number)
    parameter_of: dict[int, int] = {}
    for number, leaf in enumerate(leaves):
        if number in used or number not in carried:
            continue
        keys = leaf.keys
        # The first of those whose path it shares most of.
        for length in range(len(keys), 0, -1):
            tree, rest = keys[:-length], keys[-length:]
            candidates = [
                other
                for depth in (1, *range(2, len(tree)))
                for other in alike.get((leaf.shape, keys[: depth - 1], rest), ())
                if leaves[other].keys[:depth] != tree
                and (other in used or len(leaves[other].keys) < len(keys))
            ]
            if candidates:
                parameter_of[number] = min(candidates)
                break
    return {number: lead for number, lead in parameter_of.items() if lead not in parameter_of}


def mirrored(results: Sequence[Leaf], arguments: Sequence[Leaf]) -> dict[int, int]:
    """Which results are the next values of arguments: result number -> argument number.

    By path where there is one, ``result[0]['w1']`` for ``params['w1']``. Arguments that are arrays
    by themselves are matched in order with the results that are, where there are as many of a shape
    and type.
    """
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    # By every end of their paths: layers are many that end alike at last.
    alike: dict[object, list[int]] = {}
    for other, argument in enumerate(arguments):
        for length in range(1, len(argument.keys)):
            ending = (argument.shape, argument.dtype, argument.keys[-length:])
            alike.setdefault(ending, []).append(other)
    for number, result in enumerate(results):
        for length in range(len(result.keys) - 1, 0, -1):
            same = [
                other
                for other in alike.get((result.shape, result.dtype, result.keys[-length:]), ())
                if _same_value(result.keys[1:], arguments[other].keys[1:]) == length
            ]
            if same:
                # Parameters and their momentum end alike: each has a next value of its own.
                other = next((other for other in same if other not in taken), same[0])
                pairs[number] = other
                taken.add(other)
                break
    bare: dict[tuple[object, ...], tuple[list[int], list[int]]] = {}
    for number, result in enumerate(results):
        if number not in pairs and all(map(_is_index, result.keys[1:])):
            bare.setdefault((result.shape, result.dtype), ([], []))[0].append(number)
    for other, argument in enumerate(arguments):
        key = (argument.shape, argument.dtype)
        if key in bare and all(map(_is_index, argument.keys[1:])):
            bare[key][1].append(other)
    for (shape, _), (ours, theirs) in bare.items():
        # A scalar, such as a loss, is nothing's next value by its shape.
        if shape and len(ours) == len(theirs):
            pairs.update(zip(ours, theirs, strict=True))
    return pairs


def alike(results: Sequence[Leaf], arguments: Sequence[Leaf]) -> dict[int, list[int]]:
    """By result all arguments that it can be the next value of, by their paths."""
    # By the last key, by the last two, and by the last where that is all of an argument's path.
    ending: dict[object, list[int]] = {}
    longer: dict[object, list[int]] = {}
    short: dict[object, list[int]] = {}
    for other, argument in enumerate(arguments):
        kind = argument.shape, argument.dtype
        ending.setdefault((kind, argument.keys[-1]), []).append(other)
        if len(argument.keys) > 2:
            longer.setdefault((kind, argument.keys[-2:]), []).append(other)
        else:
            short.setdefault((kind, argument.keys[-1]), []).append(other)

    def candidates(result: Leaf) -> Sequence[int]:
        kind, last = (result.shape, result.dtype), result.keys[-1]
        if all(map(_is_index, result.keys[1:-1])):
            return ending.get((kind, last), ())
        both = (*short.get((kind, last), ()), *longer.get((kind, result.keys[-2:]), ()))
        return sorted(both)

    return {
        number: [
            other
            for other in candidates(result)
            if _same_value(result.keys[1:], arguments[other].keys[1:])
        ]
        for number, result in enumerate(results)
    }


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
