"""How XLA is asked to compile, as JAX asks it. It imports jaxlib and not JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib import _jax


def compile_options(
    devices: Sequence[int], *, shardy: bool, parameters: list[bool], results: list[bool]
) -> Any:
    """Options of a compile with a partition on each device.

    Args:
        devices: the devices, by id.
        shardy: whether Shardy partitions, and not GSPMD.
        parameters: of which parameters the partitioner may choose the sharding.
        results: of which results.
    """
    options = _jax.CompileOptions()
    options.num_replicas = 1
    options.num_partitions = len(devices)
    options.device_assignment = _jax.DeviceAssignment.create(np.array([devices]))
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = shardy
    build.allow_spmd_sharding_propagation_to_parameters = parameters
    build.allow_spmd_sharding_propagation_to_output = results
    return options
