"""The collectives of a `shard_map`'s body where the body is mapped (`jax.vmap`) over its blocks.

JAX maps most of them along one axis only, over all devices of it: not a permutation that leaves
devices out, as a pipeline has, nor a gather over two axes, nor groups within one. Here each is a
gather of the blocks of all devices, which a map has at hand, and what a device takes of it, as
jax.lax's documentation says what each returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

_Groups: TypeAlias = Sequence[Sequence[int]] | None


def mapped_collective(name: str, params: Mapping[str, Any]) -> Callable[..., list[Any]] | None:
    """A function of blocks that returns what a collective does, in a map; None to leave it to JAX.

    Args:
        name: of JAX's primitive; of one that only starts it, too.
        params: its parameters.

    Raises:
        NotImplementedError: when it is called, for groups of different sizes.
    """
    if name in _WHOLE and params.get("axis_index_groups") is None:
        return None
    function = _COLLECTIVES.get(name.removesuffix("_start"))
    if function is None:
        return None
    return lambda *values: [*function(*values, **params)]


# Blocks of all devices, and places.


def _blocks(value: Any, axes: Sequence[str]) -> Any:
    """The blocks of all devices along axes, the last of which changes fastest."""
    for axis in reversed(axes):
        value = jax.lax.all_gather(value, axis)
    return value.reshape(-1, *value.shape[len(axes) :])


def _of_group(value: Any, axis_name: Any, groups: _Groups) -> tuple[Any, Any, int]:
    """The blocks of the devices of this one's group, its place there, and how many they are."""
    axes = _names(axis_name)
    blocks, place = _blocks(value, axes), jax.lax.axis_index(axes)
    if groups is None:
        return blocks, place, len(blocks)
    if len({len(group) for group in groups}) != 1:
        raise NotImplementedError("groups of different sizes")
    members = np.asarray(groups)
    where = np.argsort(members, axis=None)
    row, column = np.unravel_index(where, members.shape)
    own = jnp.asarray(members)[jnp.asarray(row)[place]]
    return blocks[own], jnp.asarray(column)[place], members.shape[1]


