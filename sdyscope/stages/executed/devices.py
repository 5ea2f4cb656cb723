"""The devices that a program runs on: found, or made of the CPU, in one process or several."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import jax

from sdyscope.errors import TargetError, first_line
from sdyscope.facts.program import Program
from sdyscope.hardware.names import LARGEST_CPU
from sdyscope.stages import compat

#: Says how many CPU devices there are, in XLA_FLAGS.
_COUNT_FLAG = "xla_force_host_platform_device_count"


def more_cpu_devices(count: int) -> None:
    """Lets JAX start so many virtual CPU devices, unless a backend has started already."""
    if _COUNT_FLAG in os.environ.get("XLA_FLAGS", ""):
        return  # XLA takes only one of the two.
    wanted = max(count, compat.setting("jax_num_cpu_devices"))
    # JAX refuses once it has devices: then there are as many as there are.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", min(wanted, LARGEST_CPU))


def devices_needed(program: Program) -> int:
    """How many devices the shardings of a program's arguments are over. Nothing is traced for it.

    1 when they do not say; the module that is lowered from it knows for certain.
    """
    meshes = [program.mesh]
    for leaf in jax.tree.leaves((program.args, dict(program.kwargs))):
        meshes.append(getattr(getattr(leaf, "sharding", None), "mesh", None))
    return max((mesh.size for mesh in meshes if mesh is not None), default=1)


def find_devices(
    needed: int, platform: str | None = None, at_most: int | None = None
) -> tuple[Any, ...]:
    """Devices to run on: the accelerators that are there when they are enough, else CPU devices.

    Where there are several processes, each gives as many as the others, or one fewer.

    Args:
        needed: how many the program is for.
        platform: `cpu`, `gpu` or `tpu`; None for the best that has enough.
        at_most: how many of each process may be used; None for all.

    Raises:
        TargetError: there are not enough, or too few for every process to have one.
    """
    try:
        processes = _by_process(platform, at_most)
        if platform is None and _count(processes) < needed and processes[0][0].platform != "cpu":
            processes = _by_process("cpu", at_most)
    except RuntimeError as error:
        raise TargetError(
            f"There are no {platform or 'usable'} devices: {first_line(error)}",
            hint="`sdyscope doctor` lists the devices that JAX can start.",
        ) from error
    if _count(processes) < needed:
        raise too_few(needed, processes)
    return processes[0] if len(processes) == 1 else _spread(needed, processes)


def _by_process(platform: str | None, at_most: int | None) -> list[tuple[Any, ...]]:
    """The devices of each process, in order."""
    processes: dict[int, list[Any]] = {}
    for device in jax.devices(platform):
        processes.setdefault(device.process_index, []).append(device)
    return [tuple(processes[number][:at_most]) for number in sorted(processes)]


def _count(processes: Sequence[Sequence[Any]]) -> int:
    return sum(map(len, processes))


def _spread(needed: int, processes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """So many devices, in order, from all processes as evenly as it goes."""
    taken = [0] * len(processes)
    for _ in range(needed):
        left = (k for k, own in enumerate(processes) if taken[k] < len(own))
        taken[min(left, key=taken.__getitem__)] += 1
    return tuple(device for k, own in enumerate(processes) for device in own[: taken[k]])


def too_few(needed: int, processes: Sequence[Sequence[Any]]) -> TargetError:
    """The error that there are not enough devices.

    Args:
        needed: how many the program is for.
        processes: those of each process.
    """
    platform, have = processes[0][0].platform, _count(processes)
    are = f"there is {have}" if have == 1 else f"there are {have}"
    each = "" if len(processes) == 1 else f", of {len(processes)} processes"
    if platform != "cpu":
        hint = f"Give a smaller --mesh, or --platform cpu for {needed} virtual CPU devices."
    elif _COUNT_FLAG in os.environ.get("XLA_FLAGS", ""):
        hint = f"Give a smaller --mesh, or leave --{_COUNT_FLAG} out of XLA_FLAGS."
    elif len(processes) > 1:
        hint = (
            f"Give a smaller --mesh, --devices {-(-needed // len(processes))}, which counts those "
            "of one process, or more --processes."
        )
    elif needed > LARGEST_CPU:
        hint = f"Give a smaller --mesh: XLA runs at most {LARGEST_CPU:,} virtual CPU devices."
    else:
        hint = (
            f"Give a smaller --mesh, or --devices {needed}; in Python, set "
            f"jax_num_cpu_devices to {needed} before JAX is used."
        )
    return TargetError(
        f"The program needs {needed:,} devices, and {are} ({platform.upper()}){each}.", hint=hint
    )
