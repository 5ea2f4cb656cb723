"""Arguments and results with the mesh axes that their dimensions are on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sdyscope.analysis.memory.held import group_of
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.errors import ConversionError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.memory import HeldKind
from sdyscope.facts.program import Partitioner
from sdyscope.facts.sharded import Sharded
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.values.convert import name_axes, to_placement
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import UNCONSTRAINED


@dataclass(frozen=True, slots=True)
class Placed:
    """An argument or a result.

    Attributes:
        row: its row in the table.
        sharded: where it is: as requested, as it is written in the module, or, where both leave it
            open, as it was compiled; without a placement where none of them is known.
    """

    row: Tensor
    sharded: Sharded

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.sharded.shape or ()

    @property
    def placement(self) -> Placement | None:
        """Where it is, if that is known."""
        return self.sharded.placement

    @property
    def name(self) -> str:
        """Its pytree path."""
        return self.row.name

    @property
    def group(self) -> str:
        """The top-level argument or result that it belongs to."""
        return group_of(self.name, self.row.kind)

    @property
    def known(self) -> Placement:
        """Where it is; only asked for where that is known."""
        assert self.placement is not None
        return self.placement

    @property
    def leaf(self) -> Leaf:
        """Its path, shape and type."""
        return Leaf(self.name, self.shape, self.row.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return num_bytes(math.prod(self.shape), self.row.dtype)

    @property
    def bytes_per_device(self) -> int:
        """Bytes of what a device holds; of all of it where that is not known."""
        known = self.sharded.bytes_per_device
        return self.bytes if known is None else known


def placed(
    table: TensorTable,
    kind: HeldKind,
    partitioner: Partitioner,
    compiled: Compiled | None,
    mesh: Mesh | None,
) -> tuple[Placed, ...]:
    """The arguments or the results that are in a module.

    Args:
        table: the program's tensors.
        kind: which of them.
        partitioner: whose module.
        compiled: the compiled program, where there is one.
        mesh: the mesh to name axes of, where there is one.
    """
    tensors = []
    for row in table.tensors:
        there = row.lowered.get(partitioner)
        if row.kind != kind or there is None or row.shape is None:
            continue
        place = _requested(row)
        if place is None and not there.open_dims:
            place = there.placement
        if place is None and there.index is not None and compiled is not None:
            place = compiled.placement(kind, there.index, len(row.shape))
        tensors.append(Placed(row, Sharded(None, row.shape, row.dtype, place, mesh)))
    return tuple(tensors)


def _requested(row: Tensor) -> Placement | None:
    asked = row.asked
    if asked is None or UNCONSTRAINED in asked.spec.entries:
        return None
    try:
        return to_placement(asked, len(row.shape or ()))
    except ConversionError:  # check says so
        return None


def axes_of(place: Placement, mesh: Mesh) -> tuple[tuple[str, ...], ...]:
    """The names of the axes that each dimension is on, parts of axes as the whole.

    Raises:
        ConversionError: a dimension follows no axes of the mesh.
    """
    return tuple(
        tuple(dict.fromkeys(axis.name for axis in name_axes(digits, mesh, place.order)))
        for digits in place.dims
    )
