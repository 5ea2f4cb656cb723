"""What is read off JAX's objects: a jitted function's flat arguments and results, a shard_map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jax.sharding import PartitionSpec


@dataclass(frozen=True)
class SignatureArgument:
    """One flat argument of a jitted function.

    Attributes:
        name: JAX's own name for it, as in the IR: `params['w'][0]`; empty when it has none.
        aval: JAX's abstract value.
        given: the sharding of the array or `ShapeDtypeStruct`, None when it has none or is free.
        asked: the entry of jit's `in_shardings`, None when unspecified.
        layout: a layout was asked for.
        donated: its buffer may be reused.
    """

    name: str
    aval: Any
    given: Any
    asked: Any
    layout: bool
    donated: bool


@dataclass(frozen=True)
class SignatureResult:
    """One flat result of a jitted function: its name in the IR, and its `out_shardings` entry."""

    name: str
    aval: Any
    asked: Any
    layout: bool


@dataclass(frozen=True)
class LoweringArguments:
    """What became of the flat arguments in the module.

    Attributes:
        constants: how many constants come before the arguments in `main`, hoisted by newer JAX.
        kept: flat index of each further argument of `main`, in order; that of a Ref which the
            function closes over is behind all that was given.
        donated: the kept ones that are donated.
        num_devices: how many devices the module is partitioned for.
        platforms: what it was lowered for.
        devices: JAX's devices, by the position that the module counts them by; none on an abstract
            mesh.
    """

    constants: int
    kept: tuple[int, ...]
    donated: tuple[int, ...]
    num_devices: int
    platforms: tuple[str, ...]
    devices: tuple[Any, ...]


@dataclass(frozen=True)
class ShardMap:
    """A shard_map equation: the mesh, a spec for each operand and result, and its manual axes.

    `function` is the name of the function that it maps; empty where that has none.
    """

    mesh: Any
    in_specs: tuple[PartitionSpec, ...]
    out_specs: tuple[PartitionSpec, ...]
    manual_axes: tuple[str, ...]
    jaxpr: Any
    function: str

    @property
    def is_written(self) -> bool:
        """JAX writes no boundary into the IR when every manual axis has size 1."""
        return bool(math.prod(self.mesh.shape[axis] for axis in self.manual_axes) > 1)
