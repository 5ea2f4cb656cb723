"""A sharding of a tensor at one stage, whoever wrote or decided it, and where it puts that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from sdyscope.errors import ConversionError
from sdyscope.facts.program import RequestedTensor
from sdyscope.graph import Sharding
from sdyscope.values.convert import to_placement, unspecified_dims
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding

Written: TypeAlias = Sharding | NamedSharding
"""A sharding as it is written: in a module, or in the program; its text where it is unreadable."""


@dataclass(frozen=True, slots=True)
class Sharded:
    """A sharding of a tensor, written, requested or decided, and where that puts it.

    Attributes:
        text: as it is written: a PartitionSpec, `sdy.sharding`'s or `mhlo.sharding`'s text; empty
            when there is none.
        short: in documents, the same in its most readable form, as a PartitionSpec where it can be.
        sharding: as it is written or was decided; None without any.
        shape: shape of the whole tensor; None where it is dynamic.
        dtype: MLIR element type.
        placement: where every block is; None where nothing says.
        mesh: the mesh whose axes it is told by; None where none fits or several do.
        open_dims: dimensions that the compiler may shard further.
        manual_axes: axes of a ``shard_map`` boundary that its body is manual on.
        problem: why what is written has no placement, a clause; empty where it has one, and where
            nothing is written.
        memory: the kind of memory it is in, where that is not the device's own: ``pinned_host``.
    """

    sharding: Written | None
    shape: tuple[int, ...] | None
    dtype: str
    placement: Placement | None = None
    mesh: Mesh | None = None
    open_dims: tuple[int, ...] = ()
    manual_axes: tuple[str, ...] = ()
    problem: str = ""
    memory: str = ""

    __document__ = ("text", "short", "open_dims", "manual_axes", "placement", "problem")

    @property
    def text(self) -> str:
        """The sharding as it is written; empty without one."""
        return "" if self.sharding is None else str(self.sharding)

    @property
    def is_on_mesh(self) -> bool:
        """Whether it is not said to be on a mesh without axes, as an array on no mesh is."""
        return self.mesh is None or bool(self.mesh.axes)

    @property
    def is_unreadable(self) -> bool:
        """Whether what is written is of no form that is known."""
        return isinstance(self.sharding, str)

    @property
    def local_shape(self) -> tuple[int, ...] | None:
        """Shape of the block that a device holds, padding included; None where it is not known."""
        if self.placement is None or self.shape is None:
            return None
        return self.placement.local_shape(self.shape)

    @property
    def bytes_per_device(self) -> int | None:
        """Bytes of that block; None where they are not known."""
        return byte_count(self.local_shape, self.dtype)

    @property
    def padding(self) -> tuple[int, ...] | None:
        """Elements that each dimension is padded by; None where that is not known."""
        if self.placement is None or self.shape is None:
            return None
        return self.placement.padding(self.shape)


def requested_sharding(asked: RequestedTensor) -> Sharded | None:
    """What was requested of a tensor; None where it was left to the compiler."""
    if asked.sharding is None:
        return None
    sharded = _requested(
        asked.sharding, tuple(asked.shape), asked.dtype, asked.manual_axes, asked.memory
    )
    if not asked.unconstrained or sharded.placement is None:
        return sharded
    return replace(sharded, open_dims=requested_open_dims(asked))


def requested_open_dims(asked: RequestedTensor) -> tuple[int, ...]:
    """The dimensions of a request that are left to the compiler; none where all of it is."""
    if asked.sharding is None:
        return ()
    opened = unspecified_dims(asked.sharding, len(asked.shape))
    return tuple(sorted({*opened, *asked.unconstrained}))


def returned_sharding(asked: RequestedTensor) -> Sharded | None:
    """What a result that jit is not told to place is by its maker; None for all else."""
    if asked.returned is None:
        return None
    return _requested(asked.returned, tuple(asked.shape), asked.dtype, (), "")


@lru_cache(1 << 12)
def _requested(
    sharding: NamedSharding,
    shape: tuple[int, ...],
    dtype: str,
    manual_axes: tuple[str, ...],
    memory: str,
) -> Sharded:
    sharded = Sharded(
        sharding, shape, dtype, mesh=sharding.mesh, manual_axes=manual_axes, memory=memory
    )
    try:
        place = to_placement(sharding, len(shape))
    except ConversionError as error:
        return replace(sharded, problem=error.message)
    return replace(sharded, placement=place, open_dims=unspecified_dims(sharding, len(shape)))


def byte_count(shape: tuple[int, ...] | None, dtype: str) -> int | None:
    """Bytes of an array; None where its shape or the size of its elements is not known."""
    if shape is None:
        return None
    elements = 1
    for size in shape:
        elements *= size
    try:
        return num_bytes(elements, dtype)
    except ConversionError:
        return None
