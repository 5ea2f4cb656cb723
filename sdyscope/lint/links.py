"""Rules about the order of a mesh's axes, and the links that these then run over."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.cost.links import Level, axes_levels
from sdyscope.hardware.specs import Chip, chip_of
from sdyscope.hardware.topology import Topology
from sdyscope.lint.rule import FEW_BYTES, Message, NotApplicable, Unavailable, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.words.counts import size

__all__ = ["OrderCost", "axis_over_slow_link", "best_order", "mesh_order"]

#: Another order has to be that much faster to be worth a word.
_FASTER = 0.8
#: A link that is that much slower than another is slow.
_SLOWER = 4.0
#: A mesh with more axes has more orders than are looked at.
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


def _hardware(subject: Subject) -> tuple[Topology, Chip, Mesh]:
    """Where the devices stand, what they are, and the mesh on them.

    Raises:
        Unavailable: the hardware does not say, or has no known rates.
        NotApplicable: the mesh has one axis.
    """
    compiled = subject.compiled
    if compiled.hardware is None or compiled.topology is None:
        raise Unavailable("It needs to know the hardware: --on tpu:v5e:4x4x2slices, say.")
    chip = chip_of(compiled.device_kind)
    if chip is None:
        raise Unavailable(f"No rates are known for {compiled.device_kind}.")
    mesh = subject.mesh
    if sum(axis.size > 1 for axis in mesh.axes) < 2:
        raise NotApplicable("The mesh has one axis.")
    return compiled.topology, chip, mesh


def _slowest(levels: Sequence[Level] | None) -> float | None:
    """Bytes a second at the slowest level; None where one is not known."""
    if not levels:
        return None
    rates = [level.bandwidth for level in levels]
    return min((rate for rate in rates if rate), default=None) if all(rates) else None


def _bytes_by_axes(collectives: Collectives) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    for one in collectives.by_axes:
        names = tuple(dict.fromkeys(axis.name for axis in one.axes or ()))
        if names:
            found[names] = found.get(names, 0) + one.tally.sent
    return found


def best_order(
    sent: Mapping[tuple[str, ...], int], mesh: Mesh, topology: Topology, chip: Chip
) -> tuple[OrderCost, OrderCost] | None:
    """What the order of a mesh's axes costs, and what the best order would; None where unknown.

    The same bytes over the same axes are taken for every order.

    Args:
        sent: bytes that a device sends over each set of axes.
        mesh: the mesh, whose axes are in the order of the devices.
        topology: where devices stand.
        chip: what they are.
    """
    if mesh.device_ids is not None or len(mesh.axes) > _MOST_AXES:
        return None
    costs: list[OrderCost] = []
    for order in itertools.permutations(mesh.axes):
        other = Mesh(tuple(order))
        seconds = 0.0
        for names, count in sent.items():
            rate = _slowest(axes_levels(map(AxisRef, names), other, topology, chip))
            if rate is None:
                break
            seconds += count / rate
        else:
            costs.append(OrderCost(tuple(axis.name for axis in order), seconds))
    now = next((one for one in costs if one.axes == tuple(mesh.shape)), None)
    if now is None:
        return None

    # Of orders that are as fast, the one that moves fewest axes.
    def moved(one: OrderCost) -> int:
        return sum(a != b for a, b in zip(one.axes, now.axes, strict=True))

    return now, min(costs, key=lambda one: (round(one.seconds, 12), moved(one)))


@rule("mesh-order", "warning", needs="compiled")
def mesh_order(subject: Subject) -> Iterator[Message]:
    """Another order of the mesh's axes would send over faster links.

    Devices are numbered so that neighbours in the last axes are neighbours in hardware: on one
    host, in one slice. An axis that comes first runs over what is slow: the network between hosts
    or slices. If the axis that most bytes are sent over comes first, as when `model` stands before
    `data`, put it last. The same bytes are taken for each order, and every collective as slow as
    the slowest link that it runs over; orders that win less than a fifth are not reported.

    It needs hardware with known rates: `--on`. Meshes made with an explicit list of devices are not
    looked at.
    """
    topology, chip, mesh = _hardware(subject)
    sent = _bytes_by_axes(subject.collectives)
    found = best_order(sent, mesh, topology, chip)
    if found is None:
        raise Unavailable("The bandwidth of an axis is not known.")
    now, best = found
    if not now.seconds or best.seconds > _FASTER * now.seconds:
        return
    if sum(sent.values()) < FEW_BYTES:
        return
    yield Message(
        f"With the axes in the order {', '.join(best.axes)} the same bytes are sent in "
        f"{100 * best.seconds / now.seconds:.0f} % of the time: "
        f"{', '.join(now.axes)} puts what is sent most over the slowest links.",
        partitioner=subject.partitioner,
        hint=f"Make the mesh with its axes in the order {', '.join(best.axes)}.",
    )


@rule("axis-over-slow-link", "warning", needs="compiled")
def axis_over_slow_link(subject: Subject) -> Iterator[Message]:
    """Most of what is sent goes over the slowest links.

    An axis runs over links that are at least four times slower than those of another axis (between
    hosts or slices, say), and more is sent over it than over all others together. Where another
    order of the axes helps, `mesh-order` says so. Otherwise the axis is too large for the fast
    links: make it smaller, or shard over it what is sent seldom, such as the batch.

    It needs hardware with known rates: `--on`.
    """
    topology, chip, mesh = _hardware(subject)
    sent = _bytes_by_axes(subject.collectives)
    rates: dict[str, float] = {}
    levels: dict[str, Sequence[Level]] = {}
    for axis in mesh.axes:
        of_axis = axes_levels([AxisRef(axis.name)], mesh, topology, chip)
        rate = _slowest(of_axis)
        if axis.size > 1 and rate is not None and of_axis:
            rates[axis.name], levels[axis.name] = rate, of_axis
    if len(rates) < 2:
        raise Unavailable("The bandwidths of two axes are not known.")
    total = sum(sent.values())
    for name, rate in rates.items():
        own = sum(count for names, count in sent.items() if name in names)
        fastest = max(rates, key=lambda other: rates[other])
        if rates[fastest] < _SLOWER * rate or own <= total / 2 or own < FEW_BYTES:
            continue
        slow = min(levels[name], key=lambda level: level.bandwidth or math.inf)
        yield Message(
            f"{size(own)} of the {size(total)} that a device sends go over {name}, whose slowest "
            f"links ({slow.name}) are {rates[fastest] / rate:.0f} times slower than those of "
            f"{fastest}.",
            partitioner=subject.partitioner,
            hint=f"Let {name} fit on fast links, or shard over it only what is sent seldom.",
        )
