"""Finds why each collective is there, from the ops it was made for and the shardings around them.

A collective over some axes, made for an op, is one of these: the op sums over a dimension that is
in pieces along the axes; a value that the op takes or makes is sharded on them and is needed
otherwise; the op reaches across blocks; or the op is itself a collective of the program. Where the
op does not touch the axes (compilers move names about), the ops around it are looked at, nearest
first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, TypedDict

from sdyscope.analysis.collectives.annotated_axes import (
    AnnotatedAxes,
    AnnotatedAxis,
    Keeper,
    WrittenSpec,
)
from sdyscope.analysis.collectives.boundaries import SHARD_MAP
from sdyscope.analysis.collectives.made_for import FORMING
from sdyscope.analysis.collectives.origin_needs import (
    LOOKING_UP,
    NO_FIT,
    PRODUCTS,
    PROGRAM,
    REACHING,
    SUMMING,
    Need,
    Needs,
    kind_of,
    results,
)
from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes, spec_in
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.names import ValueNames
from sdyscope.analysis.naming.scopes import is_recomputed, scope_of
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of, part_size
from sdyscope.analysis.propagation.components import HeldAxis
from sdyscope.analysis.propagation.openness import Binding
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.annotations import Annotation
from sdyscope.facts.origins import (
    NOBODY,
    CollectiveOrigin,
    NotFound,
    OriginAnnotation,
    OriginKind,
    OriginRole,
    Spec,
    Together,
)
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.graph import Op, OpGraph, scope_in
from sdyscope.graph.op_kinds import BARRIERS, is_elementwise
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import line_of
from sdyscope.values.tiling import HloSharding, TupleSharding

_REDUCTIONS: Final = ("all-reduce", "reduce-scatter")

_EXCHANGES: Final = ("collective-permute", "all-to-all")

#: Ops that XLA may split over devices that would do the same work.
_SPLIT: Final = LOOKING_UP | PRODUCTS | {"scatter"}

#: Ops of which XLA chooses how to make their result, by what it is made of.
_REMADE: Final = PRODUCTS | {"reduce", "scatter"}


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
    search = _Search(decided, AnnotatedAxes(decided, annotations, pointers), collectives)
    return collectives.with_parts(
        lambda collective, part: search.at(_calls_of(part)).with_origin(collective, part)
    )


class _Moved(TypedDict):
    """The fields of an origin that say which value it is about."""

    value: str
    form: str
    carried: bool
    before: Spec | None


class _Search:
    """Finds the origins of one program."""

    def __init__(
        self, decided: PropagatedAxes, annotated: AnnotatedAxes, collectives: Collectives
    ) -> None:
        self.decided = decided
        self.gathers = {
            collective.name: self.parts_of(collective)
            for collective in collectives.collectives
            if collective.kind == "all-gather"
        }
        self.exchanges: dict[int, list[tuple[tuple[AxisPart, ...], Part]]] = {}
        for collective in collectives.collectives:
            if collective.kind in _EXCHANGES:
                for part in collective.parts:
                    for path in part.tags:
                        exchanges = self.exchanges.setdefault(path[-1], [])
                        exchanges.append((self.parts_of(collective), part))
        self.annotated = annotated
        self.graph: OpGraph = decided.graph
        self.names = ValueNames(decided.graph)
        self.around = Needs(decided, annotated)
        self._together: dict[object, Together] = {}
        self._at: dict[PropagatedAxes, _Search] = {decided: self}

    def at(self, calls: tuple[int, ...]) -> _Search:
        """The same, of what some calls lead to."""
        decided = self.decided.at(calls)
        if decided not in self._at:
            search = self._at[decided] = copy(self)
            search.decided, search.around = decided, self.around.at(decided)
        return self._at[decided]

    def with_origin(self, collective: Collective, part: Part) -> Part:
        """A tensor with its origin; its line is the op's where the compiler kept none."""
        axes = self.parts_of(collective)
        values = self.values(part)
        if part.named_after == "value":
            part = replace(part, tags=tuple(self.entering(path, values) for path in part.tags))
            part = replace(part, tags=self.before_products(part, values))
        if part.named_after == "value" and not self.leads(collective, part, axes, values):
            # The op makes its own result as it is needed.
            part = self.named_after_op(part)
            if any(kind_of(op) in REACHING for op in self.ops(part.tags)):
                values = self.values(part)  # It is not what that makes.
        ops, makers = self.ops(part.tags), self.ops(part.makers)
        origin = self.origin(collective, part, axes, values)
        if part.is_followed and origin.kind != "unknown":
            origin = replace(origin, followed=True)
        if part.source is None:
            part = self.placed(part, [*ops, *makers], origin)
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

    def ops(self, tags: Sequence[tuple[int, ...]]) -> list[Op]:
        """The ops that tags name, each behind the product that XLA turns, and names after it."""
        named = [self.graph.ops[path[-1]] for path in tags if path[-1] < len(self.graph.ops)]
        ops = (each for op in named for each in (self.around.turned(op), op) if each is not None)
        return list({op.id: op for op in ops}.values())

    def entering(self, path: tuple[int, ...], values: Container[ValueId]) -> tuple[int, ...]:
        """For an op in a `shard_map` that takes one of some values there, the `shard_map`."""
        op = self.graph.ops[path[-1]] if path[-1] < len(self.graph.ops) else None
        around = None if op is None or op.parent is None else self.graph.ops[op.parent]
        if op is None or around is None or kind_of(around) != "manual_computation":
            return path
        given = (value for value in self.around.operands(op) if value in values)
        enters = any(self.graph.ops[node].is_argument for node, _ in given)
        return (*path[:-1], around.id) if enters else path

    def before_products(
        self, part: Part, values: Collection[ValueId]
    ) -> tuple[tuple[int, ...], ...]:
        """The ops that a value is for; where these take what a product makes of it, the product.

        XLA leaves batched products without a name, which it writes as other ones.
        """
        ops = self.ops(part.tags)
        taken = set(self.around.operands(*ops))
        if not taken.isdisjoint(values):
            return part.tags
        products = {
            op.id
            for value in values
            for op, _ in self.graph.uses(*value)
            if kind_of(op) in PRODUCTS and not taken.isdisjoint(self.around.forms([(op.id, 0)]))
        }
        calls = _calls_of(part)
        return tuple((*calls, product) for product in sorted(products)) or part.tags

    def values(self, part: Part) -> set[ValueId]:
        """The values that a tensor may be; empty where that is not known."""
        ops, makers = self.ops(part.tags), self.ops(part.makers)
        boundaries = self.around.boundaries
        around = {call for path in part.tags for call in path[:-1]}
        values: list[ValueId] = []
        for op in makers:
            if kind_of(op) == SHARD_MAP and op.id in around:
                # What is moved in a shard_map, and named after that, is no result of it.
                values += boundaries.taken_within(op)
            elif not boundaries.are_within(op, ops):
                values += results(op)
                # What the body of a shard_map or loop returns is named after these.
                values += [value for _, value in boundaries.bodies.get(op.id, ())]
            # And what a loop carries, where its body takes it.
            values += boundaries.carries.get(op.id, ())
        argument = self.around.argument(part.argument)
        values += [] if argument is None else [argument]
        # What a function makes is what the calls return by which it was followed, and no others.
        calls = {call for path in part.makers for call in path[:-1]}
        others = {
            other.id
            for call in calls
            if (callee := self.graph.ops[call].callee) is not None
            for other in self.graph.callers(callee)
        }
        return self.reaching(ops, values, (others - calls) | self.behind(part))

    def behind(self, part: Part) -> set[int]:
        """The ops that a value was followed to: it is not yet what they make of it.

        At the end of a loop's body the loop is one.
        """
        ops, makers = self.ops(part.tags), self.ops(part.makers)
        if not part.is_followed or not makers:
            return set()
        # Of several that XLA makes one of, what one gives another is on the way.
        between = {node for node, _ in self.around.operands(*ops)}
        return {op.id for op in ops if op not in makers and op.id not in between}

    def reaching(
        self, ops: Sequence[Op], values: Iterable[ValueId], others: Container[int]
    ) -> set[ValueId]:
        """Values and what they go on as: of what loops and barriers make that which ops take.

        These make many values; all of them where the ops take none.
        """
        forms = [self.around.forms([value], others) for value in values]
        tensors = self.around.tensors(*ops)
        taken = [each for each in forms if not each.isdisjoint(tensors)]
        return set().union(*(taken or forms))

    def leads(
        self,
        collective: Collective,
        part: Part,
        axes: tuple[AxisPart, ...],
        values: Collection[ValueId],
    ) -> bool:
        """Whether it is what was followed to, not what XLA names, that it is for."""
        if not part.makers:
            return True
        if part.result is not None:
            value = self.graph.returned.get(part.result)
            return value is None or (
                self.could_be_for(value, collective, axes)
                and self.around.is_need(Need(value, None, part.result), axes)
            )
        whole = collective.kind != "all-gather"
        if not whole and self.is_bare(results(*self.ops(part.makers))):
            values = ()  # What is gathered goes into what is made: later forms are cut again.
        needs = [
            need
            for need in self.needs(part.tags, axes)
            if need.value in values and (whole or self.around.covers(need.value, axes))
        ]
        reaching = [op for op in self.ops(part.makers) if kind_of(op) in REACHING]
        at_edges = collective.kind == "collective-permute" and bool(reaching)
        if any(not at_edges or self.is_moved(need, axes, collective, part) for need in needs):
            return True
        # What an op makes has no dimension that it sums, along which it could be gathered.
        for_maker = [
            self.around.misfit(need, collective, part, axes)
            for need in self.needs(part.makers, axes)
            if not self.around.sums_away(need, axes)
        ]
        if for_maker:
            # Of what is gathered over other axes than it has, the shape is exact.
            ops = self.ops(part.tags)
            exchanged = self.exchanged_before(ops, axes, collective, part, values)
            taken = set(self.around.operands(*ops))
            is_product = all(kind_of(op) in PRODUCTS for op in self.ops(part.makers))
            is_taken = not whole and is_product and not taken.isdisjoint(values)
            return (is_taken and min(for_maker) >= NO_FIT) or (
                min(for_maker) > 1 and exchanged is not None
            )
        moved_for = [
            self.moved_before(self.ops(tags), collective, part, values) is not None
            for tags in (part.tags, part.makers)
        ]
        return moved_for != [False, True]

    def is_bare(self, values: Sequence[ValueId]) -> bool:
        """Whether all of some values are known to have no sharding at all."""
        return bool(values) and all(
            self.decided.is_known(value) and not any(self.decided.axes(value)) for value in values
        )

    def needs(self, tags: Sequence[tuple[int, ...]], axes: tuple[AxisPart, ...]) -> Iterator[Need]:
        """What is needed with another sharding around the ops that tags name."""
        return (need for op in self.ops(tags) for need in self.around.needs(op, axes))

    def named_after_op(self, part: Part) -> Part:
        """A tensor that is for the op that makes it."""
        path = part.makers[0]
        op = self.graph.ops[path[-1]]
        scope = op.scope
        for call in reversed(path[:-1]):
            scope = scope_in(self.graph.ops[call].scope, scope)
        scope, primitive = scope_of(scope)
        return replace(
            part,
            scope=scope,
            primitive=primitive,
            source=op.source or part.source,
            callers=part.callers if op.source is None else op.location.callers,
            tags=part.makers,
            # Else nothing tells whether it is what that makes, or what it takes.
            makers=part.makers if part.own and kind_of(op) in _REMADE else (),
            result=None,
            named_after="op",
        )

    def origin(
        self,
        collective: Collective,
        part: Part,
        axes: tuple[AxisPart, ...],
        values: set[ValueId],
    ) -> CollectiveOrigin:
        """Why a tensor is communicated."""
        ops, makers = self.ops(part.tags), self.ops(part.makers)
        for op in ops:
            if kind_of(op) in PROGRAM and not part.is_followed:
                scope, primitive = _scope(op)
                own = _origin("program", op, scope, primitive or part.primitive)
                again = is_recomputed(part.scope)
                return replace(own, backward=part.phase == "backward" and not again)
        if axes:
            if collective.kind in _REDUCTIONS:
                collective_origin = self.unreduced(part, axes)
                if collective_origin is not None:
                    return collective_origin
            if part.result is not None and (
                collective_origin := self.returned(collective, part, axes)
            ):
                return collective_origin
            argument = self.around.argument(part.argument)
            users = [] if argument is None else [op for op, _ in self.graph.uses(*argument)]
            ops = ops or users
            if collective.kind == "all-reduce" and (
                collective_origin := self.one_element(ops, axes, part)
            ):
                return collective_origin
            if collective.kind in _REDUCTIONS and self.is_split_by_xla(ops, axes):
                moved_to = self.moved_to(ops, axes, _calls_of(part))
                return moved_to or _origin("split", ops[0], *_scope(ops[0]))
            if collective.kind == "all-reduce" and (takers := self.takers_from_one_device(ops)):
                return replace(self.unknown(part, takers, axes), not_found="one device")
            if collective.kind in ("all-gather", "all-to-all") and (
                collective_origin := self.contended([*makers, *ops], part)
            ):
                return collective_origin
            reduced = [op for op in ops if self.around.gathers_reduced(op, axes, part)]
            if collective.kind == "all-gather" and reduced:
                return self.reduction(reduced, axes, collective, part, values) or self.unknown(
                    part, reduced, axes
                )
            is_moved = collective.kind in ("all-gather", "collective-permute")
            if is_moved and self.is_cut_by_xla(ops, axes, values):
                before = self.moved_before(ops, collective, part, values)
                before = before or self.exchanged_before(ops, axes, collective, part, None)
                return before or _origin("split", ops[0], *_scope(ops[0]))
            is_exchange = collective.kind in ("collective-permute", "all-to-all") or bool(
                part.before
            )
            if (is_exchange or part.own) and (
                collective_origin := self.remade(ops, axes, collective, part)
            ):
                return collective_origin
            nearest: CollectiveOrigin | None = None
            # What makes a value needs nothing where XLA says what it moves it for.
            around = (ops,) if ops and part.named_after == "taker" else (ops, makers, users)
            for near in filter(None, around):
                finding = [self.resharding, self.reduction]
                for find in finding[:: -1 if collective.kind in _REDUCTIONS else 1]:
                    collective_origin = find(near, axes, collective, part, values)
                    if collective_origin is not None and not collective_origin.uncertain:
                        return collective_origin
                    nearest = nearest or collective_origin
                    if nearest is not None and collective.kind not in _REDUCTIONS:
                        break
            if collective.kind == "all-gather" and self.is_made_by_xla(makers, axes, part, values):
                return _origin("split", makers[0], *_scope(makers[0]))
            if nearest is not None:
                return nearest
        return self.unknown(part, ops or makers, axes)

    def unknown(
        self, part: Part, ops: Sequence[Op], axes: tuple[AxisPart, ...]
    ) -> CollectiveOrigin:
        """One that nothing was found for; says how far it was followed."""
        op = ops[0] if ops else None
        scope, primitive = _scope(op) if op is not None else (part.scope, part.primitive)
        why: NotFound = "no axes" if not axes else "no op"
        if axes and op is not None:
            around = self.around.tensors(*ops)
            sharded = any(self.around.carried(value, axes) for value in around)
            why = "not needed otherwise" if sharded else "not sharded"
        origin = _origin("unknown", op, scope, primitive)
        return replace(origin, source=op.source if op is not None else part.source, not_found=why)

    def parts_of(self, collective: Collective) -> tuple[AxisPart, ...]:
        return tuple(part_of(axis, self.decided.mesh) for axis in collective.axes or ())

    # Reductions.

    def unreduced(self, part: Part, axes: tuple[AxisPart, ...]) -> CollectiveOrigin | None:
        """The end of a value that the program says is still to be reduced.

        What makes the value may sum a dimension besides, which is then not what it is for.
        """
        ops = self.ops(part.tags)
        argument = self.around.argument(part.argument)
        given, by_makers = self.around.operands(*ops), results(*self.ops(part.makers))
        own = [] if part.makers else list(self.around.as_constrained(ops))
        for value in [*([] if argument is None else [argument]), *own, *given, *by_makers]:
            annotated_axes = [
                annotated for axis in axes for annotated in self.annotated.unreduced(value, axis)
            ]
            if annotated_axes:
                op = next((op for op in ops if value in self.around.operands(op)), None)
                op = op or (ops[0] if value in own else None)
                return _origin(
                    "reduction",
                    op,
                    *(("", "return") if op is None else _scope(op)),
                    **self.moved(value),
                    annotations=tuple(self.grouped(annotated_axes, "has")),
                    together=self.together(
                        self.around.summed_for(value, axes), axes, _calls_of(part)
                    ),
                )
        return None

    def reduction(
        self,
        ops: list[Op],
        axes: tuple[AxisPart, ...],
        collective: Collective,
        part: Part,
        values: Collection[ValueId],
    ) -> CollectiveOrigin | None:
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
            calls = _calls_of(part)
            annotations = self.annotations(sharded, axes, "has", calls)
            instead = self.around.summed_instead(op, axes, calls) if kind in SUMMING else ()
            return _origin(
                "lookup" if kind in LOOKING_UP else "reduction",
                op,
                *_scope(op),
                **self.moved(largest),
                annotations=annotations,
                together=self.together(sharded, axes, calls, instead),
                may_split=kind in _SPLIT
                and (self.around.is_torn(op, axes) or self.around.may_be_torn(op, axes, calls)),
                uncertain=bool(steps) and not self.around.makes(op, part),
            )
        return None

    def moved_to(
        self, ops: list[Op], axes: tuple[AxisPart, ...], calls: tuple[int, ...]
    ) -> CollectiveOrigin | None:
        """What sums or looks up in a dimension that XLA moved to the axes first, from its own.

        The op's other tensors have these elsewhere; XLA chooses idle ones that cut it as finely.
        """
        for op in ops:
            for value in self.around.summed(op, self.around.every_axis):
                own = tuple(self.around.summed_over(op, value))
                exchanged = (
                    all(any(map(each.shared, over)) for each in (*own, *axes))
                    and value in self.values(part)
                    for over, part in self.exchanges.get(op.id, ())
                )
                if part_size(own) != part_size(axes) or not any(exchanged):
                    continue
                # Several calls of a function can give it, and are not sharded alike.
                given = self.around.given(value)
                outside = next((each for each, call in given if each and call in calls), value)
                has = self.annotations([outside], own, "has", calls)
                others = self.around.conflicting(Need(value, op), own)
                needed = self.annotations(others, own, "needed", calls)
                if has and needed:
                    return _origin(
                        "lookup" if kind_of(op) in LOOKING_UP else "reduction",
                        op,
                        *_scope(op),
                        **self.moved(outside),
                        annotations=(*has, *_distinct(needed)),
                        together=self.together([outside], own, calls),
                        needed_together=self.together(others, own, calls),
                    )
        return None

    def contended(self, ops: Sequence[Op], part: Part) -> CollectiveOrigin | None:
        """What a lookup takes whole is cut over axes that its indices or result have elsewhere."""
        for op in ops:
            contended, calls = self.around.contended(op, part), _calls_of(part)
            if contended is None:
                continue
            value, axes = contended
            has = self.annotations([value], axes, "has", calls)
            needed = self.annotations(self.around.operands(op)[:1], axes, "needed", calls)
            if has and needed:
                moved, after = self.moved((op.id, 0)), None
                own_result = value != (op.id, 0)
                if own_result:
                    moved["before"], after = None, self.decided.spec((op.id, 0))
                return _origin(
                    "resharding",
                    op,
                    *_scope(op),
                    **moved,
                    after=after,
                    annotations=(*has, *needed),
                    together=self.together([value], axes, calls),
                    needed_together=self.together(self.around.operands(op)[:1], axes, calls),
                    own_result=own_result,
                )
        return None

    def is_cut_by_xla(
        self, ops: list[Op], axes: tuple[AxisPart, ...], values: set[ValueId]
    ) -> bool:
        """Whether it moves what XLA cuts over axes that nothing has which it can be."""
        if not self.is_split_by_xla(ops, axes):
            return False
        if any(self.around.carried(value, axes) for value in values):
            return False
        tensors = [*self.around.operands(*ops), *values.intersection(results(*ops))]
        return not any(self.around.carried(value, axes) for value in tensors)

    def is_made_by_xla(
        self, makers: list[Op], axes: tuple[AxisPart, ...], part: Part, values: Iterable[ValueId]
    ) -> bool:
        """Whether it gathers what XLA split over axes that the value itself does not have."""
        return (
            self.is_split_by_xla(makers, axes)
            and any(self.around.makes(op, part) for op in makers)
            and not any(self.around.carried(value, axes) for value in values)
        )

    def is_split_by_xla(self, ops: list[Op], axes: tuple[AxisPart, ...]) -> bool:
        """Whether it sums what XLA splits over axes that no dimension that is summed has."""
        ops = [op for op in ops if self.around.turned(op) is None]
        if not ops or any(kind_of(op) not in _SPLIT for op in ops):
            return False
        tensors = self.around.tensors(*ops)
        if not all(map(self.decided.is_known, tensors)):
            return False
        return not any(self.around.summed(op, axes) for op in ops)

    def takers_from_one_device(self, ops: list[Op]) -> list[Op]:
        """The ops that are not on one device and take what is, if all do: a sum sends it to all.

        XLA names that after them, or (JAX 0.11) after what is on one device.
        """
        takers = [
            taker
            for op in ops
            for taker in (
                [user for user, _ in self.graph.uses(op.id, 0)]
                if self.is_on_one_device((op.id, 0))
                else [op]
            )
        ]
        are_takers = all(
            any(map(self.is_on_one_device, self.around.operands(taker)))
            and not self.is_on_one_device((taker.id, 0))
            for taker in takers
        )
        return takers if are_takers else []

    def is_on_one_device(self, value: ValueId) -> bool:
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

    def remade(
        self, ops: list[Op], axes: tuple[AxisPart, ...], collective: Collective, part: Part
    ) -> CollectiveOrigin | None:
        """What XLA makes with other axes than it has, and then moves to these.

        With which axes is XLA's choice and not recorded; with which it can't be made is: other
        tensors of the op have them elsewhere.
        """
        makers, calls = self.ops(part.makers), _calls_of(part)
        for op in ops if not part.is_followed else ():
            value = op.id, 0
            if kind_of(op) == "concatenate" and not part.before:
                # What makes its pieces was followed to, not the op.
                is_made = self.around.is_joined(op, axes, collective, part)
            else:
                is_made = (
                    op in makers and kind_of(op) in _REMADE and self.around.is_alike(value, part)
                )
            if not is_made:
                continue
            # What is cut besides, and then gathered, is over axes that it does not have.
            own = axes if self.around.carried(value, axes) else self.around.every_axis
            taken = [value, *self.around.conflicting(Need(value, op), own)]
            needed = self.annotations(taken, own, "needed", calls)
            if self.around.carried(value, own) and needed:
                moved: _Moved = {**self.moved(value), "before": None}
                return _origin(
                    "resharding",
                    op,
                    *_scope(op),
                    **moved,
                    after=self.decided.spec(value),
                    annotations=tuple(_distinct(needed)),
                    needed_together=self.together(taken, own, calls),
                )
        return None

    def returned(
        self, collective: Collective, part: Part, axes: tuple[AxisPart, ...]
    ) -> CollectiveOrigin | None:
        """A value that the program returns with another sharding than it has."""
        assert part.result is not None
        value = self.graph.returned.get(part.result)
        if value is None or not self.could_be_for(value, collective, axes):
            return None
        return self.origin_for(Need(value, None, part.result), axes, part, "")

    def resharding(
        self,
        ops: list[Op],
        axes: tuple[AxisPart, ...],
        collective: Collective,
        part: Part,
        values: set[ValueId],
    ) -> CollectiveOrigin | None:
        for steps, ring in enumerate(self.around.rings(ops)):
            needs = [need for op in ring for need in self.around.needs(op, axes)]
            needs = [
                need
                for need in needs
                if self.could_be_for(need.value, collective, axes)
                and self.around.is_alike(need.value, part)
            ]
            if steps == 0 and collective.is_partial:
                # Only what the op itself takes: a value as a whole is moved to all devices.
                needs = [need for need in needs if need.op in ops]
                if not needs and (own := self.of_op(ops, part)):
                    return own
            if steps == 0:
                needs = [need for need in needs if not self.is_constant(need.value)] or needs
                needs = [need for need in needs if self.may_be(need, ops, part)] or needs
            if not needs and steps == 0 and part.named_after != "nothing":
                # What is around what an op takes is not what XLA moves for the op.
                among = None if not part.is_followed else values
                before = self.moved_before(
                    ring, collective, part, values, only=part.is_followed
                ) or self.exchanged_before(ring, axes, collective, part, among)
                if before is not None:
                    return before
                if part.named_after == "value" and (own := self.of_op(ops, part, values)):
                    return own
            if needs:
                return self.of_needs(needs, steps, ops, axes, collective, part, values)
        return self.moved_before(ops, collective, part, values)

    def of_needs(
        self,
        needs: Sequence[Need],
        steps: int,
        ops: list[Op],
        axes: tuple[AxisPart, ...],
        collective: Collective,
        part: Part,
        values: set[ValueId],
    ) -> CollectiveOrigin | None:
        """The origin by the likeliest of some needs, or of what XLA moved before or instead.

        Args:
            needs: for what values on the axes are needed otherwise.
            steps: how far from the ops that is.
            ops: the ops that the tensor is for.
            axes: those of the collective.
            collective: what communicates the tensor.
            part: the tensor.
            values: the values that it may be.
        """
        misfits = [self.around.misfit(need, collective, part, axes) for need in needs]
        best = self.likeliest(needs, misfits, ops, axes, collective, part, values)
        need = needs[best]
        # What is moved is known, and no block of another value is like it over all axes.
        is_known = part.argument is not None or (
            bool(values) and (misfits[best] > 1 or part.named_after == "value")
        )
        is_other = is_known and need.value not in values
        if (is_other or misfits[best] >= NO_FIT) and (
            moved_before := self.moved_before(ops, collective, part, values)
        ):
            return moved_before
        if misfits[best] > 1 or self.around.is_across(need, part, axes):
            exchanged = (
                self.exchanged_before(ops, axes, collective, part, values)
                if is_other
                else self.exchanged(need, axes, collective, part)
            )
            if exchanged:
                return exchanged
        if is_other and (
            own := self.of_argument(collective, part, axes, values) or self.of_op(ops, part, values)
        ):
            return own
        # What windows reach into is the edge of a block, and fits none.
        at_edges = need.op is not None and kind_of(need.op) == "convolution"
        # What the compiled program moves from a maker to an op is that, in any pieces.
        moved = {each.value for each in needs if each.value in values}
        is_it = (
            moved == {need.value}
            and not self.fits_elsewhere(values - moved, collective, part, axes)
        ) or (
            not part.is_followed
            and (not values or need.value in values)
            and self.around.is_sole(need, needs, ops)
        )
        fits = misfits[best] < NO_FIT or at_edges or (steps == 0 and is_it)
        origin = self.origin_for(need, axes, part, collective.kind if fits else "")
        other = None if need.op is None or need.op in ops else need.op
        if origin and part.named_after == "taker" and other and not other.is_constraint:
            return self.for_named(origin, ops)
        # So are the pieces that an op itself takes from other blocks.
        reaches = need.op in ops and kind_of(need.op) in REACHING
        is_piece = reaches and collective.kind == "collective-permute"
        uncertain = (
            not (fits or is_piece)
            or (steps > 0 and misfits[best] > 1)
            or self.may_be_another(need, needs, misfits, steps, ops, collective, part, values)
        )
        return origin and replace(origin, uncertain=uncertain)

    def likeliest(
        self,
        needs: Sequence[Need],
        misfits: Sequence[int],
        ops: Container[Op],
        axes: tuple[AxisPart, ...],
        collective: Collective,
        part: Part,
        values: Container[ValueId],
    ) -> int:
        """Which of some needs it is that a tensor is communicated for; arguments as above.

        What is gathered over several axes, one after the other, fits only in the end.
        """
        calls = {call for path in part.tags for call in path[:-1]}
        is_exchange = collective.kind == "all-to-all"
        is_permuted = collective.kind == "collective-permute"
        is_followed = bool(part.makers) or part.argument is not None
        edges = [is_permuted and self.is_own_edge(need, ops, axes, part) for need in needs]

        def unlikeliness(at: int) -> tuple[object, ...]:
            need = needs[at]
            is_own = need.value in values
            # Beside an edge, which is like no block, what fits is it only if it is moved.
            is_beside = any(edges) and not self.is_moved(need, axes, collective, part)
            fit = NO_FIT if is_beside else misfits[at]
            # A value that XLA names, and that was followed to an op that needs it, is for that.
            leads = part.named_after == "value" and need.op in ops and is_own and fit < NO_FIT
            is_placed = (not is_followed or is_own) and self.around.is_placed(need, part, axes)
            return (
                bool(calls) and need.call not in (None, *calls),
                fit > 1 and not leads,
                not is_own,
                min(fit, NO_FIT),
                not edges[at],
                misfits[at],
                is_permuted and not is_placed,
                is_permuted and self.around.is_turned(need, part),
                is_exchange and not self.around.lands(need, axes),
                self.around.unlikeness(need, part),
            )

        return min(range(len(needs)), key=unlikeliness)

    def may_be_another(
        self,
        need: Need,
        needs: Sequence[Need],
        misfits: Sequence[int],
        steps: int,
        ops: Sequence[Op],
        collective: Collective,
        part: Part,
        values: Collection[ValueId],
    ) -> bool:
        """Whether what is communicated can as well be another value; arguments as above."""
        is_own = need.value in values
        is_further = part.named_after == "nothing" or steps > 0
        if is_further and values and not is_own:
            return True
        # A barrier gives many values: it may be any that fits, if it is not known by what it takes.
        if any(op.kind in BARRIERS for op in ops):
            return any(
                each.value != need.value
                and misfit < NO_FIT
                and (each.value in values or not is_own)
                for each, misfit in zip(needs, misfits, strict=True)
            )
        # Of several values that the op itself makes it may be any. As of JAX 0.11 XLA also names a
        # gather after what makes the value.
        is_after_taker = part.named_after == "taker" or (
            not part.is_followed and collective.kind == "all-to-all"
        )
        return is_after_taker and any(op.id == need.value[0] and len(op.types) > 1 for op in ops)

    def is_constant(self, value: ValueId) -> bool:
        """Whether a value is a constant, in any form: each device makes its own block of it."""
        return self.graph.ops[self.names.source(value)[0]].mnemonic == "constant"

    def may_be(self, need: Need, ops: Sequence[Op], part: Part) -> bool:
        """Whether a value can be what XLA moves for one of some ops.

        What one makes is not where another is known to make it, be it in another form.
        """
        if need.value[0] in self.behind(part):
            return False
        makers = self.ops(part.makers)
        others = not part.is_followed and makers and not any(op in makers for op in ops)
        maker = self.graph.ops[need.value[0]]
        return not (others and maker in ops and kind_of(maker) not in FORMING)

    def of_op(
        self, ops: Sequence[Op], part: Part, values: Container[ValueId] | None = None
    ) -> CollectiveOrigin | None:
        """What an op takes that XLA moved to other axes first, as far as that is known.

        Args:
            ops: the ops.
            part: the tensor that is moved.
            values: what it is one of; None where that is not known.
        """
        every = self.around.every_axis
        needs = [need for op in ops for need in self.around.needs(op, every) if need.op is op]
        if values is not None:
            # XLA may choose other axes than were decided, and then moves what has those.
            given = (Need(value, op) for op in ops for value in self.around.operands(op))
            needs = [need for need in (*needs, *given) if need.value in values]
        need = min(needs, key=lambda need: self.around.unlikeness(need, part), default=None)
        if need is None:
            return None
        origin = self.origin_for(need, tuple(self.around.carried(need.value, every)), part, "")
        return origin and replace(origin, uncertain=values is None)

    def for_named(self, origin: CollectiveOrigin, ops: list[Op]) -> CollectiveOrigin:
        """What was found for an op beside the one that XLA moves a value for: it is for that.

        The value may then be another as well, and nothing that is given the other op says a need.
        """
        has = tuple(each for each in origin.annotations if each.role == "has")
        if not has:
            return replace(origin, uncertain=True)
        scope, primitive = _scope(ops[0])
        return replace(
            origin,
            op=primitive,
            scope=scope,
            source=ops[0].source,
            after=None,
            annotations=has,
            needed_together=NOBODY,
            uncertain=True,
        )

    def is_moved(
        self, need: Need, axes: tuple[AxisPart, ...], collective: Collective, part: Part
    ) -> bool:
        """Whether what is communicated is like a block of a value that is known to be moved."""
        return (
            self.around.misfit(need, collective, part, axes) < NO_FIT
            and self.around.is_said(need, axes)
            and not self.around.is_in_line(need, axes)
        )

    def is_own_edge(
        self, need: Need, ops: Container[Op], axes: tuple[AxisPart, ...], part: Part
    ) -> bool:
        """Whether it is the edge of a block that one of some ops itself reaches into."""
        op = need.op
        return (
            op is not None
            and op in ops
            and kind_of(op) in REACHING
            and self.around.is_edge(need, axes, part)
        )

    def fits_elsewhere(
        self,
        values: Collection[ValueId],
        collective: Collective,
        part: Part,
        axes: tuple[AxisPart, ...],
    ) -> bool:
        """Whether what takes one of some values needs it as what is communicated is."""
        return any(
            need.value == value and self.around.misfit(need, collective, part, axes) < NO_FIT
            for value in values
            for op, _ in self.graph.uses(*value)
            for need in self.around.needs(op, axes)
        )

    def of_argument(
        self,
        collective: Collective,
        part: Part,
        axes: tuple[AxisPart, ...],
        values: Container[ValueId],
    ) -> CollectiveOrigin | None:
        """What needs an argument otherwise that is moved, where XLA names what takes it later."""
        argument = self.around.argument(part.argument)
        users = [] if argument is None else [op for op, _ in self.graph.uses(*argument)]
        needs = [
            need
            for op in users
            for need in self.around.needs(op, axes)
            if need.value in values and self.could_be_for(need.value, collective, axes)
        ]
        fits = {id(need): self.around.misfit(need, collective, part, axes) for need in needs}
        best = min(needs, key=lambda need: fits[id(need)], default=None)
        if best is None or fits[id(best)] >= NO_FIT:
            return None
        return self.origin_for(best, axes, part, collective.kind)

    def moved_before(
        self,
        ops: list[Op],
        collective: Collective,
        part: Part,
        values: Collection[ValueId],
        *,
        only: bool = False,
    ) -> CollectiveOrigin | None:
        """What is gathered over axes that XLA moved it to first, from those that it has.

        Or exchanged over these, or permuted, of a value that is known.

        Args:
            ops: the ops around which it is needed.
            collective: what gathers or moves it.
            part: the tensor that is gathered or moved.
            values: the values that it may be.
            only: whether it can be no other value.
        """
        kind = collective.kind
        if kind not in ("all-gather", "all-to-all", "collective-permute"):
            return None
        is_gather, axes = kind == "all-gather", self.parts_of(collective)
        every = self.around.every_axis
        needs = [need for op in ops for need in self.around.needs(op, every)]
        if only or part.argument is not None or not is_gather:
            needs = [need for need in needs if need.value in values]
        for need in sorted(needs, key=lambda need: need.value not in values):
            own = tuple(self.around.carried(need.value, every))
            if not self.around.is_need(need, own):
                continue  # What keeps the axes that it has is not gathered over them.
            if (
                self.around.misfit(need, collective, part, own) == 0
                if is_gather
                else self.around.is_moved(need, axes, part)
                if kind == "all-to-all"
                else self.around.is_moved_on(need, axes, part)
            ):
                origin = self.aligned(need, own, collective, part) or self.origin_for(
                    need, own, part, kind, is_moved=True
                )
                is_known = any(self.around.is_alike(value, part) for value in values)
                is_other = is_known and need.value not in values
                return origin and replace(origin, uncertain=is_other)
        return None

    def aligned(
        self, need: Need, own: tuple[AxisPart, ...], collective: Collective, part: Part
    ) -> CollectiveOrigin | None:
        """What is gathered over axes that it was moved to as another tensor of the op has them.

        And used there, so that it is made by the op itself: had it no axes of its own, it would be
        cut over them and gathered as well.
        """
        axes = self.parts_of(collective)
        is_used = need.op is not None and need.op in self.ops(part.makers)
        other = self.around.aligned_with(need, axes) if is_used else None
        if other is None:
            return None
        origin = self.origin_for(replace(need, value=other), axes, part, collective.kind)
        moved: _Moved = {**self.moved(need.value), "before": None}
        return origin and replace(origin, **moved, after=self.decided.spec_without(need.value, own))

    def exchanged(
        self, need: Need, axes: tuple[AxisPart, ...], collective: Collective, part: Part
    ) -> CollectiveOrigin | None:
        """What is gathered over axes that XLA moved one dimension to, from as many pieces of it.

        The value may have these axes on another dimension, which is not what is gathered.
        """
        if collective.kind != "all-gather":
            return None
        slices = [
            own
            for dim in self.decided.axes(need.value)
            for own in _slices(dim)
            if part_size(own) == part_size(axes)
            and not any(each.shared(axis) for each in own for axis in axes)
            and self.around.misfit(need, collective, part, own) == 0
        ]
        # Rows are not columns, where both fit.
        straight = [own for own in slices if not self.around.is_across(need, part, own)]
        is_across = self.around.is_across(need, part, axes)
        if not (straight if is_across else slices):
            return None
        own = (straight or slices)[0]
        origin = self.origin_for(need, own, part, collective.kind, is_moved=True)
        # What has these axes besides goes on with others, which are not known.
        return replace(origin, after=None) if origin and is_across else origin

    def exchanged_before(
        self,
        ops: list[Op],
        axes: tuple[AxisPart, ...],
        collective: Collective,
        part: Part,
        values: Container[ValueId] | None,
    ) -> CollectiveOrigin | None:
        """As ``exchanged``, of whatever is needed around ops, or of some values."""
        needs = (
            need
            for op in ops
            for need in self.around.needs(op, self.around.every_axis)
            if values is None or need.value in values
        )
        exchanged = (self.exchanged(need, axes, collective, part) for need in needs)
        return next((each for each in exchanged if each is not None), None)

    def one_element(
        self, ops: list[Op], axes: tuple[AxisPart, ...], part: Part
    ) -> CollectiveOrigin | None:
        """A dimension of one element is gathered by a sum: one device has it, the others zeros.

        So is one that its devices don't divide, here of what is written into another tensor.
        """
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
                        and self.around.is_gathered(need.value, axes, part)
                    )
                ):
                    return self.origin_for(need, axes, part, "all-gather")
        return None

    def could_be_for(
        self, value: ValueId, collective: Collective, axes: tuple[AxisPart, ...]
    ) -> bool:
        """Whether it may be what is sent: what is not in pieces along the axes is not gathered."""
        return collective.kind != "all-gather" or bool(self.around.carried(value, axes))

    def origin_for(
        self,
        need: Need,
        axes: tuple[AxisPart, ...],
        part: Part,
        kind: str,
        *,
        is_moved: bool = False,
    ) -> CollectiveOrigin | None:
        """Who gives a value some axes, and who needs it otherwise.

        Args:
            need: for what the value is needed otherwise.
            axes: those of its own that are moved or gathered.
            part: the tensor that is communicated.
            kind: the kind of what communicates it; empty where that may be for another need.
            is_moved: whether XLA moved it from these axes to those that it is gathered over.
        """
        value, op = need.value, need.op
        calls = _calls_of(part)
        has = self.annotations([value], axes, "has", calls)
        needed: list[OriginAnnotation] = []
        taken: list[ValueId] = []  # What is needed for its axes, which are:
        on = axes
        keepers: list[Keeper] = []
        after: Spec | None = None
        reaches = op is not None and kind == "collective-permute" and kind_of(op) in REACHING
        if op is None:
            written = self.annotated.of_result(need.result or 0)
            if written is not None:
                needed.append(self.needed(written, axes))
            wanted = self.around.wanted(need.result or 0)
            after = wanted[1] if wanted is not None else None
        elif need.output is None and op.is_constraint:
            written = self.annotated.of_op(op.id)
            if written is not None:
                needed.append(self.needed(written, axes))
                keepers = [written]
            taken = [(op.id, 0)]
            after = self.decided.spec((op.id, 0))
        elif need.output is not None and kind_of(op) == "while":
            taken = [need.output]
            needed = self.annotations(taken, axes, "needed", calls)
            after = self.decided.spec(need.output)
        else:
            # An op reaches into its neighbours' blocks whatever its other tensors have.
            if not (reaches and self.around.is_edge(need, axes, part)):
                keepers = [*self.around.closing(need, axes), *self.around.withheld(need, axes)]
                needed = [self.keeper(keeper, axes) for keeper in keepers]
                taken = self.around.conflicting(need, axes)
                needed += self.annotations(taken, axes, "needed", calls)
            if kind == "all-gather" and not needed:
                taken, on = self.around.competing(need, axes)
                needed += self.annotations(taken, on, "needed", calls)
            # What it has itself is needed otherwise for others, where there are any.
            own = {each.key for each in has}
            needed = [each for each in needed if each.key not in own] or needed
            if self.around.is_aligned(need):
                after = self.decided.spec((op.id, 0))
            elif kind == "all-gather":
                after = self.gathered(value, axes, part, is_moved=is_moved)
        # A product of a value with itself: no sharding of it suits both sides.
        is_square = (
            op is not None and kind_of(op) in _SPLIT and self.around.operands(op).count(value) > 1
        )
        if not has and not needed:
            return None
        # What is gathered has a sharding that it is needed with, which says more.
        is_rearranged = after is None and self.around.is_rearranged(need, axes)
        is_rearranged = is_rearranged and {each.key for each in has}.issuperset(
            each.key for each in needed
        )
        if after is None and not is_rearranged and not reaches:
            after = self.sent(need, part)
        moved = self.moved(value)
        if not (is_rearranged or reaches) and self.around.is_joined_across(value):
            moved["before"] = None
        instead = self.around.gathered_instead(need, axes, calls) if kind == "all-gather" else ()
        scope, primitive = ("", "return") if op is None else _scope(op)
        kind_of_need: OriginKind = "exchange" if reaches else "resharding"
        return _origin(
            "rearrangement" if is_rearranged else kind_of_need,
            op,
            scope,
            primitive,
            **moved,
            after=after,
            annotations=has if is_rearranged else (*has, *_distinct(needed)),
            together=self.together([value], axes, calls, instead),
            needed_together=self.needed_together(
                self.together(taken, on, calls),
                self.annotated.kept_away_otherwise(self.around.bare(need, axes), keepers)
                if keepers
                else [],
                axes,
            ),
            result=self.result_name(need.result) if op is None else "",
            may_split=kind == "all-gather" and is_square,
        )

    def sent(self, need: Need, part: Part) -> Spec | None:
        """The sharding that a permutation gives a value for an op; None where it is not known.

        That the pairs say, if they are of its blocks as it has them: XLA may make it otherwise, and
        names the move from there after it, too.
        """
        if not part.pairs or need.op not in self.ops(part.tags):
            return None
        value, shapes = need.value, [tuple(leaf.dimensions) for leaf in part.shape.leaves]
        if value not in self.values(part) or shapes != [self.around.block(value)]:
            return None
        makers = self.ops(part.makers)
        if part.is_followed and not all(is_elementwise(op.kind) for op in makers):
            return None
        return self.decided.spec_sent(value, part.pairs)

    def gathered(
        self, value: ValueId, axes: Sequence[AxisPart], part: Part, *, is_moved: bool
    ) -> Spec | None:
        """The sharding that is left of a value that is gathered; None where it is not known.

        Where devices permuted its blocks before, it no longer has its own axes; where they cut it
        again, it has others.
        """
        axes = [*axes, *self.gathered_too(part)]
        is_said = any(kind_of(op) == SHARD_MAP for op in self.ops(part.tags))
        if not is_said and (part.moved_on or self.is_exchanged_behind(part)):
            return None
        if is_moved or part.before != "permuted":
            further = self.around.gathered_before(value, axes, part)
            return self.decided.spec_without(value, [*axes, *further])
        return self.decided.spec_without(value, axes, part.pairs) if part.pairs else None

    def is_exchanged_behind(self, part: Part) -> bool:
        """Whether the same value is exchanged for the same op, and was not before it is gathered.

        XLA gathers what does not change in a loop outside of it, and may exchange it inside.
        """
        others = (other for path in part.tags for _, other in self.exchanges.get(path[-1], ()))
        is_known = part.argument is not None or bool(part.makers)
        return (
            is_known
            and not part.before
            and any((each.argument, each.makers) == (part.argument, part.makers) for each in others)
        )

    def gathered_too(self, part: Part) -> Iterator[AxisPart]:
        """The axes over which other all-gathers gather the same value for the same op."""
        for name in part.gathered_too:
            yield from self.gathers.get(name, ())

    def moved(self, value: ValueId) -> _Moved:
        """What to call a value, and how it is sharded."""
        spec, form = self.decided.spec(value), self.names.form(value)
        same = form is None or self.decided.spec(self.names.source(value)) == spec
        kind = "" if same or form is None else kind_of(form)
        return {
            "value": self.names.name(value),
            # What comes out of a shard_map is called by it.
            "form": "" if kind == "shard_map" else kind,
            "carried": self.names.is_carried(value),
            "before": spec,
        }

    def result_name(self, index: int | None) -> str:
        main = self.graph.main
        if main is None or index is None or index >= len(main.results):
            return ""
        return main.name_of(main.results[index])

    def annotations(
        self,
        values: Sequence[ValueId],
        axes: tuple[AxisPart, ...],
        role: OriginRole,
        calls: tuple[int, ...],
    ) -> list[OriginAnnotation]:
        """The annotations that the axes of values come from, each once."""
        annotated_axes = (
            annotated
            for value in values
            for part in self.around.carried(value, axes)
            for annotated in self.annotated.of_value(value, part, calls)
        )
        return list(self.grouped(annotated_axes, role))

    def together(
        self,
        values: Sequence[ValueId],
        axes: tuple[AxisPart, ...],
        calls: tuple[int, ...],
        instead: Iterable[tuple[HeldAxis, AxisPart]] = (),
    ) -> Together:
        """All annotations that can be where the axes of values come from, or what is instead."""
        own = (
            component
            for value in values
            for part in self.around.carried(value, axes)
            for component in self.annotated.components(value, part, calls)
        )
        components = tuple(dict.fromkeys((*own, *instead)))
        if components not in self._together:
            annotated_axes = [
                annotated
                for component in components
                for annotated in self.annotated.together(*component)
            ]
            self._together[components] = Together(tuple(self.grouped(annotated_axes, "has")))
        return self._together[components]

    def needed_together(
        self, taken: Together, keepers: Sequence[Keeper], axes: tuple[AxisPart, ...]
    ) -> Together:
        """All for whom a value can be needed: they say axes, or keep them away."""
        if not keepers:
            return taken
        return Together((*taken.annotations, *(self.keeper(each, axes) for each in keepers)))

    def grouped(
        self, annotated_axes: Iterable[AnnotatedAxis], role: OriginRole
    ) -> Iterator[OriginAnnotation]:
        """Axes by the annotation that they come from."""
        by_annotation: dict[tuple[object, ...], list[AnnotatedAxis]] = {}
        for annotated in annotated_axes:
            key = (
                annotated.kind,
                annotated.name,
                annotated.spec,
                annotated.source,
                annotated.mapped,
            )
            by_annotation.setdefault(key, []).append(annotated)
        return (self.joined(each, role) for each in by_annotation.values())

    def joined(self, annotated_axes: Sequence[AnnotatedAxis], role: OriginRole) -> OriginAnnotation:
        first = annotated_axes[0]
        axes = dict.fromkeys(annotated.part.axis(self.decided.mesh) for annotated in annotated_axes)
        return OriginAnnotation(
            first.kind,
            first.name,
            first.spec,
            tuple(axes),
            role,
            first.source,
            all(annotated.recorded for annotated in annotated_axes),
            first.mapped,
        )

    def keeper(self, keeper: Keeper, axes: tuple[AxisPart, ...]) -> OriginAnnotation:
        """The annotation that keeps axes from another tensor of an op."""
        if not isinstance(keeper, Binding):
            return self.needed(keeper, axes, recorded=False)
        mesh, sharding = self.decided.mesh, keeper.sharding
        spec = (
            spec_in(sharding, sharding.rank, mesh) if isinstance(sharding, TensorSharding) else ""
        )
        named = tuple(axis.axis(mesh) for axis in axes)
        return OriginAnnotation(
            keeper.kind,
            keeper.name,
            spec or "",
            named,
            "needed",
            keeper.source,
            recorded=True,
            mapped=keeper.mapped,
        )

    def needed(
        self, wanted: WrittenSpec, axes: tuple[AxisPart, ...], *, recorded: bool = True
    ) -> OriginAnnotation:
        """The annotation of a constraint or result that a value is needed for."""
        annotation, mesh = wanted.annotation, self.decided.mesh
        named = tuple(axis.axis(mesh) for axis in axes)
        return OriginAnnotation(
            annotation.named_kind,
            annotation.path,
            wanted.spec,
            named,
            "needed",
            annotation.source,
            recorded=recorded,
            mapped=annotation.mapped,
        )


