"""Shardings and placements as text: in a few words for a cell, in a sentence, as a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sdyscope.annotations import LAYOUT
from sdyscope.errors import ConversionError
from sdyscope.facts.sharded import Sharded, Written
from sdyscope.values.convert import (
    name_axes,
    to_named_sharding,
    to_placement,
    to_tensor_sharding,
    unspecified_dims,
)
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Digit, Digits, Placement, unused_digits
from sdyscope.values.sharding import NamedSharding, TensorSharding, symbol
from sdyscope.words.mesh import axis_text

#: The kind of memory behind a sharding; see ``in_memory``.
_MEMORY = re.compile(r" in \w+$")
#: What ``with_buffer`` adds.
_DONATED = "donated"
_BUFFER = re.compile(rf"(?:, {_DONATED})?(?:, {LAYOUT} = .*)?$")

#: What stands for a sharding that nobody wrote.
NONE = "-"

#: The same in a sentence.
LEFT = "left to the compiler"

#: What stands before a sharding that can't be read or can't be, and for all that it leaves unknown.
UNKNOWN = "!"

#: What stands for a value that every device holds whole.
REPLICATED = "replicated"

#: What stands for a value that is what a `shard_map` makes it on each device.
MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class PlacementDocument:
    """Where a sharding puts a tensor.

    Attributes:
        words: the placement in words.
        shards: into how many blocks each dimension is cut.
        replicas: how many devices hold the same block.
        local_shape: shape of the block that a device holds, padding included; null for a tensor
            whose shape is not known.
        bytes_per_device: bytes of that block; null likewise.
        padding: elements that each dimension is padded by; null likewise.
    """

    words: str
    shards: tuple[int, ...]
    replicas: int
    local_shape: tuple[int, ...] | None
    bytes_per_device: int | None
    padding: tuple[int, ...] | None


#: What is said of what a device holds where dimensions are left open.
AT_MOST: Final = (
    "with UNCONSTRAINED dimensions, block, bytes and replicas are upper bounds: the compiler may "
    "shard these further"
)


@lru_cache(1 << 12)
def placement_document(sharded: Sharded) -> PlacementDocument | None:
    """The document of where a sharding puts its tensor; None where nothing says."""
    place = sharded.placement
    if place is None:
        return None
    return PlacementDocument(
        placement_text(place, sharded.mesh),
        place.shards,
        place.replication,
        sharded.local_shape,
        sharded.bytes_per_device,
        sharded.padding,
    )


@lru_cache(1 << 12)
def short(sharded: Sharded) -> str:
    """A sharding in its most readable form: a PartitionSpec where it can be one.

    ``replicated`` and ``manual`` stand for themselves, ``-`` for what nobody wrote, and what has no
    placement is as it is written; ``!`` is before what can't be read or can't be.
    """
    place, written = sharded.placement, sharded.sharding
    if isinstance(written, NamedSharding):
        text = str(written)
    elif place is None:
        text = sharded.text or NONE
    else:
        text = sharding_text(written, place, sharded.mesh, sharded.open_dims)
    if sharded.problem:
        text = f"{UNKNOWN} {text}"
    return in_memory(text, sharded.memory)


#: What the document of a sharding has in words.
SHARDING_WORDS: Final[Mapping[str, tuple[Callable[[Sharded], object], object]]] = {
    "short": (short, str),
    "placement": (placement_document, PlacementDocument | None),
}


def in_memory(text: str, memory: str) -> str:
    """A sharding with the kind of memory where that is not the device's own."""
    return f"{text} in {memory}" if memory else text


def without_memory(text: str) -> str:
    """The sharding of a text that ``in_memory`` and ``with_buffer`` wrote."""
    return _MEMORY.sub("", _BUFFER.sub("", text))


def with_buffer(text: str, *, donated: bool, layouts: Sequence[str] = ()) -> str:
    """A sharding with what else is asked of the buffer: ``P('data'), donated``."""
    return ", ".join((text, *((_DONATED,) if donated else ()), *layouts))


def has_buffer(text: str) -> bool:
    """Whether a text is one that ``with_buffer`` added something to."""
    return _BUFFER.sub("", text) != text


