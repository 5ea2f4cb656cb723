"""What jit was given, and what it made of that."""

from __future__ import annotations

import contextlib
import copy
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from jax._src import core
from jax._src import pjit as jit_internals
from jax._src.interpreters import pxla

from sdyscope.stages.compat.jaxprs import abstract_mesh_inside
from sdyscope.stages.compat.meshes import all_explicit, is_explicit, spec_entries
from sdyscope.stages.compat.versions import version_tuple
from sdyscope.stages.compile_options import CompilerOption
from sdyscope.stages.lowered.signature import LoweringArguments, SignatureArgument, SignatureResult
from sdyscope.stages.recorder.callers import names_of_the_call
from sdyscope.stages.recorder.refs import is_ref, ref_names, ref_result
from sdyscope.stages.recorder.traced import with_names
from sdyscope.values.source import SourceLocation


class _Lowering(BaseException):
    """Carries what was about to be lowered past everything that catches exceptions."""

    def __init__(self, traced: Any) -> None:
        super().__init__()
        self.traced = traced


def traced(fun: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The `jax.stages.Traced` of a jitted function, or of a library's wrapper around one.

    `nnx.jit` of Flax and `eqx.filter_jit` of Equinox return objects of their own, which call a
    jitted function with arguments of their own making. All have `.lower`, in which JAX lowers a
    Traced: what it is called on is caught there, in this thread.
    """
    stage = fun.trace(*args, **kwargs) if hasattr(fun, "trace") else None
    if isinstance(stage, jax.stages.Traced):
        return stage
    stages: Any = jax.stages.Traced
    original, thread = stages.lower, threading.get_ident()

    def caught(self: Any, *given: Any, **named: Any) -> Any:
        if threading.get_ident() != thread:
            return original(self, *given, **named)
        raise _Lowering(_with_names(self))

    stages.lower = caught
    try:
        fun.lower(*args, **kwargs)
    except _Lowering as lowering:
        return lowering.traced
    finally:
        stages.lower = original
    raise TypeError(f"{type(fun).__name__}.lower lowers nothing that jax.jit made")


def _with_names(traced: Any) -> Any:
    """A Traced with the author's names, while the wrapper that traced it is on the stack."""
    info, avals = _debug_info(traced.jaxpr), traced.jaxpr.in_avals
    caller = names_of_the_call(avals, tuple(info.arg_names or ()), tuple(info.result_paths or ()))
    renamed = copy.copy(traced)
    renamed._params = {
        **traced._params,
        "jaxpr": with_names(traced._params["jaxpr"], caller),
        "name": caller.function or traced._params["name"],
    }
    return renamed


#: How JAX says where a function is defined: ``step at train.py:12``.
_DEFINED = re.compile(r"(?P<name>.*) at (?P<file>.+):(?P<line>[0-9]+)")


def specified(value: Any) -> Any:
    """`value`, or None where JAX has a marker for what was not specified."""
    return None if type(value).__name__ in ("UnspecifiedValue", "AutoLayoutSingleton") else value


def _debug_info(jaxpr: Any) -> Any:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return getattr(jaxpr, "debug_info", None) or jaxpr._debug_info


def defined_at(traced: Any) -> SourceLocation | None:
    """The line of the function that a `jax.stages.Traced` was made from, where that is a user's."""
    match = _DEFINED.fullmatch(str(getattr(_debug_info(traced.jaxpr), "func_src_info", "")))
    if match is None or "site-packages" in match["file"]:
        return None
    return SourceLocation(match["file"], int(match["line"]), 0, match["name"])


def _names(names: Sequence[str | None] | None, count: int) -> list[str]:
    known = list(names or ())
    return [str(name or "") for name in known] if len(known) == count else [""] * count


def arguments(traced: Any) -> list[SignatureArgument]:
    """The flat arguments that a `jax.stages.Traced` was made for, static ones left out."""
    params, avals = traced._params, traced.jaxpr.in_avals
    # An array and its ShapeDtypeStruct here; only what jit keeps of them from 0.9.
    flat = getattr(traced, "_meta_tys_flat", None)
    flat = traced._args_flat if flat is None else flat
    names = _names(_debug_info(traced.jaxpr).arg_names, len(avals))
    signature = []
    for name, aval, value, asked, layout, donated in zip(
        names,
        avals,
        flat,
        params["in_shardings"],
        params["in_layouts"],
        params["donated_invars"],
        strict=True,
    ):
        committed = getattr(value, "committed", getattr(value, "_committed", True))
        given = getattr(value, "sharding", None) if committed else None
        signature.append(
            SignatureArgument(
                name, aval, given, specified(asked), specified(layout) is not None, donated
            )
        )
    return signature


def results(traced: Any) -> list[SignatureResult]:
    """The flat results of a `jax.stages.Traced`, what its Refs are set to included."""
    params, avals = traced._params, traced.jaxpr.out_avals
    names = _names(_debug_info(traced.jaxpr).result_paths, len(avals))
    returned = [
        SignatureResult(name, aval, specified(asked), specified(layout) is not None)
        for name, aval, asked, layout in zip(
            names, avals, params["out_shardings"], params["out_layouts"], strict=True
        )
    ]
    if not any(map(is_ref, traced.jaxpr.in_avals)):
        return returned
    kept = kept_jaxpr(traced)[1]
    return returned + [
        SignatureResult(
            ref_result(each.name),
            each.aval.inner_aval,
            each.given if each.asked is None else each.asked,
            each.layout,
        )
        for number, each in enumerate(arguments(traced))
        if is_ref(each.aval) and number in kept
    ]


@contextlib.contextmanager
def refs_named(traced: Any) -> Iterator[None]:
    """Lowers a program with Refs to a module that has its paths, which JAX drops, in the block."""
    original: Any = getattr(pxla, "_discharge_refs", None)
    if original is None or not any(map(is_ref, traced.jaxpr.in_avals)):
        yield
        return
    thread = threading.get_ident()

    def named(jaxpr: Any) -> Any:
        discharged, *others = original(jaxpr)
        if threading.get_ident() == thread:
            discharged = _with_ref_names(jaxpr, discharged)
        return discharged, *others

    setattr(pxla, "_discharge_refs", named)  # noqa: B010 - of another type than JAX's
    try:
        yield
    finally:
        setattr(pxla, "_discharge_refs", original)  # noqa: B010


@contextlib.contextmanager
def result_types_written() -> Iterator[None]:
    """Lowers on an AbstractMesh as JAX does on devices: results keep their types' Explicit axes.

    Without devices JAX leaves them to the compiler, which reduces those whose types are unreduced.
    """
    original: Any = getattr(pxla, "_concretize_abstract_out_shardings", None)
    if original is None:
        yield
        return
    thread = threading.get_ident()

    def written(shardings: Any, avals: Any, devices: Any, memory_kinds: Any) -> Any:
        if devices is not None or threading.get_ident() != thread:
            return original(shardings, avals, devices, memory_kinds)
        return tuple(map(_by_type, shardings, avals, memory_kinds))

    setattr(pxla, "_concretize_abstract_out_shardings", written)  # noqa: B010 - as above
    try:
        yield
    finally:
        setattr(pxla, "_concretize_abstract_out_shardings", original)  # noqa: B010


def _by_type(asked: Any, aval: Any, memory_kind: Any) -> Any:
    """The sharding of a result: what jit was asked for, or what its type says of Explicit axes."""
    of_type = getattr(aval, "sharding", None)
    if specified(asked) is not None or of_type is None or not is_explicit(of_type.mesh):
        return asked
    spec = of_type.spec
    if not all_explicit(of_type.mesh):
        free = jax.sharding.PartitionSpec.UNCONSTRAINED
        spec = jax.sharding.PartitionSpec(
            *(free if entry is None else entry for entry in spec_entries(spec))
        )
    return jax.sharding.NamedSharding(of_type.mesh, spec, memory_kind=memory_kind)


def _with_ref_names(jaxpr: Any, discharged: Any) -> Any:
    """What `jaxpr` is without Refs, with the paths of it."""
    info, inner = _debug_info(jaxpr), getattr(discharged, "jaxpr", discharged)
    given = jaxpr.in_avals
    names = ref_names(given, info.arg_names or (), info.result_paths or (), range(len(given)))
    if not names.results:
        return discharged
    # Behind them, Refs that the function closes over.
    said = info._replace(
        arg_names=names.arguments + ("",) * (len(inner.invars) - len(names.arguments)),
        result_paths=names.results + ("",) * (len(inner.outvars) - len(names.results)),
    )
    renamed = inner.replace(debug_info=said)
    return renamed if inner is discharged else discharged.replace(jaxpr=renamed)


def kept_jaxpr(traced: Any) -> tuple[Any, frozenset[int]]:
    """The jaxpr as it will be lowered, and the flat arguments that it still uses.

    jit drops what no result depends on, constraints included, unless `keep_unused` is set. This
    calls (and so shares the cache of) the very function that lowering calls.
    """
    params = traced._params
    given = [traced.jaxpr, params["keep_unused"], tuple(params["donated_invars"])]
    if version_tuple() < (0, 10, 1):
        given.append(False)  # auto_spmd_lowering
    kept = pxla._dce_jaxpr(*given)
    return kept[0], frozenset(kept[2])


def lowered_for(traced: Any, mesh: Any, platforms: Any) -> Any:
    """A `jax.stages.Traced` lowered for as many devices as an abstract mesh has.

    JAX counts them by arguments, results and the mesh that is set around the program; a program
    that names its mesh only inside, it lowers for 1. None: this JAX (before 0.10) counts by a mesh
    that is set only where it has devices.
    """
    params = traced._params
    before, params["ctx_mesh"] = params["ctx_mesh"], mesh
    try:
        return traced.lower(lowering_platforms=platforms)
    except AttributeError as error:
        if "_flat_devices_tuple" not in str(error):
            raise
        return None
    finally:
        params["ctx_mesh"] = before


def mesh_without_devices(traced: Any) -> Any:
    """The AbstractMesh of more than one device that a `jax.stages.Traced` is for; or None."""
    shardings = [
        sharding for argument in arguments(traced) for sharding in (argument.given, argument.asked)
    ]
    shardings += [result.asked for result in results(traced)]
    said = [
        traced._params["ctx_mesh"],
        *(getattr(sharding, "mesh", None) for sharding in shardings),
    ]
    for mesh in said:
        if isinstance(mesh, jax.sharding.AbstractMesh) and mesh.size > 1:
            return mesh
    return abstract_mesh_inside(traced)


def lowered_signature(lowered: Any) -> tuple[list[SignatureArgument], list[SignatureResult]]:
    """The flat arguments and results of a `jax.stages.Lowered`, which has no jaxpr any more."""
    compile_args = lowered._lowering.compile_args
    info, lowering = compile_args["all_args_info"], lowering_arguments(lowered)
    shardings = dict(
        zip(lowering.kept, compile_args["in_shardings"][lowering.constants :], strict=True)
    )
    count = len(info.in_avals)
    avals = info.in_avals[count - lowered.in_tree.num_leaves :]
    names = _names(info.debug_info.arg_names, len(avals))
    given = [
        SignatureArgument(
            name, aval, None, specified(shardings.get(i)), False, i in lowering.donated
        )
        for i, (name, aval) in enumerate(zip(names, avals, strict=True))
    ]
    avals = compile_args["global_out_avals"]
    kept = (given[index] for index in lowering.kept if index < len(given))
    changed = [each for each in kept if is_ref(each.aval)]
    paths = (*(info.debug_info.result_paths or ()), *(ref_result(each.name) for each in changed))
    names = _names(paths, len(avals))
    return given, [
        SignatureResult(name, aval, specified(sharding), False)
        for name, aval, sharding in zip(names, avals, compile_args["out_shardings"], strict=True)
    ]


def lowering_arguments(lowered: Any) -> LoweringArguments:
    """Reads it off a `jax.stages.Lowered`."""
    lowering = lowered._lowering
    constants = len(getattr(lowering, "const_args", None) or ())
    indices = sorted(lowering.compile_args["kept_var_idx"])
    donated = tuple(lowering._donated_invars)
    # With hoisted constants both lists begin with them. A Ref that the function closes over is
    # behind what was given, and is counted on from there.
    given = len(lowering.compile_args["all_args_info"].in_avals) - constants
    closed_over = range(given, given + len(donated) - len(indices))
    kept = (*(index - constants for index in indices[constants:]), *closed_over)
    return LoweringArguments(
        constants,
        kept,
        tuple(i for i, flag in zip(kept, donated[constants:], strict=True) if flag),
        int(lowering.compile_args["num_devices"]),
        tuple(lowering._platforms),
        # None for a program on an abstract mesh.
        tuple(getattr(lowering, "_device_list", None) or ()),
    )


def compiler_options(lowered: Any) -> tuple[tuple[str, CompilerOption], ...]:
    """The `compiler_options` that jit was given for a `jax.stages.Lowered`; dumps left out."""
    given = getattr(lowered._lowering, "_compiler_options_kvs", None) or ()
    return tuple(
        (name, value)
        for name, value in given
        if isinstance(value, CompilerOption) and not name.startswith("xla_dump_")
    )


def function_name(stage: Any) -> str:
    """The name of the function that a `jax.stages.Traced` or `Lowered` was made from."""
    if isinstance(stage, jax.stages.Lowered):
        lowering: Any = stage._lowering
        name = str(lowering._name)
        return re.sub(r"^jit[_(](.*?)\)?$", r"\1", name)
    return str(stage.fun_name)


def constant_shardings(jaxpr: Any) -> list[tuple[Any, Any]]:
    """(abstract value, sharding) of the constants that become arguments of a nested function.

    Only with `jax_use_simplified_jaxpr_constants`; None where a constant is free.
    """
    constants = core.jaxpr_const_args(getattr(jaxpr, "jaxpr", jaxpr))
    shardings = jit_internals.const_args_shardings([value for value, _ in constants])
    return [
        (aval, specified(sharding))
        for (_, aval), sharding in zip(constants, shardings, strict=True)
    ]
