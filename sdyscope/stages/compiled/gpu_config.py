"""XLA's description of the GPU that is present, which a machine without one can compile for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdyscope.errors import CompilerError, TargetError
from sdyscope.hardware.gpus import gpus
from sdyscope.process.scratch import scratch_folder

_DUMP = "*gpu_target_config.pbtxt"


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """A description of a GPU.

    Attributes:
        kind: what JAX calls the GPU: `NVIDIA H200`.
        count: how many of them are here.
        text: XLA's ``GpuTargetConfigProto`` in text form.
    """

    kind: str
    count: int
    text: str


def gpu_config() -> GpuConfig:
    """The description of the GPUs that are present, which are started.

    Raises:
        TargetError: JAX finds none.
        CompilerError: XLA does not tell how they are described.
    """
    import jax

    try:
        devices = jax.devices("gpu")
    except RuntimeError as error:
        raise TargetError(
            "JAX finds no GPU on this machine to describe.",
            hint=f"These need not be there: {', '.join(gpus())}, as in --on cuda:h100:1x1x8.",
        ) from error
    return GpuConfig(devices[0].device_kind, len(devices), target_config_of(devices))


def target_config_of(devices: Sequence[Any]) -> str:
    """XLA's description of GPUs.

    The topology of the devices has it as an attribute. Where it has not, XLA writes it beside its
    dumps of any program that is compiled for one of them.

    Raises:
        CompilerError: neither is so.
    """
    from jaxlib import _jax

    try:
        text = _jax.get_topology_for_devices(list(devices)).target_config
    except (AttributeError, RuntimeError):  # an attribute that a plugin's topology need not have
        text = ""
    text = str(text or "") or _dumped(devices[0])
    if not text.strip():
        raise CompilerError(f"XLA does not say how {devices[0].device_kind} is described.")
    return text if text.endswith("\n") else f"{text}\n"


def _dumped(device: Any) -> str:
    import jax
    import numpy as np

    argument = jax.ShapeDtypeStruct(
        (8,), np.float32, sharding=jax.sharding.SingleDeviceSharding(device)
    )
    with scratch_folder() as folder:
        jax.jit(lambda x: x + 1).trace(argument).lower().compile(
            compiler_options={"xla_dump_to": folder, "xla_dump_hlo_module_re": ".*"}
        )
        dumps = sorted(Path(folder).glob(_DUMP))
        return dumps[0].read_text() if dumps else ""
