"""Shardings in one form, however they are written: what puts every block alike reads alike."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from sdyscope.errors import ConversionError
from sdyscope.values.convert import to_named_sharding, to_tensor_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement, Written
from sdyscope.words.sharding import placement_text

__all__ = ["MANUAL", "NOTHING", "REPLICATED", "placement_words"]

#: What stands for a sharding that nobody wrote.
NOTHING = "nothing"
REPLICATED = "replicated"
#: What a ``shard_map`` makes of a value on each device.
MANUAL = "manual"


def placement_words(
    place: Placement, rank: int, mesh: Mesh | None, open_dims: tuple[int, ...] = ()
) -> str:
    """A placement as a PartitionSpec where it can be one, else as Shardy writes it, or in words."""
    return _words(place.written, rank, mesh, open_dims)


@lru_cache(1 << 12)
def _words(written: Written, rank: int, mesh: Mesh | None, open_dims: tuple[int, ...]) -> str:
    place = Placement(*written)
    if place.device is not None:
        return f"device {place.device}"
    if place.manual and not any(place.dims) and not open_dims:
        return MANUAL
    if not any(place.dims) and not place.unreduced and not open_dims:
        return REPLICATED
    try:
        shardy = to_tensor_sharding(replace(place, manual=()), rank, mesh, open_dims=open_dims)
    except ConversionError:
        left = f"; dims {', '.join(map(str, open_dims))} open" if open_dims else ""
        return placement_text(place, mesh) + left
    try:
        return str(to_named_sharding(shardy, rank, mesh).spec)
    except ConversionError:
        return str(shardy)[1:-1].removeprefix("@mesh, ")
