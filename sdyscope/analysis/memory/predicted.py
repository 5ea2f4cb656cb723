"""What a device holds of arguments and results where propagation puts them: nothing is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.memory.held import held_propagated, rows_held
from sdyscope.analysis.memory.options import OfHeld, with_options
from sdyscope.analysis.memory.totals import Group, groups
from sdyscope.errors import CompilerError
from sdyscope.facts.memory import Held, HeldKind
from sdyscope.facts.program import Partitioner
from sdyscope.formatters import Summarized
from sdyscope.graph import Argument, Result
from sdyscope.graph.donation import donation
from sdyscope.graph.model import AttributeValue
from sdyscope.staged import Staged
from sdyscope.values.entry_layout import HOST_MEMORY


@dataclass(frozen=True, repr=False)
class PredictedMemory(OfHeld, Summarized):
    """What a device holds of a program that is not compiled.

    Bytes are those of the blocks, without the padding of a hardware's tiles; what is computed in
    between is not known.

    Attributes:
        partitioner: whose propagation it is by.
        devices: how many there are; 0 where the module does not say.
        tensors: arguments, then results.
        groups: argument groups, then result groups, in order.
        stored: bytes of arguments, and of results that lie in no argument's buffer.
        savings: names of what could be sharded further, what saves most first.
    """

    partitioner: Partitioner
    devices: int
    tensors: tuple[Held, ...]
    groups: tuple[Group, ...]

    __document__ = ("partitioner", "devices", "stored", "groups", "tensors", "savings")


def predicted_memory(program: Staged, partitioner: Partitioner | None = None) -> PredictedMemory:
    """What a device holds of arguments and results; see ``Inspection.predicted_memory``."""
    chosen = program.chosen(partitioner)
    propagated = program.propagated(chosen)
    main = program.graph(chosen).main
    if main is None:
        raise CompilerError(f"{program.name} has no function to look at.")
    mesh = program.only_mesh(chosen)
    devices = program.lowered[chosen].num_devices or (0 if mesh is None else mesh.size)
    places: dict[tuple[HeldKind, int], Argument | Result] = {}
    places |= {("argument", argument.index): argument for argument in main.arguments}
    places |= {("result", result.index): result for result in main.results}
    every: list[Held] = []
    for kind, number, row in rows_held(program.tensors, chosen):
        at = places[kind, number]
        value = None if at.node is None else propagated.values.get((at.node, 0))
        place = None if value is None else value.placed(len(row.shape or ()))
        if place is not None and place.num_devices == 1:
            place = replace(place, num_devices=devices or 1)  # Whole, on however many.
        every.append(
            held_propagated(
                row,
                kind,
                number,
                chosen,
                place,
                HOST_MEMORY if row.lowered[chosen].memory else 0,
                mesh,
            )
        )
    attributes = {argument.index: argument.attributes for argument in main.arguments}
    every = _with_shares(list(map(with_options, every)), attributes)
    return PredictedMemory(chosen, devices, tuple(every), groups(every))


def _with_shares(
    held: Sequence[Held], attributes: Mapping[int, Mapping[str, AttributeValue]]
) -> list[Held]:
    """The tensors, each with the one that will lie in the same buffer.

    JAX names the result that takes the place of a donated argument where it knows both shardings
    (``tf.aliasing_output``), and leaves it to XLA otherwise (``jax.buffer_donor``): that takes the
    next result of equal size, both sorted by size.

    Source: ``xla/hlo/transforms/simplifiers/optimize_input_output_buffer_alias.cc``.
    """
    arguments = [tensor for tensor in held if tensor.kind == "argument"]
    results = {tensor.number: tensor for tensor in held if tensor.kind == "result"}
    pairs: dict[int, int] = {}
    donors = []
    for tensor in arguments:
        donated = donation(attributes[tensor.number])
        if donated is None:
            continue
        if donated.result is None:
            donors.append(tensor)
        else:
            pairs[tensor.number] = donated.result
    free = [result for number, result in results.items() if number not in pairs.values()]
    donors.sort(key=_size_of_buffer)
    free.sort(key=_size_of_buffer)
    while donors and free:
        ours, theirs = _size_of_buffer(donors[0]), _size_of_buffer(free[0])
        if ours == theirs:
            pairs[donors.pop(0).number] = free.pop(0).number
        elif ours < theirs:
            donors.pop(0)
        else:
            free.pop(0)
    names = {argument.number: argument.name for argument in arguments}
    by_result = {result: names[argument] for argument, result in pairs.items()}
    tensors = []
    for tensor in held:
        if tensor.kind == "result":
            tensors.append(replace(tensor, shares=by_result.get(tensor.number, "")))
            continue
        shared = results.get(pairs.get(tensor.number, -1))
        tensors.append(
            replace(
                tensor,
                shares="" if shared is None else shared.name,
                donated=tensor.donated or donation(attributes[tensor.number]) is not None,
            )
        )
    return tensors


def _size_of_buffer(held: Held) -> tuple[int, int]:
    """What must be equal of two tensors that share a buffer: its memory and its size."""
    return held.stored.memory_space, held.stored.bytes
