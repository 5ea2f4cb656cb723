"""Meshes, shardings, placements, source lines: in a few words for a cell, or as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError
from sdyscope.facts.program import RequestedTensor
from sdyscope.graph import OpGraph
from sdyscope.values.convert import (
    to_named_sharding,
    to_placement,
    to_tensor_sharding,
    unspecified_dims,
)
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement, Written
from sdyscope.values.sharding import NamedSharding, TensorSharding, symbol
from sdyscope.words.sharding import placement_text

#: What stands for a sharding that nobody wrote.
NONE = "-"


@dataclass(frozen=True, slots=True)
class PlacementDocument:
    """Where a sharding puts a tensor.

    Attributes:
      words: the placement in words.
      shards: into how many blocks each dimension is cut.
      copies: how many devices hold the same block (the replication factor).
      local_shape: shape of the block that a device holds, padding included; null for a tensor
        whose shape is not known.
      bytes_per_device: bytes of that block; null likewise.
      padding: elements that each dimension is padded by; null likewise.
    """

    words: str
    shards: tuple[int, ...]
    copies: int
    local_shape: tuple[int, ...] | None
    bytes_per_device: int | None
    padding: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ShardingDocument:
    """A sharding, written or requested.

    Attributes:
      text: as it is written: a PartitionSpec, `sdy.sharding`'s or `mhlo.sharding`'s text; empty
        when there is none.
      short: in its most readable form, as a PartitionSpec where it can be one.
      open_dims: dimensions that the compiler may shard further.
      manual_axes: axes of a `shard_map` boundary that its body is manual on.
      placement: where it puts the tensor; null where nothing says.
      problem: why there is no placement; empty when there is one or no sharding.
    """

    text: str
    short: str
    open_dims: tuple[int, ...]
    manual_axes: tuple[str, ...]
    placement: PlacementDocument | None
    problem: str


# --- in a few words -------------------------------------------------------------------------------


def short(annotation: Annotation, mesh: Mesh | None) -> str:
    """A written sharding in its most readable form: a PartitionSpec where it can be one.

    Args:
      annotation: what is written in a module.
      mesh: the mesh to name axes of.
    """
    sharding = annotation.sharding
    if sharding is None:
        return NONE
    if annotation.placement is None or isinstance(sharding, str):
        return annotation.text
    if annotation.placement.device is not None:
        return f"device {annotation.placement.device}"
    written = sharding if isinstance(sharding, TensorSharding) else annotation.placement.written
    rank = len(annotation.placement.dims)
    return _short(written, rank, mesh, annotation.open_dims) or annotation.text


@lru_cache(1 << 12)
def _short(
    written: TensorSharding | Written, rank: int, mesh: Mesh | None, open_dims: tuple[int, ...]
) -> str:
    """Empty where Shardy's form can't say it."""
    if isinstance(written, tuple):
        form: TensorSharding | Placement = replace(Placement(*written), manual=())
    else:
        form = written
    try:
        shardy = to_tensor_sharding(form, rank, mesh, open_dims=open_dims)
    except ConversionError:
        return ""
    return in_short(shardy, rank, mesh)


def in_short(shardy: TensorSharding, rank: int, mesh: Mesh | None) -> str:
    """A Shardy sharding as a PartitionSpec, or else without its mesh: `[{"a":(1)2}, {?}]`."""
    if mesh is not None:
        try:
            return str(to_named_sharding(shardy, rank, mesh).spec)
        except ConversionError:
            pass  # Only Shardy's form can say it.
    if isinstance(shardy.mesh, Mesh):
        return str(shardy)
    return str(shardy)[1:-1].removeprefix(f"{symbol(shardy.mesh)}, ")


def mesh_of(annotation: Annotation | None, graph: OpGraph, otherwise: Mesh | None) -> Mesh | None:
    """The mesh that an annotation's sharding is on; of an HLO sharding, `otherwise`."""
    sharding = annotation.sharding if annotation is not None else None
    if isinstance(sharding, TensorSharding):
        own = sharding.mesh
        mesh = own if isinstance(own, Mesh) else graph.meshes.get(own)
        return mesh if isinstance(mesh, Mesh) else otherwise
    return otherwise


# --- whole ----------------------------------------------------------------------------------------


def placement_document(
    place: Placement, shape: Sequence[int] | None, dtype: str, mesh: Mesh | None
) -> PlacementDocument:
    """The document of the placement of a tensor."""
    return _placement_document(place.written, None if shape is None else tuple(shape), dtype, mesh)


@lru_cache(1 << 12)
def _placement_document(
    written: Written, shape: tuple[int, ...] | None, dtype: str, mesh: Mesh | None
) -> PlacementDocument:
    place = Placement(*written)
    local = padding = size = None
    if shape is not None:
        local, padding = place.local_shape(shape), place.padding(shape)
        size = byte_count(local, dtype)
    return PlacementDocument(
        placement_text(place, mesh), place.shards, place.replication, local, size, padding
    )


def byte_count(shape: Sequence[int] | None, dtype: str) -> int | None:
    """Bytes of an array; None when its shape or the size of its elements is not known."""
    if shape is None:
        return None
    elements = 1
    for size in shape:
        elements *= size
    try:
        return num_bytes(elements, dtype)
    except ConversionError:
        return None


def requested_document(asked: RequestedTensor) -> ShardingDocument | None:
    """The document of what was requested; None when it was left to the compiler."""
    if asked.sharding is None:
        return None
    return _requested(asked.sharding, tuple(asked.shape), asked.dtype, asked.manual_axes)


@lru_cache(1 << 12)
def _requested(
    sharding: NamedSharding, shape: tuple[int, ...], dtype: str, manual_axes: tuple[str, ...]
) -> ShardingDocument:
    text, rank = str(sharding), len(shape)
    try:
        place = to_placement(sharding, rank)
        opened = unspecified_dims(sharding, rank)
    except ConversionError as error:
        return ShardingDocument(text, text, (), manual_axes, None, error.message)
    document = placement_document(place, shape, dtype, sharding.mesh)
    return ShardingDocument(text, text, opened, manual_axes, document, "")


def written_document(annotation: Annotation, mesh: Mesh | None) -> ShardingDocument:
    """The document of what is written in a module."""
    place = annotation.placement
    return ShardingDocument(
        annotation.text,
        short(annotation, mesh),
        annotation.open_dims,
        annotation.manual_axes,
        None
        if place is None
        else placement_document(place, annotation.shape, annotation.dtype, mesh),
        annotation.problem,
    )
