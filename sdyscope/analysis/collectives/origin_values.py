"""Makes the origins of collectives: what to call a value, and the annotations that it is due to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from sdyscope.analysis.collectives.annotated_axes import Keeper
from sdyscope.analysis.collectives.boundaries import SHARD_MAP
from sdyscope.analysis.collectives.communications import Communications
from sdyscope.analysis.collectives.origin_fits import Fits
from sdyscope.analysis.collectives.origin_needs import LOOKING_UP, PRODUCTS, REACHING, Need, kind_of
from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes, spec_in
from sdyscope.analysis.collectives.transfers import Transfer
from sdyscope.analysis.naming.names import ValueNames
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.analysis.propagation.components import HeldAxis
from sdyscope.analysis.propagation.openness import Binding
from sdyscope.facts.origins import (
    CollectiveOrigin,
    OriginAnnotation,
    OriginKind,
    OriginRole,
    Spec,
    Together,
)
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.values.sharding import TensorSharding

#: Ops that XLA may split over devices that would do the same work.
SPLIT: Final = LOOKING_UP | PRODUCTS | {"scatter"}


class ValueFields(TypedDict):
    """The fields of an origin that say which value it is about."""

    value: str
    form: str
    carried: bool
    before: Spec | None


@dataclass(frozen=True)
class _Wanted:
    """How a value is needed.

    Attributes:
        annotations: those that say so.
        after: the sharding that it is needed with; None where it is not known.
        taken: what is needed for its axes.
        on: which of these axes.
        keepers: what keeps axes away.
    """

    annotations: Sequence[OriginAnnotation]
    after: Spec | None
    taken: Sequence[ValueId] = ()
    on: tuple[AxisPart, ...] = ()
    keepers: Sequence[Keeper] = ()


class OriginValues:
    """Makes the origins of one program.

    Args:
        communications: what its collectives communicate.
    """

    def __init__(self, communications: Communications) -> None:
        self.communications = communications
        self.around = communications.around
        self.fits = Fits(self.around)
        self.decided = communications.around.decided
        self.annotated = communications.around.annotated
        self.names = ValueNames(communications.graph)
        self._together: dict[object, Together] = {}

    def at(self, decided: PropagatedAxes) -> OriginValues:
        """The same, of other shardings of the values."""
        origins = copy(self)
        origins.communications = self.communications.at(decided)
        origins.around = origins.communications.around
        origins.fits = Fits(origins.around)
        origins.decided = decided
        return origins

    def of_need(
        self, need: Need, transfer: Transfer, kind: str, *, is_moved: bool = False
    ) -> CollectiveOrigin | None:
        """Who gives a value some axes, and who needs it otherwise; None where nobody is known.

        Args:
            need: for what the value is needed otherwise.
            transfer: what is communicated, over those axes of the value that are moved or gathered.
            kind: the kind of what communicates it; empty where that may be for another need.
            is_moved: whether XLA moved it from these axes to those that it is gathered over.
        """
        value, op, axes, calls = need.value, need.op, transfer.axes, transfer.calls
        has = self.annotations([value], axes, "has", calls)
        wanted = self._wanted(need, transfer, kind, has, is_moved=is_moved)
        needed, after = wanted.annotations, wanted.after
        if not has and not needed:
            return None
        reaches = _reaches(op, kind)
        # What is gathered has a sharding that it is needed with, which says more.
        is_rearranged = (
            after is None
            and self.around.is_rearranged(need, axes)
            and {each.key for each in has}.issuperset(each.key for each in needed)
        )
        if after is None and not is_rearranged and not reaches:
            after = self._sent(need, transfer)
        moved = self.moved(value)
        if not (is_rearranged or reaches) and self.around.is_joined_across(value):
            moved["before"] = None
        instead = self.around.gathered_instead(need, axes, calls) if kind == "all-gather" else ()
        # A product of a value with itself: no sharding of it suits both sides.
        is_square = (
            op is not None and kind_of(op) in SPLIT and self.around.operands(op).count(value) > 1
        )
        kind_of_need: OriginKind = "exchange" if reaches else "resharding"
        return replace(
            origin_at("rearrangement" if is_rearranged else kind_of_need, op),
            **moved,
            after=after,
            annotations=(*has, *(() if is_rearranged else distinct(needed))),
            together=self.together([value], axes, calls, instead),
            needed_together=self._needed_together(need, transfer, wanted),
            result=self._result_name(need.result) if op is None else "",
            may_split=kind == "all-gather" and is_square,
        )

    def moved(self, value: ValueId) -> ValueFields:
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

    def grouped(
        self, annotated_axes: Iterable[OriginAnnotation], role: OriginRole
    ) -> Iterator[OriginAnnotation]:
        """Annotations of one axis each, those alike as one of all their axes."""
        by_annotation: dict[tuple[object, ...], list[OriginAnnotation]] = {}
        for annotated in annotated_axes:
            key = (
                annotated.kind,
                annotated.name,
                annotated.spec,
                annotated.source,
                annotated.mapped,
            )
            by_annotation.setdefault(key, []).append(annotated)
        return (
            replace(
                each[0],
                axes=tuple(dict.fromkeys(axis for alike in each for axis in alike.axes)),
                role=role,
                recorded=all(alike.recorded for alike in each),
            )
            for each in by_annotation.values()
        )

    def _wanted(
        self,
        need: Need,
        transfer: Transfer,
        kind: str,
        has: Sequence[OriginAnnotation],
        *,
        is_moved: bool,
    ) -> _Wanted:
        """How a value is needed, with the axes that it ``has``; arguments as of ``of_need``."""
        op, axes = need.op, transfer.axes
        named = tuple(axis.axis(self.decided.mesh) for axis in axes)
        if op is None:
            result = need.result or 0
            written, wanted = self.annotated.of_result(result), self.around.wanted(result)
            return _Wanted(
                [] if written is None else [written.origin(named, "needed", recorded=True)],
                None if wanted is None else wanted[1],
            )
        if need.output is None and op.is_constraint:
            taken, written = (op.id, 0), self.annotated.of_op(op.id)
            keepers = [] if written is None else [written]
            needed = [keeper.origin(named, "needed", recorded=True) for keeper in keepers]
            return _Wanted(needed, self.decided.spec(taken), [taken], axes, keepers)
        if need.output is not None and kind_of(op) == "while":
            needed = self.annotations([need.output], axes, "needed", transfer.calls)
            return _Wanted(needed, self.decided.spec(need.output), [need.output], axes)
        return self._wanted_by_op(need, op, transfer, kind, has, is_moved=is_moved)

    def _wanted_by_op(
        self,
        need: Need,
        op: Op,
        transfer: Transfer,
        kind: str,
        has: Sequence[OriginAnnotation],
        *,
        is_moved: bool,
    ) -> _Wanted:
        """How an op needs a value, by its other tensors; arguments as of ``of_need``."""
        axes, calls = transfer.axes, transfer.calls
        needed: list[OriginAnnotation] = []
        taken, on = list[ValueId](), axes
        keepers: list[Keeper] = []
        # An op reaches into its neighbours' blocks whatever its other tensors have.
        if not (_reaches(op, kind) and self.fits.is_edge(need, transfer)):
            keepers = [*self.around.closing(need, axes), *self.around.withheld(need, axes)]
            taken = self.around.conflicting(need, axes)
            needed = [self._keeper(keeper, axes) for keeper in keepers]
            needed += self.annotations(taken, axes, "needed", calls)
        if kind == "all-gather" and not needed:
            taken, on = self.around.competing(need, axes)
            needed = self.annotations(taken, on, "needed", calls)
        # What it has itself is needed otherwise for others, where there are any.
        own = {each.key for each in has}
        needed = [each for each in needed if each.key not in own] or needed
        after: Spec | None = None
        if self.around.is_aligned(need):
            after = self.decided.spec((op.id, 0))
        elif kind == "all-gather":
            after = self._gathered(need.value, transfer, is_moved=is_moved)
        return _Wanted(needed, after, taken, on, keepers)

    def _sent(self, need: Need, transfer: Transfer) -> Spec | None:
        """The sharding that a permutation gives a value for an op; None where it is not known.

        That the pairs say, if they are of its blocks as it has them: XLA may make it otherwise, and
        names the move from there after it, too.
        """
        value, part = need.value, transfer.part
        if not part.pairs or need.op not in transfer.ops:
            return None
        if transfer.pieces != [self.around.block(value)]:
            return None
        if value not in self.communications.values(part):
            return None
        if part.is_followed and not all(is_elementwise(op.kind) for op in transfer.makers):
            return None
        return self.decided.spec_sent(value, part.pairs)

    def _gathered(self, value: ValueId, transfer: Transfer, *, is_moved: bool) -> Spec | None:
        """The sharding that is left of a value that is gathered; None where it is not known.

        Where devices permuted its blocks before, it no longer has its own axes; where they cut it
        again, it has others.
        """
        part = transfer.part
        too = tuple(self.communications.gathered_too(part))
        axes = (*transfer.axes, *too)
        is_said = any(kind_of(op) == SHARD_MAP for op in transfer.ops)
        if not is_said and (part.moved_on or self.communications.is_exchanged_behind(part)):
            return None
        if pairs := self.communications.permuted_first(part):
            own = self.communications.axes_of(transfer)
            return self.decided.spec_without(value, (*own, *too), pairs)
        if is_moved or part.before != "permuted":
            further = self.fits.gathered_before(value, transfer.over(axes))
            return self.decided.spec_without(value, [*axes, *further])
        return None

    def _needed_together(self, need: Need, transfer: Transfer, wanted: _Wanted) -> Together:
        """All for whom a value can be needed: they say axes, or keep them away."""
        axes = transfer.axes
        taken = self.together(wanted.taken, wanted.on, transfer.calls)
        if not wanted.keepers:
            return taken
        bare = self.around.bare(need, axes)
        keepers = self.annotated.kept_away_otherwise(bare, wanted.keepers)
        return Together((*taken.annotations, *(self._keeper(each, axes) for each in keepers)))

    def _result_name(self, index: int | None) -> str:
        main = self.communications.graph.main
        if main is None or index is None or index >= len(main.results):
            return ""
        return main.name_of(main.results[index])

    def _keeper(self, keeper: Keeper, axes: tuple[AxisPart, ...]) -> OriginAnnotation:
        """The annotation that keeps axes from another tensor of an op."""
        mesh = self.decided.mesh
        named = tuple(axis.axis(mesh) for axis in axes)
        if not isinstance(keeper, Binding):
            return keeper.origin(named, "needed", recorded=False)
        sharding = keeper.sharding
        spec = (
            spec_in(sharding, sharding.rank, mesh) if isinstance(sharding, TensorSharding) else ""
        )
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


def origin_at(kind: OriginKind, op: Op | None) -> CollectiveOrigin:
    """An origin at an op, or where the program returns, that says nothing of values yet."""
    scope, primitive = ("", "return") if op is None else scope_at(op)
    return CollectiveOrigin(
        kind=kind,
        value="",
        before=None,
        after=None,
        op=primitive,
        scope=scope,
        source=None if op is None else op.source,
        annotations=(),
        node=None if op is None else op.id,
    )


def scope_at(op: Op) -> tuple[str, str]:
    """The scope of an op, and its primitive or else its name."""
    scope, primitive = scope_of(op.scope)
    return scope, primitive or kind_of(op)


def distinct(annotations: Iterable[OriginAnnotation]) -> Collection[OriginAnnotation]:
    """The first of those that are written in one place."""
    by_key: dict[object, OriginAnnotation] = {}
    for annotation in annotations:
        by_key.setdefault(annotation.key, annotation)
    return by_key.values()


def _reaches(op: Op | None, kind: str) -> bool:
    """Whether a collective of a kind moves what an op reaches into its neighbours' blocks for."""
    return op is not None and kind == "collective-permute" and kind_of(op) in REACHING