def sharding_text(
    written: Written | None, place: Placement, mesh: Mesh | None, open_dims: tuple[int, ...] = ()
) -> str:
    """A sharding with a placement: as a PartitionSpec, else as Shardy writes it, else as it stands.

    Args:
        written: as it is written; what nobody wrote and no axes can say is told in words.
        place: where it puts the tensor.
        mesh: the mesh to name axes of.
        open_dims: dimensions that the compiler may shard further.
    """
    return _sharding_text(written, place.written, mesh, open_dims)


@lru_cache(1 << 12)
def _sharding_text(
    written: Written | None,
    fields: tuple[object, ...],
    mesh: Mesh | None,
    open_dims: tuple[int, ...],
) -> str:
    place = Placement(*fields)  # type: ignore[arg-type]  # the fields of one, in their order
    if place.device is not None:
        return f"device {place.device}"
    plain = not (any(place.dims) or place.unreduced or open_dims)
    if plain and place.manual:
        return MANUAL
    if plain and (written is None or _says_nothing_more(written)):
        return REPLICATED
    form = written if isinstance(written, TensorSharding) else replace(place, manual=())
    try:
        shardy = to_tensor_sharding(form, len(place.dims), mesh, open_dims=open_dims)
    except ConversionError:
        if written is not None:
            return str(written)
        left = f"; dims {', '.join(map(str, open_dims))} open" if open_dims else ""
        return placement_text(place, mesh) + left
    try:
        return str(to_named_sharding(shardy, len(place.dims), mesh).spec)
    except ConversionError:
        return shardy_text(shardy)


def named_text(sharding: NamedSharding, rank: int) -> str:
    """How a tensor is sharded, as a stage says it, however its PartitionSpec is written.

    Args:
        sharding: its sharding.
        rank: how many dimensions it has.
    """
    place = to_placement(sharding, rank)
    return sharding_text(None, place, sharding.mesh, unspecified_dims(sharding, rank))


def shardy_text(sharding: TensorSharding) -> str:
    """A sharding as Shardy writes it, without the symbol of its mesh: `[{a:(1)2}, {?}]`."""
    if isinstance(sharding.mesh, Mesh):
        return axis_text(sharding)
    return axis_text(sharding)[1:-1].removeprefix(f"{symbol(sharding.mesh)}, ")


def spec_words(sharded: Sharded) -> str:
    """Where a sharding puts its tensor as a PartitionSpec, or in words where none can say it."""
    place, mesh = sharded.placement, sharded.mesh
    if place is None or mesh is None:
        return placed_text(sharded)
    try:
        return str(to_named_sharding(place, len(place.dims), mesh).spec)
    except ConversionError:
        return placed_text(sharded)


def placed_text(sharded: Sharded) -> str:
    """Where a sharding puts its tensor; as it is written where that is not known."""
    if sharded.placement is None:
        return in_memory(sharded.text or LEFT, sharded.memory)
    return in_memory(placement_text(sharded.placement, sharded.mesh), sharded.memory)


def short_and_placed(sharded: Sharded) -> str:
    """`P('fsdp', None): dim 0 split 4 ways over fsdp, dim 1 whole`."""
    text, words = short(sharded), placed_text(sharded)
    return words if text in (words, REPLICATED) else f"{text}: {words}"


def strided_text(sharded: Sharded) -> str:
    """`P('a', None): dim 0 split 4 ways (device stride 2), dim 1 whole`: on which devices.

    This tells shardings apart that are written alike on meshes whose axes are in another order.
    """
    if sharded.placement is None:
        return short(sharded)
    return f"{short(sharded)}: {placement_text(sharded.placement)}"


def told_apart(text: Callable[[Sharded], str], first: Sharded, second: Sharded) -> tuple[str, str]:
    """The texts of two shardings, and where these are alike the first that are not."""
    every = (text, short, short_and_placed, open_text, strided_text, _as_written)
    pairs = [(each(first), each(second)) for each in every]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def _as_written(sharded: Sharded) -> str:
    return sharded.text


