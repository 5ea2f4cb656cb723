"""Half the batch, as a way to lower the peak of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.naming.batches import batches
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.errors import CompilerError
from sdyscope.facts.over_time import Category, MemoryOverTime, PeakRemedy
from sdyscope.facts.program import RequestedTensor
from sdyscope.staged import Staged
from sdyscope.stages.edited.arguments import resized

#: How many first dimensions are tried.
_TRIED = 4

#: What is kept from step to step.
_KEPT: tuple[Category, ...] = ("parameters", "optimizer state", "state")

#: What grows with the batch.
_GROWING: tuple[Category, ...] = ("inputs", "kept for backward", "temporaries", "collectives")


def half_batch(
    program: Staged, memory: Memory, over_time: MemoryOverTime
) -> tuple[PeakRemedy, Callable[[], Staged]] | None:
    """The program with half of the first dimension of its inputs; None where they share none.

    Inputs are the arguments that may hold a batch; see ``batches``. The program is traced again
    with half of each size that they have, until one fits.

    Args:
        program: the program.
        memory: what a device holds of it.
        over_time: the same over a step.
    """
    own, partitioner = program.program, memory.partitioner
    if own is None or partitioner is None or not (own.args or own.kwargs):
        return None
    categories = {tensor.name: tensor.category for tensor in over_time.held}
    arguments = [tensor for tensor in program.requested if tensor.kind == "argument"]
    kept = [at for at, each in enumerate(arguments) if categories.get(each.path) in _KEPT]
    if not kept:
        return None  # Nothing tells a batch from what is kept.
    differentiated = any(categories[arguments[at].path] != "state" for at in kept)
    known = batches(list(map(Leaf.of, arguments)), kept, differentiated=differentiated)
    inputs = {
        at: arguments[at] for at in known.inputs if categories.get(arguments[at].path) == "inputs"
    }
    hopes = sum(over_time.by_category.get(category, 0) for category in _GROWING) // 2
    for size in _sizes([inputs[at] for at in known.possible if at in inputs]):
        names = tuple(each.path for each in inputs.values() if each.shape[0] == size)
        numbers = {at: size // 2 for at, each in inputs.items() if each.path in names}
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


def _sizes(inputs: Sequence[RequestedTensor]) -> list[int]:
    """Even first dimensions, in the order in which they are likely that of the batch."""
    every = Counter(each.shape[0] for each in inputs)
    fitting = [size for size in every if size and size % 2 == 0]
    return sorted(fitting, key=lambda size: (-every[size], -size))[:_TRIED]
