"""What JAX was asked to lower, as the `jax.stages.Traced` that it came from.

This is not in `stages.compat`, which imports `jax.extend`: from JAX 0.12 that brings settings of
Pallas with it, and every function of the program that was traced before would be traced anew.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax._src import pjit as jit_internals

from sdyscope.stages.recorder.callers import Caller


def with_names(jaxpr: Any, caller: Caller) -> Any:
    """A jaxpr whose arguments and results have the author's paths, and its function their line."""
    if caller == Caller():
        return jaxpr
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    info = inner.debug_info
    names = caller.names
    said: dict[str, Any] = {
        name: tuple(names.get(path, path) for path in paths)
        for name in ("arg_names", "result_paths")
        if (paths := getattr(info, name, None)) is not None
    }
    if caller.defined is not None:
        function = caller.function or info.func_src_info.partition(" at ")[0]
        said["func_src_info"] = f"{function} at {caller.defined[0]}:{caller.defined[1]}"
    named = inner.replace(debug_info=info._replace(**said))
    return named if inner is jaxpr else jaxpr.replace(jaxpr=named)


def traced_of(arguments: Sequence[Any], keywords: Mapping[str, Any], caller: Caller) -> Any:
    """A `jax.stages.Traced` of a program that was called, not traced by hand.

    Its arguments are flat, and have the shardings that JAX settled on for the arrays of the call.

    Args:
        arguments: what `lower_sharding_computation` was called with, by position.
        keywords: and by name.
        caller: the author's names.
    """
    jaxpr, _, name, in_shardings, out_shardings, in_layouts, out_layouts, donated = arguments[:8]
    jaxpr = with_names(jaxpr, caller)
    params = {
        "jaxpr": jaxpr,
        "in_shardings": tuple(in_shardings),
        "out_shardings": tuple(out_shardings),
        "in_layouts": tuple(in_layouts),
        "out_layouts": tuple(out_layouts),
        "donated_invars": tuple(donated),
        "ctx_mesh": keywords["context_mesh"],
        "name": name,
        "keep_unused": keywords["keep_unused"],
        "inline": False,
        "compiler_options_kvs": keywords["compiler_options_kvs"],
    }
    flat = tuple(map(_argument, jaxpr.in_avals))
    known: dict[str, Callable[[], Any]] = {
        # JAX up to 0.8: a function that lowers, which has the arguments in it.
        "lfg": lambda: functools.partial(
            jit_internals._resolve_and_lower, flat, pgle_profiler=None
        ),
        "meta_tys_flat": lambda: flat,
        "params": lambda: params,
        "in_tree": lambda: jax.tree.structure((tuple(range(len(flat))), {})),
        "out_tree": lambda: jax.tree.structure(tuple(range(len(jaxpr.out_avals)))),
        "num_consts": lambda: 0,
        "consts": lambda: (),
        "fun_sourceinfo": lambda: None,
    }
    constructor: Any = jax.stages.Traced
    wanted = list(inspect.signature(constructor.__init__).parameters)[1:]
    return constructor(*(known[parameter]() for parameter in wanted))


def _argument(aval: Any) -> Any:
    make = getattr(jit_internals, "create_meta_ty", None)
    if make is not None:
        return make(aval, None, None, True, False)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
