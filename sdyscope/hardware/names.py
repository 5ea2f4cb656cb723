"""What a program can be compiled for: `cpu:8`, `tpu:v5e:4x4`, `cuda:h100:1x128x8`, `devices`, ...

Values only; `sdyscope.stages.compiled.topology` finds the compilers, and
`sdyscope.stages.compiled.present` what is there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.errors import TargetError

HardwarePlatform: TypeAlias = Literal["cpu", "tpu", "cuda", "any"]
"""What JAX calls the kinds of hardware that it lowers for; `any` for the accelerators that it
finds, whatever they are."""

#: How to write what there is.
FORMS = "cpu:8, tpu:v5e:4x4, tpu:v6e:16x16x2slices, cuda:h100:1x128x8, or devices (those present)"

#: Devices that XLA's CPU client can have (seen with JAX 0.7.2 to 0.12).
LARGEST_CPU = 2048

#: As many virtual CPU devices as a program needs, which every JAX compiles for: what is audited and
#: tried is compiled for them, whatever a recorded run's devices were.
VIRTUAL_CPUS = "cpu"

_DEVICES = re.compile(r"(?P<count>[0-9]+)(?:x(?P<slices>[0-9]+)slices?)?")
_CPU = re.compile(r"cpu(?::(?P<count>[0-9]+))?")
_TPU = re.compile(
    r"tpu:(?P<chip>[A-Za-z0-9]+):(?P<dims>[0-9]+(?:x[0-9]+)*?)(?:x(?P<slices>[0-9]+)slices?)?"
)
_CUDA = re.compile(r"(?:cuda|gpu):(?P<config>.+):(?P<dims>[0-9]+x[0-9]+x[0-9]+)")
_PRESENT = re.compile(r"(?P<kind>devices|gpu|cuda|tpu)(?::(?P<count>[0-9]+))?")
_KINDS: Mapping[str, HardwarePlatform] = {"devices": "any", "tpu": "tpu"}


@dataclass(frozen=True, slots=True)
class Devices:
    """How many devices there are.

    Attributes:
        count: all of them.
        slices: how many slices they are.
    """

    count: int
    slices: int = 1


def parse_devices(text: str) -> Devices:
    """The devices of `16` or `4096x8slices`.

    Raises:
        TargetError: it is neither.
    """
    match = _DEVICES.fullmatch(text)
    if match is None or not int(match["count"]) or not int(match["slices"] or 1):
        raise TargetError(
            f"{text!r} is not a number of devices, such as 16, or 4096x8slices for 8 slices of "
            "4096."
        )
    slices = int(match["slices"] or 1)
    return Devices(int(match["count"]) * slices, slices)


@dataclass(frozen=True, slots=True)
class Hardware:
    """Devices of one kind, and how they are put together.

    Attributes:
        platform: what a program is lowered for.
        count: virtual CPU devices, GPUs, or devices that are present; None for as many as the
            program has partitions (CPU, and what is present), and for a TPU topology, whose number
            of devices the compiler knows.
        chip: generation of the TPU: `v5e`; empty for those that are present.
        topology: of TPUs the chips of one slice along each dimension of its torus, `4x4`; of GPUs
            `SLICESxHOSTSxGPUS`: GPUs of one host, and hosts of one NVLink or network domain.
        slices: TPU slices, which are connected by the data centre's network.
        config: name of the GPU (`sdyscope.hardware.gpus`), or path of its description, an XLA
            `GpuTargetConfigProto` in text form; empty for those that are present.
    """

    platform: HardwarePlatform
    count: int | None = None
    chip: str = ""
    topology: str = ""
    slices: int = 1
    config: str = ""

    @property
    def present(self) -> bool:
        """Whether these are the accelerators of this machine."""
        return self.platform != "cpu" and not (self.chip or self.config)

    def __str__(self) -> str:
        count = "" if self.count is None else f":{self.count}"
        match self.platform:
            case "cpu" | "tpu" if not self.chip:
                return f"{self.platform}{count}"
            case "tpu":
                more = f"x{self.slices}slices" if self.slices > 1 else ""
                return f"tpu:{self.chip}:{self.topology}{more}"
            case "cuda" if self.config:
                return f"cuda:{self.config}:{self.topology}"
            case "cuda":
                return f"gpu{count}"
            case _:
                return f"devices{count}"


def parse_hardware(text: str) -> Hardware:
    """The hardware that a word such as `tpu:v5e:4x4` names.

    Raises:
        TargetError: it names none.
    """
    if match := _CPU.fullmatch(text):
        count = None if match["count"] is None else int(match["count"])
        if count is not None and not 0 < count <= LARGEST_CPU:
            raise TargetError(
                f"{text} has {count:,} devices, and XLA compiles for 1 to {LARGEST_CPU:,} CPU "
                "devices."
            )
        return Hardware("cpu", count)
    if match := _TPU.fullmatch(text):
        _check_sizes(text, match["dims"], match["slices"] or "1")
        return Hardware(
            "tpu", chip=match["chip"], topology=match["dims"], slices=int(match["slices"] or 1)
        )
    if match := _CUDA.fullmatch(text):
        _check_sizes(text, match["dims"])
        count = math.prod(map(int, match["dims"].split("x")))
        return Hardware("cuda", count, topology=match["dims"], config=match["config"])
    if match := _PRESENT.fullmatch(text):
        count = None if match["count"] is None else int(match["count"])
        if count == 0:
            raise TargetError(f"{text} is not a device.", hint=f"Write {FORMS}.")
        return Hardware(_KINDS.get(match["kind"], "cuda"), count)
    raise TargetError(f"{text!r} names no hardware to compile for.", hint=f"Write {FORMS}.")


def _check_sizes(text: str, *dims: str) -> None:
    if any(int(size) == 0 for sizes in dims for size in sizes.split("x")):
        raise TargetError(f"{text} has a dimension of size 0.", hint=f"Write {FORMS}.")
