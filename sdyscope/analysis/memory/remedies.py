"""What would lower the peak of a program, each tried by a compile.

An argument that is donated, or sharded over axes that it does not use, or in the host's memory, or
a constraint on what is held at the peak over one more axis: the program is not traced again for
these, see ``Staged.with_wishes``. It is for half the batch, and for what a call makes computed
again in the backward pass, or offloaded until then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sdyscope.analysis.memory.donation import not_donated
from sdyscope.analysis.memory.memory import Memory, memory_of
from sdyscope.analysis.memory.options import cut_further, saved_together
from sdyscope.analysis.memory.over_time import carried_tensors, over_time_of
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.errors import ConversionError, SdyscopeError
from sdyscope.facts.memory import Held
from sdyscope.facts.over_time import MemoryOverTime, PeakRemedy
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor
from sdyscope.hardware.names import Hardware
from sdyscope.staged import Staged, compile_together
from sdyscope.stages.propagated.what_if import Wish
from sdyscope.values.convert import to_named_sharding
from sdyscope.values.tiling import TupleSharding

if TYPE_CHECKING:
    from sdyscope.analysis.fix.workshop import Rebuild
from contextlib import suppress

from sdyscope.analysis.naming.batches import batches
from sdyscope.errors import CompilerError
from sdyscope.facts.over_time import Category
from sdyscope.facts.program import RequestedTensor
from sdyscope.stages.edited.arguments import resized

#: What part of the peak a change must be about to be tried.
_WORTH = 0.01

#: How many tensors a remedy names.
_NAMED = 200


def candidates(
    program: Staged, memory: Memory, over_time: MemoryOverTime, rebuild: Rebuild | None = None
) -> list[tuple[PeakRemedy, Callable[[], Staged]]]:
    """Changes that may lower the peak, what is about most bytes first, each with what makes it.

    Args:
        program: the program.
        memory: what a device holds of it.
        over_time: the same over a step.
        rebuild: builds the program anew, to try edits of its source; None to try none.
    """
    if memory.partitioner is None or program.is_compiled:
        return []
    # Gradients among them: they are sharded as what they are of.
    carried = carried_tensors(memory.tensors, program.graph(memory.partitioner))
    wishes = [
        *_donations(program, memory, memory.partitioner),
        *_shardings(memory, carried),
        *_offloads(memory, over_time, carried),
        *_constraints(program, memory.partitioner, over_time),
    ]
    pairs = [(remedy, partial(program.with_wishes, each)) for remedy, each in wishes]
    traced: list[tuple[PeakRemedy, Callable[[], Staged]]] = [*pairs]
    if (batch := half_batch(program, memory, over_time)) is not None:
        traced.append(batch)
    if rebuild is not None:
        # Not above: few edit a source, and what reads it takes long to import.
        from sdyscope.analysis.memory.checkpoints import rematerialized

        traced += rematerialized(program, memory, over_time, rebuild)
    worth = [pair for pair in traced if pair[0].hopes >= _WORTH * over_time.peak]
    return sorted(worth, key=lambda pair: -pair[0].hopes)


def tried(
    program: Staged,
    memory: Memory,
    over_time: MemoryOverTime,
    on: Hardware | str | None,
    most: int,
    rebuild: Rebuild | None = None,
) -> tuple[PeakRemedy, ...]:
    """The candidates that are about most bytes, each with the peak that a compile finds.

    Of each kind the best has its turn before a second of another.

    Args:
        program: the program.
        memory: what a device holds of it.
        over_time: the same over a step.
        on: what it was compiled for, as ``Staged.compiled`` takes it.
        most: how many to compile.
        rebuild: as ``candidates`` takes it.
    """
    chosen = _in_turn(candidates(program, memory, over_time, rebuild))[:most]
    changed: list[tuple[PeakRemedy, Staged]] = []
    remedies: list[PeakRemedy] = []
    for remedy, make in chosen:
        try:
            other = make()
            if other.lowered:  # What can't be traced any more is refused alone.
                changed.append((remedy, other))
        except SdyscopeError as error:
            remedies.append(replace(remedy, refused=error.message))
    compile_together((other, memory.partitioner, on) for _, other in changed)
    for remedy, other in changed:
        try:
            after = over_time_of(other, memory_of(other, memory.partitioner, on), origins=False)
        except SdyscopeError as error:
            remedies.append(replace(remedy, refused=error.message))
            continue
        remedies.append(replace(remedy, peak=after.peak, saves=over_time.peak - after.peak))
    return tuple(sorted(remedies, key=lambda remedy: -(remedy.saves or 0)))


def _in_turn(
    pairs: Sequence[tuple[PeakRemedy, Callable[[], Staged]]],
) -> list[tuple[PeakRemedy, Callable[[], Staged]]]:
    """The first of each kind, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    turns: list[int] = []
    for remedy, _ in pairs:
        turns.append(seen[remedy.kind])
        seen[remedy.kind] += 1
    ordered = sorted(zip(turns, range(len(pairs)), strict=True))
    return [pairs[at] for _, at in ordered]


