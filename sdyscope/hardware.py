"""What a program can be compiled for: `cpu:8`, `tpu:v5e:4x4`, `cuda:h100.txtpb:1x128x8`, ...

Nothing of it has to be there. Values only; `sdyscope.stages.topology` finds the compilers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.errors import TargetError

__all__ = ["FORMS", "LARGEST_CPU", "Hardware", "HardwarePlatform", "parse_hardware"]

HardwarePlatform: TypeAlias = Literal["cpu", "tpu", "cuda"]
"""What JAX calls the kinds of hardware that it lowers for."""

#: How to write what there is.
FORMS = "cpu:8, tpu:v5e:4x4, tpu:v6e:16x16x2slices or cuda:CONFIG:1x128x8"

#: Devices that XLA's CPU client can have.
LARGEST_CPU = 2048

_CPU = re.compile(r"cpu(?::(?P<count>[0-9]+))?")
_TPU = re.compile(
    r"tpu:(?P<chip>[A-Za-z0-9]+):(?P<dims>[0-9]+(?:x[0-9]+)*?)(?:x(?P<slices>[0-9]+)slices?)?"
)
_CUDA = re.compile(r"(?:cuda|gpu):(?P<config>.+):(?P<dims>[0-9]+x[0-9]+x[0-9]+)")


@dataclass(frozen=True, slots=True)
class Hardware:
    """Devices of one kind, and how they are put together.

    Attributes:
        platform: what a program is lowered for.
        count: virtual CPU devices, or GPUs; None for as many as the program has partitions (CPU),
            and for TPUs, where the compiler says how many devices a topology has.
        chip: generation of the TPU: `v5e`.
        topology: of TPUs the chips of one slice along each dimension of its torus, `4x4`; of GPUs
            `SLICESxHOSTSxGPUS`: GPUs of one host, and hosts of one NVLink or network domain.
        slices: TPU slices, which are connected by the data centre's network.
        config: path of the GPU's description, an XLA `GpuTargetConfigProto` in text form.
    """

    platform: HardwarePlatform
    count: int | None = None
    chip: str = ""
    topology: str = ""
    slices: int = 1
    config: str = ""

    def __str__(self) -> str:
        match self.platform:
            case "cpu":
                return "cpu" if self.count is None else f"cpu:{self.count}"
            case "tpu":
                more = f"x{self.slices}slices" if self.slices > 1 else ""
                return f"tpu:{self.chip}:{self.topology}{more}"
            case "cuda":
                return f"cuda:{self.config}:{self.topology}"


def parse_hardware(text: str) -> Hardware:
    """The hardware that a word such as `tpu:v5e:4x4` names.

    Raises:
        TargetError: it names none.
    """
    if found := _CPU.fullmatch(text):
        count = None if found["count"] is None else int(found["count"])
        if count is not None and not 0 < count <= LARGEST_CPU:
            raise TargetError(
                f"{text} has {count:,} devices, and XLA compiles for 1 to {LARGEST_CPU:,} CPU "
                "devices."
            )
        return Hardware("cpu", count)
    if found := _TPU.fullmatch(text):
        _check_sizes(text, found["dims"], found["slices"] or "1")
        return Hardware(
            "tpu", chip=found["chip"], topology=found["dims"], slices=int(found["slices"] or 1)
        )
    if found := _CUDA.fullmatch(text):
        _check_sizes(text, found["dims"])
        count = math.prod(map(int, found["dims"].split("x")))
        return Hardware("cuda", count, topology=found["dims"], config=found["config"])
    raise TargetError(f"{text!r} names no hardware to compile for.", hint=f"Write {FORMS}.")


def _check_sizes(text: str, *dims: str) -> None:
    if any(int(size) == 0 for sizes in dims for size in sizes.split("x")):
        raise TargetError(f"{text} has a dimension of size 0.", hint=f"Write {FORMS}.")
