"""Donation: which arguments and results share a buffer, and why a donated argument does not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.naming.next_values import next_values_of_rows, only_moves
from sdyscope.facts.findings import (
    DonationDropped,
    DonationUnused,
    Observation,
    Stored,
    WhyUnused,
)
from sdyscope.facts.memory import Held
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.graph import OpGraph
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.entry_layout import EntryLayout
from sdyscope.values.placement import Placement


@dataclass(frozen=True, slots=True)
class NotDonated:
    """An argument whose next value the program returns, and whose buffer it may not use for that.

    Attributes:
        argument: its row.
        result: its next value's row.
        bytes: bytes a device of its block.
        certain: whether that is its next value by what it is made from, and not by its path or its
            shape alone.
    """

    argument: Tensor
    result: Tensor
    bytes: int
    certain: bool


def not_donated(
    table: TensorTable,
    partitioner: Partitioner,
    graph: OpGraph,
    placed: Mapping[int, Placement] | None = None,
) -> tuple[NotDonated, ...]:
    """The arguments that could be donated to their next values: of one shape, dtype and sharding.

    And in one memory: what a step takes from the host and leaves on the device has no buffer there.
    One of which the program returns the gradient is needed afterwards, to be updated with that.
    A module that came through HLO has no such pairs: its results have no names.

    Args:
        table: the program's tensors.
        partitioner: in whose module they are.
        graph: op graph of that module.
        placed: where arguments are that are left to the compiler, by their indices, as far as that
            is known. Of others the next value counts as in the same place if it is left open, too,
            and a device holds at most all.
    """
    rows = [row for row in table.tensors if partitioner in row.lowered]
    arguments = [row for row in rows if row.kind == "argument"]
    results = [row for row in rows if row.kind == "result"]
    if only_moves(graph):
        return ()
    known = next_values_of_rows(results, arguments, partitioner, graph)
    undonated: dict[int, NotDonated] = {}
    for number, value in known.items():
        argument, result = arguments[value.argument], results[number]
        place, after = argument.lowered[partitioner], result.lowered[partitioner]
        if value.relation == "gradient":
            continue
        if argument.is_donated or place.memory != after.memory:
            continue
        own = place.placement or (placed or {}).get(argument.index or 0)
        if after.placement is not None and not after.open_dims and after.placement != own:
            continue
        size = held_at_most(argument, own)
        certain = value.relation == "next value"
        # One buffer serves one result.
        if certain or value.argument not in undonated:
            undonated[value.argument] = NotDonated(argument, result, size, certain)
    return tuple(undonated.values())


def held_at_most(argument: Tensor, placement: Placement | None) -> int:
    """Bytes a device of an argument; all of it where that is not known."""
    shape = argument.shape or ()
    if placement is None:
        return num_bytes(math.prod(shape), argument.dtype)
    return placement.bytes_per_device(shape, argument.dtype)


def with_shares(held: Sequence[Held], layout: EntryLayout) -> list[Held]:
    """The tensors, each with the one that lies in the same buffer of the compiled program."""
    names = {(tensor.kind, tensor.number): tensor.name for tensor in held}
    by_parameter = {parameter: result for result, parameter in layout.aliases.items()}
    tensors = []
    for tensor in held:
        if tensor.kind == "argument" and tensor.number in by_parameter:
            other = names.get(("result", by_parameter[tensor.number]), "")
            tensors.append(replace(tensor, shares=other, donated=True))
        elif tensor.kind == "result" and tensor.number in layout.aliases:
            tensors.append(
                replace(tensor, shares=names.get(("argument", layout.aliases[tensor.number]), ""))
            )
        elif tensor.kind == "argument" and tensor.number in layout.donors:
            tensors.append(replace(tensor, donated=True))
        else:
            tensors.append(tensor)
    return tensors


def unused_donations(held: Sequence[Held], partitioner: Partitioner | None) -> list[Observation]:
    """Each donated argument whose buffer no result took, and why none did."""
    results = [tensor for tensor in held if tensor.kind == "result"]
    blocks = {_block(tensor) for tensor in results}
    homeless = [
        tensor
        for tensor in held
        if tensor.kind == "argument" and tensor.shares and _block(tensor) not in blocks
    ]
    return [
        Observation(
            "donation-unused",
            "warning",
            _unused(tensor, results, homeless),
            tensor=tensor.name,
            kind="argument",
            partitioner=partitioner,
        )
        for tensor in held
        if tensor.kind == "argument" and tensor.donated and not tensor.shares
    ]


def _unused(held: Held, results: Sequence[Held], homeless: Sequence[Held]) -> DonationUnused:
    """Why a donation is unused.

    Args:
        held: the argument.
        results: the results.
        homeless: arguments whose buffers are those of results that are stored otherwise.
    """
    why, others = _why_unused(held, results)
    shape, dtype = held.type
    # XLA gives a result any buffer of its size.
    takers = [other for other in homeless if other.stored.bytes == held.stored.bytes]
    return DonationUnused(
        held.stored.bytes,
        shape,
        dtype,
        why,
        _stored(held),
        tuple(map(_stored, others)),
        tuple(map(_stored, takers)) if why == "taken" else (),
    )


def _block(held: Held) -> tuple[object, ...]:
    """What an argument has in common with a result that takes its buffer as it is stored."""
    return (held.type, tuple(held.stored.shape))


def _why_unused(held: Held, results: Sequence[Held]) -> tuple[WhyUnused, Sequence[Held]]:
    """Why no result took it, and the results that this is about."""
    alike = [r for r in results if r.type == held.type]
    fitting = [r for r in alike if r.stored.shape == held.stored.shape]
    free = [r for r in fitting if not r.shares]
    if not alike:
        return "no type", ()
    if not fitting:
        return "placed otherwise", alike
    if not free:
        return "taken", fitting
    return ("placed otherwise" if all(r.placed != held.placed for r in free) else "not taken"), free


def _stored(held: Held) -> Stored:
    return Stored(held.name, held.sharding, tuple(held.stored.shape))


def dropped_donations(table: TensorTable) -> list[Observation]:
    """Each donated argument that the program does not use."""
    return [
        Observation("donation-unused", "note", DonationDropped(), tensor=row.name, kind="argument")
        for row in table.tensors
        if row.kind == "argument"
        and row.requested is not None
        and row.requested.donated
        and row.requested.dropped
    ]
