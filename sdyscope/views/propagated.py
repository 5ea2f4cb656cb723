"""Propagated values, their origins and where they are: as documents, and in a few words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from sdyscope.analysis.propagation.places import Places
from sdyscope.annotations import num_partitions
from sdyscope.errors import ConversionError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Exactness, Fate, Origins, Propagated, PropagatedValue, ValueId
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import Sharding, TensorType
from sdyscope.staged import Staged
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import AxisRef, Mesh, only_mesh
from sdyscope.values.placement import Digits, Placement, axes_digits, axes_union
from sdyscope.values.sharding import ManualAxes, TensorSharding
from sdyscope.values.source import SourceLocation
from sdyscope.values.tiling import HloSharding
from sdyscope.words.mesh import axis_text
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.sharding import (
    REPLICATED,
    PlacementDocument,
    placement_document,
    sharding_text,
)

#: How many of the values are named that became one.
_NAMED = 10

#: Where a package was installed says nothing about it.
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")


@dataclass(frozen=True, slots=True)
class OriginDocument:
    """The annotation that an axis comes from.

    Attributes:
      axis: the axis, or the part of one.
      origin: as Shardy writes it: `input: 0`, `constraint_3`, `self`.
      kind: what is annotated; empty when it is not known.
      name: its pytree path or scope; empty when it is not known.
      source: its source line, where one is known.
    """

    axis: str
    origin: str
    kind: str
    name: str
    source: SourceLocation | None


@dataclass(frozen=True, slots=True)
class PropagatedDocument:
    """What propagation decided for a value.

    Attributes:
      fate: what became of the value on its way to the partitioner: `kept`; `merged` with others
        that are the same; `folded` away; `not partitioned`, as it is nothing that has a sharding.
      text: the sharding as the partitioner writes it; empty without one.
      short: in its most readable form, as a PartitionSpec where it can be one.
      placement: where that puts the value; null where it has no sharding.
      origins: where each axis comes from (Shardy only).
      merged_with: SSA names of the other values of the lowered module that became the same one, the
        first ten of them.
      merged: how many those are.
    """

    fate: Fate
    text: str
    short: str
    placement: PlacementDocument | None
    origins: tuple[OriginDocument, ...] = ()
    merged_with: tuple[str, ...] = ()
    merged: int = 0

    @property
    def is_sharded(self) -> bool:
        """Whether the devices hold different parts of it."""
        return self.placement is not None and any(size > 1 for size in self.placement.shards)


@dataclass(frozen=True, slots=True)
class PropagationDocument:
    """One propagation.

    Attributes:
      partitioner: whose.
      exactness: `exact` where this is what XLA decides, proven by a test; else `approximate`.
      source: what it was taken from, in words.
      counts: how many values of the lowered module have each fate.
      steps: how many steps Shardy took; 0 where none are known.
      notes: what else there is to know.
    """

    partitioner: Partitioner
    exactness: Exactness
    source: str
    counts: dict[Fate, int]
    steps: int
    notes: tuple[str, ...]


def propagation_document(found: Propagated) -> PropagationDocument:
    """The document of one propagation, without its values."""
    return PropagationDocument(
        found.partitioner,
        found.exactness,
        found.source,
        dict(found.counts),
        found.steps.step_count,
        (*found.doubts, *found.notes, *found.debug_info.notes),
    )


_Alike: TypeAlias = tuple[Fate, ValueId | None, tuple[int, ...]]
"""What makes the document of a value: its fate; which value it is, where an origin is its own
annotation; and what else it is made from, by id."""


@dataclass
class Describer:
    """Makes documents of the values of one propagation.

    Attributes:
      places: what its ops are in the program.
      mesh: the mesh to name axes of; None where there are several.
      devices: how many devices there are.
    """

    places: Places
    mesh: Mesh | None
    devices: int
    _placements: dict[tuple[Placement, TensorType], PlacementDocument | None] = field(
        default_factory=dict
    )
    _shorts: dict[tuple[Placement | None, Sharding | None], str] = field(default_factory=dict)
    _manuals: dict[int, Digits] = field(default_factory=dict)
    _wholes: dict[int, Placement] = field(default_factory=dict)
    _known: dict[_Alike, tuple[PropagatedDocument, object]] = field(default_factory=dict)

    def value(
        self,
        found: PropagatedValue,
        type_: TensorType,
        sharding: TensorSharding | HloSharding | None = None,
    ) -> PropagatedDocument:
        """The document of a value.

        Args:
          found: the value.
          type_: its type.
          sharding: another sharding to show for it: as it was in between, or as it is returned.
        """
        written = found.sharding if sharding is None else sharding
        place = self.placement(found, type_, sharding)
        # Layers repeat: of values that are alike the document is one. What is made once, as types
        # and shardings are, is known by its id, and kept so that it stays its own.
        origins = found.origins
        alike = (origins, written, place, type_)
        own = found.id if any(origin.type == "self" for _, origin in origins) else None
        key = (found.fate, own, tuple(map(id, alike)))
        known = self._known.get(key)
        if known is None:
            made = PropagatedDocument(
                found.fate,
                "" if written is None else str(written),
                self._short(written, place, type_),
                None if place is None else self._placement(place, type_),
                tuple(self._origins(found.id, origins, written)),
            )
            known = self._known[key] = made, alike
        if len(found.values) < 2:
            return known[0]
        names = tuple(self.places.graph.ops[node].names[index] for node, index in _others(found))
        return replace(known[0], merged_with=names, merged=len(found.values) - 1)

    def short(self, found: PropagatedValue, type_: TensorType, sharding: TensorSharding) -> str:
        """The sharding of a value after some step, in its most readable form."""
        return self._short(sharding, self.placement(found, type_, sharding), type_)

    def _short(self, sharding: Sharding | None, place: Placement | None, type_: TensorType) -> str:
        key = (place, sharding)
        if key not in self._shorts:
            self._shorts[key] = short(sharding, place, self.mesh)
        return self._shorts[key]

    def placement(
        self,
        found: PropagatedValue,
        type_: TensorType,
        sharding: TensorSharding | HloSharding | None = None,
    ) -> Placement | None:
        """Where a value is, or where another sharding would put it; None where nothing is known.

        What is left without a sharding, every device has whole.
        """
        rank = len(type_.shape or ())
        place = found.placement
        if sharding is not None:
            try:
                place = to_placement(sharding, rank, self.mesh, self.devices)
            except ConversionError:
                return None
        elif found.sharding is None:
            is_there = found.node is not None and found.fate != "not partitioned"
            if is_there and type_.shape is not None:
                place = self._wholes.get(rank)
                if place is None:
                    place = self._wholes[rank] = Placement(self.devices, ((),) * rank)
        manual = self._manual(found.id[0])
        if place is None or place.manual or not manual:
            return place
        return replace(place, num_devices=self.devices, manual=manual)

    def _manual(self, node: int) -> Digits:
        """What a `shard_map` around an op of the lowered module is manual on, under Shardy."""
        op = self.places.graph.ops[node]
        if op.parent is None:
            return ()
        if op.parent not in self._manuals:
            around = self.places.graph.ops[op.parent]
            axes = around.attributes.get("manual_axes")
            own: Digits = ()
            if isinstance(axes, ManualAxes) and self.mesh is not None:
                own = axes_digits(self.mesh, map(AxisRef, axes.axes))
            self._manuals[op.parent] = axes_union(own, self._manual(op.parent))
        return self._manuals[op.parent]

    def _placement(self, place: Placement, type_: TensorType) -> PlacementDocument | None:
        key = (place, type_)
        if key not in self._placements:
            sharded = Sharded(None, static_shape(type_), type_.dtype, place, self.mesh)
            self._placements[key] = placement_document(sharded)
        return self._placements[key]

    def _origins(
        self, value: ValueId, origins: Origins, written: Sharding | None
    ) -> list[OriginDocument]:
        shown = set()
        if isinstance(written, TensorSharding):
            shown = {axis.name for dim in written.dim_shardings for axis in dim.axes}
        documents = []
        for axis, origin in origins:
            if axis.name not in shown:
                continue
            annotation = self.places.annotation(origin, value)
            documents.append(
                OriginDocument(
                    axis_text(axis),
                    str(origin),
                    "" if annotation is None else annotation.kind,
                    "" if annotation is None else annotation.path,
                    None if annotation is None else annotation.source,
                )
            )
        return documents


def _others(found: PropagatedValue) -> list[ValueId]:
    """The first of the values that became one with it; there can be as many as layers."""
    return list(islice((value for value in found.values if value != found.id), _NAMED))


def describer(inspection: Staged, found: Propagated) -> Describer:
    """Makes documents of the values of one propagation of a program."""
    partitioner = found.partitioner
    places = Places(found, inspection.graph(partitioner), inspection.annotations(partitioner))
    mesh = only_mesh(inspection.meshes.values())
    devices = mesh.size if mesh is not None else num_partitions(inspection.graph(partitioner))
    return Describer(places, mesh, devices)


def static_shape(type_: TensorType) -> tuple[int, ...] | None:
    """The shape of a tensor; None when it is dynamic or no tensor."""
    if type_.shape is None or None in type_.shape:
        return None
    return tuple(size for size in type_.shape if size is not None)


# --- in a few words -------------------------------------------------------------------------------


def short(sharding: Sharding | None, place: Placement | None, mesh: Mesh | None) -> str:
    """A propagated sharding as a PartitionSpec where it can be one.

    Without any it is `replicated`, or `manual` in a `shard_map` that decides it.
    """
    if place is None:
        return REPLICATED if sharding is None else str(sharding)
    if place.is_replicated and not place.manual:
        return REPLICATED
    return sharding_text(sharding, place, mesh)


def origin_text(origin: OriginDocument) -> str:
    """`data <- batch['x']`."""
    return f"{origin.axis} <- {_origin_name(origin)}"


def _origin_name(origin: OriginDocument) -> str:
    if origin.kind in ("argument", "result"):
        return origin.name
    line = source_text(origin.source)
    if origin.kind == "constraint":
        return line or shown_name(origin.name, origin.kind)
    if origin.kind:
        return f"{origin.kind} {line}".strip()
    return origin.origin
