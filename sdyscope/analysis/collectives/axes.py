"""Mesh axes that a collective runs over, from the groups of devices that HLO names.

Devices in replica groups are partitions: numbers in the order of the program's device assignment,
which is what ``device_ids`` of a Shardy mesh are, too. A group is matched with axes by its digits
(see ``sdyscope.values.placement``), so 32,768 devices cost what 8 do; only groups or meshes in an
order that no iota describes are listed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

import numpy as np

from sdyscope.errors import ConversionError
from sdyscope.graph import Op
from sdyscope.graph.attribute_values import Dictionary, Elements, Structure
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, SubAxisInfo, device_order, merge_digits
from sdyscope.values.placement import through_order
from sdyscope.values.replica_groups import (
    CollectiveDeviceList,
    IotaReplicaGroupList,
    MeshAxesReplicaGroupList,
    ReplicaGroups,
)

_Digits = Sequence[tuple[int, int]]


def axes_of_groups(groups: ReplicaGroups, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """The axes or sub-axes along which these groups of partitions are the groups of a mesh.

    In the order of the mesh, whatever the order in the groups is.

    Args:
        groups: which partitions work together.
        mesh: the program's mesh.

    Returns:
        The axes; none of them where every group is one device; None where no set of axes has these
        groups.
    """
    groups = _symbolic(groups)
    if isinstance(groups, CollectiveDeviceList):
        return _listed(groups, mesh)
    decomposed = groups.digits()
    if decomposed is None:
        return _listed(groups, mesh)
    digits, total = decomposed
    if total != mesh.size:
        return None
    positions = _positions(digits, mesh)
    return _listed(groups, mesh) if positions is None else _axes(positions, mesh)


def axes_of_op(op: Op, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """The axes that a collective of StableHLO runs over, as its attributes say.

    Args:
        op: the op, in the graph of the lowered module.
        mesh: the program's mesh.

    Returns:
        As ``axes_of_groups`` and ``axes_of_pairs``; None also where an attribute can't be read.
    """
    pairs = op.attributes.get("source_target_pairs")
    if isinstance(pairs, Elements):
        return axes_of_pairs([(row[0], row[1]) for row in _rows(pairs)], mesh)
    groups = op.attributes.get("replica_groups")
    if isinstance(groups, Structure):  # By the axes of a mesh, as JAX 0.12 writes them.
        return _named(groups, mesh)
    if not isinstance(groups, Elements):
        return None
    return axes_of_groups(CollectiveDeviceList(_rows(groups)), mesh)


def _named(groups: Structure, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """Those of `#stablehlo.replica_group_mesh_axes`; None where one is a part of an axis."""
    refs = []
    axes = groups.get("axes")
    for axis in axes if isinstance(axes, tuple) else ():
        name = axis.get("name") if isinstance(axis, Dictionary) and len(axis) == 1 else None
        if not isinstance(name, str) or name not in mesh.shape:
            return None
        refs.append(AxisRef(name))
    return tuple(refs)


def _rows(elements: Elements) -> tuple[tuple[int, ...], ...]:
    """A matrix of integers, as it is written: in brackets, or as the bytes of an i64 each."""
    body = elements.body.strip()
    shape = tuple(size or 0 for size in elements.type.shape or ())
    if body.startswith("["):
        return tuple(tuple(row) for row in json.loads(body))
    if body.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(body[3:-1]), "<i8")
    else:
        flat = np.full(math.prod(shape), int(body))
    return tuple(tuple(int(device) for device in row) for row in flat.reshape(shape))


def order_of_groups(groups: ReplicaGroups) -> tuple[int, ...] | None:
    """The order of devices in their groups, which is that of their blocks.

    Returns:
        Of the digits that tell the devices of a group apart, from the one that changes slowest in
        it, the rank by stride; none where devices are in the order of their numbers; None where
        no digits say it.
    """
    groups = _symbolic(groups)
    if isinstance(groups, CollectiveDeviceList):
        return None if groups.replica_groups else ()
    decomposed = groups.digits()
    if decomposed is None:
        return None
    strides = [stride for _, stride in decomposed[0]]
    by_stride = sorted(strides, reverse=True)
    return () if strides == by_stride else tuple(map(by_stride.index, strides))


def axes_of_pairs(pairs: Iterable[tuple[int, int]], mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """The axes along which a permutation moves data: those in which source and target differ.

    Args:
        pairs: (source, target) partitions.
        mesh: the program's mesh.

    Returns:
        The axes in the order of the mesh; none where all stays where it is; None where a partition
        is not in the mesh.
    """
    place = _place(mesh)
    moved: set[str] = set()
    for source, target in pairs:
        if source not in place or target not in place:
            return None
        for axis in mesh.axes:
            stride = mesh.strides[axis.name]
            if place[source] // stride % axis.size != place[target] // stride % axis.size:
                moved.add(axis.name)
    return tuple(AxisRef(axis.name) for axis in mesh.axes if axis.name in moved)


def _place(mesh: Mesh) -> dict[int, int]:
    """The position of each device."""
    return {device: position for position, device in enumerate(mesh.devices())}


def _symbolic(groups: ReplicaGroups) -> ReplicaGroups:
    """Groups that are listed, as an iota where one lists the same."""
    if not isinstance(groups, CollectiveDeviceList) or groups.group_size is None:
        return groups
    try:
        order = device_order(tuple(d for group in groups.replica_groups for d in group))
    except ConversionError:  # a device twice, or not all of them
        return groups
    if isinstance(order, tuple):
        return groups
    return IotaReplicaGroupList(groups.num_groups, groups.group_size, order)


def _positions(digits: _Digits, mesh: Mesh) -> _Digits | None:
    """Digits of a device as digits of its position in the mesh; None where they are none."""
    order = mesh.device_ids
    if order is None:
        return digits
    if not isinstance(order, IotaTile):
        return None
    return through_order(digits, _inverse(order))


def _inverse(order: IotaTile) -> IotaTile:
    """The order that says where each device stands."""
    sizes = tuple(size for size, _ in order.digits)
    by_device = sorted(range(len(sizes)), key=lambda at: -order.digits[at][1])
    return IotaTile(sizes, tuple(by_device))


def _axes(digits: _Digits, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """The axes that digits of a position are; None where they cut one unevenly."""
    spans = merge_digits(sorted(digits, key=lambda digit: -digit[1]))
    axes: list[AxisRef] = []
    covered = 1
    for axis in mesh.axes:
        low = mesh.strides[axis.name]
        high = low * axis.size
        parts: list[AxisRef] = []
        for size, stride in spans:
            start, end = max(stride, low), min(stride * size, high)
            if start >= end:
                continue
            if start % low or high % end or end % start:
                return None
            part = end // start
            covered *= part
            if part == axis.size:
                parts.append(AxisRef(axis.name))
            else:
                parts.append(AxisRef(axis.name, SubAxisInfo(high // end, part)))
        axes += parts
    total = 1
    for size, _ in spans:
        total *= size
    return tuple(axes) if covered == total else None


def _listed(groups: ReplicaGroups, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """As ``axes_of_groups``, by listing every device."""
    place = _place(mesh)
    listed = [[place.get(device, -1) for device in group] for group in groups.groups(mesh.size)]
    if sorted(position for group in listed for position in group) != list(range(mesh.size)):
        return None
    sets = {tuple(sorted(group)) for group in listed}
    first = next(group for group in sets if group[0] == 0)
    digits = _digits_of(first)
    axes = None if digits is None else _axes(digits, mesh)
    if axes is None:
        return None
    in_order = Mesh(mesh.axes)
    wanted = MeshAxesReplicaGroupList(in_order, _joined(axes, mesh)).groups()
    return axes if sets == {tuple(sorted(group)) for group in wanted} else None


def _joined(axes: tuple[AxisRef, ...], mesh: Mesh) -> tuple[AxisRef, ...]:
    """Axes from minor to major, so that no two neighbours are parts of one."""
    return tuple(sorted(axes, key=lambda axis: mesh.position_digit(axis)[1]))


def _digits_of(numbers: Sequence[int]) -> list[tuple[int, int]] | None:
    """The digits that say exactly these numbers, sorted and from 0; None where there are none."""
    digits: list[tuple[int, int]] = []
    covered = 1
    while covered < len(numbers):
        stride, size = numbers[covered], 1
        while covered * size < len(numbers) and numbers[covered * size] == stride * size:
            size += 1
        if size < 2 or len(numbers) % (covered * size):
            return None
        digits.append((size, stride))
        covered *= size
    said = [0]
    for size, stride in digits:
        said = [number + step * stride for step in range(size) for number in said]
    return digits[::-1] if said == list(numbers) else None