def open_text(sharded: Sharded) -> str:
    """The same, and which dimensions the compiler may shard further."""
    text = placed_text(sharded)
    if sharded.placement is None or not sharded.open_dims:
        return text
    return f"{text} ({dims_text(sharded.open_dims)} open)"


def _says_nothing_more(written: Written) -> bool:
    """Whether a sharding that shards nothing only says so: no priority, nothing pinned or open."""
    if not isinstance(written, TensorSharding):
        return True
    return not written.replicated_axes and all(
        dim.is_closed and dim.priority is None for dim in written.dim_shardings
    )


def placement_text(place: Placement, mesh: Mesh | None = None) -> str:
    """A placement in words: ``dim 0 split 4 ways over data; replicated 2 times over model``.

    Axis names need the mesh; without one, or where no axes fit, strides of devices are given.
    """
    if place.device is not None:
        return f"whole, on device {place.device} alone"
    if place.is_replicated:
        return "replicated on every device" if place.num_devices > 1 else "whole, on one device"
    parts = [
        f"dim {k} split {place.shards[k]:,} ways{_over(digits, place, mesh)}"
        if digits
        else f"dim {k} whole"
        for k, digits in enumerate(place.dims)
    ]
    clauses = [", ".join(parts) or "a scalar"]
    if place.unreduced:
        kind = "" if place.reduction == "sum" else f" ({place.reduction})"
        clauses.append(f"unreduced{kind}{_over(place.unreduced, place, mesh)}")
    if place.manual:
        clauses.append(_manual(place, mesh))
    if place.replication > 1:
        rest = unused_digits(place.digits, place.num_devices)
        clauses.append(f"replicated {place.replication:,} times{_over(rest, place, mesh)}")
    return "; ".join(clauses)


def blocks_text(block: Sequence[int], shape: Sequence[int]) -> str:
    """``blocks of [4, 8] of [16, 8]``."""
    return f"blocks of {list(block)} of {list(shape)}"


def drawn_text(shown: int, devices: int) -> str:
    """How many of the devices a picture has."""
    return f"{shown:,} of {devices:,} devices are drawn"


def blocks_below_text(dims: Sequence[int]) -> str:
    """What stands below each device of a picture: its block of two dimensions or more."""
    *most, last = map(str, dims)
    return f"below each device its block of dims {', '.join(most)} and {last}"


def device_text(device: int, place: Placement) -> str:
    """What a device holds: ``device 3: block 1 of dim 0``."""
    if place.device is not None:
        holds = "holds all of it" if device == place.device else "holds nothing"
        return f"device {device} {holds}"
    named = ", ".join(
        f"block {index} of dim {dim}"
        for dim, (index, count) in enumerate(zip(place.block(device), place.shards, strict=True))
        if count > 1
    )
    return f"device {device}: {named or 'the whole tensor'}"


def manual_text(digits: Digits, num_devices: int, mesh: Mesh | None) -> str:
    """The digits that the body of a ``shard_map`` is manual on: ``manual over data``."""
    return _manual(Placement(num_devices, (), manual=digits), mesh)


def _manual(place: Placement, mesh: Mesh | None) -> str:
    return f"manual{_over(place.manual, place, mesh)}"


def dims_text(dims: Sequence[int]) -> str:
    """``no dimension``, ``dimension 0``, ``dimensions 0, 2``."""
    if not dims:
        return "no dimension"
    return ("dimension " if len(dims) == 1 else "dimensions ") + ", ".join(map(str, dims))


def _over(digits: Sequence[Digit], place: Placement, mesh: Mesh | None) -> str:
    """`` over data, model``; without axes that fit `` (device stride 4)``."""
    if mesh is not None and mesh.size == place.num_devices:
        try:
            return f" over {', '.join(map(axis_text, name_axes(digits, mesh, place.order)))}"
        except ConversionError:
            pass  # No axes fit: the strides are always right.
    what = "position" if place.order is not None else "device"
    if len(digits) == 1:
        return f" ({what} stride {digits[0].stride})"
    steps = ", then ".join(f"{size} at stride {stride}" for size, stride in digits)
    return f" ({what}s: {steps})"
