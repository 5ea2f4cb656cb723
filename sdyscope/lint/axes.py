"""Rules about the axes of the mesh."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.errors import ConversionError
from sdyscope.facts.lint import SizeOneAxis, UnusedAxis
from sdyscope.facts.program import RequestedTensor
from sdyscope.lint.rule import NotApplicable, Sighting, Unavailable, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.convert import name_axes
from sdyscope.values.mesh import Mesh


@rule("unused-mesh-axis", "warning")
def unused_mesh_axis(subject: Subject) -> Iterator[Sighting]:
    """No sharding of the program names a mesh axis of more than one device.

    All devices along the axis hold the same blocks and do the same work, so they are wasted: no
    argument, result, constraint or `shard_map` of the program names it. XLA may split a lookup or a
    product over such an axis of itself, which `comms` shows. Axes of size 1 are not reported.

    An axis that the program does not name, such as one over replicas that another program averages,
    is not a fault; ignore the rule for that program.
    """
    mesh = subject.mesh
    used = used_axes(subject, mesh)
    if not used:
        raise NotApplicable("No sharding of the program names an axis of its mesh.")
    unused = [axis for axis in mesh.axes if axis.size > 1 and axis.name not in used]
    if unused and any(written.is_unreadable for written in subject.annotations):
        raise Unavailable("A sharding that could not be read may name the axis that no other does.")
    for axis in unused:
        yield Sighting(UnusedAxis(axis.name, axis.size))


@rule("size-one-axis", "note")
def size_one_axis(subject: Subject) -> Iterator[Sighting]:
    """A sharding names a mesh axis of size 1.

    Nothing is split over it. Reported once for all tensors that name the axis. A mesh with axes of
    size 1 is the normal way to switch a kind of parallelism off; it matters only if that was not
    intended. A file does not record what was requested, so nothing is reported in one.
    """
    named: dict[tuple[Mesh, str], list[RequestedTensor]] = {}
    for asked in subject.program.requested:
        if asked.sharding is not None:
            mesh, spec = asked.sharding.mesh, asked.sharding.spec
            for axis in dict.fromkeys((*spec.axis_names(), *spec.unreduced)):
                if mesh.shape.get(axis) == 1:
                    named.setdefault((mesh, axis), []).append(asked)
    for (_, axis), (first, *rest) in named.items():
        yield Sighting(SizeOneAxis(axis, len(rest)), first.path, first.kind, first.source)


def used_axes(subject: Subject, mesh: Mesh) -> set[str]:
    """The axes of a mesh that shardings of a program name.

    Raises:
        NotApplicable: not every sharding is on the mesh.
    """
    used: set[str] = set()
    for asked in subject.program.requested:
        used.update(asked.manual_axes)
        if asked.sharding is not None:
            spec = asked.sharding.spec
            used.update((*spec.axis_names(), *spec.unreduced, *spec.reduced))
    for written in subject.annotations:
        used.update(written.manual_axes)
        place = written.placement
        if place is None or place.num_devices != mesh.size:
            continue
        for digits in (*place.dims, place.unreduced, place.manual, written.manual):
            try:
                used.update(axis.name for axis in name_axes(digits, mesh, place.order))
            except ConversionError as error:
                # Blocks that follow no axes of this mesh: which of them they use can't be said.
                raise NotApplicable(f"Not every sharding is on the mesh: {error.message}.") from (
                    error
                )
    return used
