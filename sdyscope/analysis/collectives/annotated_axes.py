"""Which annotations of the program the axes of a value come from, under both partitioners.

Shardy records it: the pointers that ``explain`` follows. GSPMD records nothing, nor does Shardy in
a few modules; there an axis is followed along the data flow, from dimension to dimension of values
that are sharded on it, to the nearest annotation with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from sdyscope.analysis.collectives.propagated_axes import (
    AxesByDim,
    PropagatedAxes,
    axes_in,
    spec_of,
)
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.components import AxisComponents, HeldAxis, joined_by_shardy
from sdyscope.analysis.propagation.flow import Ref
from sdyscope.analysis.propagation.openness import Binding, Openness
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.annotations import Annotation
from sdyscope.facts.origins import OriginAnnotation, OriginRole, Spec
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op
from sdyscope.graph.op_kinds import BARRIERS, is_elementwise
from sdyscope.graph.same_dims import same_dims
from sdyscope.graph.summed_dims import spatial_dims
from sdyscope.values.mesh import AxisRef
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation, line_of
from sdyscope.walk import reached

#: Ops whose operands and results are only alike through their regions or functions.
_CROSSED = frozenset(
    {"while", "case", "if", "call", "manual_computation", "named_computation", "func", "module"}
)

#: Ops that keep each dimension of a tensor at its place, though not its size.
RESIZED: Final = frozenset(
    {
        "concatenate",
        "custom_call",
        "dynamic_slice",
        "dynamic_update_slice",
        "pad",
        "reduce_window",
        "slice",
    }
)

#: Ops whose attributes say which dimensions of their tensors are the same.
_PAIRED = frozenset({"broadcast_in_dim", "dot_general", "gather", "reduce", "scatter", "transpose"})

#: How many values of its shape are looked at around one.
_NEAR: Final = 60

#: How many where it is enough to know whether there is one: rematerialized layers are twice as far.
_FAR: Final = 120

_Link: TypeAlias = Literal["any", "size", "place"] | tuple[tuple[int, int], ...]
"""Which dimensions of two values can be the same: any, equally large ones, those at one place; or
these of the first and of the second."""

_Said: TypeAlias = tuple[str, int] | str
"""The line of an annotation, or the path of an argument or result."""

#: A value and one of its dimensions.
_Dim: TypeAlias = tuple[ValueId, int]


class WrittenSpec(NamedTuple):
    """An annotation, how JAX writes it, and the axes of each dimension in it."""

    annotation: Annotation
    spec: Spec
    axes: AxesByDim

    def origin(
        self, axes: tuple[AxisRef, ...], role: OriginRole = "has", *, recorded: bool
    ) -> OriginAnnotation:
        """It as where axes come from, or as what a value is needed for."""
        annotation = self.annotation
        return OriginAnnotation(
            annotation.named_kind,
            annotation.path,
            self.spec,
            axes,
            role,
            annotation.source,
            recorded,
            annotation.mapped,
        )


Keeper: TypeAlias = WrittenSpec | Binding
"""An annotation that keeps axes away: as Shardy is given it, or followed."""


class AnnotatedAxes:
    """Finds annotations in one propagation.

    Args:
        decided: its shardings.
        annotations: what is written in the lowered module.
        pointers: what Shardy recorded; None under GSPMD.
    """

    def __init__(
        self,
        decided: PropagatedAxes,
        annotations: tuple[Annotation, ...],
        pointers: Pointers | None = None,
    ) -> None:
        self.decided = decided
        self.graph = decided.graph
        self.pointers = pointers
        self.openness = None if pointers is None else Openness(pointers.flow, annotations)
        #: What is written, by identity: annotations share their shardings and placements.
        self._specs: dict[tuple[object, ...], tuple[Spec, AxesByDim]] = {}
        self._written = [self._as_written(annotation) for annotation in annotations]
        self._on_results: dict[int | None, WrittenSpec] = {}
        self._on_ops: dict[int, WrittenSpec] = {}
        for written in self._written:
            annotation = written.annotation
            if annotation.kind == "result" and annotation.sharding is not None:
                self._on_results.setdefault(annotation.index, written)
            if annotation.kind not in ("argument", "result"):
                self._on_ops.setdefault(annotation.op, written)
        self._nearest: dict[AxisPart, dict[_Dim, WrittenSpec]] = {}
        # By value; by the identity of its axes: values that are sharded alike have the same.
        self._dims_on: dict[AxisPart, tuple[dict[ValueId, list[int]], dict[int, list[int]]]] = {}
        self._without: dict[AxisPart, dict[_Dim, WrittenSpec]] = {}
        self._alike: dict[ValueId, list[ValueId]] = {}
        self._standing_in: dict[tuple[Ref, int, AxisPart, AxisPart, bool], list[HeldAxis]] = {}
        # Searches for what stands in meet most values many times.
        self._held_at: dict[AxisPart, dict[Ref, dict[int, HeldAxis]]] = {}
        self._dims_beside: dict[_Dim, list[_Dim]] = {}
        self._kept_away_by: dict[tuple[Ref, int, AxisPart], frozenset[_Said]] = {}
        self._said: dict[HeldAxis, frozenset[_Said]] = {}
        self._groups: dict[int, dict[_Dim, list[list[_Dim]]]] = {}

    def of_value(
        self, value: ValueId, part: AxisPart, calls: tuple[int, ...] = ()
    ) -> tuple[OriginAnnotation, ...]:
        """Where an axis of a value comes from; nothing where none was found.

        Args:
            value: which value.
            part: the axis.
            calls: of a value of a function that is called several times, the calls that lead to it.
        """
        recorded = tuple(self._recorded(value, part, calls))
        if recorded:
            return recorded
        nearest = self._followed(part)
        distinct = {
            id(written): written
            for dim in self._dims(value, part)
            if (written := nearest.get((value, dim))) is not None
        }
        axes = (part.axis(self.decided.mesh),)
        return tuple(written.origin(axes, recorded=False) for written in distinct.values())

    def without(self, value: ValueId, dim: int, part: AxisPart) -> WrittenSpec | None:
        """The nearest annotation of a dimension like this one that says it without an axis.

        Followed through values of the same shape, none of which has the axis there. By hand, as
        ``_followed``: NetworkX takes 5 times as long (benchmarks/walks.py).
        """
        if part not in self._without:
            nearest: dict[_Dim, WrittenSpec] = {}
            queue: deque[_Dim] = deque()
            for written in self._written:
                for start in self._annotated_values(written.annotation):
                    for at in self._dims_without(start, part):
                        if (start, at) not in nearest and at < len(written.axes):
                            nearest[start, at] = written
                            queue.append((start, at))
            while queue:
                current, at = queue.popleft()
                for other in self._of_its_shape(current):
                    if (other, at) not in nearest and at in self._dims_without(other, part):
                        nearest[other, at] = nearest[current, at]
                        queue.append((other, at))
            self._without[part] = nearest
        return self._without[part].get((value, dim))

    def standing_in(
        self, value: ValueId, part: AxisPart, dims: Iterable[int], calls: tuple[int, ...] = ()
    ) -> Iterator[tuple[HeldAxis, AxisPart]]:
        """As ``components``, of what gives dimensions an axis once what they have it from is gone.

        An axis is on one dimension of a value, and comes no further where another has it, or an
        annotation keeps it away. So the dimensions are followed to the nearest that have it from
        others, through values that have it nowhere or from what is gone.

        Args:
            value: which value.
            part: the axis.
            dims: those of its dimensions that may get it.
            calls: as of ``components``.
        """
        at = self.in_flow(value, calls)
        if at is not None:
            for dim in dims:
                yield from ((each, part) for each in self._nearest_of_others(at, dim, part, part))

    def may_come(
        self, value: ValueId, part: AxisPart, gone: AxisPart, calls: tuple[int, ...] = ()
    ) -> bool:
        """Whether dimensions may get an axis once what they have another one from is gone.

        Args:
            value: which value.
            part: the axis that may come.
            gone: the one that the dimensions have now.
            calls: as of ``components``.
        """
        at = self.in_flow(value, calls)
        return at is not None and any(
            self._nearest_of_others(at, dim, part, gone, may_move=True)
            for dim in self._dims(value, gone)
        )

    def _nearest_of_others(
        self, at: Ref, dim: int, part: AxisPart, gone: AxisPart, *, may_move: bool = False
    ) -> list[HeldAxis]:
        """The nearest dimensions that have an axis from others than those that are gone.

        Args:
            at: which value.
            dim: the dimension of it that is followed.
            part: the axis.
            gone: the one whose annotations on the value are gone.
            may_move: whether to follow values, too, that have the axis elsewhere from others
                besides those that are gone: without these they may have it here.
        """
        key = (at, dim, part, gone, may_move)
        known = self._standing_in.get(key)
        if known is not None:
            return known
        own = set(self._components_at(at, gone).values())
        said = frozenset[_Said]().union(*map(self._said_by, own))

        def is_gone(component: HeldAxis) -> bool:
            return component in own or (bool(by := self._said_by(component)) and by <= said)

        def may_go(component: HeldAxis) -> bool:
            return not said.isdisjoint(self._said_by(component))

        nearest: dict[HeldAxis, None] = {}
        held = self._held_on(part)

        def beside(place: tuple[Ref, int]) -> Iterable[tuple[Ref, int]]:
            if component is not None:
                goes_on = is_gone(component)
            else:
                others = all(
                    is_gone(each) or (may_move and may_go(each)) for each in there.values()
                )
                goes_on = others and self._said_away(*place, part) <= said
            return self._beside(*place) if goes_on else ()

        # What is beside a place is asked for right after it.
        for value, at_dim in reached([(at, dim)], beside, _FAR if may_move else _NEAR):
            there = held(value)
            component = there.get(at_dim)
            if component is not None and not is_gone(component):
                nearest[component] = None
                if may_move:
                    break  # One is enough.
        self._standing_in[key] = [*nearest]
        return self._standing_in[key]

    def _said_by(self, component: HeldAxis) -> frozenset[_Said]:
        """The annotations of a component, each by what is taken away with it."""
        said = self._said.get(component)
        if said is None:
            said = self._said[component] = frozenset(
                _said(written) for written, _ in self._by_component.get(component, ())
            )
        return said

    def _components_at(self, at: Ref, part: AxisPart) -> dict[int, HeldAxis]:
        """By dimension of a value in the flow that has an axis, what holds it together."""
        return self._held_on(part)(at)

    def _held_on(self, part: AxisPart) -> Callable[[Ref], dict[int, HeldAxis]]:
        """``_components_at`` of one axis."""
        known = self._held_at.setdefault(part, {})

        def held(at: Ref) -> dict[int, HeldAxis]:
            there = known.get(at)
            if there is None:
                own = self._held_by(at) if self.pointers is None else self.pointers.flow.parts(at)
                there = known[at] = {
                    dim: self._components.of(HeldAxis(at, dim, part.name))
                    for dim, each in own
                    if each.shared(part) is not None
                }
            return there

        return held

    def _said_away(self, at: Ref, dim: int, part: AxisPart) -> frozenset[_Said]:
        """The annotations that keep an axis from a dimension, each by what goes with it."""
        said = self._kept_away_by.get((at, dim, part))
        if said is None:
            keeping = map(_said, self.keeping_away(at, dim, part))
            said = self._kept_away_by[at, dim, part] = frozenset(keeping)
        return said

    def keeping_away(self, at: Ref, dim: int, part: AxisPart) -> Iterator[Keeper]:
        """The annotations that keep an axis from a dimension, and do not have it.

        Args:
            at: a value in the flow.
            dim: which of its dimensions.
            part: the axis.
        """
        if self.openness is None:
            for written in self._written_at.get(at, ()):
                if not self._lets_pass(written, dim, part):
                    yield written
            return
        mesh = self.decided.mesh
        for binding in self.openness.keeping(at, dim, part):
            sharding = binding.sharding
            if isinstance(sharding, TensorSharding) and not _has(axes_in(sharding, mesh), part):
                yield binding

    def _moved_to(self, at: Ref, part: AxisPart) -> Iterator[WrittenSpec]:
        """The results as which GSPMD returns a value without an axis, moved at the very end."""
        for written in self._written_at.get(at, ()) if self._is_gspmd else ():
            if written.annotation.kind == "result" and not _has(written.axes, part):
                yield written

    def kept_away_otherwise(
        self, starts: Sequence[tuple[Ref, int, AxisPart]], gone: Sequence[Keeper]
    ) -> list[Keeper]:
        """Who else keeps axes away from where some annotations keep them away, without these.

        The axes then go on through dimensions that have none of them, up to those where other
        annotations keep them away.

        Args:
            starts: dimensions of values in the flow that they are kept away from, with the axis.
            gone: the annotations.
        """
        said = frozenset(map(_said, gone))
        others: dict[_Said, Keeper] = {}
        for start in starts:
            part = start[-1]
            for at, dim in self._kept_away_around(start, said):
                for keeper in (*self.keeping_away(at, dim, part), *self._moved_to(at, part)):
                    if _said(keeper) not in said:
                        others.setdefault(_said(keeper), keeper)
        return list(others.values())

    def _kept_away_around(
        self, start: tuple[Ref, int, AxisPart], said: frozenset[_Said]
    ) -> Iterator[tuple[Ref, int]]:
        """The dimensions without an axis around one, up to where others keep it away."""
        part = start[-1]

        def beside(place: tuple[Ref, int]) -> Iterable[tuple[Ref, int]]:
            if self._components_at(place[0], part) or not self._said_away(*place, part) <= said:
                return ()
            return self._beside(*place)

        for place in reached([start[:2]], beside, _NEAR):
            if not self._components_at(place[0], part):
                yield place

    def _lets_pass(self, written: WrittenSpec, dim: int, part: AxisPart) -> bool:
        """Whether an annotation lets an axis come to a dimension, or has it.

        GSPMD takes axes across arguments as across any value, and restores what is written there
        when it is done; and what is returned otherwise than it is sharded is moved only then.
        """
        annotation = written.annotation
        if _has(written.axes, part) or dim in annotation.open_dims:
            return True
        whole = annotation.kind == "argument" and not any(written.axes[dim : dim + 1])
        return self._is_gspmd and (whole or annotation.kind == "result")

    @property
    def _is_gspmd(self) -> bool:
        return self.decided.propagated.partitioner == "gspmd"

    @cached_property
    def _passing(self) -> dict[_Dim, list[_Dim]]:
        """The dimensions of arguments that GSPMD takes axes across, which they have none of.

        Each with the dimensions of other values that are one with it.
        """
        if not self._is_gspmd:
            return {}
        passing = {}
        for written in self._written:
            if written.annotation.kind == "argument" and written.annotation.sharding is not None:
                for value in self._annotated_values(written.annotation):
                    for dim, own in enumerate(self.decided.axes(value)):
                        if not own:
                            passing[value, dim] = self._beside(value, dim)
        return passing

    @cached_property
    def _passed_by(self) -> dict[_Dim, list[_Dim]]:
        """Which of ``_passing`` dimensions of other values are one with."""
        by_dim: dict[_Dim, list[_Dim]] = {}
        for at, others in self._passing.items():
            for other in others:
                by_dim.setdefault(other, []).append(at)
        return by_dim

    @cached_property
    def _written_at(self) -> dict[ValueId, list[WrittenSpec]]:
        by_value: dict[ValueId, list[WrittenSpec]] = {}
        for written in self._written:
            if written.annotation.sharding is not None:
                for value in self._annotated_values(written.annotation):
                    by_value.setdefault(value, []).append(written)
        return by_value

    def _beside(self, at: Ref, dim: int) -> list[_Dim]:
        """The dimensions of other values that are one with a value's in an op, or as it goes on."""
        known = self._dims_beside.get((at, dim))
        if known is None:
            known = self._dims_beside[at, dim] = list(dict.fromkeys(self._all_beside(at, dim)))
        return known

    def _all_beside(self, at: Ref, dim: int) -> Iterator[_Dim]:
        if self.pointers is not None:
            yield from self.pointers.flow.beside(at, dim)
            return
        own = self.graph.ops[at[0]]
        users = [self.graph.ops[user] for user, _ in self.graph.users(at)]
        for op in [*([] if own.is_argument else [own]), *users]:
            for group in self._groups_in(op).get((at, dim), ()):
                yield from group
        yield from ((other, dim) for other in self._across.get(at, ()))

    def _groups_in(self, op: Op) -> dict[_Dim, list[list[_Dim]]]:
        """By dimension of an op's tensors, those that are one with it."""
        groups = self._groups.get(op.id)
        if groups is None:
            groups = self._groups[op.id] = {}
            results = [(op.id, result) for result in range(len(op.types))]
            values = [*self.graph.operand_values[op.id], *results]
            shapes = [shape for value in values if (shape := self.decided.shape(value)) is not None]
            for group in same_dims(op, shapes) if len(shapes) == len(values) else ():
                dims = [(values[tensor], beside) for tensor, beside in group]
                for each in dict.fromkeys(dims):
                    groups.setdefault(each, []).append(dims)
        return groups

    @cached_property
    def _across(self) -> dict[ValueId, list[ValueId]]:
        """What values are on the other side of boundaries of regions and functions."""
        across: dict[ValueId, list[ValueId]] = {}
        for _, source, target in self.graph.crossings():
            across.setdefault(source, []).append(target)
            across.setdefault(target, []).append(source)
        for value, other in self._made_once():
            across.setdefault(value, []).append(other)
            across.setdefault(other, []).append(value)
        return across

    def _made_once(self) -> Iterator[tuple[ValueId, ValueId]]:
        """The values that the partitioner has as one, each with the first: equal constants are."""
        for value, propagated_value in self.decided.propagated.values.items():
            first = propagated_value.values[0] if propagated_value.values else value
            if first != value and self.decided.shape(first) == self.decided.shape(value):
                yield first, value

    def _dims_without(self, value: ValueId, part: AxisPart) -> list[int]:
        dims = self._dims(value, part)
        return [dim for dim in range(len(self.decided.axes(value))) if dim not in dims]

    def in_flow(self, value: ValueId, calls: tuple[int, ...] = ()) -> Ref | None:
        """A value as its dimensions are joined: in the propagated graph where Shardy made one."""
        if self.pointers is None:
            return value
        at = self.decided.at(calls).counterpart(value)
        return None if at is None else self.pointers.flow.root(at)

    def components(
        self, value: ValueId, part: AxisPart, calls: tuple[int, ...] = ()
    ) -> Iterator[tuple[HeldAxis, AxisPart]]:
        """What stands for all dimensions that hold an axis together with a value's."""
        at = self.in_flow(value, calls)
        if at is not None:
            yield from ((held, part) for held in self._components_at(at, part).values())

    def together(self, component: HeldAxis, part: AxisPart) -> Iterator[OriginAnnotation]:
        """All that say an axis on dimensions that hold it together."""
        for written, own in self._by_component.get(component, ()):
            shared = own.shared(part)
            if shared is not None:
                axes = (shared.axis(self.decided.mesh),)
                yield written.origin(axes, recorded=self.pointers is not None)

    def of_result(self, index: int) -> WrittenSpec | None:
        """The annotation of a result of the program."""
        return self._on_results.get(index)

    def unreduced(self, value: ValueId, part: AxisPart) -> Iterator[OriginAnnotation]:
        """The annotations of a value that say that it is still to be reduced over an axis."""
        for written, own in self._unreduced.get(value, ()):
            shared = own.shared(part)
            if shared is not None:
                yield written.origin((shared.axis(self.decided.mesh),), recorded=True)

    def reduced_for(self, value: ValueId, part: AxisPart) -> Iterator[OriginAnnotation]:
        """The nearest annotations behind a value left unreduced over an axis that have it reduced.

        Args:
            value: which value.
            part: the axis.
        """
        axes = (part.axis(self.decided.mesh),)
        needed: dict[int, OriginAnnotation] = {}

        def is_left(at: ValueId) -> bool:
            return any(True for _ in self.unreduced(at, part))

        def is_needed(written: WrittenSpec) -> bool:
            annotation = written.origin(axes, "needed", recorded=True)
            if not annotation.is_unreduced:
                needed[id(written)] = annotation
            return not annotation.is_unreduced

        def behind(at: ValueId) -> Iterator[ValueId]:
            results = (
                each for each in self._written_at.get(at, ()) if each.annotation.kind == "result"
            )
            if any(map(is_needed, results)):
                return
            for user, _ in self.graph.uses(*at):
                written = self._on_ops.get(user.id)
                if user.is_constraint and written is not None and is_needed(written):
                    continue
                constraints = ((c.id, 0) for c, _ in self.graph.uses(user) if c.is_constraint)
                own = [(user.id, result) for result in range(len(user.types))]
                if any(map(is_left, (*own, *constraints))):
                    yield from own
            yield from self._passed_on.get(at, ())

        deque(reached([value], behind, _FAR), maxlen=0)
        yield from needed.values()

    @cached_property
    def _passed_on(self) -> dict[ValueId, list[ValueId]]:
        """What values become inside of regions and functions, and behind these."""
        passed_on: dict[ValueId, list[ValueId]] = {}
        for _, source, target in self.graph.crossings():
            passed_on.setdefault(source, []).append(target)
        return passed_on

    @cached_property
    def returned_otherwise(self) -> Mapping[int, int]:
        """The constraints without the axes they say, by what they are returned as.

        GSPMD replicates a result that its devices do not divide evenly (`ShardingPropagation`):
        a constraint that ends the program is then replicated, and only what it is on has its axes.
        """
        # What a call gives is what its function ends with.
        inside = {to: source for kind, source, to in self.graph.crossings() if kind == "return"}
        returned = {}
        for index, value in self.graph.returned.items():
            while value in inside:
                value = inside[value]
            written = self._on_ops.get(value[0])
            if written is None or not self.graph.ops[value[0]].is_constraint:
                continue
            if not all(self._dims(value, part) for dim in written.axes for part in dim):
                returned[value[0]] = index
        return returned

    def of_op(self, op: int) -> WrittenSpec | None:
        """The annotation of a constraint, or that is written on any other op."""
        return self._on_ops.get(op)

    def _as_written(self, annotation: Annotation) -> WrittenSpec:
        key = (
            id(annotation.sharding),
            id(annotation.placement),
            annotation.open_dims,
            len(annotation.shape or ()),
        )
        spec = self._specs.get(key)
        if spec is None:
            spec = spec_of(annotation, self.decided.mesh, self.graph.meshes)
            self._specs[key] = spec
        return WrittenSpec(annotation, *spec)

    def _recorded(
        self, value: ValueId, part: AxisPart, calls: tuple[int, ...]
    ) -> Iterator[OriginAnnotation]:
        ref = self.decided.at(calls).counterpart(value)
        if self.pointers is None or ref is None:
            return
        for _, own in self.pointers.flow.parts(ref):
            shared = own.shared(part)
            for piece in [] if shared is None else self.pointers.pieces(ref, shared):
                start = self.pointers.table[self.pointers.pointer(ref, piece)].beginning
                if start is None:
                    continue
                axes = (piece.axis(self.decided.mesh),)
                if start.annotation is not None:
                    yield self._as_written(start.annotation).origin(axes, recorded=True)
                else:
                    yield OriginAnnotation(
                        start.kind, start.name, "", axes, "has", start.source, True, start.mapped
                    )

    @cached_property
    def _unreduced(self) -> dict[ValueId, list[tuple[WrittenSpec, AxisPart]]]:
        by_value: dict[ValueId, list[tuple[WrittenSpec, AxisPart]]] = {}
        for written in self._written:
            sharding = written.annotation.sharding
            if isinstance(sharding, TensorSharding) and sharding.unreduced_axes:
                parts = [part_of(axis, self.decided.mesh) for axis in sharding.unreduced_axes]
                for value in self._annotated_values(written.annotation):
                    by_value.setdefault(value, []).extend((written, part) for part in parts)
        return by_value

    # What holds an axis together.

    @cached_property
    def _components(self) -> AxisComponents:
        if self.pointers is not None:
            return AxisComponents(joined_by_shardy(self.pointers.flow))
        return AxisComponents(self._joined())

    def _joined(self) -> Iterator[tuple[HeldAxis, HeldAxis]]:
        for value, others in self._neighbours.items():
            for dim, part in self._held_by(value):
                held, dims = HeldAxis(value, dim, part.name), self._on(part)
                for other, link in others:
                    if other < value:
                        continue  # They are joined already, as its neighbour.
                    for beside in dims(other):
                        if self._linked(link, value, dim, other, beside):
                            yield held, HeldAxis(other, beside, part.name)
        for at, besides in self._passing.items():
            for other, beside in besides:
                for part in self._axes_at(other, beside):
                    if not self._dims(at[0], part):
                        yield HeldAxis(*at, part.name), HeldAxis(other, beside, part.name)

    def _held_by(self, value: ValueId) -> list[tuple[int, AxisPart]]:
        """What a value holds, at any call of its function, each with its dimension."""
        return [
            (dim, part)
            for axes in self.decided.axes_at_calls(value)
            for dim, own in enumerate(axes)
            for part in own
        ]

    def _axes_at(self, value: ValueId, dim: int) -> tuple[AxisPart, ...]:
        axes = self.decided.axes(value)
        return axes[dim] if axes else ()

    @cached_property
    def _by_component(self) -> dict[HeldAxis, list[tuple[WrittenSpec, AxisPart]]]:
        """The annotations of each component, with the part of the axis that each says."""
        by_component: dict[HeldAxis, list[tuple[WrittenSpec, AxisPart]]] = {}
        for written in self._written:
            for value in self._annotated_values(written.annotation):
                at = self.in_flow(value)
                if at is None:
                    continue
                for dim, own in enumerate(written.axes):
                    for part in own:
                        component = self._components.of(HeldAxis(at, dim, part.name))
                        by_component.setdefault(component, []).append((written, part))
        return by_component

    # Following.

    def _followed(self, part: AxisPart) -> dict[_Dim, WrittenSpec]:
        """The nearest annotation with an axis, for each dimension that is sharded on it.

        By hand: NetworkX takes 3 times as long (benchmarks/walks.py), most of it to make the
        graph of dimensions, which is another for each axis.
        """
        if part in self._nearest:
            return self._nearest[part]
        nearest: dict[_Dim, WrittenSpec] = {}
        queue: deque[_Dim] = deque()
        dims = self._on(part)
        for written in self._written:
            if not _has(written.axes, part):
                continue
            for value in self._annotated_values(written.annotation):
                for dim in dims(value):
                    if (value, dim) not in nearest:
                        nearest[value, dim] = written
                        queue.append((value, dim))
        while queue:
            value, dim = queue.popleft()
            for other, link in self._neighbours.get(value, ()):
                for beside in dims(other):
                    key = (other, beside)
                    if key not in nearest and self._linked(link, value, dim, *key):
                        nearest[key] = nearest[value, dim]
                        queue.append(key)
            for key in self._across_arguments(value, dim, dims):
                if key not in nearest:
                    nearest[key] = nearest[value, dim]
                    queue.append(key)
        self._nearest[part] = nearest
        return nearest

    def _across_arguments(
        self, value: ValueId, dim: int, dims: Callable[[ValueId], list[int]]
    ) -> list[_Dim]:
        """From a dimension to those of arguments that pass its axis on, and on from these."""
        if dims(value):
            return [each for each in self._passed_by.get((value, dim), ()) if not dims(each[0])]
        return [each for each in self._passing[value, dim] if each[1] in dims(each[0])]

    def _dims(self, value: ValueId, part: AxisPart) -> list[int]:
        """The dimensions of a value that are sharded on an axis."""
        return self._on(part)(value)

    def _on(self, part: AxisPart) -> Callable[[ValueId], list[int]]:
        """``_dims`` of one axis."""
        known, alike = self._dims_on.setdefault(part, ({}, {}))

        def dims(value: ValueId) -> list[int]:
            sharded = known.get(value)
            if sharded is None:
                dims_at_calls = []
                for axes in self.decided.axes_at_calls(value):
                    at_call = alike.get(id(axes))
                    if at_call is None:
                        at_call = alike[id(axes)] = [
                            dim
                            for dim, own in enumerate(axes)
                            if any(own_part.shared(part) is not None for own_part in own)
                        ]
                    dims_at_calls.append(at_call)
                sharded = known[value] = (
                    dims_at_calls[0]
                    if len(dims_at_calls) == 1
                    else sorted(set().union(*dims_at_calls))
                )
            return sharded

        return dims

    def _linked(self, link: _Link, value: ValueId, dim: int, other: ValueId, beside: int) -> bool:
        """Whether two dimensions of an op's tensors can be the same."""
        if isinstance(link, tuple):
            return (dim, beside) in link
        if link != "size":
            return link == "any" or dim == beside
        shape, other_shape = self.decided.shape(value), self.decided.shape(other)
        return shape is None or other_shape is None or shape[dim] == other_shape[beside]

    def _annotated_values(self, annotation: Annotation) -> Iterator[ValueId]:
        graph, main = self.graph, self.graph.main
        if annotation.kind == "argument" and main is not None and annotation.index is not None:
            yield main.arguments[annotation.index].node, 0
        elif annotation.kind == "result" and main is not None:
            returned = None if annotation.index is None else graph.returned.get(annotation.index)
            if returned is not None:
                yield returned
        elif annotation.kind == "shard_map input" and annotation.op >= 0:
            yield from self._values_of(graph.ops[annotation.op], annotation.index)
        elif 0 <= annotation.op < len(graph.ops) and graph.ops[annotation.op].types:
            op = graph.ops[annotation.op]
            if op.id in self.returned_otherwise:
                yield graph.operand_values[op.id][0]
                return
            index = annotation.index if annotation.kind == "shard_map output" else 0
            yield op.id, index if index is not None and index < len(op.types) else 0

    def _values_of(self, op: Op, index: int | None) -> Iterator[ValueId]:
        """What a ``shard_map`` maps: under GSPMD each input has an op of its own."""
        is_own = op.kind.endswith("custom_call")
        for producer, edge in self.graph.operands(op):
            if is_own or index is None or edge.operand == index:
                yield producer.id, edge.result
        if op.types and is_own:
            yield op.id, 0

    @cached_property
    def _neighbours(self) -> dict[ValueId, list[tuple[ValueId, _Link]]]:
        """The values that meet in an op, or are one across the boundary of a region or function.

        The dimensions of an op's only two may have other sizes.
        """
        alike: dict[ValueId, list[tuple[ValueId, _Link]]] = {}

        def join(values: Iterable[ValueId], *, placed: bool = False) -> None:
            distinct = list(dict.fromkeys(values))
            link: _Link = "place" if placed else "any" if len(distinct) == 2 else "size"
            for value in distinct:
                others = alike.setdefault(value, [])
                others.extend((other, link) for other in distinct if other != value)

        graph = self.graph
        for op in graph.operations():
            if op.types and op.mnemonic not in _CROSSED:
                results = [(op.id, result) for result in range(len(op.types))]
                if op.kind in BARRIERS:
                    for pair in zip(graph.operand_values[op.id], results, strict=False):
                        join(pair, placed=True)
                    continue
                values = [*graph.operand_values[op.id], *results]
                if op.mnemonic in _PAIRED:
                    for value in values:
                        alike.setdefault(value, [])
                    for value, other, pairs in self._paired(op):
                        alike[value].append((other, pairs))
                    continue
                join(values, placed=op.mnemonic in RESIZED or self._is_by_element(op, values))
                if windows := spatial_dims(op):
                    source, result = values[0], values[-1]
                    alike[source].append((result, windows))
                    alike[result].append((source, tuple((at, dim) for dim, at in windows)))
        for _, source, target in graph.crossings():
            join((source, target), placed=True)
        for pair in self._made_once():
            join(pair, placed=True)
        # XLA merges reshapes before it propagates: the value between two of them has no sharding.
        for op in reversed(list(graph.operations())):
            value = op.id, 0
            is_reshape = self.decided.is_reshape(op)
            if not (op.is_form or is_reshape) or self.decided.is_known(value):
                continue
            for source in graph.operand_values[op.id][: 1 if is_reshape else None]:
                for other, link in [each for each in alike[value] if each[0] != source]:
                    turned: _Link = "size" if link == "size" else "any"
                    alike[source].append((other, turned))
                    alike.setdefault(other, []).append((source, turned))
        return alike

    def _is_by_element(self, op: Op, values: Sequence[ValueId]) -> bool:
        """Whether an op makes each element of those at its place."""
        shapes = {shape for value in values if (shape := self.decided.shape(value)) != ()}
        return is_elementwise(op.kind) and len(shapes) == 1

    def _paired(self, op: Op) -> Iterator[tuple[ValueId, ValueId, tuple[tuple[int, int], ...]]]:
        """The tensors of an op whose dimensions are known to be the same, two by two."""
        pairs: dict[tuple[ValueId, ValueId], dict[tuple[int, int], None]] = {}
        for (value, dim), groups in self._groups_in(op).items():
            for other, beside in (each for group in groups for each in group):
                if other != value:
                    pairs.setdefault((value, other), {})[dim, beside] = None
        return ((value, other, tuple(dims)) for (value, other), dims in pairs.items())

    def _of_its_shape(self, value: ValueId) -> list[ValueId]:
        """The neighbours of a value that have its shape."""
        alike = self._alike.get(value)
        if alike is None:
            shape = self.decided.shape(value)
            alike = self._alike[value] = [
                other
                for other, _ in self._neighbours.get(value, ())
                if self.decided.shape(other) == shape
            ]
        return alike


def _has(axes: tuple[tuple[AxisPart, ...], ...], part: AxisPart) -> bool:
    return any(own.shared(part) is not None for dim in axes for own in dim)


def _said(keeper: Keeper) -> _Said:
    """An annotation by what goes with it: all of a line, but an argument or result alone."""
    if isinstance(keeper, Binding):
        return _goes_with(keeper.kind, keeper.name, keeper.source)
    annotation = keeper.annotation
    return _goes_with(annotation.kind, annotation.path, annotation.source)


def _goes_with(kind: str, name: str, source: SourceLocation | None) -> _Said:
    line = None if kind in ("argument", "result") else line_of(source)
    return name if line is None else line
