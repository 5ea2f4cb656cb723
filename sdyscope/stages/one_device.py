"""The same step on one device: the jaxpr that was traced, with every sharding taken out of it.

What is compared against must be the same program: the very jaxpr is evaluated, in which sharding
constraints are left out and nested jits forget their shardings. A `shard_map` has no such form: its
body is written for the blocks of a mesh of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from sdyscope.errors import CompilerError
from sdyscope.stages import compat

__all__ = ["compute_dtypes", "draws_random_numbers", "unsharded"]

#: Ops that say where a value is to be, and nothing about what it is.
_PLACING = frozenset({"sharding_constraint", "reshard", "mesh_cast"})

#: Ops whose values may depend on how they are partitioned.
_RANDOM = ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform")


def unsharded(traced: Any) -> Callable[..., Sequence[Any]]:
    """The traced function on flat arguments that lie on one device, results flat.

    Raises:
      CompilerError: it has a `shard_map`, which is made for one mesh.
    """
    closed = traced.jaxpr
    stripped = closed.replace(jaxpr=_stripped(closed.jaxpr), consts=[*map(_on_host, closed.consts)])
    made: Callable[..., Sequence[Any]] = core.jaxpr_as_fun(stripped)
    return made


def _on_host(value: Any) -> Any:
    """A constant that may lie on the devices of a mesh, brought to one device."""
    if isinstance(value, jax.Array) and len(value.sharding.device_set) > 1:
        return jax.device_put(value, jax.local_devices(backend=_platform(value))[0])
    return value


def _platform(value: jax.Array) -> str:
    device: Any = next(iter(value.sharding.device_set))
    return str(device.platform)


def _stripped(jaxpr: Any) -> Any:
    renamed: dict[Any, Any] = {}

    def now(atom: Any) -> Any:
        return atom if isinstance(atom, core.Literal) else renamed.get(atom, atom)

    equations = []
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "shard_map":
            raise CompilerError(
                "A shard_map is written for the blocks of one mesh, so it has no form for one "
                "device.",
                hint="Let the target be a function that takes mesh: it is then built again on a "
                "mesh of one device.",
            )
        invars = [now(atom) for atom in equation.invars]
        if name in _PLACING:
            renamed[equation.outvars[0]] = invars[0]
            continue
        params = {key: _stripped_value(key, value) for key, value in equation.params.items()}
        equations.append(equation.replace(invars=invars, params=params))
    return jaxpr.replace(eqns=equations, outvars=[now(atom) for atom in jaxpr.outvars])


def _stripped_value(key: str, value: Any) -> Any:
    """One parameter of an equation, without shardings, in nested jaxprs too."""
    if isinstance(value, core.ClosedJaxpr):
        consts = [*map(_on_host, value.consts)]
        return value.replace(jaxpr=_stripped(value.jaxpr), consts=consts)
    if isinstance(value, core.Jaxpr):
        return _stripped(value)
    if type(value) is tuple:
        return tuple(_stripped_value(key, item) for item in value)
    if isinstance(value, jax.sharding.Sharding):
        return compat.unspecified() if key in ("in_shardings", "out_shardings") else None
    return value


# --- what it computes in --------------------------------------------------------------------------


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in compat.sub_jaxprs(equation.params):
            yield from _equations(inner)


def draws_random_numbers(traced: Any) -> bool:
    """Whether some op makes random bits."""
    return any(equation.primitive.name.startswith(_RANDOM) for equation in _equations(traced.jaxpr))


def compute_dtypes(traced: Any, platform: str) -> tuple[str, ...]:
    """Floating point dtypes (MLIR's names) that results are rounded to on the way.

    Args:
      traced: a `jax.stages.Traced`.
      platform: `cpu`, `gpu` or `tpu`. GPUs round the operands of f32 matrix products to TF32, TPUs
        to bf16, unless a higher precision is asked for.
    """
    found: set[str] = set()
    for equation in _equations(traced.jaxpr):
        for variable in equation.outvars:
            dtype = getattr(variable.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.inexact):
                found.add(compat.dtype_name(dtype))
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            found.update(_products(equation, platform))
    return tuple(sorted(found))


def _products(equation: Any, platform: str) -> set[str]:
    rounded = {"gpu": "tf32", "tpu": "bf16"}.get(platform)
    precision = str(
        equation.params.get("precision") or compat.setting("jax_default_matmul_precision")
    )
    is_f32 = any(str(variable.aval.dtype) == "float32" for variable in equation.invars)
    return {rounded} if rounded and is_f32 and "HIGH" not in precision.upper() else set()