def _origin(
    kind: OriginKind,
    op: Op | None,
    scope: str,
    primitive: str,
    *,
    value: str = "",
    form: str = "",
    carried: bool = False,
    before: Spec | None = None,
    after: Spec | None = None,
    annotations: Sequence[OriginAnnotation] = (),
    together: Together = NOBODY,
    needed_together: Together = NOBODY,
    result: str = "",
    may_split: bool = False,
    uncertain: bool = False,
    own_result: bool = False,
) -> CollectiveOrigin:
    return CollectiveOrigin(
        kind=kind,
        value=value,
        form=form,
        carried=carried,
        before=before,
        after=after,
        op=primitive,
        scope=scope,
        source=None if op is None else op.source,
        annotations=tuple(annotations),
        together=together,
        needed_together=needed_together,
        result=result,
        may_split=may_split,
        uncertain=uncertain,
        own_result=own_result,
    )


def _distinct(annotations: Iterable[OriginAnnotation]) -> Collection[OriginAnnotation]:
    """The first of those that are written in one place."""
    by_key: dict[object, OriginAnnotation] = {}
    for annotation in annotations:
        by_key.setdefault(annotation.key, annotation)
    return by_key.values()


def _calls_of(part: Part) -> tuple[int, ...]:
    """The calls that lead to what a tensor is for, or else to what makes it."""
    return next((path[:-1] for path in (*part.tags, *part.makers) if len(path) > 1), ())


def _slices(axes: tuple[AxisPart, ...]) -> Iterator[tuple[AxisPart, ...]]:
    """Axes of one dimension that follow each other, all of them first."""
    for length in range(len(axes), 0, -1):
        for start in range(len(axes) - length, -1, -1):
            yield axes[start : start + length]


def _scope(op: Op) -> tuple[str, str]:
    scope, primitive = scope_of(op.scope)
    return scope, primitive or kind_of(op)
