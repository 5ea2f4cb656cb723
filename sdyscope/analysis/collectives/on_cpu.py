"""What XLA sends on CPUs of what its partitioner makes: bf16 as f32."""

from __future__ import annotations

from dataclasses import replace

from sdyscope.analysis.collectives.bytes import wire_bytes_by_tensor
from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.hlo import Shape


def shape_on_cpu(shape: Shape) -> Shape:
    """What is sent of an array, or of the arrays of a tuple."""
    if shape.is_tuple:
        elements = tuple(map(shape_on_cpu, shape.elements))
        return shape if elements == shape.elements else replace(shape, elements=elements)
    return replace(shape, dtype="f32") if shape.dtype == "bf16" else shape


def collectives_on_cpu(collectives: Collectives) -> Collectives:
    """Collectives as they are compiled for CPUs.

    Args:
        collectives: those of a module as it is right behind partitioning.
    """
    return replace(collectives, collectives=tuple(map(_on_cpu, collectives.collectives)))


def _on_cpu(collective: Collective) -> Collective:
    shapes = [shape_on_cpu(part.shape) for part in collective.parts]
    if shapes == [part.shape for part in collective.parts]:
        return collective
    sizes = [shape.bytes for shape in shapes]
    if collective.devices is not None and collective.group_size is not None:
        moved = list(wire_bytes_by_tensor(collective.kind, sizes, collective.group_size))
    else:
        moved = [
            (part.sent * size // (part.bytes or 1), part.received * size // (part.bytes or 1))
            for part, size in zip(collective.parts, sizes, strict=True)
        ]
    return collective.resized(shapes, moved)
