"""The accelerators that are present, as JAX finds them in a process of its own.

Commands start none, so that they work beside a training that holds them all. Only who asks for them
(`--on devices`) has them looked for.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from sdyscope.errors import TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware, HardwarePlatform
from sdyscope.process.python import python
from sdyscope.stages.compiled.topology import starting
from sdyscope.words.counts import counted

#: What JAX calls the platforms that can be compiled for, best first, and what people call them.
_NAMES: Mapping[HardwarePlatform, str] = {"cuda": "GPU", "tpu": "TPU", "any": "accelerator"}

#: Seconds that JAX may take to find its devices.
_LONGEST = 300.0


@dataclass(frozen=True, slots=True)
class Accelerators:
    """Devices of one kind.

    Attributes:
        platform: `cuda` or `tpu`.
        kind: what the compiler calls them: `NVIDIA H200`.
        count: how many this process can use.
    """

    platform: HardwarePlatform
    kind: str
    count: int


def resolved(on: Hardware, partitions: int) -> tuple[Hardware, Remark | None]:
    """Which devices are meant by those that are present, and what there is to say about it.

    Args:
        on: hardware that is `present`.
        partitions: how many devices the program is for.

    Returns:
        The hardware; for `devices`, where there are none or too few, as many virtual CPU devices
        and a remark that says so. There is no remark otherwise.

    Raises:
        TargetError: GPUs or TPUs were asked for, and there are none or too few.
    """
    wanted = on.count or partitions
    present = [
        accelerator
        for accelerator in accelerators()
        if on.platform in ("any", accelerator.platform)
    ]
    for accelerator in present:
        if accelerator.count >= wanted:
            return Hardware(accelerator.platform, wanted), None
    name = _NAMES[on.platform]
    if on.platform == "any":
        kinds = tuple((accelerator.kind, accelerator.count) for accelerator in present)
        return Hardware("cpu", wanted), Remark(
            "CPU devices instead", name, count=wanted, names=kinds
        )
    if not present:
        raise TargetError(
            f"JAX finds no {name} on this machine.",
            hint="`sdyscope doctor` shows what it finds. tpu:v5e:4x4 and cuda:h100:1x1x8 need not "
            "be there.",
        )
    there = " and ".join(
        f"{counted(accelerator.count, name)} ({accelerator.kind})" for accelerator in present
    )
    raise TargetError(
        f"JAX finds {there}, and {counted(wanted, 'device')} are needed.",
        hint="Give a smaller --mesh, or name hardware that need not be there: tpu:v5e:4x4, or "
        "cuda:FILE:1x1x8 with a FILE that `sdyscope doctor --write-gpu-config FILE` wrote.",
    )


@lru_cache(maxsize=1)
def accelerators() -> tuple[Accelerators, ...]:
    """The accelerators that JAX finds, looked for once.

    Raises:
        TargetError: JAX can't be started with them.
    """
    try:
        done = subprocess.run(
            python("from sdyscope.stages.compiled import present; present.serve()"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=starting(),
            timeout=_LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(
            f"JAX did not find its devices within {_LONGEST / 60:.0f} minutes.",
            hint="Does another process hold them?",
        ) from error
    try:
        answer = json.loads(done.stdout.rpartition(_MARK)[2])
    except ValueError as error:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise TargetError(
            f"JAX can't look for devices: {last.strip() or f'status {done.returncode}'}"
        ) from error
    return tuple(Accelerators(**fields) for fields in answer)


#: What stands before the answer, whatever plugins print.
_MARK = "\x1edevices\x1e"


def serve() -> None:
    """Writes what JAX finds to standard output."""
    from jax.extend import backend

    present = look(dict(backend.backends()))
    print(_MARK + json.dumps([asdict(accelerator) for accelerator in present]))


def look(clients: Mapping[str, Any]) -> list[Accelerators]:
    """The accelerators among clients, by the platform's name."""
    return [
        Accelerators(platform, devices[0].device_kind, len(devices))
        for platform in _NAMES
        if platform in clients and (devices := clients[platform].local_devices())
    ]
