"""What one propagation decided for each value, with the annotations that its axes come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from sdyscope.analysis.naming.resolve import ssa_name
from sdyscope.analysis.propagation.axis_parts import part_of
from sdyscope.analysis.propagation.flow import Flow
from sdyscope.analysis.propagation.places import Places
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.annotations import Annotation, num_partitions
from sdyscope.errors import ConversionError
from sdyscope.facts.decided import AxisOrigin, DecidedValue
from sdyscope.facts.moves import Beginning
from sdyscope.facts.propagated import Origins, Propagated, PropagatedValue, ValueId
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import OpGraph, Sharding, TensorType
from sdyscope.staged import Staged
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import AxisRef, Mesh, only_mesh
from sdyscope.values.placement import Digits, Placement, axes_digits, axes_union
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding

#: How many of the values are named that became one.
_NAMED = 10

_Alike: TypeAlias = tuple[ValueId | None, tuple[int, ...]]
"""What makes origins: the value where they are its own, and what else they are made from, by id."""


@dataclass
class Decisions:
    """The values of one propagation, each made once for all that are alike.

    Attributes:
        propagated: the propagation.
        graph: op graph of the lowered module.
        annotations: what is written in it.
        mesh: the mesh to name axes of; None where there are several.
    """

    propagated: Propagated
    graph: OpGraph
    annotations: tuple[Annotation, ...] = ()
    mesh: Mesh | None = None
    _shardeds: dict[object, tuple[Sharded, object]] = field(default_factory=dict)
    _origins: dict[_Alike, tuple[tuple[AxisOrigin, ...], object]] = field(default_factory=dict)
    _elsewhere: dict[int, tuple[bool, object]] = field(default_factory=dict)
    _manuals: dict[int, Digits] = field(default_factory=dict)
    _names: dict[int, list[tuple[ValueId, str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Staged, propagated: Propagated) -> Decisions:
        """The values of one propagation of a program."""
        partitioner = propagated.partitioner
        return cls(
            propagated,
            program.graph(partitioner),
            program.annotations(partitioner),
            only_mesh(program.meshes.values()),
        )

    def on(self, mesh: Mesh | None) -> Decisions:
        """The same with the axes of a mesh."""
        if mesh is self.mesh:
            return self
        return Decisions(self.propagated, self.graph, self.annotations, mesh)

    @cached_property
    def devices(self) -> int:
        """How many devices there are."""
        return self.mesh.size if self.mesh is not None else num_partitions(self.graph)

    @cached_property
    def flow(self) -> Flow:
        """How shardings travelled (Shardy only)."""
        return Flow(self.propagated, self.graph)

    @cached_property
    def pointers(self) -> Pointers:
        """Where each part of an axis comes from (Shardy only)."""
        return Pointers(self.flow, self.annotations)

    @cached_property
    def places(self) -> Places:
        """What origins name (Shardy only)."""
        return Places(self.flow, self.annotations)

    def decided(
        self,
        value: ValueId,
        sharding: Sharding | None = None,
        boundary: Annotation | None = None,
    ) -> DecidedValue | None:
        """What was decided for a value; None where there is no such value.

        Args:
            value: which value of the lowered module.
            sharding: another sharding to show for it: as it was in between, or as it enters a
                ``shard_map``.
            boundary: the annotation of the ``shard_map`` that it enters, which is then its own.
        """
        propagated_value = self.propagated.values.get(value)
        if propagated_value is None:
            return None
        written = propagated_value.sharding if sharding is None else sharding
        return DecidedValue(
            propagated_value.fate,
            self.sharded(value, sharding),
            self._origins_of(propagated_value, written, boundary),
            self._merged_with(propagated_value),
            max(len(propagated_value.values) - 1, 0),
        )

    def _merged_with(self, propagated_value: PropagatedValue) -> tuple[str, ...]:
        """Names of the first others that became the same value."""
        own, values = propagated_value.id, propagated_value.values
        if len(values) < 2:
            return ()
        # All that became one have the same tuple of them.
        names = self._names.get(id(values))
        if names is None:
            first = values[: _NAMED + 1]
            names = self._names[id(values)] = [
                (merged, ssa_name(self.graph, merged)) for merged in first
            ]
        return tuple([name for other, name in names if other != own][:_NAMED])

    def calls(self, value: ValueId) -> tuple[Placement, ...]:
        """Where a value is at each call of its function; nothing where that is always the same."""
        node, result = value
        rank = len(self.graph.ops[node].types[result].shape or ())
        return self.propagated.values[value].placed_at_calls(rank)

    # Where a value is.

    def sharded(self, value: ValueId, sharding: Sharding | None = None) -> Sharded:
        """The sharding of a value, or another one; what is left without one every device has whole.

        Args:
            value: which value of the lowered module.
            sharding: the other one.
        """
        propagated_value = self.propagated.values[value]
        node, result = value
        op = self.graph.ops[node]
        type_ = op.types[result]
        written = propagated_value.sharding if sharding is None else sharding
        is_there = propagated_value.node is not None and propagated_value.fate != "not partitioned"
        place = None if sharding is not None else propagated_value.placement
        if sharding is None and self.mesh is None and place is not None:
            written = self._as_written(op.shardings[result], place) or written
        # By identity: what is written repeats, and is one object, which is kept with what it makes.
        key = (id(written), id(type_), id(place), op.parent, sharding is None, is_there)
        known = self._shardeds.get(key)
        if known is None:
            sharded_value = Sharded(
                written,
                type_.static_shape,
                type_.dtype,
                self._placement(op.parent, propagated_value, type_, sharding),
                self._mesh_of(written),
            )
            known = self._shardeds[key] = sharded_value, (written, type_, place)
        return known[0]

    def _as_written(self, own: Sharding | None, place: Placement) -> TensorSharding | None:
        """What the program writes on a value, where that puts it where propagation does.

        XLA names the axes of one mesh for all of a program's, which need not be the author's.
        """
        mesh = self._mesh_of(own)
        if mesh is None or not isinstance(own, TensorSharding):
            return None
        try:
            return own if to_placement(own, len(place.dims), mesh) == place else None
        except ConversionError:
            return None

    def _mesh_of(self, written: Sharding | None) -> Mesh | None:
        if self.mesh is None and isinstance(written, TensorSharding):
            own = written.mesh
            own = own if isinstance(own, Mesh) else self.graph.meshes.get(own, own)
            return own if isinstance(own, Mesh) else None
        return self.mesh

    def _placement(
        self,
        parent: int | None,
        propagated_value: PropagatedValue,
        type_: TensorType,
        sharding: Sharding | None,
    ) -> Placement | None:
        rank = len(type_.shape or ())
        place = propagated_value.placement
        if sharding is not None:
            try:
                place = to_placement(sharding, rank, self.mesh, self.devices)
            except ConversionError:
                return None
        elif propagated_value.sharding is None:
            is_there = (
                propagated_value.node is not None and propagated_value.fate != "not partitioned"
            )
            if is_there and type_.shape is not None:
                place = Placement(self.devices, ((),) * rank)
        manual = self._manual(parent)
        if place is None or place.manual or not manual:
            return place
        return replace(place, num_devices=self.devices, manual=manual)

    def _manual(self, around: int | None) -> Digits:
        """What the `shard_map`s around an op are manual on, under Shardy.

        Of a function that is called several times, those around the first call.
        """
        if around is None:
            return ()
        if around not in self._manuals:
            self._manuals[around] = ()  # for a function that calls itself
            op = self.graph.ops[around]
            function = self.graph.functions.get(op.function)
            is_function = function is not None and function.op == around
            calls = self.graph.callers(op.function) if is_function else []
            outer = calls[0].parent if calls else op.parent
            own: Digits = ()
            if op.manual_axes and self.mesh is not None:
                own = axes_digits(self.mesh, map(AxisRef, op.manual_axes))
            self._manuals[around] = axes_union(own, self._manual(outer))
        return self._manuals[around]

    # Where its axes come from.

    def _origins_of(
        self,
        propagated_value: PropagatedValue,
        written: Sharding | None,
        boundary: Annotation | None,
    ) -> tuple[AxisOrigin, ...]:
        if self.propagated.partitioner != "shardy" or not isinstance(written, TensorSharding):
            return ()
        if self.propagated.debug_info.origins_missing:
            return tuple(self._followed(propagated_value, written))
        origins, value = propagated_value.origins, propagated_value.id
        own = boundary or self.places.on(value)
        is_alike = own is None and self._are_elsewhere(origins, value)
        key = (None if is_alike else value, (id(origins), id(written), id(own)))
        known = self._origins.get(key)
        if known is None:
            recorded = tuple(self._recorded(propagated_value, written, own))
            if boundary is not None:  # What is on the value is not on the boundary.
                recorded = tuple(
                    origin if origin.kind == boundary.kind else replace(origin, own=False)
                    for origin in recorded
                )
            known = self._origins[key] = recorded, (origins, written, own)
        return known[0]

    def _are_elsewhere(self, origins: Origins, value: ValueId) -> bool:
        """Whether origins name annotations, and none of them the value's own."""
        known = self._elsewhere.get(id(origins))
        if known is None:
            are_elsewhere = all(
                origin.type != "self" and self._named(axis, origin, value) is not None
                for axis, origin in origins
            )
            known = self._elsewhere[id(origins)] = are_elsewhere, origins
        return known[0]

    def _recorded(
        self, propagated_value: PropagatedValue, written: TensorSharding, own: Annotation | None
    ) -> Iterator[AxisOrigin]:
        shown = {axis.name for dim in written.dim_shardings for axis in dim.axes}
        op = self.graph.ops[propagated_value.id[0]]
        followed: list[AxisOrigin] | None = None
        for axis, origin in propagated_value.origins:
            if axis.name not in shown:
                continue
            part = part_of(axis, self.flow.mesh)
            if own is not None and self.pointers.beginnings.says(own, part):
                yield _annotated(own, axis, True, origin)
                continue
            annotation = self._named(axis, origin, propagated_value.id)
            if annotation is not None:
                is_own = origin.type == "self"
                is_own = is_own or (annotation.kind, annotation.path) == (op.kind, op.scope)
                yield _annotated(annotation, axis, is_own, origin)
                continue
            # Shardy names what it has put the axis on before it began, such as an open constraint.
            if followed is None:
                followed = list(self._followed(propagated_value, written))
            along = [
                each
                for each in followed
                if part_of(each.axis, self.flow.mesh).shared(part) is not None
            ]
            yield from along or (AxisOrigin(axis, None, "", None, origin.type == "self", origin),)

    def _named(self, axis: AxisRef, origin: OriginSharding, value: ValueId) -> Annotation | None:
        """The annotation that an origin names, if that has the axis."""
        annotation = self.places.annotation(origin, value)
        if annotation is None:
            return None
        part = part_of(axis, self.flow.mesh)
        return annotation if self.pointers.beginnings.says(annotation, part) else None

    def _followed(
        self, propagated_value: PropagatedValue, written: TensorSharding
    ) -> Iterator[AxisOrigin]:
        """The same along the steps, which are there where Shardy could not record origins."""
        shown = [part for _, part in self.flow.parts_in(written)]
        for held in self.pointers.held(propagated_value):
            pointer = self.pointers.table[held.pointer]
            begins = pointer.beginning
            if begins is not None and any(pointer.part.shared(part) for part in shown):
                axis = pointer.part.axis(self.flow.mesh)
                is_own = pointer.op is None and self._is_on(begins, propagated_value)
                yield AxisOrigin(
                    axis, begins.kind, begins.name, begins.source, is_own, None, begins.mapped
                )

    def _is_on(self, begins: Beginning, propagated_value: PropagatedValue) -> bool:
        """Whether an annotation is that of a value, or of what it became one with."""
        written, op = begins.annotation, self.graph.ops[propagated_value.id[0]]
        if written is None or begins.kind == "shard_map input":
            return False
        if (begins.kind, begins.name) == (op.kind, op.scope):
            return True
        return any(written.op == node for node, _ in propagated_value.values)


def _annotated(
    annotation: Annotation, axis: AxisRef, is_own: bool, origin: OriginSharding
) -> AxisOrigin:
    return AxisOrigin(
        axis,
        annotation.named_kind,
        annotation.path,
        annotation.source,
        is_own,
        origin,
        annotation.mapped,
    )
