"""How well what needs a value otherwise fits what a collective communicates.

That is told by the shapes of the blocks that devices have before and after, and by what XLA does
to a block before it moves it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from sdyscope.analysis.collectives.origin_needs import Need, Needs, kind_of, results
from sdyscope.analysis.collectives.propagated_axes import AxesByDim, local_shape, without_axes
from sdyscope.analysis.collectives.transfers import Transfer, sizes_of
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_size
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.graph.rearranged_dims import rearranged_dims
from sdyscope.graph.same_dims import same_dims
from sdyscope.graph.summed_dims import spatial_dims

#: From how many results on a reduction is one of several tensors at once.
_SEVERAL = 2
#: How many tensors a lookup takes and gives.
_LOOKUP = 3
#: How many axes a value is gathered over besides, at most: one collective each.
_FURTHER = 4
#: The misfit from which on a value's move is not that of the collective.
NO_FIT: Final = 4


class Fits:
    """Compares needs of one program with what its collectives communicate.

    Args:
        needs: looks for what needs the program's values otherwise.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.decided = needs.decided
        self.graph: OpGraph = needs.graph

    def misfit(self, need: Need, transfer: Transfer) -> int:
        """How little a value's move is like what is communicated; 0 where its blocks are that."""
        shape, axes = self.decided.shape(need.value), transfer.axes
        if shape is None or not self.is_alike(need.value, transfer):
            return 2 * NO_FIT
        before = self.decided.axes(need.value)
        left = without_axes(before, axes) if transfer.is_gather else before
        # XLA gathers the padding of the last block, too.
        whole = _padded(shape, before) if transfer.is_gather else shape
        got = sorted(size for piece in transfer.sizes for size in piece)
        is_block = len(transfer.sizes) == 1 and got in (
            sizes_of(local_shape(shape, left)),
            sizes_of(local_shape(whole, left)),
        )
        if is_block or (transfer.is_permutation and self.is_cut_before(need, transfer)):
            score = 0
        elif transfer.is_gather and any(
            got == sizes_of(local_shape(shape, further)) for further in _gathered(before, axes)
        ):
            score = 1
        else:
            blocks = [local_shape(shape, left)]
            if transfer.kind == "all-to-all":  # It may have been gathered over other axes before.
                blocks += (local_shape(shape, further) for further in _gathered(before, ()))
            score = 2 if transfer.elements in map(math.prod, blocks) else NO_FIT
        if transfer.is_gather and not self.needs.covers(need.value, axes):
            score = max(score, 2)
        return score + (0 if self.needs.is_said(need, axes) else 1)

    def is_alike(self, value: ValueId, transfer: Transfer) -> bool:
        """Whether the elements of a value can be what is communicated: numbers are not indices.

        Backends widen numbers, and keep truth values as integers.
        """
        own = _is_fraction(self.graph.ops[value[0]].types[value[1]].dtype)
        return any(_is_fraction(leaf.dtype) == own for leaf in transfer.part.shape.leaves)

    def is_cut_before(self, need: Need, transfer: Transfer) -> bool:
        """Whether what is moved is a block that was first cut as the op's other tensors have it.

        XLA slices what fewer axes split than it is needed with, and then moves what is left
        (`spmd_partitioner.cc`, `ReshardFromPartialReplicateWithDynamicSlice`).
        """
        return self.is_placed(need, transfer) and (
            transfer.elements < math.prod(self.needs.block(need.value))
        )

    def is_placed(self, need: Need, transfer: Transfer) -> bool:
        """Whether what is moved is a block as one of the op's other tensors has it.

        One that has other axes than the value, where the two go together: those over which it is
        moved.
        """
        op = need.op
        if op is None or need.output is not None or len(transfer.pieces) != 1:
            return False
        # Of others, a loop above all, tensors that are alike in shape need not go together.
        if op.mnemonic not in ("dot_general", "concatenate") and not is_elementwise(op.kind):
            return False
        values, shapes = self.needs.sized(op)
        if need.value not in values:
            return False
        at = values.index(need.value)
        own = list(self.decided.axes(need.value) or ((),) * len(shapes[at]))
        cut = {tensor: list(own) for tensor in range(len(values)) if tensor != at}
        for group in same_dims(op, shapes):
            mine = next((dim for tensor, dim in group if tensor == at), None)
            for tensor, dim in group:
                if (
                    mine is not None
                    and tensor in cut
                    and (theirs := self.decided.axes(values[tensor]))
                ):
                    cut[tensor][mine] = theirs[dim]
        over = {axis.name for axis in transfer.axes}
        return any(
            local_shape(shapes[at], tuple(each)) == transfer.pieces[0]
            and over
            <= {part.name for a, b in zip(own, each, strict=True) if a != b for part in a + b}
            for each in cut.values()
        )

    def is_turned(self, need: Need, transfer: Transfer) -> bool:
        """Whether a value's block has the sizes of what is moved, but in another order."""
        block = [size for size in self.needs.block(need.value) if size != 1]
        pieces = [[size for size in piece if size != 1] for piece in transfer.pieces]
        return block not in pieces and sorted(block) in transfer.sizes

    def is_block(self, need: Need, transfer: Transfer) -> bool:
        """Whether what is gathered is a value's block, along a dimension that has the axes.

        An op can take a value and its transpose, which XLA does not tell apart otherwise.
        """
        along = transfer.part.dimension
        held = self.needs.on(self.decided.axes(need.value), transfer.axes)
        return self.needs.block(need.value, transfer.axes) in transfer.pieces and (
            along is None or any(held[along : along + 1])
        )

    def is_across(self, need: Need, transfer: Transfer) -> bool:
        """Whether XLA gathers another dimension than the one that has the axes.

        It moved that to them first, which left the sizes of the blocks in another order.
        """
        block = self.needs.block(need.value, transfer.axes)
        return (
            bool(transfer.part.before)
            and transfer.pieces != [block]
            and [sorted(piece) for piece in transfer.pieces] == [sorted(block)]
        )

    def is_moved(self, need: Need, transfer: Transfer) -> bool:
        """Whether a value that does not have the axes can be what is exchanged over them.

        Its block, or that of what is gathered over some of its own, has as many elements.
        """
        is_carried = self.needs.carried(need.value, transfer.axes)
        return not is_carried and self.is_sized(need.value, transfer)

    def is_sized(self, value: ValueId, transfer: Transfer) -> bool:
        """Whether it has as many elements as a value's block, gathered over some of its axes."""
        shape, own = self.decided.shape(value) or (), self.decided.axes(value)
        return any(
            transfer.elements == math.prod(local_shape(shape, left))
            for left in (own, *_gathered(own, ()))
        )

    def is_looked_up(self, op: Op, transfer: Transfer) -> bool:
        """Whether it can be what a lookup makes, with whatever axes, and not its indices.

        Numbers are no indices; whole numbers are the result only where they are a block of it.
        """
        result = op.id, 0
        if transfer.elements == math.prod(self.needs.block(result)):
            return True
        return _is_fraction(op.types[0].dtype) and self.is_sized(result, transfer)

    def is_moved_on(self, need: Need, transfer: Transfer) -> bool:
        """Whether a value that does not have the axes can be what is permuted over them.

        XLA cut it before, for this op or another, as one of the op's other tensors has it now.
        """
        return not self.needs.carried(need.value, transfer.axes) and self.is_placed(need, transfer)

    def unlikeness(self, need: Need, transfer: Transfer) -> tuple[int, float]:
        """How little the blocks of a value are like what is moved, where neither fits.

        How many dimensions of a block no piece has, as large; then how much more or fewer elements
        are moved. Blocks are padded and cut before they are moved, and a halo is a thin slice.
        """
        block = self.needs.block(need.value)
        sizes = Counter(transfer.sizes[0] if transfer.sizes else ())
        missing = (Counter(sizes_of(block)) - sizes).total()
        return missing, abs(math.log(max(transfer.elements, 1) / max(math.prod(block), 1)))

    def makes(self, op: Op, transfer: Transfer) -> bool:
        """Whether what is communicated has the shape of a block that an op makes."""
        return any(sizes_of(self.needs.block(value)) in transfer.sizes for value in results(op))

    def is_joined(self, op: Op, transfer: Transfer) -> bool:
        """Whether it is a block of all that an op joins, and no block of anything that it takes.

        By its size along the dimension that it joins; or else by as many elements as only that has.
        A permutation is not where it joins along the axes, which is then what it is moved for.
        """
        given, dim = self.needs.operands(op), op.attributes.get("dimension")
        shapes = [shape for value in given if (shape := self.decided.shape(value)) is not None]
        if isinstance(dim, int) and any(
            len(piece) == len(shape) and all(piece[dim] > shape[dim] for shape in shapes)
            for piece in transfer.pieces
            for shape in shapes[:1]
        ):
            return True
        return (
            not transfer.part.before
            and transfer.elements == math.prod(self.needs.block((op.id, 0)))
            and transfer.elements not in {math.prod(self.needs.block(value)) for value in given}
            and (
                transfer.kind == "all-to-all"
                or not any(
                    self.needs.is_rearranged(Need(value, op), transfer.axes) for value in given
                )
            )
        )

    def is_gathered(self, value: ValueId, transfer: Transfer) -> bool:
        """Whether what is communicated has the shape of a value's block without the axes."""
        return transfer.sizes == [sizes_of(self.needs.block(value, transfer.axes))]

    def gathered_before(self, value: ValueId, transfer: Transfer) -> tuple[AxisPart, ...]:
        """The other axes of a value over which it was gathered first, as the shape then says."""
        if self.is_gathered(value, transfer):
            return ()
        shape = self.decided.shape(value) or ()
        left = without_axes(self.decided.axes(value), transfer.axes)
        gathered = (
            tuple(each for dim in left for each in dim if each not in {p for d in after for p in d})
            for after in _gathered(left, ())
            if transfer.sizes == [sizes_of(local_shape(shape, after))]
        )
        return next(gathered, ())

    def contended(self, op: Op, transfer: Transfer) -> tuple[ValueId, tuple[AxisPart, ...]] | None:
        """The axes of what a lookup takes whole that its indices or its result have elsewhere.

        XLA then makes the result with them where the operand has them, as what is communicated is.
        With the value that has them elsewhere; None where nothing has.
        """
        values = [*self.needs.operands(op), (op.id, 0)]
        shapes = [shape for value in values if (shape := self.decided.shape(value)) is not None]
        if kind_of(op) != "gather" or len(shapes) != len(values) or len(values) != _LOOKUP:
            return None
        # Of each tensor, which dimension of it is which of the result's.
        axes_at: list[list[tuple[AxisPart, ...]]] = [[()] * len(shapes[-1]) for _ in values[:-1]]
        for (tensor, dim), (_, at) in same_dims(op, shapes):
            own = self.decided.axes(values[tensor])
            axes_at[tensor][at] = own[dim] if own else ()
        taken = axes_at[0]
        block = local_shape(shapes[-1], tuple(taken))
        # An exchange takes the block apart, and takes all of it.
        is_all = len(transfer.pieces) > 1 and transfer.elements == math.prod(block)
        if sizes_of(block) not in transfer.sizes and not is_all:
            return None
        for value, theirs in ((values[1], axes_at[1]), (values[-1], self.decided.axes(values[-1]))):
            axes = tuple(
                each
                for dim, own in enumerate(taken)
                for each in own
                if any(any(map(each.shared, by)) for at, by in enumerate(theirs) if at != dim)
            )
            if axes:
                return value, axes
        return None

    def is_edge(self, need: Need, transfer: Transfer) -> bool:
        """Whether it is the edge of a block that is moved, along dimensions that the op reaches in.

        Windows do along those that they move over.
        """
        if need.op is None or need.output is not None:
            return False
        shape, by_dim = self.decided.shape(need.value) or (), self.decided.axes(need.value)
        windows = spatial_dims(need.op) if need.value == self.needs.operands(need.op)[0] else ()
        reached = rearranged_dims(need.op, shape) | {dim for dim, _ in windows}
        return transfer.elements != math.prod(local_shape(shape, by_dim)) and all(
            dim in reached for dim, own in enumerate(self.needs.on(by_dim, transfer.axes)) if own
        )

    def gathers_reduced(self, op: Op, transfer: Transfer) -> bool:
        """Whether what each device reduced of several tensors at once is communicated.

        XLA reduces what a device has, gathers that, and reduces it again (`HandleReduce`).
        """
        if kind_of(op) != "reduce" or len(op.types) < _SEVERAL:
            return False
        result = op.id, 0
        if self.decided.shape(result) is None or not self.needs.summed(op, transfer.axes):
            return False
        return transfer.elements == math.prod(self.needs.block(result)) * part_size(transfer.axes)


def _is_fraction(dtype: str) -> bool:
    """Whether elements of a type, as StableHLO or HLO calls it, are no whole numbers."""
    return dtype.startswith(("f", "bf", "c"))


def _gathered(by_dim: AxesByDim, axes: Sequence[AxisPart]) -> Iterator[AxesByDim]:
    """The axes of a value that is gathered over some, and over others before."""
    left = without_axes(by_dim, axes)
    others = [part for dim in left for part in dim][:_FURTHER]
    for count in range(1, len(others) + 1):
        for before in combinations(others, count):
            yield without_axes(left, before)


def _padded(shape: Sequence[int], axes: AxesByDim) -> tuple[int, ...]:
    """Shape of all blocks together, padding included."""
    cut = [part_size(dim) for dim in axes] or [1] * len(shape)
    return tuple(size * blocks for size, blocks in zip(local_shape(shape, axes), cut, strict=True))