def _names(axis_name: Any) -> tuple[str, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _piece(value: Any, dimension: int, place: Any, size: int, *, tiled: bool) -> Any:
    """One of as many pieces along a dimension, which is left out unless it is tiled."""
    if tiled:
        length = value.shape[dimension] // size
        return jax.lax.dynamic_slice_in_dim(value, place * length, length, dimension)
    return jax.lax.dynamic_index_in_dim(value, place, dimension, keepdims=False)


def _side_by_side(blocks: Any, dimension: int, *, tiled: bool) -> Any:
    """Blocks along a dimension, which is a new one unless it is tiled."""
    moved = jnp.moveaxis(blocks, 0, dimension)
    if not tiled:
        return moved
    shape = moved.shape
    joined = shape[dimension] * shape[dimension + 1]
    return moved.reshape(*shape[:dimension], joined, *shape[dimension + 2 :])


# The collectives.


def _reduced(by: Callable[..., Any]) -> Callable[..., list[Any]]:
    def reduced(*values: Any, axes: Any, axis_index_groups: _Groups = None) -> list[Any]:
        groups = [_of_group(value, axes, axis_index_groups)[0] for value in values]
        return [by(blocks, axis=0).astype(blocks.dtype) for blocks in groups]

    return reduced


def _summed(*values: Any, axes: Any, axis_index_groups: _Groups = None) -> list[Any]:
    if axis_index_groups is not None:
        return _reduced(jnp.sum)(*values, axes=axes, axis_index_groups=axis_index_groups)
    return [jax.lax.psum(value, axes) for value in values]


def _gathered(
    value: Any,
    *,
    all_gather_dimension: int,
    axis_name: Any,
    tiled: bool,
    axis_index_groups: _Groups = None,
    **_: Any,
) -> list[Any]:
    blocks, _place, _size = _of_group(value, axis_name, axis_index_groups)
    return [_side_by_side(blocks, all_gather_dimension, tiled=tiled)]


def _scattered(
    value: Any,
    *,
    scatter_dimension: int,
    axis_name: Any,
    tiled: bool,
    axis_index_groups: _Groups = None,
    axis_size: int,
    **_: Any,
) -> list[Any]:
    axes = _names(axis_name)
    if axis_index_groups is None:
        total, place = jax.lax.psum(value, axes), jax.lax.axis_index(axes)
    else:
        blocks, place, _size = _of_group(value, axes, axis_index_groups)
        total = blocks.sum(axis=0, dtype=blocks.dtype)
    return [_piece(total, scatter_dimension, place, axis_size, tiled=tiled)]


def _exchanged(
    value: Any,
    *,
    split_axis: int,
    concat_axis: int,
    axis_name: Any,
    axis_index_groups: _Groups,
    tiled: bool,
    **_: Any,
) -> list[Any]:
    blocks, place, size = _of_group(value, axis_name, axis_index_groups)
    mine = _piece(blocks, split_axis + 1, place, size, tiled=tiled)
    return [_side_by_side(mine, concat_axis, tiled=tiled)]


def _permuted(value: Any, *, axis_name: Any, perm: Sequence[tuple[int, int]]) -> list[Any]:
    axes = _names(axis_name)
    blocks = _blocks(value, axes)
    sources = np.full(len(blocks), -1)
    for sender, receiver in perm:
        sources[receiver] = sender
    source = jnp.asarray(sources)[jax.lax.axis_index(axes)]
    # A device that nobody sends to has zeros.
    return [jnp.where(source < 0, jnp.zeros_like(value), blocks[source])]


def _broadcast(value: Any, *, axis_name: Any, source: int, **_: Any) -> list[Any]:
    return [_blocks(value, _names(axis_name))[source]]


def _ragged(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: _Groups,
) -> list[Any]:
    del recv_sizes  # What is received is what is sent.
    blocks, place, size = _of_group(operand, axis_name, axis_index_groups)

    def sent_here(value: Any) -> Any:
        """Of each sender, its numbers for this device's slices."""
        whole, _place, _size = _of_group(value, axis_name, axis_index_groups)
        return whole.reshape(size, size, -1)[:, place].reshape(-1)

    starts, sizes, targets = map(sent_here, (input_offsets, send_sizes, output_offsets))
    senders = jnp.arange(len(starts)) // (len(starts) // size)
    rows = jnp.arange(output.shape[0])[:, None]
    within = (rows >= targets) & (rows < targets + sizes)
    which = jnp.argmax(within, axis=1)
    row = jnp.clip(starts[which] + rows[:, 0] - targets[which], 0, operand.shape[0] - 1)
    received = blocks[senders[which], row]
    written = within.any(axis=1).reshape(-1, *[1] * (output.ndim - 1))
    return [jnp.where(written, received, output)]


#: By JAX's name, what each is.
_COLLECTIVES: Mapping[str, Callable[..., list[Any]]] = {
    "psum": _reduced(jnp.sum),
    "pmax": _reduced(jnp.max),
    "pmin": _reduced(jnp.min),
    "psum_invariant": _summed,
    "unreduced_psum": _summed,
    "all_gather": _gathered,
    "all_gather_invariant": _gathered,
    "all_gather_reduced": _gathered,
    "reduce_scatter": _scattered,
    "unreduced_reduce_scatter": _scattered,
    "all_to_all": _exchanged,
    "ppermute": _permuted,
    "pbroadcast": _broadcast,
    "ragged_all_to_all": _ragged,
}

#: What hands on the result of a collective that was started.
ENDS = frozenset(
    f"{name}_done"
    for name in ("all_gather", "all_to_all", "pbroadcast", "ppermute", "psum", "reduce_scatter")
)

#: Those that JAX maps as they are over whole axes.
_WHOLE = frozenset({"psum", "pmax", "pmin", "all_to_all"})
