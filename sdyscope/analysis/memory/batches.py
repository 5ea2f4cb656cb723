"""Half the batch, as a way to lower the peak of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.naming.paths import split
from sdyscope.errors import CompilerError
from sdyscope.facts.over_time import Category, MemoryOverTime, PeakRemedy
from sdyscope.facts.program import RequestedTensor
from sdyscope.staged import Staged
from sdyscope.stages.edited.arguments import resized

#: How many first dimensions are tried.
_TRIED = 4

#: What grows with the batch.
_GROWING: tuple[Category, ...] = ("inputs", "kept for backward", "temporaries", "collectives")


def half_batch(
    program: Staged, memory: Memory, over_time: MemoryOverTime
) -> tuple[PeakRemedy, Callable[[], Staged]] | None:
    """The program with half of the first dimension of its inputs; None where they share none.

    Inputs are the arguments whose next values are not returned. They may be weights, too, that are
    not trained: those in a tree as what is kept are none, nor is another size than that of whole
    numbers, where there are some. The program is traced again with half of each size that is left,
    until one fits.

    Args:
        program: the program.
        memory: what a device holds of it.
        over_time: the same over a step.
    """
    own, partitioner = program.program, memory.partitioner
    if own is None or partitioner is None or not (own.args or own.kwargs):
        return None
    held = {tensor.name for tensor in over_time.held if tensor.category == "inputs"}
    kept = {
        tensor.name
        for tensor in over_time.held
        if tensor.category in ("parameters", "optimizer state", "state")
    }
    if not held or not kept:
        return None  # Nothing tells a batch from what is kept.
    arguments = [tensor for tensor in program.requested if tensor.kind == "argument"]
    trees = {_in_tree(tensor) for tensor in arguments if tensor.path in kept}
    inputs = [
        tensor
        for tensor in arguments
        if tensor.shape
        and tensor.path not in kept
        and tensor.path in held
        and _in_tree(tensor) not in trees
    ]
    hopes = sum(over_time.by_category.get(category, 0) for category in _GROWING) // 2
    for size in _sizes(inputs):
        names = tuple(tensor.path for tensor in inputs if tensor.shape[0] == size)
        numbers = {at: size // 2 for at, each in enumerate(arguments) if each.path in names}
        smaller = Staged(resized(own, numbers), (partitioner,))
        with suppress(CompilerError):
            if smaller.lowered:
                remedy = PeakRemedy(
                    "batch",
                    names,
                    names[0],
                    None,
                    None,
                    hopes,
                    partitioner,
                    sizes=(size, size // 2),
                )
                return remedy, lambda smaller=smaller: smaller
    return None


def _in_tree(tensor: RequestedTensor) -> tuple[object, ...]:
    """Where an array is in its argument, and its shape; one that is all of it is like no other."""
    root, *keys = split(tensor.path)
    return (*keys, tensor.shape) if keys else (root,)


def _sizes(inputs: Sequence[RequestedTensor]) -> list[int]:
    """Even first dimensions, in the order in which they are likely that of the batch."""
    whole = [each for each in inputs if each.dtype in ("i32", "i64")]
    every = Counter(each.shape[0] for each in whole or inputs)
    fitting = [size for size in every if size and size % 2 == 0]
    return sorted(fitting, key=lambda size: (-every[size], -size))[:_TRIED]
