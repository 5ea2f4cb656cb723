"""A function of the user's, which computes what a program should, called with its arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdyscope.errors import SdyscopeError, TargetError, first_line
from sdyscope.facts.program import Program
from sdyscope.stages import compat
from sdyscope.stages.executed.device_arrays import is_key, on_host
from sdyscope.values.source import authors_line


def function_name(function: Callable[..., Any]) -> str:
    """`ref.py:dense`; what it is called where it is not known where it is written."""
    plain = getattr(function, "__wrapped__", function)
    name = str(getattr(plain, "__name__", type(function).__name__))
    code = getattr(plain, "__code__", None)
    return name if code is None else f"{Path(code.co_filename).name}:{name}"


def called(
    function: Callable[..., Any], program: Program, traced: Any, values: Sequence[Any], device: Any
) -> tuple[list[Any], float]:
    """The results of a function on the program's own arguments, whole, on one device.

    Args:
        function: what to call, as the program's own function is called, static arguments included.
        program: the program.
        traced: its `jax.stages.Traced`.
        values: its flat arguments.
        device: where to put them.

    Returns:
        The flat results on the host, keys as their words, and the seconds that the call took.

    Raises:
        TargetError: it raises, or its results are not like the program's: other in number,
            structure, shape or dtype.
    """
    name = function_name(function)
    with jax.default_device(device):
        flat = [jax.device_put(on_host(value), device) for value in values]
        args, kwargs = _arguments(program, traced, flat, name)
        start = time.perf_counter()
        try:
            results = jax.block_until_ready(function(*args, **kwargs))
        except SdyscopeError:
            raise
        except Exception as error:  # the user's own code: anything can come out
            line = authors_line(error)
            raise TargetError(
                f"The reference {name} fails: {type(error).__name__}: {first_line(error)}",
                file=line.file if line else None,
                line=line.line if line else None,
                hint="It is called with the program's own arguments, whole and on one device.",
            ) from error
        seconds = time.perf_counter() - start
    _check_like(results, traced, program, name)
    return [
        np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(results)
    ], seconds


def _arguments(
    program: Program, traced: Any, flat: Sequence[Any], name: str
) -> tuple[Sequence[Any], dict[str, Any]]:
    """What the program's function is called with, with these values."""
    if isinstance(program.fun, jax.stages.Traced):
        args, kwargs = jax.tree.unflatten(traced.in_tree, flat)
        return args, kwargs
    call = compat.call_arguments(program.fun, program.args, program.kwargs)
    if jax.tree.structure(call) != traced.in_tree:
        # A library's own jit, which calls its function with arguments of its own making.
        raise TargetError(
            f"{program.name} is jitted by a library that changes its arguments, so {name} can't be "
            "called with them.",
            hint="Give a Program whose fun is the result of jax.jit.",
        )
    args, kwargs = jax.tree.unflatten(traced.in_tree, flat)
    return compat.with_static_arguments(program.fun, program.args, program.kwargs, args, kwargs)


def _check_like(results: Any, traced: Any, program: Program, name: str) -> None:
    """Checks that results have the structure, shapes and dtypes of the program's."""
    own = jax.tree_util.tree_flatten_with_path(traced.out_info)[0]
    its = jax.tree_util.tree_flatten_with_path(results)[0]
    hint = f"It must return what {program.name} returns: the same structure, shapes and dtypes."

    def path(keys: Any) -> str:
        return f"result{jax.tree_util.keystr(keys)}"

    if len(own) != len(its):
        raise TargetError(
            f"The reference {name} returns {_arrays(len(its))}, and {program.name} {len(own):,}.",
            hint=hint,
        )
    for (keys, result), (other_keys, other) in zip(own, its, strict=True):
        if path(keys) != path(other_keys):
            raise TargetError(
                f"The reference {name} returns {path(other_keys)} where {program.name} returns "
                f"{path(keys)}.",
                hint=hint,
            )
        here, there = _type(result), _type(other)
        if here != there:
            raise TargetError(
                f"{path(keys)} of the reference {name} is {there}, and that of {program.name} "
                f"{here}.",
                hint=hint,
            )


def _arrays(count: int) -> str:
    return "1 array" if count == 1 else f"{count:,} arrays"


def _type(value: Any) -> str:
    """`float32[8, 4]`, of a numpy value as JAX would hold it."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        dtype = np.result_type(value)
    if not jnp.issubdtype(dtype, jax.dtypes.extended):
        dtype = jax.dtypes.canonicalize_dtype(dtype)
    return f"{dtype}{[*np.shape(value)]}"
