"""How XLA is asked to compile, as JAX asks it, and what it says then. No JAX is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from jaxlib import _jax

CompilerOption: TypeAlias = bool | int | float | str
"""A value in jit's `compiler_options`."""

_Executable = TypeVar("_Executable")

_UNKNOWN = re.compile(r"No such compile option: '([^']*)'")
_BOOLEAN = re.compile(r"While setting option (\w+), '([01])' is not a valid bool value")


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


def compiled_with(
    compiler: Callable[[Sequence[str]], _Executable],
    options: Any,
    own: Sequence[tuple[str, CompilerOption]],
    given: Sequence[tuple[str, CompilerOption]],
) -> _Executable:
    """Compiles with jit's `compiler_options` and our own, but for those the compiler does not know.

    A program for TPUs has theirs, which the compiler for CPUs refuses.

    A flag that is 0 or 1 in `XLA_FLAGS` can be of a boolean, which an option has to be.

    Args:
        compiler: compiles with ``options``; it is told the names of those that are left out.
        options: a ``CompileOptions``, in which the overrides are set.
        own: overrides that are no user's.
        given: jit's, which come first.
    """
    left_out: list[str] = []
    given = [(name, value) for name, value in given]
    while True:
        known = [option for option in (*own, *given) if option[0] not in left_out]
        options.env_option_overrides = known
        try:
            return compiler(left_out)
        except RuntimeError as error:
            boolean = _BOOLEAN.search(str(error))
            if boolean is not None and (option := (boolean[1], boolean[2])) in given:
                given[given.index(option)] = boolean[1], boolean[2] == "1"
                continue
            unknown = _UNKNOWN.search(str(error))
            if unknown is None or unknown[1] not in dict(known):
                raise
            left_out.append(unknown[1])
