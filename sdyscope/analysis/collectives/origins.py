"""Finds why each collective is there, from the ops it was made for and the shardings around them.

A collective over some axes, made for an op, is one of these: the op sums over a dimension that is
in pieces along the axes; a value that the op takes or makes is sharded on them and is needed
otherwise; the op reaches across blocks; or the op is itself a collective of the program. Where the
op does not touch the axes (compilers move names about), the ops around it are looked at, nearest
first.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sdyscope.analysis.collectives.annotated_axes import AnnotatedAxes
from sdyscope.analysis.collectives.axes import axes_of_op
from sdyscope.analysis.collectives.communications import REMADE, Communications
from sdyscope.analysis.collectives.made_for import FORMING
from sdyscope.analysis.collectives.origin_fits import NO_FIT
from sdyscope.analysis.collectives.origin_needs import (
    LOOKING_UP,
    PRODUCTS,
    PROGRAM,
    REACHING,
    SUMMING,
    Need,
    Needs,
    kind_of,
    results,
)
from sdyscope.analysis.collectives.origin_values import (
    SPLIT,
    OriginValues,
    ValueFields,
    distinct,
    origin_at,
    scope_at,
)
from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.collectives.transfers import Transfer, calls_of
from sdyscope.analysis.naming.scopes import is_recomputed
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_size
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.annotations import Annotation
from sdyscope.facts.origins import NOBODY, CollectiveOrigin, NotFound
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import BARRIERS
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import line_of
from sdyscope.values.tiling import HloSharding, TupleSharding

#: What a collective can be in the program, by its kind.
_WRITTEN_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "all-reduce": ("all_reduce", "reduce_scatter"),
    "reduce-scatter": ("reduce_scatter", "all_reduce"),
    "all-gather": ("all_gather",),
    "all-to-all": ("all_to_all",),
    "collective-permute": ("collective_permute",),
}


def with_origins(
    collectives: Collectives,
    graph: OpGraph,
    propagated: Propagated,
    annotations: tuple[Annotation, ...],
    pointers: Pointers | None = None,
) -> Collectives:
    """The same collectives, each of their tensors with its origin and with a source line.

    Args:
        collectives: those of a program that was compiled with tags.
        graph: op graph of the lowered module that was compiled.
        propagated: its propagation, under the partitioner that it was compiled with.
        annotations: what is written in it.
        pointers: where axes come from, as Shardy recorded it; None under GSPMD.
    """
    if collectives.mesh is None:
        return collectives
    decided = PropagatedAxes(graph, propagated, collectives.mesh)
    around = Needs(decided, AnnotatedAxes(decided, annotations, pointers))
    search = _Search(OriginValues(Communications(around, collectives)))
    return collectives.with_parts(
        lambda collective, part: search.at(calls_of(part)).with_origin(collective, part)
    )


class _Search:
    """Finds the origins of one program.

    Args:
        origins: makes them.
    """

    def __init__(self, origins: OriginValues) -> None:
        self.origins = origins
        self.communications = origins.communications
        self.around = origins.around
        self.fits = origins.fits
        self.decided = origins.decided
        self.annotated = origins.annotated
        self.graph: OpGraph = origins.decided.graph
        self._at: dict[PropagatedAxes, _Search] = {origins.decided: self}

    def at(self, calls: tuple[int, ...]) -> _Search:
        """The same, of what some calls lead to."""
        decided = self.decided.at(calls)
        if decided not in self._at:
            self._at[decided] = _Search(self.origins.at(decided))
        return self._at[decided]

    def with_origin(self, collective: Collective, part: Part) -> Part:
        """A tensor with its origin; its line is the op's where the compiler kept none."""
        transfer = self.communications.transfer(collective, part)
        is_between, followed = False, transfer.ops
        if transfer.part.named_after == "value" and not self.leads(transfer):
            # The op makes its own result as it is needed.
            is_between = self.may_be_between(transfer)
            transfer = self.communications.for_maker(transfer)
        part, origin = transfer.part, self.origin(transfer)
        is_rivalled = followed != transfer.ops and self.is_rivalled(origin, transfer, followed)
        is_doubtful = is_between or is_rivalled or self.is_captured(transfer)
        if is_doubtful and origin.kind not in ("unknown", "program"):
            origin = replace(origin, uncertain=True)
        if part.is_followed and origin.kind != "unknown":
            origin = replace(origin, followed=True)
        if part.source is None:
            part = self.placed(part, [*transfer.ops, *transfer.makers], origin)
        lines = {line_of(part.source), line_of(origin.source)}
        elsewhere = len(lines - {None}) > 1 and origin.op != part.primitive
        return replace(part, origin=replace(origin, elsewhere=elsewhere))

    def placed(self, part: Part, ops: Sequence[Op], origin: CollectiveOrigin) -> Part:
        """A tensor to which the compiler kept no line, at that of its ops or causes."""
        op = next((op for op in ops if op.source is not None), None)
        if op is not None:
            return replace(part, source=op.source, callers=op.location.callers)
        lines = [origin.source, *(annotation.source for annotation in origin.annotations)]
        return replace(part, source=next((line for line in lines if line is not None), None))

    def leads(self, transfer: Transfer) -> bool:
        """Whether it is what was followed to, not what XLA names, that it is for."""
        part, axes, ops, makers = transfer.part, transfer.axes, transfer.ops, transfer.makers
        if not part.makers:
            return True
        if part.result is not None:
            value = self.graph.returned.get(part.result)
            return value is None or (
                self.could_be_for(value, transfer)
                and self.around.is_need(Need(value, None, part.result), axes)
            )
        is_gather = transfer.is_gather
        if is_gather and self.is_bare(results(*makers)):
            # What is gathered goes into what is made: later forms are cut again.
            transfer = replace(transfer, values=frozenset())
        needs = [
            need
            for need in self.needs(ops, axes)
            if need.value in transfer.values
            and (not is_gather or self.around.covers(need.value, axes))
        ]
        at_edges = transfer.is_permutation and any(kind_of(op) in REACHING for op in makers)
        # A constraint makes nothing: what XLA names after it may be for it.
        of_constraints = (
            need for op in makers if op.is_constraint for need in self.needs([op], axes)
        )
        is_for_constraint = any(
            need.op in makers and self.is_surely_moved(need, transfer) for need in of_constraints
        )
        is_doubtful = at_edges or is_for_constraint or self.may_be_remade(transfer)
        if any(not is_doubtful or self.is_surely_moved(need, transfer) for need in needs):
            return True
        if self.is_moved_by_maker(transfer):
            return False
        # What an op makes has no dimension that it sums, along which it could be gathered.
        for_maker = [
            self.fits.misfit(need, transfer)
            for need in self.needs(makers, axes)
            if not self.around.sums_away(need, axes)
        ]
        if for_maker:
            # Of what is gathered over other axes than it has, the shape is exact.
            exchanged = self.exchanged_before(ops, transfer, transfer.values)
            is_product = all(kind_of(op) in PRODUCTS for op in makers)
            is_taken = not transfer.values.isdisjoint(self.around.operands(*ops))
            return (is_gather and is_product and is_taken and min(for_maker) >= NO_FIT) or (
                min(for_maker) > 1 and exchanged is not None
            )
        moved_for = [self.moved_before(near, transfer) is not None for near in (ops, makers)]
        return moved_for != [False, True]

    def may_be_between(self, transfer: Transfer) -> bool:
        """Whether any of several ops can be what edges are moved for, each given by the one before.

        Of one before the last XLA may leave the move alone, without a name.
        """
        if not transfer.is_permutation:
            return False
        behind = [op for op in transfer.ops if kind_of(op) in REACHING]
        for op in behind:
            given = self.around.operands(op)
            if not transfer.values.isdisjoint(given):
                return op not in transfer.ops
            makers = (self.graph.ops[value[0]] for value in given)
            behind += [each for each in makers if kind_of(each) in REACHING and each not in behind]
        return False

    def is_rivalled(
        self, origin: CollectiveOrigin, transfer: Transfer, followed: Sequence[Op]
    ) -> bool:
        """Whether edges of what an op makes can be moved for several ops, or for another.

        Of one that only moves them XLA leaves nothing else; one that gives what it makes to an op
        that these were followed to is it.
        """
        if not transfer.is_permutation:
            return False
        reaching = [
            need.op
            for need in self.needs(transfer.ops, transfer.axes)
            if need.op is not None
            and kind_of(need.op) in REACHING
            and need.value in transfer.values
        ]
        taken = set(self.around.operands(*followed))
        giving = [op for op in reaching if not taken.isdisjoint(results(op))]
        places = {(*scope_at(op), op.source) for op in reaching}
        own = (origin.scope, origin.op, origin.source)
        return own in places and {(*scope_at(op), op.source) for op in giving or reaching} != {own}

    def is_captured(self, transfer: Transfer) -> bool:
        """Whether it is for branches, or an op in one that takes something from outside of that.

        So far as GSPMD shards that otherwise there, which no value of the program says.
        """
        within = self.around.boundaries.capturing
        return any(
            op is around or op.id in within(around)
            for around in self.decided.taking_otherwise
            for op in transfer.ops
        )

    def is_moved_by_maker(self, transfer: Transfer) -> bool:
        """Whether an op moved its own result, as what it is given or gives has it.

        That is so where nothing that it was followed to needs it otherwise, over whatever axes.
        """
        if not self.may_be_remade(transfer):
            return False
        every = self.around.every_axis
        needs = self.needs(transfer.ops, every)
        return not any(
            need.value in transfer.values
            and self.around.is_said(need, every)
            and not self.around.is_in_line(need, every)
            and not self.around.is_only_cut(need)
            for need in needs
        )

    def may_be_remade(self, transfer: Transfer) -> bool:
        """Whether what makes a value may have done so with other axes, and moved it itself."""
        part = transfer.part
        is_moved = part.own and bool(transfer.is_exchange or part.before)
        return is_moved and all(kind_of(op) in REMADE for op in transfer.makers)

    def is_bare(self, values: Sequence[ValueId]) -> bool:
        """Whether all of some values are known to have no sharding at all."""
        return bool(values) and all(
            self.decided.is_known(value) and not any(self.decided.axes(value)) for value in values
        )

    def needs(self, ops: Sequence[Op], axes: tuple[AxisPart, ...]) -> Iterator[Need]:
        """What is needed with another sharding around ops."""
        return (need for op in ops for need in self.around.needs(op, axes))

    def origin(self, transfer: Transfer) -> CollectiveOrigin:
        """Why a tensor is communicated."""
        written = self.written(transfer)
        if written is not None:
            return written
        if not transfer.axes:
            return self.unknown(transfer, transfer.ops or transfer.makers)
        users = self.communications.users(transfer)
        ops = transfer.ops or users
        return (
            self.known(ops, transfer)
            or self.nearest(ops, users, transfer)
            or self.unknown(transfer, ops or transfer.makers)
        )

    def written(self, transfer: Transfer) -> CollectiveOrigin | None:
        """The collective of the program that it is, in a `shard_map`."""
        part = transfer.part
        op = next((op for op in transfer.ops if kind_of(op) in PROGRAM), None)
        near = self.written_near(transfer) if op is None else []
        if (op is None and not near) or (op is not None and part.is_followed):
            return None
        again = is_recomputed(part.scope)
        return replace(
            origin_at("program", op or near[0]),
            backward=part.phase == "backward" and not again,
            followed=op is None,
            uncertain=len(near) > 1,
        )

    def written_near(self, transfer: Transfer) -> list[Op]:
        """The nearest collectives of the program that XLA can have under another op's name.

        Where a `shard_map` is manual on the axes XLA's partitioner adds none, and its later passes
        write the program's own anew: TPUs make an all-reduce of a product of it and of the
        reduce-scatter behind. They are over the same axes.
        """
        names, manual = {axis.name for axis in transfer.axes}, self.around.boundaries.manual_axes
        if not transfer.ops or any(not names <= manual.get(op.id, set()) for op in transfer.ops):
            return []
        kinds, axes = _WRITTEN_AS.get(transfer.kind, ()), {*(transfer.collective.axes or ())}
        rings = (
            [
                op
                for op in ring
                if kind_of(op) in kinds and {*(axes_of_op(op, self.decided.mesh) or ())} == axes
            ]
            for ring in self.around.rings(transfer.ops)
        )
        return next(filter(None, rings), [])

    def known(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """Why, where what XLA does for the ops says that before their shardings are compared."""
        known = self.unreduced(transfer) if transfer.is_reduction else None
        known = known or self.returned(transfer)
        if transfer.is_reduction:
            known = known or self.reduced_by_xla(ops, transfer)
        else:
            known = known or self.handed_round(ops, transfer) or self.moved_by_xla(ops, transfer)
        return known or self.remade(ops, transfer)

    def handed_round(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """The sums of a product that devices hand on, each adding its own, as TPUs do in a loop.

        They are blocks of its result, are moved under its name, and nothing else reduces them over
        these axes (`dot_handler.cc`, windowed einsum).
        """
        if not transfer.is_permutation or transfer.part.argument is not None:
            return None
        products = [
            op
            for op in transfer.makers or ops
            if kind_of(op) in PRODUCTS
            and op in ops
            and self.around.summed(op, transfer.axes)
            and self.fits.makes(op, transfer)
            and not self.communications.is_reduced(op.id, transfer.axes)
        ]
        summed = self.reduction(products, transfer) if products else None
        return None if summed is None else replace(summed, in_turns=True)

    def reduced_by_xla(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """A reduction that gathers, or that no sharding of what is summed makes necessary."""
        is_all = transfer.kind == "all-reduce"
        if is_all and (gathered := self.single_element(ops, transfer)):
            return gathered
        if self.is_split_by_xla(ops, transfer.axes):
            return self.moved_to(ops, transfer) or origin_at("split", ops[0])
        if is_all and (takers := self.takers_from_single_device(ops)):
            return replace(self.unknown(transfer, takers), not_found="one device")
        return None

    def moved_by_xla(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What XLA moves for a lookup, of what it has reduced, or as it cut it itself."""
        if transfer.kind in ("all-gather", "all-to-all") and (
            contended := self.contended([*transfer.makers, *ops], transfer)
        ):
            return contended
        reduced = [
            op for op in ops if transfer.is_gather and self.fits.gathers_reduced(op, transfer)
        ]
        if reduced:
            return self.reduction(reduced, transfer) or self.unknown(transfer, reduced)
        is_moved = transfer.is_gather or transfer.is_permutation
        if is_moved and self.is_cut_by_xla(ops, transfer):
            before = self.moved_before(ops, transfer)
            before = before or self.exchanged_before(ops, transfer, None)
            return before or origin_at("split", ops[0])
        return None

    def nearest(
        self, ops: Sequence[Op], users: Sequence[Op], transfer: Transfer
    ) -> CollectiveOrigin | None:
        """Why, by what is nearest to the ops that it is for, that make it, or that take it."""
        makers = transfer.makers
        nearest: CollectiveOrigin | None = None
        # What makes a value needs nothing where XLA says what it moves it for.
        is_for_taker = bool(ops) and transfer.part.named_after == "taker"
        for near in filter(None, (ops,) if is_for_taker else (ops, makers, users)):
            finding = [self.resharding, self.reduction]
            for find in finding[:: -1 if transfer.is_reduction else 1]:
                origin = find(near, transfer)
                if origin is not None and not origin.uncertain:
                    # From another side the same is no more certain.
                    is_same = nearest and (nearest.value, nearest.op) == (origin.value, origin.op)
                    return nearest if is_same else origin
                nearest = nearest or origin
                if nearest is not None and not transfer.is_reduction:
                    break
        if transfer.is_gather and self.is_split_before(transfer):
            return origin_at("split", makers[0])
        return nearest

    def unknown(self, transfer: Transfer, ops: Sequence[Op]) -> CollectiveOrigin:
        """An origin that is not known, which says how far it was followed."""
        part, axes = transfer.part, transfer.axes
        origin = origin_at("unknown", ops[0] if ops else None)
        if not ops:
            origin = replace(origin, op=part.primitive, scope=part.scope, source=part.source)
        why: NotFound = "no axes" if not axes else "no op"
        if axes and ops:
            around = self.around.tensors(*ops)
            sharded = any(self.around.carried(value, axes) for value in around)
            why = "not needed otherwise" if sharded else "not sharded"
        return replace(origin, not_found=why)

    # Reductions.

    def unreduced(self, transfer: Transfer) -> CollectiveOrigin | None:
        """The end of a value that the program says is still to be reduced.

        What makes the value may sum a dimension besides, which is then not what it is for.
        """
        ops, makers, axes = transfer.ops, transfer.makers, transfer.axes
        argument = self.around.argument(transfer.part.argument)
        given, by_makers = self.around.operands(*ops), results(*makers)
        own = [] if transfer.part.makers else list(self.around.as_constrained(ops))
        for value in [*([] if argument is None else [argument]), *own, *given, *by_makers]:
            annotated_axes = [
                annotated for axis in axes for annotated in self.annotated.unreduced(value, axis)
            ]
            if annotated_axes:
                op = next((op for op in ops if value in self.around.operands(op)), None)
                summed = self.around.summed_for(value, axes)
                needed = [each for axis in axes for each in self.annotated.reduced_for(value, axis)]
                return replace(
                    origin_at("reduction", op or (ops[0] if value in own else None)),
                    **self.origins.moved(value),
                    annotations=(
                        *self.origins.grouped(annotated_axes, "has"),
                        *self.origins.grouped(needed, "needed"),
                    ),
                    together=self.origins.together(summed, axes, transfer.calls),
                )
        return None

    def reduction(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What an op nearby sums, or looks up in, along dimensions that have the axes."""
        axes, calls = transfer.axes, transfer.calls
        near = ((steps, op) for steps, ring in enumerate(self.around.rings(ops)) for op in ring)
        for steps, op in near:
            kind = kind_of(op)
            if kind not in SUMMING and kind not in LOOKING_UP:
                continue
            sharded = self.around.summed(op, axes)
            if not sharded or (kind == "custom_call" and op.is_constraint):
                continue
            if kind in LOOKING_UP:
                sharded = sharded[:1]
            largest = max(sharded, key=lambda value: math.prod(self.decided.shape(value) or ()))
            instead = self.around.summed_instead(op, axes, calls) if kind in SUMMING else ()
            return replace(
                origin_at("lookup" if kind in LOOKING_UP else "reduction", op),
                **self.origins.moved(largest),
                annotations=tuple(self.origins.annotations(sharded, axes, "has", calls)),
                together=self.origins.together(sharded, axes, calls, instead),
                may_split=kind in SPLIT
                and (self.around.is_torn(op, axes) or self.around.may_be_torn(op, axes, calls)),
                # Further away what makes a block as large is one of many.
                uncertain=steps > 1 or (steps == 1 and not self.fits.makes(op, transfer)),
            )
        return None

    def moved_to(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What sums or looks up in a dimension that XLA moved to the axes first, from its own.

        The op's other tensors have these elsewhere; XLA chooses idle ones that cut it as finely.
        """
        axes, calls = transfer.axes, transfer.calls
        for op in ops:
            for value in self.around.summed(op, self.around.every_axis):
                own = tuple(self.around.summed_over(op, value))
                exchanged = (
                    all(any(map(each.shared, over)) for each in (*own, *axes))
                    and value in self.communications.values(part)
                    for over, part in self.communications.exchanges(op.id)
                )
                if part_size(own) != part_size(axes) or not any(exchanged):
                    continue
                # Several calls of a function can give it, and are not sharded alike.
                given = self.around.given(value)
                outside = next((each for each, call in given if each and call in calls), value)
                has = self.origins.annotations([outside], own, "has", calls)
                others = self.around.conflicting(Need(value, op), own)
                needed = self.origins.annotations(others, own, "needed", calls)
                if has and needed:
                    return replace(
                        origin_at("lookup" if kind_of(op) in LOOKING_UP else "reduction", op),
                        **self.origins.moved(outside),
                        annotations=(*has, *distinct(needed)),
                        together=self.origins.together([outside], own, calls),
                        needed_together=self.origins.together(others, own, calls),
                    )
        return None

    def contended(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What a lookup takes whole is cut over axes that its indices or result have elsewhere."""
        calls = transfer.calls
        for op in ops:
            contended = self.fits.contended(op, transfer)
            if contended is None:
                continue
            value, axes = contended
            looked_up_in, result = self.around.operands(op)[:1], (op.id, 0)
            has = self.origins.annotations([value], axes, "has", calls)
            needed = self.origins.annotations(looked_up_in, axes, "needed", calls)
            if has and needed:
                origin = replace(
                    origin_at("resharding", op),
                    **self.origins.moved(result),
                    annotations=(*has, *needed),
                    together=self.origins.together([value], axes, calls),
                    needed_together=self.origins.together(looked_up_in, axes, calls),
                )
                if value == result:
                    return origin
                after = self.decided.spec(result)
                return replace(origin, before=None, after=after, own_result=True)
        return None

    def is_cut_by_xla(self, ops: Sequence[Op], transfer: Transfer) -> bool:
        """Whether it moves what XLA cuts over axes that nothing has which it can be."""
        axes, values = transfer.axes, transfer.values
        if not self.is_split_by_xla(ops, axes):
            return False
        tensors = (*values, *self.around.operands(*ops))
        return not any(self.around.carried(value, axes) for value in tensors)

    def is_split_before(self, transfer: Transfer) -> bool:
        """Whether it gathers what XLA split over axes that the value itself does not have."""
        return (
            self.is_split_by_xla(transfer.makers, transfer.axes)
            and any(self.fits.makes(op, transfer) for op in transfer.makers)
            and not any(self.around.carried(value, transfer.axes) for value in transfer.values)
        )

    def is_split_by_xla(self, ops: Sequence[Op], axes: tuple[AxisPart, ...]) -> bool:
        """Whether it sums what XLA splits over axes that no dimension that is summed has."""
        ops = [op for op in ops if self.around.turned(op) is None]
        if not ops or any(kind_of(op) not in SPLIT for op in ops):
            return False
        tensors = self.around.tensors(*ops)
        if not all(map(self.decided.is_known, tensors)):
            return False
        return not any(self.around.summed(op, axes) for op in ops)

    def takers_from_single_device(self, ops: Sequence[Op]) -> list[Op]:
        """The ops that are not on one device and take what is, if all do: a sum sends it to all.

        XLA names that after them, or (JAX 0.11) after what is on one device.
        """
        takers = [
            taker
            for op in ops
            for taker in (
                [user for user, _ in self.graph.uses(op.id, 0)]
                if self.is_on_single_device((op.id, 0))
                else [op]
            )
        ]
        are_takers = all(
            any(map(self.is_on_single_device, self.around.operands(taker)))
            and not self.is_on_single_device((taker.id, 0))
            for taker in takers
        )
        return takers if are_takers else []

    def is_on_single_device(self, value: ValueId) -> bool:
        """Whether the program keeps a value on one device, as JAX does what a callback gives."""
        written = self.graph.ops[value[0]].shardings
        sharding = written[value[1]] if value[1] < len(written) else None
        if isinstance(sharding, TupleSharding):
            sharding = sharding.elements[min(value[1], len(sharding.elements) - 1)]
        if isinstance(sharding, HloSharding):
            return sharding.type == "maximal"
        if not isinstance(sharding, TensorSharding):
            return False
        named = sharding.mesh
        mesh = named if isinstance(named, Mesh) else self.graph.meshes.get(named)
        return isinstance(mesh, Mesh) and mesh.is_maximal

    # Reshardings.

    def remade(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What XLA makes with other axes than it has, and then moves to these.

        With which axes is XLA's choice and not recorded; with which it can't be made is: other
        tensors of the op have them elsewhere.
        """
        part, calls = transfer.part, transfer.calls
        if part.is_followed or not (transfer.is_exchange or part.before or part.own):
            return None
        for op in ops:
            alike = [value for value in results(op) if self.fits.is_alike(value, transfer)]
            if not alike or not self.is_remade(op, transfer):
                continue
            value = alike[0]
            # What is cut besides, and then gathered, is over axes that it does not have.
            has_axes = self.around.carried(value, transfer.axes)
            own = transfer.axes if has_axes else self.around.every_axis
            taken = [value, *self.around.conflicting(Need(value, op), own)]
            needed = self.origins.annotations(taken, own, "needed", calls)
            if self.around.carried(value, own) and needed:
                moved: ValueFields = {**self.origins.moved(value), "before": None}
                return replace(
                    origin_at("resharding", op),
                    **moved,
                    after=self.decided.spec(value),
                    annotations=tuple(distinct(needed)),
                    needed_together=self.origins.together(taken, own, calls),
                    uncertain=len(alike) > 1,
                    own_result=True,
                )
        return None

    def is_remade(self, op: Op, transfer: Transfer) -> bool:
        """Whether what an op makes is moved, which XLA makes with axes of its choice."""
        kind, axes, calls = kind_of(op), transfer.axes, transfer.calls
        if kind == "concatenate":
            # What makes its pieces was followed to, not the op.
            is_piece = transfer.part.single and not any(
                map(self.is_constant, self.around.operands(op))
            )
            is_made = transfer.part.own and op in transfer.makers
            return is_made or (not is_piece and self.fits.is_joined(op, transfer))
        if kind not in REMADE or op not in transfer.makers:
            return False
        if kind == "gather":
            # Its indices are masked and clamped under its name, too.
            return self.fits.is_looked_up(op, transfer)
        given = self.around.operands(op)
        if kind == "scatter":
            # Its updates are moved under its name, too, before it is made of them.
            sizes = [math.prod(self.around.block(value)) for value in (given[-1], (op.id, 0))]
            return transfer.elements != sizes[0] or transfer.elements == sizes[1]
        if kind != "sort":
            return True
        if not any(self.around.is_rearranged(Need(value, op), axes) for value in given):
            return False
        # That it rearranges what it is given says more, where that has the axes from there alone.
        has, wanted = (
            {each.key for each in self.origins.annotations(values, axes, "has", calls)}
            for values in (given, results(op))
        )
        return not wanted <= has

    def returned(self, transfer: Transfer) -> CollectiveOrigin | None:
        """A value that the program returns with another sharding than it has."""
        result = transfer.part.result
        value = None if result is None else self.graph.returned.get(result)
        need = None if value is None else Need(value, None, result)
        if need is None or not self.could_be_for(need.value, transfer):
            return None
        if not self.around.is_need(need, transfer.axes):
            return None  # It is as it is returned: something before needed another value otherwise.
        return self.origins.of_need(need, transfer, "")

    def resharding(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What is needed with another sharding than it has, nearest to some ops."""
        for steps, ring in enumerate(self.around.rings(ops)):
            needs = [
                need
                for need in self.needs(ring, transfer.axes)
                if self.could_be_for(need.value, transfer)
                and self.fits.is_alike(need.value, transfer)
            ]
            if steps == 0:
                if transfer.collective.is_partial:
                    # Only what the op itself takes: a value as a whole is moved to all devices.
                    needs = [need for need in needs if need.op in ops]
                    if not needs and (own := self.of_op(ops, transfer)):
                        return own
                needs = [need for need in needs if not self.is_constant(need.value)] or needs
                needs = [need for need in needs if self.may_be(need, ops, transfer)] or needs
                if not needs and (before := self.without_needs(ops, transfer)):
                    return before
                needs = self.constrained_closer(needs, ops, transfer) or needs
            if needs:
                return self.of_needs(needs, steps, ops, transfer)
        return self.moved_before(ops, transfer)

    def constraints_before(self, ops: Sequence[Op], transfer: Transfer) -> list[Op]:
        """The constraints that a followed value comes through to the ops that it was followed to.

        XLA leaves nothing of them that the value could have been followed to.
        """
        if not transfer.part.is_followed:
            return []
        constraints: list[Op] = []
        reached = self.around.operands(*ops)
        for value in reached:
            op = self.graph.ops[value[0]]
            if value in transfer.values and op.is_constraint:
                constraints.append(op)
                reached += self.around.operands(op)[:1]
        return constraints

    def constrained_before(self, ops: Sequence[Op], transfer: Transfer) -> list[Need]:
        """What such constraints need of it otherwise on the axes."""
        constraints = self.constraints_before(ops, transfer)
        needs = self.needs(constraints, transfer.axes)
        return [need for need in needs if need.op in constraints and need.value in transfer.values]

    def moved_for_constraint(
        self, ops: Sequence[Op], transfer: Transfer
    ) -> CollectiveOrigin | None:
        """What is moved for such a constraint, over other axes than the value has."""
        constraints = self.constraints_before(ops, transfer)
        return self.moved_before(constraints, transfer, only=True) or self.exchanged_before(
            constraints, transfer, transfer.values
        )

    def constrained_closer(
        self, needs: Sequence[Need], ops: Sequence[Op], transfer: Transfer
    ) -> list[Need]:
        """Those of constraints before the ops that fit better than what is needed around these."""
        misfits = [self.fits.misfit(need, transfer) for need in needs]
        return [
            need
            for need in (self.constrained_before(ops, transfer) if needs else ())
            if self.fits.misfit(need, transfer) < min(misfits)
        ]

    def without_needs(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """What XLA moves for ops of which none needs a value on the axes otherwise."""
        part = transfer.part
        if part.named_after == "nothing":
            return None
        # What is around what an op takes is not what XLA moves for the op.
        before = self.moved_before(ops, transfer, only=part.is_followed) or self.exchanged_before(
            ops, transfer, transfer.values if part.is_followed else None
        )
        if before is None and (needs := self.constrained_before(ops, transfer)):
            return self.of_needs(needs, 0, ops, transfer)
        if before is None and part.named_after == "value":
            return self.of_taken(transfer) or self.of_op(ops, transfer, transfer.values)
        return before

    def of_needs(
        self, needs: Sequence[Need], steps: int, ops: Sequence[Op], transfer: Transfer
    ) -> CollectiveOrigin | None:
        """The origin by the likeliest of some needs, or of what XLA moved before or instead.

        Args:
            needs: for what values on the axes are needed otherwise.
            steps: how far from the ops that is.
            ops: the ops that the tensor is for.
            transfer: the tensor.
        """
        part, values = transfer.part, transfer.values
        misfits = [self.fits.misfit(need, transfer) for need in needs]
        best = self.likeliest(needs, misfits, ops, transfer)
        need, misfit = needs[best], misfits[best]
        # What is moved is known, and no block of another value is like it over all axes.
        is_known = part.argument is not None or (
            bool(values) and (misfit > 1 or part.named_after == "value")
        )
        is_other = is_known and need.value not in values
        if (is_other or misfit >= NO_FIT) and (before := self.moved_before(ops, transfer)):
            return before
        if misfit > 1 or self.fits.is_across(need, transfer):
            exchanged = (
                self.exchanged_before(ops, transfer, values)
                if is_other
                else self.exchanged(need, transfer)
            )
            if exchanged:
                return exchanged
        if is_other and (
            own := self.moved_for_constraint(ops, transfer)
            or self.of_taken(transfer)
            or self.of_op(ops, transfer, values)
        ):
            return own
        # What windows reach into is the edge of a block, and fits none.
        at_edges = need.op is not None and kind_of(need.op) == "convolution"
        is_it = steps == 0 and self.is_it(need, needs, ops, transfer)
        fits = misfit < NO_FIT or at_edges or is_it
        origin = self.origins.of_need(need, transfer, transfer.kind if fits else "")
        if origin is None:
            return None
        other = None if need.op is None or need.op in ops else need.op
        if part.named_after == "taker" and other and not other.is_constraint:
            return self.for_named(origin, ops)
        # What XLA joined on the way may be what a concatenation makes, unless it is only an edge.
        is_joining = need.op is not None and need.op in ops and kind_of(need.op) == "concatenate"
        is_told = part.single or part.is_followed or transfer.is_permutation
        may_be_joined = is_joining and not is_told and origin.kind == "resharding"
        # So are the pieces that an op itself takes from other blocks.
        is_piece = transfer.is_permutation and _reaches(need.op, ops)
        uncertain = (
            not (fits or is_piece)
            or may_be_joined
            or (steps > 0 and misfit > 1)
            or self.may_be_another(need, [*zip(needs, misfits, strict=True)], steps, ops, transfer)
        )
        return replace(self.of_result(origin, need, transfer), uncertain=uncertain)

    def of_result(
        self, origin: CollectiveOrigin, need: Need, transfer: Transfer
    ) -> CollectiveOrigin:
        """An origin, about the result of an elementwise op where that is what XLA moves.

        It makes that as the operands are, and moves it once, under the name of the op.
        """
        op = need.op
        if op is None or not transfer.part.own or op not in transfer.makers:
            return origin
        result = op.id, 0
        is_known = result in transfer.values and need.value not in transfer.values
        if not is_known or not self.around.is_aligned(need):
            return origin
        moved: ValueFields = {**self.origins.moved(result), "before": None}
        given, axes, calls = self.around.operands(op), transfer.axes, transfer.calls
        has = self.origins.annotations(given, axes, "has", calls)
        needed = [each for each in origin.annotations if each.role == "needed"]
        return replace(
            origin,
            **moved,
            after=self.decided.spec(result),
            annotations=(*has, *needed),
            together=self.origins.together(given, axes, calls),
            own_result=True,
        )

    def is_it(
        self, need: Need, needs: Sequence[Need], ops: Sequence[Op], transfer: Transfer
    ) -> bool:
        """Whether a value can be nothing but what is moved, in any pieces.

        It is where the compiled program moves it from a maker to an op.
        """
        values = transfer.values
        moved = {each.value for each in needs if each.value in values}
        if moved == {need.value} and not self.fits_elsewhere(values - moved, transfer):
            return True
        is_possible = not transfer.part.is_followed and (not values or need.value in values)
        return is_possible and self.around.is_sole(need, needs, ops)

    def likeliest(
        self,
        needs: Sequence[Need],
        misfits: Sequence[int],
        ops: Container[Op],
        transfer: Transfer,
    ) -> int:
        """Which of some needs it is that a tensor is communicated for; arguments as above.

        What is gathered over several axes, one after the other, fits only in the end.
        """
        part, axes, values = transfer.part, transfer.axes, transfer.values
        calls = {call for path in part.tags for call in path[:-1]}
        is_permuted = transfer.is_permutation
        is_followed = bool(part.makers) or part.argument is not None
        # The edges of blocks that the ops themselves reach into.
        edges = [
            is_permuted and _reaches(need.op, ops) and self.fits.is_edge(need, transfer)
            for need in needs
        ]

        def unlikeliness(at: int) -> tuple[object, ...]:
            need = needs[at]
            is_own = need.value in values
            # Beside an edge, which is like no block, what fits is it only if it is moved.
            is_beside = any(edges) and not self.is_surely_moved(need, transfer)
            fit = NO_FIT if is_beside else misfits[at]
            # A value that XLA names, and that was followed to an op that needs it, is for that.
            leads = part.named_after == "value" and need.op in ops and is_own and fit < NO_FIT
            is_placed = (not is_followed or is_own) and self.fits.is_placed(need, transfer)
            return (
                bool(calls) and need.call not in (None, *calls),
                fit > 1 and not leads,
                not is_own,
                min(fit, NO_FIT),
                not edges[at],
                misfits[at],
                is_permuted and not is_placed,
                is_permuted and self.fits.is_turned(need, transfer),
                transfer.is_gather and not self.fits.is_block(need, transfer),
                transfer.kind == "all-to-all" and not self.around.lands(need, axes),
                self.distance(need.value, transfer),
                self.fits.unlikeness(need, transfer),
            )

        return min(range(len(needs)), key=unlikeliness)

    def may_be_another(
        self,
        need: Need,
        needs: Sequence[tuple[Need, int]],
        steps: int,
        ops: Sequence[Op],
        transfer: Transfer,
    ) -> bool:
        """Whether what is communicated can as well be another value.

        Arguments as above, but of each of the needs also how little it fits.
        """
        part, values = transfer.part, transfer.values
        is_own = need.value in values
        is_further = part.named_after == "nothing" or steps > 0
        if is_further and values and not is_own:
            return True
        # What is made of one that the op takes, too, fits less where XLA cut or moved it before.
        if (
            transfer.is_permutation
            and not is_own
            and any(each.value in values for each, _ in needs)
        ):
            return True
        if part.named_after == "nothing":
            # What a loop gives itself may be any that it carries; else any that fits as well.
            fitting = {each.value for each, misfit in needs if 1 < misfit <= dict(needs)[need]}
            if len(fitting) > 1 or (part.tags and part.tags == part.makers):
                return True
        # A barrier gives many values: it may be any that fits, if it is not known by what it takes.
        if any(op.kind in BARRIERS for op in ops):
            return any(
                each.value != need.value
                and misfit < NO_FIT
                and (each.value in values or not is_own)
                for each, misfit in needs
            )
        # Of several values that the op itself makes it may be any. As of JAX 0.11 XLA also names a
        # gather after what makes the value.
        is_after_taker = part.named_after == "taker" or (
            not part.is_followed and transfer.kind == "all-to-all"
        )
        return is_after_taker and any(op.id == need.value[0] and len(op.types) > 1 for op in ops)

    def is_constant(self, value: ValueId) -> bool:
        """Whether a value is a constant, in any form: each device makes its own block of it.

        What a loop carries only begins as one.
        """
        names = self.origins.names
        is_one = self.graph.ops[names.source(value)[0]].mnemonic == "constant"
        return is_one and not names.is_carried(value)

    def may_be(self, need: Need, ops: Sequence[Op], transfer: Transfer) -> bool:
        """Whether a value can be what XLA moves for one of some ops.

        What one makes is not where another is known to make it, be it in another form.
        """
        if need.value[0] in self.communications.behind(transfer):
            return False
        makers = transfer.makers
        others = not transfer.part.is_followed and makers and not any(op in makers for op in ops)
        maker = self.graph.ops[need.value[0]]
        return not (others and maker in ops and kind_of(maker) not in FORMING)

    def of_op(
        self, ops: Sequence[Op], transfer: Transfer, values: Container[ValueId] | None = None
    ) -> CollectiveOrigin | None:
        """What an op takes that XLA moved to other axes first, as far as that is known.

        Args:
            ops: the ops.
            transfer: the tensor that is moved.
            values: what it is one of; None where that is not known.
        """
        every = self.around.every_axis
        needs = [need for op in ops for need in self.around.needs(op, every) if need.op is op]
        if values is not None:
            # XLA may choose other axes than were decided, and then moves what has those.
            given = (Need(value, op) for op in ops for value in self.around.operands(op))
            needs = [need for need in (*needs, *given) if need.value in values]
        need = min(needs, key=lambda need: self.fits.unlikeness(need, transfer), default=None)
        if need is None:
            return None
        own = tuple(self.around.carried(need.value, every))
        origin = self.origins.of_need(need, transfer.over(own), "")
        return origin and replace(origin, uncertain=values is None)

    def for_named(self, origin: CollectiveOrigin, ops: Sequence[Op]) -> CollectiveOrigin:
        """What was found for an op beside the one that XLA moves a value for: it is for that.

        The value may then be another as well, and nothing that is given the other op says a need.
        """
        has = tuple(each for each in origin.annotations if each.role == "has")
        if not has:
            return replace(origin, uncertain=True)
        scope, primitive = scope_at(ops[0])
        return replace(
            origin,
            op=primitive,
            scope=scope,
            source=ops[0].source,
            node=ops[0].id,
            after=None,
            annotations=has,
            needed_together=NOBODY,
            uncertain=True,
        )

    def is_surely_moved(self, need: Need, transfer: Transfer) -> bool:
        """Whether what is communicated is like a block of a value that is known to be moved."""
        return (
            self.fits.misfit(need, transfer) < NO_FIT
            and self.around.is_said(need, transfer.axes)
            and not self.around.is_in_line(need, transfer.axes)
            and not self.around.is_only_cut(need)
        )

    def fits_elsewhere(self, values: Iterable[ValueId], transfer: Transfer) -> bool:
        """Whether what takes one of some values needs it as what is communicated is."""
        return any(
            need.value == value and self.fits.misfit(need, transfer) < NO_FIT
            for value in values
            for op, _ in self.graph.uses(*value)
            for need in self.around.needs(op, transfer.axes)
        )

    def of_taken(self, transfer: Transfer) -> CollectiveOrigin | None:
        """What needs a known value otherwise that is moved, where XLA names what takes it later.

        What is gathered; of what is exchanged an argument, whose blocks are not those of another.
        """
        argument = self.around.argument(transfer.part.argument)
        fits = [
            (self.fits.misfit(need, transfer), need)
            for value in sorted(transfer.values)
            if transfer.is_gather or value == argument
            for op, _ in self.graph.uses(*value)
            for need in self.around.needs(op, transfer.axes)
            if need.value == value and self.could_be_for(value, transfer)
        ]
        misfit, need = min(fits, key=lambda fit: fit[0], default=(NO_FIT, None))
        if need is None or misfit >= NO_FIT:
            return None
        return self.origins.of_need(need, transfer, transfer.kind)

    def moved_before(
        self, ops: Sequence[Op], transfer: Transfer, *, only: bool = False
    ) -> CollectiveOrigin | None:
        """What is gathered over axes that XLA moved it to first, from those that it has.

        Or exchanged over these, or permuted, of a value that is known.

        Args:
            ops: the ops around which it is needed.
            transfer: the tensor that is gathered or moved.
            only: whether it can be none but the values that it may be.
        """
        if not (transfer.is_gather or transfer.is_exchange):
            return None
        values, every = transfer.values, self.around.every_axis
        needs = list(self.needs(ops, every))
        if only or transfer.part.argument is not None or not transfer.is_gather:
            needs = [need for need in needs if need.value in values]
        for need in sorted(needs, key=lambda need: need.value not in values):
            own = tuple(self.around.carried(need.value, every))
            # What keeps the axes that it has is not gathered over them.
            if self.around.is_need(need, own) and self.is_moved_before(need, own, transfer):
                origin = self.aligned(need, own, transfer) or self.origins.of_need(
                    need, transfer.over(own), transfer.kind, is_moved=True
                )
                return origin and replace(origin, uncertain=self.is_known_other(need, transfer))
        return None

    def is_moved_before(self, need: Need, own: tuple[AxisPart, ...], transfer: Transfer) -> bool:
        """Whether a value can be what is moved, though that is not over its own axes."""
        if transfer.is_gather:
            return self.fits.misfit(need, transfer.over(own)) == 0
        if transfer.is_permutation:
            return self.fits.is_moved_on(need, transfer)
        return self.fits.is_moved(need, transfer)

    def aligned(
        self, need: Need, own: tuple[AxisPart, ...], transfer: Transfer
    ) -> CollectiveOrigin | None:
        """What is gathered over axes that it was moved to as another tensor of the op has them.

        And used there, so that it is made by the op itself: had it no axes of its own, it would be
        cut over them and gathered as well.
        """
        is_used = need.op is not None and need.op in transfer.makers
        other = self.around.aligned_with(need, transfer.axes) if is_used else None
        if other is None:
            return None
        origin = self.origins.of_need(replace(need, value=other), transfer, transfer.kind)
        moved: ValueFields = {**self.origins.moved(need.value), "before": None}
        return origin and replace(origin, **moved, after=self.decided.spec_without(need.value, own))

    def exchanged(self, need: Need, transfer: Transfer) -> CollectiveOrigin | None:
        """What is gathered over axes that XLA moved one dimension to, from as many pieces of it.

        The value may have these axes on another dimension, which is not what is gathered.
        """
        if not transfer.is_gather:
            return None
        others = (
            transfer.over(own)
            for dim in self.decided.axes(need.value)
            for own in _slices(dim)
            if part_size(own) == part_size(transfer.axes)
            and not any(each.shared(axis) for each in own for axis in transfer.axes)
        )
        moved = [each for each in others if self.fits.misfit(need, each) == 0]
        # Rows are not columns, where both fit.
        straight = [each for each in moved if not self.fits.is_across(need, each)]
        is_across = self.fits.is_across(need, transfer)
        if not (straight if is_across else moved):
            return None
        best = (straight or moved)[0]
        origin = self.origins.of_need(need, best, transfer.kind, is_moved=True)
        # What has these axes besides goes on with others, which are not known.
        return replace(origin, after=None) if origin and is_across else origin

    def exchanged_before(
        self, ops: Sequence[Op], transfer: Transfer, values: Container[ValueId] | None
    ) -> CollectiveOrigin | None:
        """As ``exchanged``, of whatever is needed around ops, or of some values."""
        needs = sorted(
            self.needs(ops, self.around.every_axis),
            key=lambda need: self.distance(need.value, transfer),
        )
        for need in needs:
            if values is not None and need.value not in values:
                continue
            if (exchanged := self.exchanged(need, transfer)) is not None:
                return replace(exchanged, uncertain=self.is_known_other(need, transfer))
        return None

    def is_known_other(self, need: Need, transfer: Transfer) -> bool:
        """Whether what is moved is known, and is another value than one that is needed."""
        is_known = any(self.fits.is_alike(value, transfer) for value in transfer.values)
        source = self.origins.names.source
        return is_known and source(need.value) not in set(map(source, transfer.values))

    def distance(self, value: ValueId, transfer: Transfer) -> int:
        """How far a value is from what is known to be moved: itself, another form, another value.

        Of an argument XLA moves what that is: a transpose it leaves to the product behind.
        """
        if value not in transfer.values:
            return 2
        argument = self.around.argument(transfer.part.argument)
        return 0 if argument in (None, value) else 1

    def single_element(self, ops: Sequence[Op], transfer: Transfer) -> CollectiveOrigin | None:
        """A dimension of one element is gathered by a sum: one device has it, the others zeros.

        So is one that its devices don't divide, here of what is written into another tensor.
        """
        axes = transfer.axes
        for op in ops:
            for need in self.around.needs(op, axes):
                shape = self.decided.shape(need.value) or ()
                held = self.around.on(self.decided.axes(need.value), axes)
                sizes = [(size, own) for size, own in zip(shape, held, strict=False) if own]
                if need.op is op and (
                    all(size == 1 for size, _ in sizes)
                    or (
                        kind_of(op) == "dynamic_update_slice"
                        and need.value == self.around.operands(op)[1]
                        and all(size % part_size(own) for size, own in sizes)
                        and self.fits.is_gathered(need.value, transfer)
                    )
                ):
                    return self.origins.of_need(need, transfer, "all-gather")
        return None

    def could_be_for(self, value: ValueId, transfer: Transfer) -> bool:
        """Whether it may be what is sent: what is not in pieces along the axes is not gathered."""
        return not transfer.is_gather or bool(self.around.carried(value, transfer.axes))


def _slices(axes: tuple[AxisPart, ...]) -> Iterator[tuple[AxisPart, ...]]:
    """Axes of one dimension that follow each other, all of them first."""
    for length in range(len(axes), 0, -1):
        for start in range(len(axes) - length, -1, -1):
            yield axes[start : start + length]


def _reaches(op: Op | None, ops: Container[Op]) -> bool:
    """Whether an op that takes elements from neighbouring blocks is among some."""
    return op is not None and op in ops and kind_of(op) in REACHING
