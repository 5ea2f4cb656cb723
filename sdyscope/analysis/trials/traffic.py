"""Collectives by kind and axes, as a search compares them."""

from __future__ import annotations

from dataclasses import replace

from sdyscope.analysis.collectives.bytes import wire_bytes
from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.facts.traffic import CollectiveKind, Traffic
from sdyscope.hlo import HloModule


def traffic(collectives: Collectives) -> tuple[Traffic, ...]:
    """Collectives by kind and axes, most bytes first; parts of axes by the names of the whole."""
    tallies: dict[tuple[CollectiveKind, tuple[str, ...]], tuple[int, int]] = {}
    for group in collectives.by_kind_and_axes:
        names = tuple(dict.fromkeys(axis.name for axis in group.axes or ()))
        count, sent = tallies.get((group.kind, names), (0, 0))
        tallies[group.kind, names] = count + group.tally.count, sent + group.tally.sent
    traffic = [Traffic(kind, names, *counts) for (kind, names), counts in tallies.items()]
    return tuple(sorted(traffic, key=lambda row: -row.sent))


def reduce_scatters(collectives: Collectives, module: HloModule) -> Collectives:
    """All-reduces of which each device only takes its slice, as the reduce-scatters that they are.

    XLA's partitioner writes it so, and on TPUs and GPUs ``reduce-scatter-creator`` joins the two.

    Args:
        collectives: the collectives of a module.
        module: the module, as it is right behind partitioning.
    """
    reduced = {
        collective.name: collective
        for collective in collectives.collectives
        if collective.kind == "all-reduce"
    }
    slices: dict[str, list[int]] = {name: [] for name in reduced}
    for instruction in module.instructions():
        for operand in instruction.operands:
            if operand in slices:
                is_slice = instruction.opcode == "dynamic-slice"
                slices[operand].append(instruction.shape.bytes if is_slice else 0)
    kept = []
    for collective in collectives.collectives:
        taken = slices.get(collective.name, [])
        size = collective.group_size or 0
        if taken and size > 1 and all(part * size == collective.bytes for part in taken):
            collective = _scattered(collective, size)
        kept.append(collective)
    return replace(collectives, collectives=tuple(kept))


def _scattered(collective: Collective, size: int) -> Collective:
    kind: CollectiveKind = "reduce-scatter"
    parts = []
    for part in collective.parts:
        sent, received = wire_bytes(kind, part.bytes, size)
        parts.append(replace(part, sent=sent, received=received))
    return replace(collective, kind=kind, parts=tuple(parts))
