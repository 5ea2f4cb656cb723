"""Collectives of a program for several TPU slices, whose HLO is that of one slice.

libtpu compiles one module for the devices of a slice. What crosses slices is in it as pairs of
``send`` and ``recv`` to the host, with the attributes of its multi-slice runtime (MegaScale): which
collective they are, ``_xla_megascale_transfer_type="ALL_REDUCE"``, and between what,
``_xla_megascale_target="{1,2}x{0:15}"``, slices times devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sdyscope.analysis.collectives.bytes import wire_bytes_by_tensor
from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hlo import HloModule, Instruction, Shape
from sdyscope.values.mesh import AxisRef, Mesh, MeshAxis, SubAxisInfo

_TYPE = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_TARGET = re.compile(r'_xla_megascale_target="\{([^}]*)\}x')
_MEETING = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')

_KINDS: Mapping[str, CollectiveKind] = {
    "ALL_GATHER": "all-gather",
    "ALL_REDUCE": "all-reduce",
    "REDUCE_SCATTER": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
    # Its pairs are ids of devices, which tell no place in the mesh.
    "ONE_TO_ONE": "collective-permute",
}


def collectives_of(compiled: Compiled, module: HloModule, meshes: Iterable[Mesh]) -> Collectives:
    """Every collective of a compiled program, those between slices included.

    Args:
        compiled: the program, for how many slices it was compiled.
        module: its HLO.
        meshes: its meshes, as ``collectives`` takes them.

    Raises:
        SdyscopeError: as ``collectives``.
    """
    topology = compiled.topology
    slices = 1 if topology is None else topology.size("slice")
    inside = module.num_partitions * module.replica_count
    if slices == 1 or inside == compiled.devices:
        of_module = collectives(module, meshes, compiled.tags)
        return replace(of_module, partitioner=compiled.partitioner, notes=compiled.notes)
    cuts = [
        cut
        for mesh in meshes
        if mesh.size == compiled.devices and (cut := _cut(mesh, slices)) is not None
    ]
    of_module = collectives(module, [cut.inside for cut in cuts], compiled.tags)
    cut = next((cut for cut in cuts if cut.inside is of_module.mesh), None)
    messages = {
        instruction.name: instruction
        for instruction in module.instructions()
        if instruction.opcode in ("send", "recv") and _TYPE.search(instruction.rest) is not None
    }
    arrivals = {
        _first(_MEETING, message): message
        for message in messages.values()
        if message.opcode == "recv"
    }
    across = [
        _between(collective, messages[collective.name], arrivals, slices, cut)
        if collective.name in messages
        else _within(collective, cut)
        for collective in of_module.collectives
        # What arrives is the other end of what is sent.
        if collective.name not in messages or collective.kind != "recv"
    ]
    return replace(
        of_module,
        collectives=tuple(across),
        devices=compiled.devices,
        mesh=None if cut is None else cut.whole,
        partitioner=compiled.partitioner,
        notes=compiled.notes,
    )


@dataclass(frozen=True)
class _Cut:
    """A mesh whose most significant positions are slices.

    Attributes:
        whole: the mesh.
        inside: the mesh of one slice, with the same axes.
        across: the axes, and the part of one, along which slices are.
    """

    whole: Mesh
    inside: Mesh
    across: tuple[AxisRef, ...]

    def outside(self, ref: AxisRef) -> AxisRef:
        """An axis of the mesh of one slice, or a part of it, as one of the whole mesh."""
        before = self.whole.shape[ref.name] // self.inside.shape[ref.name]
        info = ref.sub_axis_info
        if before == 1:
            return ref
        if info is None:
            return AxisRef(ref.name, SubAxisInfo(before, self.inside.shape[ref.name]))
        return AxisRef(ref.name, SubAxisInfo(before * info.pre_size, info.size))


def _cut(mesh: Mesh, slices: int) -> _Cut | None:
    """None where slices are no digits of a position, or devices in an order of their own."""
    if mesh.device_ids is not None:
        return None
    left = slices
    inside: list[MeshAxis] = []
    across: list[AxisRef] = []
    for axis in mesh.axes:
        if left > 1 and left % axis.size == 0:
            inside.append(MeshAxis(axis.name, 1))
            across.append(AxisRef(axis.name))
            left //= axis.size
        elif axis.size % left == 0:
            inside.append(MeshAxis(axis.name, axis.size // left))
            if left > 1:
                across.append(AxisRef(axis.name, SubAxisInfo(1, left)))
            left = 1
        else:
            return None
    kept = tuple(ref for ref in across if mesh.axis_size(ref) > 1)
    return _Cut(mesh, Mesh(tuple(inside)), kept) if left == 1 else None


def _within(collective: Collective, cut: _Cut | None) -> Collective:
    if cut is None or collective.axes is None:
        return collective
    return replace(collective, axes=tuple(map(cut.outside, collective.axes)))


def _between(
    collective: Collective,
    sent: Instruction,
    arrivals: Mapping[str, Instruction],
    slices: int,
    cut: _Cut | None,
) -> Collective:
    """What is sent to other slices, as the collective that it is."""
    kind = _KINDS.get(_first(_TYPE, sent))
    if kind is None:
        return collective
    size = len([word for word in _first(_TARGET, sent).split(",") if word.strip()])
    axes = cut.across if cut is not None and size == slices else None
    arrival = arrivals.get(_first(_MEETING, sent))
    shapes = [_shape(part, kind, arrival) for part in collective.parts]
    moved = wire_bytes_by_tensor(kind, [shape.bytes for shape in shapes], size or 2)
    sized = collective.resized(shapes, moved)
    return replace(sized, kind=kind, axes=axes, group_size=size or None)


def _shape(part: Part, kind: CollectiveKind, arrival: Instruction | None) -> Shape:
    if kind == "all-gather" and arrival is not None and arrival.shape.leaves:
        # (data, context, token): a device has all slices' shards afterwards.
        return arrival.shape.leaves[0]
    return part.shape


def _first(pattern: re.Pattern[str], instruction: Instruction) -> str:
    match = pattern.search(instruction.rest)
    return "" if match is None else match[1]
