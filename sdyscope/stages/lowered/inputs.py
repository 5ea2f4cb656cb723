"""Values to run a program on: those that it brings, or values made for its abstract arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdyscope.errors import SdyscopeError, TargetError, first_line, kind_of
from sdyscope.facts.execution import InputSource
from sdyscope.facts.program import Program
from sdyscope.stages import compat
from sdyscope.stages.lowered.roots import rooted
from sdyscope.stages.recorder.refs import is_ref
from sdyscope.values.source import authors_line

#: Of the values that are made here; the same in every run.
SEED = 0

#: Standard deviation of made floats: small, so that exponentials and products stay finite.
SCALE = 0.1


def concrete_arguments(program: Program, traced: Any) -> tuple[list[Any], InputSource]:
    """Flat values for every argument that jit was given, and where they come from.

    `Program.inputs` when it has them; else arrays among its arguments are taken as they are, and
    values are made for the abstract ones: small normal floats, integers 0 and 1 in turns (both are
    in most ranges) and 0 for a scalar, fair booleans, fresh PRNG keys, all from one fixed seed.
    Floats that a root or logarithm is taken of have no sign.

    Raises:
        TargetError: `inputs` raises, or what it returns does not fit the arguments; or the program
            takes a Ref.
    """
    avals = traced.jaxpr.in_avals
    ref = next((each.name for each in compat.arguments(traced) if is_ref(each.aval)), None)
    if ref is not None:
        raise TargetError(
            f"{program.name} can't be run here: {ref or 'an argument'} is a jax.Ref.",
            hint="What does not run it works: `sdyscope check`, `propagate`, `comms`, `memory`.",
        )
    if program.inputs is not None:
        args, kwargs = _called(program)
        return _brought(program, traced, args, kwargs), InputSource("inputs")
    given: Sequence[Any] = [None] * len(avals)
    if not isinstance(program.fun, jax.stages.Traced):
        flat = jax.tree.leaves(compat.call_arguments(program.fun, program.args, program.kwargs))
        given = flat if len(flat) == len(avals) else given
    abstract = {
        number
        for number, leaf in enumerate(given)
        if leaf is None or isinstance(leaf, jax.ShapeDtypeStruct)
    }
    if not abstract:
        return list(given), InputSource("arguments")
    rng = np.random.default_rng(SEED)
    unsigned = {
        number
        for number in abstract & rooted(traced.jaxpr)
        if jnp.issubdtype(avals[number].dtype, np.floating)
    }
    values = [
        (np.abs(_value(aval, rng)) if number in unsigned else _value(aval, rng))
        if number in abstract
        else given[number]
        for number, aval in enumerate(avals)
    ]
    return values, InputSource("made", SEED, SCALE, len(unsigned))


def _called(program: Program) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """What the program's `inputs` returns: the author's own code, from which anything can come."""
    assert program.inputs is not None
    try:
        returned: Any = program.inputs()
    except SdyscopeError:
        raise
    except Exception as error:
        line = authors_line(error)
        raise TargetError(
            f"The inputs of {program.name} can't be made: {type(error).__name__}: "
            f"{first_line(error)}",
            file=line.file if line else None,
            line=line.line if line else None,
        ) from error
    if isinstance(returned, tuple | list) and len(returned) == 2:
        args, kwargs = returned
        if isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
            return args, kwargs
    raise TargetError(
        f"The inputs of {program.name} are {_kind(returned)}, not a pair of arguments and keyword "
        "arguments.",
        hint="Program.inputs returns (args, kwargs): a tuple and a dict.",
    )


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{kind_of(value)} of {len(value)}"
    return kind_of(value)


def _brought(
    program: Program, traced: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    call = compat.call_arguments(program.fun, tuple(args), kwargs)
    leaves, tree = jax.tree.flatten(call)
    if tree != traced.in_tree:
        raise TargetError(
            f"The inputs of {program.name} differ in structure from its arguments.",
            hint="Program.inputs returns (args, kwargs), structured like Program.args and kwargs.",
        )
    avals, given = traced.jaxpr.in_avals, compat.arguments(traced)
    for value, aval, argument in zip(leaves, avals, given, strict=True):
        shape, dtype = np.shape(value), _dtype(value)
        if shape != aval.shape or dtype != aval.dtype:
            raise TargetError(
                f"The input {argument.name} of {program.name} is {dtype}{[*shape]}, and the "
                f"argument {aval.dtype}{[*aval.shape]}.",
                hint="Let Program.inputs return values for the abstract arguments.",
            )
    return leaves


def _dtype(value: Any) -> Any:
    """The dtype that a value has on a device; the name of its type where it can't be there."""
    if isinstance(value, jax.Array):
        return value.dtype
    try:
        dtype = getattr(value, "dtype", None) or np.result_type(value)
        return jax.dtypes.canonicalize_dtype(dtype)
    except TypeError:
        return type(value).__name__


def _value(aval: Any, rng: np.random.Generator) -> Any:
    dtype, shape = aval.dtype, aval.shape
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return compat.random_keys(aval, SEED)
    if dtype == jax.dtypes.float0:
        return np.zeros(shape, dtype)
    if jnp.issubdtype(dtype, np.integer):
        # Both are in most ranges, and all alike would hide what depends on an index.
        return (np.arange(math.prod(shape)) % 2).reshape(shape).astype(dtype)
    if jnp.issubdtype(dtype, np.bool_):
        return rng.integers(0, 2, shape).astype(dtype)
    values = rng.standard_normal(shape, np.float32) * SCALE
    if jnp.issubdtype(dtype, np.complexfloating):
        return (values + 1j * rng.standard_normal(shape, np.float32) * SCALE).astype(dtype)
    return values.astype(dtype)
