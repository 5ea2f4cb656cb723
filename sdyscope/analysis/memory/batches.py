"""Half the batch, as a way to lower the peak of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sdyscope.analysis.memory.memory import Memory
from sdyscope.facts.over_time import Category, MemoryOverTime, PeakRemedy
from sdyscope.staged import Staged
from sdyscope.stages.edited.arguments import resized

#: What grows with the batch.
_GROWING: tuple[Category, ...] = ("inputs", "kept for backward", "temporaries", "collectives")


def half_batch(
    program: Staged, memory: Memory, over_time: MemoryOverTime
) -> tuple[PeakRemedy, Callable[[], Staged]] | None:
    """The program with half of the first dimension of its inputs; None where they share none.

    Inputs are the arguments whose next values are not returned. The program is traced again.

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
    inputs = [
        tensor
        for tensor in arguments
        if tensor.shape and tensor.path not in kept and tensor.path in held
    ]
    sizes = Counter(tensor.shape[0] for tensor in inputs)
    if not sizes:
        return None
    size, _ = max(sizes.items(), key=lambda item: (item[1], item[0]))
    if size < 2 or size % 2:
        return None
    names = tuple(tensor.path for tensor in inputs if tensor.shape[0] == size)
    numbers = {at: size // 2 for at, each in enumerate(arguments) if each.path in names}
    hopes = sum(over_time.by_category.get(category, 0) for category in _GROWING) // 2
    remedy = PeakRemedy(
        "batch", names, names[0], None, None, hopes, partitioner, sizes=(size, size // 2)
    )
    return remedy, lambda: Staged(resized(own, numbers), (partitioner,))
