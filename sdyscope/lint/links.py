"""Rules about the order of a mesh's axes, and the links that these then run over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sdyscope.analysis.cost.links import Level, axes_levels
from sdyscope.analysis.cost.order import WORTH, best_order, bytes_by_axes, slowest
from sdyscope.facts.lint import SlowLink, SlowOrder
from sdyscope.hardware.specs import Chip, chip_of
from sdyscope.hardware.topology import Topology
from sdyscope.lint.rule import FEW_BYTES, NotApplicable, Sighting, Unavailable, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.words.lint import NO_HARDWARE

#: A link that is that much slower than another is slow.
_SLOWER = 4.0


def _hardware(subject: Subject) -> tuple[Topology, Chip, Mesh]:
    """Where the devices stand, what they are, and the mesh on them.

    Raises:
        Unavailable: the hardware has no known rates.
        NotApplicable: the hardware does not say how devices are linked, or the mesh has one axis.
    """
    compiled = subject.compiled
    if compiled.is_text:
        raise Unavailable(NO_HARDWARE)
    if compiled.hardware is None or compiled.topology is None:
        raise NotApplicable("It is of hardware with known links: --on tpu:v5e:4x4x2slices, say.")
    chip = chip_of(compiled.device_kind)
    if chip is None:
        raise Unavailable(f"No rates are known for {compiled.device_kind}.")
    mesh = subject.mesh
    if sum(axis.size > 1 for axis in mesh.axes) < 2:
        raise NotApplicable("The mesh has one axis.")
    return compiled.topology, chip, mesh


@rule("mesh-order", "warning", needs="compiled")
def mesh_order(subject: Subject) -> Iterator[Sighting]:
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
    sent = bytes_by_axes(subject.collectives)
    orders = best_order(sent, mesh, topology, chip)
    if orders is None:
        raise Unavailable("The bandwidth of an axis is not known.")
    now, best = orders
    if not now.seconds or not best.seconds < WORTH * now.seconds:
        return
    if sum(sent.values()) < FEW_BYTES:
        return
    yield Sighting(
        SlowOrder(now.axes, best.axes, best.seconds / now.seconds), partitioner=subject.partitioner
    )


@rule("axis-over-slow-link", "warning", needs="compiled")
def axis_over_slow_link(subject: Subject) -> Iterator[Sighting]:
    """Most of what is sent goes over the slowest links.

    An axis runs over links that are at least four times slower than those of another axis (between
    hosts or slices, say), and more is sent over it than over all others together. Where another
    order of the axes helps, `mesh-order` says so. Otherwise the axis is too large for the fast
    links: make it smaller, or shard over it what is sent seldom, such as the batch.

    It needs hardware with known rates: `--on`.
    """
    topology, chip, mesh = _hardware(subject)
    sent = bytes_by_axes(subject.collectives)
    rates: dict[str, float] = {}
    levels: dict[str, Sequence[Level]] = {}
    for axis in mesh.axes:
        of_axis = axes_levels([AxisRef(axis.name)], mesh, topology, chip)
        rate = slowest(of_axis)
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
        factor = rates[fastest] / rate
        fact = SlowLink(name, own, total, slow.name, fastest, factor)
        yield Sighting(fact, partitioner=subject.partitioner)
