"""Which order of a mesh's axes sends over the fastest links.

Devices are numbered so that neighbours in the last axes are neighbours in hardware: on one host, in
one slice.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.cost.links import Level, axes_levels
from sdyscope.hardware.specs import Chip
from sdyscope.hardware.topology import Topology
from sdyscope.values.mesh import AxisRef, Mesh

#: Another order has to take at most so much of the time to be worth a word.
WORTH = 0.8

#: A mesh with more axes that split anything has more orders than are looked at.
_MOST_AXES = 5


@dataclass(frozen=True, slots=True)
class OrderCost:
    """What collectives take in one order of the axes.

    Attributes:
        axes: the axes, in order.
        seconds: how long all collectives take, one after the other, by the slowest level of each.
    """

    axes: tuple[str, ...]
    seconds: float


def slowest(levels: Sequence[Level] | None) -> float | None:
    """Bytes a second at the slowest level; None where one is not known."""
    if not levels:
        return None
    rates = [level.bandwidth for level in levels]
    return min((rate for rate in rates if rate), default=None) if all(rates) else None


def bytes_by_axes(collectives: Collectives) -> dict[tuple[str, ...], int]:
    """Bytes that a device sends over each set of axes, parts of axes by the names of the whole."""
    sent: dict[tuple[str, ...], int] = {}
    for axes_tally in collectives.by_axes:
        names = tuple(dict.fromkeys(axis.name for axis in axes_tally.axes or ()))
        if names:
            sent[names] = sent.get(names, 0) + axes_tally.tally.sent
    return sent


def best_order(
    sent: Mapping[tuple[str, ...], int], mesh: Mesh, topology: Topology, chip: Chip
) -> tuple[OrderCost, OrderCost] | None:
    """What the order of a mesh's axes costs, and what the best order would; None where unknown.

    The same bytes over the same axes are taken for every order. Axes of size 1 stay where they are:
    no device is told apart by them.

    Args:
        sent: bytes that a device sends over each set of axes.
        mesh: the mesh, whose axes are in the order of the devices.
        topology: where devices stand.
        chip: what they are.
    """
    places = [place for place, axis in enumerate(mesh.axes) if axis.size > 1]
    if mesh.device_ids is not None or len(places) > _MOST_AXES:
        return None
    costs: list[OrderCost] = []
    for taken in itertools.permutations(places):
        order = list(mesh.axes)
        for place, other_place in zip(places, taken, strict=True):
            order[place] = mesh.axes[other_place]
        other = Mesh(tuple(order))
        seconds = 0.0
        for names, count in sent.items():
            rate = slowest(axes_levels(map(AxisRef, names), other, topology, chip))
            if rate is None:
                break
            seconds += count / rate
        else:
            costs.append(OrderCost(tuple(axis.name for axis in order), seconds))
    now = next((order for order in costs if order.axes == tuple(mesh.shape)), None)
    if now is None:
        return None

    # Of orders that are as fast, the one that moves fewest axes.
    def moved(order: OrderCost) -> int:
        return sum(a != b for a, b in zip(order.axes, now.axes, strict=True))

    return now, min(costs, key=lambda order: (round(order.seconds, 12), moved(order)))
