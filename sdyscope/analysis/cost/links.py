"""Which links a mesh axis runs over, and how much a device can send over them.

Positions of the mesh are devices in the compiler's order, and the number of a device is made of
digits that count along the dimensions of the hardware (``sdyscope.hardware.topology``). So an axis
is a part of some of these dimensions: of a TPU's torus, of the cores on a chip, of slices; or of
the GPUs that NVLink connects, and of what the network does.

Rings and lines are those of "How to Scale Your Model", part 2 and 3
(https://jax-ml.github.io/scaling-book/sharding): n chips in a closed ring can use the links in
both directions, which is twice what a line has, since at its end there is one neighbour only.
Groups that share the same links share their bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.facts.cost import LevelName
from sdyscope.hardware.specs import Chip
from sdyscope.hardware.topology import DimensionName, Topology
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh
from sdyscope.values.placement import through_order

_TORUS: tuple[DimensionName, ...] = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Devices in a row along one dimension of the hardware.

    Attributes:
        dimension: the dimension; empty for a switched network, where all are one hop apart.
        size: how many devices.
        ring: whether the row is closed, so that both directions are used.
        bandwidth: bytes a second that a device can send along it, both directions together; None
            where it is not known.
        apart: how many links are between neighbours of the row.
    """

    dimension: str
    size: int
    ring: bool
    bandwidth: float | None
    apart: int = 1

    @property
    def hops(self) -> int:
        """How many links are between the two devices that are farthest apart, at most."""
        return self.apart * (self.size // 2 if self.ring else self.size - 1)


@dataclass(frozen=True, slots=True)
class Level:
    """What a group of devices is connected by, at one level of the hardware.

    Attributes:
        name: the level; `given` is what the user said.
        size: how many devices, or groups of the level below, are connected.
        spans: the rows that the group forms; several in a torus.
        bandwidth: bytes a second that a device can send at this level; None where it is not known.
        latency: seconds a hop; None where it is not known, and then it counts nothing.
    """

    name: LevelName
    spans: tuple[DeviceRow, ...]
    latency: float | None

    __document__ = ("name", "size", "spans", "bandwidth", "latency")

    @property
    def size(self) -> int:
        """How many devices, or groups of the level below, are connected."""
        size = 1
        for span in self.spans:
            size *= span.size
        return size

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second that a device can send at this level; None where it is not known."""
        known = [span.bandwidth for span in self.spans if span.bandwidth is not None]
        return sum(known) if len(known) == len(self.spans) else None


def flat_level(
    size: int, bandwidth: float | None, latency: float | None, how: LevelName = "given"
) -> Level:
    """A group in which every device sends at a bandwidth that is given, or was fitted."""
    return Level(how, (DeviceRow("", size, False, bandwidth),), latency)


def axes_levels(
    axes: Iterable[AxisRef], mesh: Mesh, topology: Topology, chip: Chip
) -> tuple[Level, ...] | None:
    """What the devices along some axes are connected by, from the inside out.

    Args:
        axes: the axes of a collective.
        mesh: the mesh; position i of its order is device i of the topology.
        topology: where devices stand.
        chip: what the devices are.

    Returns:
        The levels that the axes run over; None where the axes are no digits of a device's number.
    """
    parts = _parts(axes, mesh, topology)
    if parts is None:
        return None
    levels = _of_tpu(parts, topology, chip) if chip.torus else _of_gpu(parts, topology, chip)
    return tuple(level for level in levels if level.size > 1)


def dimensions_along(
    axes: Iterable[AxisRef], mesh: Mesh, topology: Topology
) -> frozenset[DimensionName] | None:
    """The dimensions of the hardware that the devices along some axes are apart in.

    Args:
        axes: the axes of a collective.
        mesh: the mesh; position i of its order is device i of the topology.
        topology: where devices stand.

    Returns:
        None where the axes are no digits of a device's number.
    """
    parts = _parts(axes, mesh, topology)
    return None if parts is None else frozenset(parts)


#: (size, step) of the digits of a group along one dimension.
_Parts: TypeAlias = dict[DimensionName, list[tuple[int, int]]]


def _parts(axes: Iterable[AxisRef], mesh: Mesh, topology: Topology) -> _Parts | None:
    digits: Sequence[tuple[int, int]] = [mesh.position_digit(axis) for axis in axes]
    if isinstance(mesh.device_ids, IotaTile):
        through = through_order(digits, mesh.device_ids)
        if through is None:
            return None
        digits = through
    elif mesh.device_ids is not None:
        return None
    parts: _Parts = {}
    low = 1
    for place in reversed(topology.digits):
        high = low * place.size
        for size, stride in digits:
            start, end = max(stride, low), min(stride * size, high)
            if start >= end:
                continue
            if start % low or high % end or end % start or start % stride:
                return None
            parts.setdefault(place.dimension, []).append(
                (end // start, place.step * (start // low))
            )
        low = high
    return parts


def _of_tpu(parts: _Parts, topology: Topology, chip: Chip) -> list[Level]:
    latency = chip.value("hop_latency")
    cores = topology.size("core")
    sizes = tuple(topology.size(name) for name in _TORUS if topology.size(name) > 1)
    link = chip.value("ici_link")
    spans: list[DeviceRow] = []
    for name in _TORUS:
        if name not in parts:
            continue
        count, sharing = _row(parts[name])
        whole = topology.size(name)
        ring = count * sharing == whole and chip.is_ring(whole, sizes)
        # Groups that stand between each other share the links, and so do the cores of a chip.
        share = None if link is None else link * (2 if ring else 1) / sharing / cores
        spans.append(DeviceRow(name, count, ring, share, sharing))
    dcn = chip.value("dcn")
    return [
        _switched("chip", parts, ("core",), chip.value("die_to_die")),
        Level("ICI", tuple(spans), latency),
        _switched("DCN", parts, ("slice",), None if dcn is None else dcn / cores),
    ]


def _of_gpu(parts: _Parts, topology: Topology, chip: Chip) -> list[Level]:
    domain = chip.nvlink_domain or 1
    together: tuple[DimensionName, ...] = ("gpu",)
    apart: tuple[DimensionName, ...] = ("host", "slice")
    if topology.size("gpu") * topology.size("host") <= domain:
        together, apart = ("gpu", "host"), ("slice",)
    return [
        _switched("NVLink", parts, together, chip.value("nvlink")),
        _switched("network", parts, apart, chip.value("network")),
    ]


def _switched(
    name: LevelName,
    parts: _Parts,
    dimensions: Sequence[DimensionName],
    bandwidth: float | None,
) -> Level:
    size = 1
    for dimension in dimensions:
        for count, _ in parts.get(dimension, ()):
            size *= count
    return Level(name, (DeviceRow("", size, False, bandwidth),), None)


def _row(digits: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """(how many stand in a row, how many such rows lie over the same links)."""
    count = extent = 1
    for size, step in digits:
        count *= size
        extent = max(extent, size * step)
    return count, max(extent // count, 1)
