"""Where the devices of a compile stand in their hardware, as JAX's devices tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdyscope.hardware.topology import DimensionName, Topology, topology_of

_TPU: Sequence[DimensionName] = ("slice", "z", "y", "x", "core")
_GPU: Sequence[DimensionName] = ("slice", "host", "gpu")


def topology(devices: Sequence[Any]) -> Topology | None:
    """Where devices stand, in the order in which a program numbers its partitions.

    Returns:
        None for CPUs, and where devices tell no places or none that are digits of their number.
    """
    try:
        match devices[0].platform:
            case "tpu":
                return topology_of(_TPU, [_of_tpu(device) for device in devices])
            case "cuda" | "gpu":
                return topology_of(_GPU, [_of_gpu(device) for device in devices])
    except (AttributeError, TypeError, ValueError):
        # What a device tells of its place differs between plugins.
        return None
    return None


def _of_tpu(device: Any) -> tuple[int, ...]:
    x, y, z = device.coords
    return (getattr(device, "slice_index", None) or 0, z, y, x, device.core_on_chip)


def _of_gpu(device: Any) -> tuple[int, ...]:
    """Ahead of time a GPU has coordinates; one that is there has a process and a number in it."""
    coords = getattr(device, "coords", None)
    if coords is not None and len(coords) == len(_GPU):
        return tuple(coords)
    return (0, device.process_index, device.local_hardware_id)