def _donations(
    program: Staged, memory: Memory, partitioner: Partitioner
) -> Iterator[tuple[PeakRemedy, tuple[Wish, ...]]]:
    """All arguments together whose next values could have their buffers."""
    arguments, results = (
        {tensor.number: tensor for tensor in memory.tensors if tensor.kind == kind}
        for kind in ("argument", "result")
    )
    pairs = [
        (
            arguments.get(each.argument.lowered[partitioner].index or 0),
            results.get(each.result.lowered[partitioner].index or 0),
        )
        for each in not_donated(program.tensors, partitioner, program.graph(partitioner))
        if each.certain
    ]
    fitting = [
        argument
        for argument, result in pairs
        if argument is not None
        and result is not None
        and not result.shares
        and argument.stored.bytes == result.stored.bytes
    ]
    if not fitting:
        return
    groups = dict.fromkeys(argument.group for argument in fitting)
    remedy = PeakRemedy(
        "donate",
        tuple(argument.name for argument in fitting[:_NAMED]),
        ", ".join(groups),
        None,
        None,
        sum(argument.stored.bytes for argument in fitting),
        memory.partitioner,
    )
    yield remedy, tuple(Wish(argument.name, donated=True) for argument in fitting)


def _offloads(
    memory: Memory, over_time: MemoryOverTime, carried: Sequence[tuple[Held, Held]]
) -> Iterator[tuple[PeakRemedy, tuple[Wish, ...]]]:
    """The optimizer's state, with its next values, in the host's memory between two steps."""
    if not memory.can_offload:
        return
    categories = {held.category for held in over_time.held}
    # Beside an optimizer's state, what else is kept is averages: no pass reads them either.
    beside = {"optimizer state", "state"} if "optimizer state" in categories else set()
    kept = {held.name for held in over_time.held if held.category in beside}
    pairs = [
        (argument, result)
        for argument, result in carried
        if argument.name in kept and argument.stored.memory == "device"
    ]
    if not pairs:
        return
    groups = dict.fromkeys(argument.group for argument, _ in pairs)
    hopes = sum(
        argument.stored.bytes + (0 if result.shares else result.stored.bytes)
        for argument, result in pairs
    )
    names = tuple(argument.name for argument, _ in pairs)
    name = ", ".join(groups)
    remedy = PeakRemedy("offload", names[:_NAMED], name, None, None, hopes, memory.partitioner)
    wishes = [Wish(tensor.name, offloaded=True) for pair in pairs for tensor in pair]
    yield remedy, tuple(wishes)


def _shardings(
    memory: Memory, carried: Sequence[tuple[Held, Held]]
) -> Iterator[tuple[PeakRemedy, tuple[Wish, ...]]]:
    """Arguments that are held by several devices, each with its next value."""
    next_values = {argument.name: result for argument, result in carried}
    for saving in saved_together(memory.under_sharded):
        first = saving.tensors[0]
        if first.kind != "argument" or first.sharding is None:
            continue
        wishes = [Wish(tensor.name, tensor.best) for tensor in saving.tensors]
        for tensor in saving.tensors:
            result = next_values.get(tensor.name)
            if result is not None and result.placed == tensor.placed:
                wishes.append(Wish(result.name, tensor.best))
        shared = all(tensor.shares for tensor in saving.tensors)
        remedy = PeakRemedy(
            "shard",
            tuple(tensor.name for tensor in saving.tensors[:_NAMED]),
            saving.name,
            first.sharding.spec,
            first.best,
            saving.saves * (1 if shared else 2),
            memory.partitioner,
        )
        yield remedy, tuple(wishes)


def _constraints(
    program: Staged, partitioner: Partitioner, over_time: MemoryOverTime
) -> Iterator[tuple[PeakRemedy, tuple[Wish, ...]]]:
    """Constraints that what is held at the peak has its sharding from."""
    held: dict[str, int] = defaultdict(int)
    for holding in over_time.held:
        if holding.op:
            for name in {origin.name for origin in holding.origins if origin.kind == "constraint"}:
                held[name] += holding.bytes
    mesh = program.only_mesh(partitioner)
    for row in _constrained(program.tensors.tensors, partitioner):
        size, sharding = held.get(row.name, 0), row.lowered[partitioner].sharding
        if (
            not size
            or row.shape is None
            or sharding is None
            or isinstance(sharding, str | TupleSharding)
        ):
            continue
        try:
            named = to_named_sharding(sharding, len(row.shape), mesh)
        except ConversionError:
            continue
        best, factor = cut_further(named, row.shape, row.key_dims)
        if factor > 1:
            remedy = PeakRemedy(
                "constrain",
                (row.name,),
                row.name,
                named.spec,
                best,
                size - size // factor,
                partitioner,
                source=row.source,
            )
            yield remedy, (Wish(row.name, best),)


def _constrained(rows: Sequence[Tensor], partitioner: Partitioner) -> Iterator[Tensor]:
    """Rows of constraints, the first of each name whose rows can all have the sharding of one.

    A helper's scope may constrain queries of five dimensions and keys of four.
    """
    by_name: dict[str, list[Tensor]] = {}
    for row in rows:
        if row.kind == "constraint" and partitioner in row.lowered:
            by_name.setdefault(row.name, []).append(row)
    for first, *others in by_name.values():
        if all(_written(row, partitioner) == _written(first, partitioner) for row in others):
            yield first


def _written(row: Tensor, partitioner: Partitioner) -> object:
    return row.shape and len(row.shape), row.lowered[partitioner].sharding


# --- Half the batch -------------------------------------------------------------------------------

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
                    certain=bool(known.certain),
                )
                return remedy, lambda smaller=smaller: smaller
    return None


def _sizes(inputs: Sequence[RequestedTensor]) -> list[int]:
    """Even first dimensions, in the order in which they are likely that of the batch."""
    every = Counter(each.shape[0] for each in inputs)
    fitting = [size for size in every if size and size % 2 == 0]
    return sorted(fitting, key=lambda size: (-every[size], -size))[:_TRIED]
