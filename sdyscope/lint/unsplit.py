"""Rules about ops that are not done in the pieces that they are given, but moved for first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.errors import ConversionError
from sdyscope.facts.lint import OpNotSplit, ReshapeNotSplit, WindowNotSplit
from sdyscope.graph import Op
from sdyscope.graph.same_dims import reshape_groups
from sdyscope.graph.windows import indexed_dims, mapped_dims, window_sizes
from sdyscope.lint.loops import in_loop
from sdyscope.lint.placed import axes_of
from sdyscope.lint.rule import NotApplicable, Sighting, rule, severity_of
from sdyscope.lint.subject import Subject

_Dims: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Moved:
    """What is moved to another sharding for an op.

    Attributes:
        collective: what moves it.
        part: which of its tensors it is.
        op: the op.
        shape: of its operand.
        result: that of its first result.
        axes: the axes that each dimension of the operand is on.
        shards: in how many blocks each is.
    """

    collective: Collective
    part: Part
    op: Op
    shape: _Dims
    result: _Dims
    axes: tuple[tuple[str, ...], ...]
    shards: _Dims

    @property
    def sent(self) -> int:
        """Bytes that a device sends for it in a step."""
        return self.collective.count * self.part.sent

    @property
    def dims(self) -> _Dims:
        """The dimensions that are on axes of the collective."""
        over = {axis.name for axis in self.collective.axes or ()}
        return tuple(dim for dim, axes in enumerate(self.axes) if over.intersection(axes))


def _moved_for(subject: Subject, *mnemonics: str) -> list[list[_Moved]]:
    """What is moved for the first operand of such ops, by line, op and axes; the most first.

    Raises:
        NotApplicable: the program has none of them.
        Unavailable: it has, and no origins are known.
    """
    graph = subject.graph
    if not any(op.mnemonic in mnemonics for op in graph.operations()):
        raise NotApplicable(f"The program has no {' or '.join(mnemonics)}.")
    by_line: dict[object, list[_Moved]] = {}
    if subject.collectives.collectives:
        for collective in subject.caused_collectives.collectives:
            for part in collective.parts:
                moved = _moved(subject, collective, part, mnemonics)
                if moved is not None:
                    line = part.source or (part.scope, part.primitive)
                    key = (line, moved.op.mnemonic, collective.axes)
                    by_line.setdefault(key, []).append(moved)
    return [sorted(each, key=lambda moved: -moved.sent) for each in by_line.values()]


def _moved(
    subject: Subject, collective: Collective, part: Part, mnemonics: Sequence[str]
) -> _Moved | None:
    """What of a collective is moved for the first operand of such an op."""
    graph, origin = subject.graph, part.origin
    if origin is None or origin.kind != "resharding" or origin.node is None:
        return None
    op = graph.ops[origin.node]
    if op.mnemonic not in mnemonics or origin.uncertain or origin.own_result:
        return None
    node, result = graph.operand_values[op.id][0]
    shape, place = graph.ops[node].types[result].static_shape, subject.placement((node, result))
    after = op.types[0].static_shape
    if shape is None or after is None or place is None:
        return None
    try:
        axes = axes_of(place, subject.mesh)
    except ConversionError:
        return None
    return _Moved(collective, part, op, shape, after, axes, place.shards)


# --- Reshapes -------------------------------------------------------------------------------------


@rule("reshape-not-split", "warning", needs="compiled")
def reshape_not_split(subject: Subject) -> Iterator[Sighting]:
    """A reshape can't keep how a dimension is sharded, and XLA moves what it takes.

    Of dimensions that a reshape joins, the first keeps its sharding. What a device has of one
    behind it lies apart in the result, which no sharding says. Most often batch and sequence are
    both sharded, and a loss or a router flattens them to tokens. Leave the dimensions apart:
    products, reductions and `jax.vmap` take them as they are. Or have all axes on the first one.

    Of dimensions that a reshape makes of one, the first has the blocks, and its size has to divide:
    6 heads are not split over 4 devices. Change the number, or shard over another axis.

    Found where a collective of the compiled program is there for that. A note where it is less than
    64 KiB per step.
    """
    for group in _moved_for(subject, "reshape"):
        lost = [(moved, at) for moved in group if (at := _lost(moved)) is not None]
        if not lost:
            continue
        moved, (dim, joined, parts) = lost[0]
        sent = sum(each.sent for each, _ in lost)
        together = tuple(dict.fromkeys((*moved.axes[joined[0]], *moved.axes[dim])))
        devices = math.prod(subject.mesh.shape[axis] for axis in together)
        fact = ReshapeNotSplit(
            subject.sending([each.collective for each, _ in lost], sent),
            moved.shape,
            moved.result,
            dim,
            moved.axes[dim],
            moved.shards[dim],
            joined[0],
            tuple(moved.result[at] for at in parts),
            together if moved.shape[joined[0]] % devices == 0 else (),
        )
        yield subject.at_part(moved.part, moved.collective.name, fact, severity_of(sent))


def _lost(moved: _Moved) -> tuple[int, _Dims, _Dims] | None:
    """The dimension that can't stay on a collective's axes, with those that it is reshaped with.

    Returns:
        The dimension of the operand, those of it that hold the elements that some of the result
        hold, and these; None where all could stay.
    """
    for joined, parts in reshape_groups(moved.shape, moved.result):
        for number, dim in enumerate(joined):
            if moved.shards[dim] == 1 or dim not in moved.dims:
                continue
            if number == 0:
                stays = _divides(moved.shards[dim], [moved.result[at] for at in parts])
            else:
                stays = all(moved.shards[at] == moved.shape[at] for at in joined[:number])
            if not stays:
                return dim, joined, parts
    return None


def _divides(shards: int, sizes: Sequence[int]) -> bool:
    """Whether so many blocks are blocks of dimensions of these sizes, the first ones first."""
    for size in sizes:
        if size % shards == 0:
            return True
        if shards % size:
            return False
        shards //= size
    return shards == 1


# --- Ops that XLA does not split ------------------------------------------------------------------

#: Ops that work on rows, which XLA gives each device all of where it does not know how to split
#: them.
OF_ROWS = ("fft", "top_k")


@rule("op-not-split", "warning", needs="compiled")
def op_not_split(subject: Subject) -> Iterator[Sighting]:
    """XLA gathers what an op takes, though the op could work on blocks.

    `jax.lax.top_k` works on each row by itself, and so does an FFT but for the dimensions that it
    transforms. Still XLA makes them whole on every device, those of the batch as well, and each
    device does all of the work: it has no way to split these ops, or not always. A constraint does
    not change that. Run the op in a `jax.shard_map`, where each device takes its own rows.

    Where the rows themselves are sharded, as logits over a vocabulary, `top_k` of each block in a
    `shard_map` and then of what those give sends a small part of it; of an FFT, transform the
    dimensions that are whole in a `shard_map`, with `jax.lax.all_to_all` between two such.

    Found where that is what a collective of the compiled program is for. A note where it is less
    than 64 KiB per step.
    """
    for moved, *others in _moved_for(subject, *OF_ROWS):
        rank = len(moved.shape)
        mixed = len(moved.op.integers("fft_length")) or 1
        rows = tuple(dim for dim in moved.dims if dim >= rank - mixed)
        sent = sum(each.sent for each in (moved, *others))
        fact = OpNotSplit(
            subject.sending([each.collective for each in (moved, *others)], sent),
            moved.op.mnemonic,
            moved.shape,
            moved.dims,
            bool(rows),
            moved.result[-1] * math.prod(moved.shards[dim] for dim in rows),
        )
        yield subject.at_part(moved.part, moved.collective.name, fact, severity_of(sent))


# --- Windows --------------------------------------------------------------------------------------

#: Ops that read or write a window of their first operand.
_OF_WINDOWS = ("dynamic_slice", "dynamic_update_slice", "gather", "scatter")


@rule("window-not-split", "warning", needs="compiled")
def window_not_split(subject: Subject) -> Iterator[Sighting]:
    """XLA gathers a tensor of which a window along a sharded dimension is read or written.

    Where a window begins on one device and ends on another, each would read or write a part of it.
    XLA's partitioner has no way to say that: for `jax.lax.dynamic_slice`, `dynamic_update_slice`
    and `x.at[300:400].set` it makes the whole tensor anew on every device (jax-ml/jax#23052). A
    cache of keys and values that is sharded by position is gathered in each call that fills it.

    It does know how to split rows that are taken or set by their indices. Write
    `x.at[start + jnp.arange(100)].set(rows)`, of which nothing is sent, and
    `x[start + jnp.arange(100)]`, for which devices send each other the rows alone. Unlike
    `dynamic_slice`, that does not move a window that ends outside into the tensor. Where the place
    is known when it is traced, `dynamic_update_slice` and `x[300:400]` are split as well.

    Found where that is what a collective of the compiled program is for. The elements that a loop
    takes one by one are `scanned-dimension-sharded`. A note where it is less than 64 KiB per step.
    """
    for group in _moved_for(subject, *_OF_WINDOWS):
        cut = [(moved, dim) for moved in group if (dim := _cut(subject, moved)) is not None]
        if not cut:
            continue
        moved, dim = cut[0]
        sent = sum(each.sent for each, _ in cut)
        fact = WindowNotSplit(
            subject.sending([each.collective for each, _ in cut], sent),
            moved.op.mnemonic,
            moved.shape,
            dim,
            _window(subject, moved)[dim],
            dim - sum(1 for each in mapped_dims(moved.op) if each < dim),
        )
        yield subject.at_part(moved.part, moved.collective.name, fact, severity_of(sent))


def _cut(subject: Subject, moved: _Moved) -> int | None:
    """The dimension of which a window is taken that a collective makes whole; None where none."""
    others = [each for dim, each in enumerate(moved.shards) if dim not in moved.dims]
    (leaf, *more) = moved.part.shape.leaves
    # Its updates may be moved for it as well.
    if more or math.prod(leaf.dimensions) * math.prod(others) < math.prod(moved.shape):
        return None
    window, inside = _window(subject, moved), {*mapped_dims(moved.op), *indexed_dims(moved.op)}
    for dim in moved.dims if window else ():
        is_taken_in_turn = window[dim] == 1 and in_loop(subject.graph, moved.op)
        if window[dim] < moved.shape[dim] and dim not in inside and not is_taken_in_turn:
            return dim
    return None


def _window(subject: Subject, moved: _Moved) -> _Dims:
    """The sizes of the window along each dimension; empty where they are not known."""
    graph = subject.graph
    given = graph.operand_values[moved.op.id]
    shapes = [graph.ops[node].types[result].static_shape for node, result in given]
    known = [shape for shape in shapes if shape is not None]
    return window_sizes(moved.op, known) if len(known) == len(shapes) else ()
