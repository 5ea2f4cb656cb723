"""Which arguments of a program hold a batch, by their names, types and places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sdyscope.analysis.naming.paths import Leaf

#: What arguments are called that hold a batch.
_BATCHES = re.compile(
    r"(micro_?|mini_?)?batch(es)?|inputs?|xs?|ys?|tokens?|input_ids|images?|examples?|data|targets?"
    r"|labels?"
)

#: What may be the parameters of a network too: one that others learn from, or that checks a draft.
_NETWORKS = ("target", "targets")

_WHOLE_NUMBERS = ("i32", "i64")

#: What keys of random numbers are made of: as many as there are say nothing about a batch.
_KEYS = "ui32"


@dataclass(frozen=True, slots=True)
class Batches:
    """The arguments that hold a batch, by their numbers.

    Attributes:
        certain: those that are called like one, and the whole numbers of a train step.
        possible: the same; where there are none, other whole numbers, or else, of what is
            differentiated, all inputs: without a backward pass nothing tells parameters from them.
        inputs: all that is not kept from step to step: what is of the batch's size, as masks are,
            and parameters that are not trained.
    """

    certain: tuple[int, ...]
    possible: tuple[int, ...]
    inputs: tuple[int, ...]


def batches(arguments: Sequence[Leaf], kept: Collection[int], *, differentiated: bool) -> Batches:
    """Which arguments hold a batch.

    None of them is kept, or in a tree as what is: another network; nor is an example of a list of
    them, whose length is the batch's. Nor is one of an argument of which parts are kept certain.
    Whole numbers of one byte are quantized ones; and of what is not differentiated, whole numbers
    may be places in its state.

    Args:
        arguments: all arguments, in order.
        kept: numbers of those whose next values are returned.
        differentiated: whether the program has a backward pass.
    """
    trees = {_in_tree(arguments[number]) for number in kept}
    groups = {arguments[number].keys[0] for number in kept}
    firsts: dict[str, set[int]] = {}
    for argument in arguments:
        firsts.setdefault(argument.keys[0], set()).update(argument.shape[:1])

    def is_called(group: str) -> bool:
        is_network = group in _NETWORKS and len(firsts[group]) > 1
        return _BATCHES.fullmatch(group) is not None and not is_network

    candidates = tuple(
        number
        for number, argument in enumerate(arguments)
        if argument.shape and number not in kept and _in_tree(argument) not in trees
    )
    examples = _examples([arguments[number] for number in candidates])
    inputs = tuple(number for number in candidates if arguments[number].path not in examples)
    whole = tuple(number for number in inputs if arguments[number].dtype in _WHOLE_NUMBERS)
    is_training = bool(kept) and differentiated
    certain = tuple(
        number
        for number in inputs
        for group in arguments[number].keys[:1]
        if group not in groups and (is_called(group) or (is_training and number in whole))
    )
    return Batches(certain, certain or whole or (inputs if differentiated else ()), inputs)


def _examples(inputs: Sequence[Leaf]) -> frozenset[str]:
    """The arrays of lists of examples, which may differ in size, by their paths.

    A list of more than two is one of examples where another input has its length as first
    dimension, and none of its arrays has: else it may be a batch's parts, such as tokens, targets
    and a mask.
    """
    listed = [leaf for leaf in inputs if leaf.keys[-1].removeprefix("[")[:1].isdigit()]
    lengths = Counter(leaf.keys[:-1] for leaf in listed)
    firsts = {leaf.shape[0] for leaf in inputs if leaf not in listed and leaf.dtype != _KEYS}
    parts = {leaf.keys[:-1] for leaf in listed if leaf.shape[0] == lengths[leaf.keys[:-1]]}
    return frozenset(
        leaf.path
        for leaf in listed
        if lengths[leaf.keys[:-1]] > 2
        and lengths[leaf.keys[:-1]] in firsts
        and leaf.keys[:-1] not in parts
    )


def _in_tree(leaf: Leaf) -> tuple[object, ...]:
    """Where an array is in its argument, and its shape; one that is all of it is like no other."""
    root, *keys = leaf.keys
    return (*keys, leaf.shape) if keys else (root,)
