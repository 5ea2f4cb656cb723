"""Axes and sub-axes as parts of a mesh axis, so that they can be cut, compared and joined.

Shardy moves ``"a"`` in one step and ``"a":(1)2`` in another, and writes ``"a"`` once both halves of
it are there. A part is the digits of an axis between two strides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sdyscope.values.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.values.sharding import TensorSharding


class AxisPart(NamedTuple):
    """The digits of axis ``name`` from ``start`` to ``stop``, major to minor.

    ``"a":(2)4`` is the part from 2 to 8; the whole axis of size n goes from 1 to n.
    """

    name: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many blocks it cuts a dimension into."""
        return self.stop // self.start

    def shared(self, other: AxisPart) -> AxisPart | None:
        """What both cover; None when that is nothing."""
        if self.name != other.name:
            return None
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        if start >= stop or stop % start:
            return None
        if start == self.start and stop == self.stop:
            return self
        return AxisPart(self.name, start, stop)

    def without(self, others: Iterable[AxisPart]) -> list[AxisPart]:
        """The parts of it that none of ``others`` covers."""
        left = [self]
        for other in others:
            cut: list[AxisPart] = []
            for part in left:
                shared = part.shared(other)
                if shared is None:
                    cut.append(part)
                    continue
                if part.start < shared.start:
                    cut.append(AxisPart(part.name, part.start, shared.start))
                if shared.stop < part.stop:
                    cut.append(AxisPart(part.name, shared.stop, part.stop))
            left = cut
        return left

    def axis(self, mesh: Mesh | None) -> AxisRef:
        """As Shardy writes it, on ``mesh``."""
        whole = None if mesh is None else mesh.shape.get(self.name)
        if self.start == 1 and (whole is None or self.stop == whole):
            return AxisRef(self.name)
        return AxisRef(self.name, SubAxisInfo(self.start, self.size))


def part_of(axis: AxisRef, mesh: Mesh | None) -> AxisPart:
    """The part that an axis or sub-axis is; of a whole axis on no mesh, one of size 2 for all."""
    if axis.sub_axis_info is not None:
        info = axis.sub_axis_info
        return AxisPart(axis.name, info.pre_size, info.pre_size * info.size)
    size = None if mesh is None else mesh.shape.get(axis.name)
    return AxisPart(axis.name, 1, max(size or 2, 2))


def part_size(parts: Iterable[AxisPart]) -> int:
    """Into how many blocks all of them together cut a dimension."""
    return math.prod(part.size for part in parts)


def axes_of(sharding: object) -> Iterator[tuple[int, AxisRef]]:
    """(dimension, axis) of each axis that a Shardy sharding shards a dimension on."""
    if isinstance(sharding, TensorSharding):
        for dimension, dim in enumerate(sharding.dim_shardings):
            for axis in dim.axes:
                yield dimension, axis
