"""Bytes a parameter for parameters, gradients and optimizer state, sharded and not.

The table of Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models" (SC 2020), for a program as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.memory.roles import Role, roles
from sdyscope.facts.over_time import Zero, ZeroKind, ZeroRow

__all__ = ["zero_of"]


def zero_of(memory: Memory, gradients: int) -> Zero | None:
    """The table of a program; None where it has no parameters that are trained.

    Args:
        memory: what a device holds of arguments and results.
        gradients: bytes of gradients that a device holds at a time, at most.
    """
    found = roles(memory.tensors, differentiated=True)
    arguments = [one for one in memory.tensors if one.kind == "argument" and one.shape is not None]
    parameters = [one for one in arguments if found[one.number] == "parameters"]
    count = sum(math.prod(one.shape or ()) for one in parameters)
    if not count:
        return None

    def rows() -> Iterator[ZeroRow]:
        devices = memory.devices
        kinds: tuple[tuple[ZeroKind, Role], ...] = (
            ("parameters", "parameters"),
            ("gradients", "parameters"),
            ("optimizer state", "optimizer state"),
        )
        for kind, role in kinds:
            members = [one for one in arguments if found[one.number] == role]
            whole = sum(one.bytes or 0 for one in members)
            here = sum(one.bytes_per_device for one in members)
            yield ZeroRow(kind, whole, gradients if kind == "gradients" else here, whole / devices)

    return Zero(count, memory.devices, tuple(rows()))
