"""The only module that knows how versions of JAX differ.

JAX has public names for what a program *is* (`jax.stages`, `jax.sharding`, `jax.extend.mlir`), and
none for some of what it *was asked*: the flat arguments with their shardings, the jaxpr after
unused parts are dropped, the MLIR context with every dialect. These come from `jax._src` here, and
nowhere else. Works with JAX 0.7.2, 0.9.2, 0.10.2 and 0.12.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import config, core, source_info_util
from jax._src import pjit as jit_internals
from jax._src.interpreters import mlir, pxla
from jax._src.named_sharding import UNSPECIFIED
from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import func, sdy, stablehlo
from jax.sharding import AbstractMesh, AxisType
from jaxlib import _jax

from sdyscope.errors import CompilerError
from sdyscope.mesh import Mesh, MeshAxis
from sdyscope.program import Partitioner
from sdyscope.source import SourceLocation
from sdyscope.stages.signature import Argument, LoweringArguments, Result, ShardMap

# A module of its own from JAX 0.10 on.
hlo: Any = importlib.import_module(
    "jaxlib._hlo" if importlib.util.find_spec("jaxlib._hlo") else "jaxlib._jax"
)

__all__ = [
    "abstract_mesh",
    "all_explicit",
    "argument_number",
    "arguments",
    "call_arguments",
    "constant_shardings",
    "device_mesh",
    "dictionary_items",
    "dtype_name",
    "element_shape",
    "fully_open",
    "func",
    "function_name",
    "hlo",
    "hlo_sharding_text",
    "hlo_to_stablehlo",
    "ir",
    "is_block_argument",
    "is_explicit",
    "is_public",
    "is_tuple",
    "kept_jaxpr",
    "location_name",
    "locations_are_writable",
    "lowered_signature",
    "lowering_arguments",
    "lowering_devices",
    "lowering_platform",
    "mesh_context",
    "mesh_of",
    "mesh_of_attribute",
    "named_hlo_shardings",
    "new_context",
    "partitioner",
    "passmanager",
    "random_keys",
    "result_number",
    "results",
    "scan_body_is_inlined",
    "sdy",
    "setting",
    "shard_map_parameters",
    "shardings_per_value",
    "single_sharding",
    "spec_entries",
    "specified",
    "stablehlo",
    "sub_jaxprs",
    "symbol_name",
    "tested_version",
    "through_hlo",
    "unspecified",
    "user_frame",
    "value_sharding",
    "version",
    "version_tuple",
]


def _hide_own_frames() -> None:
    """Keeps sdyscope's calls, and click's around them, out of the locations that JAX writes.

    The reference models, which stand in the package when it is installed, are user code.
    """
    package = Path(__file__).parents[1]
    for entry in package.iterdir():
        if entry.name != "models":
            source_info_util.register_exclusion(str(entry))
    source_info_util.register_exclusion("<string>")  # python -c, as the child process is started
    click = importlib.util.find_spec("click")
    for folder in (click and click.submodule_search_locations) or ():
        source_info_util.register_exclusion(folder)


_hide_own_frames()

#: The JAX versions that the tests run on.
TESTED = ("0.7.2", "0.9.2", "0.10.2", "0.12.0")


def version() -> str:
    """JAX's version."""
    return jax.__version__


def version_tuple() -> tuple[int, ...]:
    """JAX's version as numbers, for comparing."""
    return tuple(jax.__version_info__)


def tested_version() -> bool:
    """Whether the tests run on this minor version of JAX."""
    minor = version().split(".")[:2]
    return any(known.split(".")[:2] == minor for known in TESTED)


# --- MLIR and HLO bindings ------------------------------------------------------------------------


def new_context() -> Any:
    """An MLIR context in which every dialect that JAX's bindings know is loaded."""
    return mlir.make_ir_context()


def hlo_to_stablehlo(proto: bytes) -> bytes:
    """A serialized HloModuleProto as StableHLO bytecode; V3 shardings and post-SPMD HLO included.

    Raises:
      Exception: XLA's error, when the proto is none or has ops without a StableHLO form.
    """
    module = _jax.mlir.hlo_to_stablehlo(proto)
    return module if isinstance(module, bytes) else module.encode()


def through_hlo(bytecode: bytes) -> bytes:
    """StableHLO as XLA has it after StableHLO -> HLO -> StableHLO, in bytecode.

    Raises:
      Exception: XLA's error, when the module has ops without an HLO form.
    """
    computation = _jax.mlir.mlir_module_to_xla_computation(
        bytecode, use_tuple_args=False, return_tuple=False
    )
    return hlo_to_stablehlo(computation.as_serialized_hlo_module_proto())


def location_name(operation: Any) -> str:
    """The outermost name of an op's location; empty when it has none."""
    location = operation.location
    # Up to JAX 0.9 asking for the name of a location that has none aborts.
    if hasattr(location, "is_a_name") and not location.is_a_name():
        return ""
    return str(getattr(location, "name_str", ""))


def named_hlo_shardings() -> bool:
    """Whether XLA writes shardings with the names of axes in HLO (its version 3), as 0.12 does."""
    found = re.findall(r"--xla_enable_hlo_sharding_v3(?:=(\w+))?", os.environ.get("XLA_FLAGS", ""))
    if found:
        return found[-1].lower() not in ("false", "0")
    return version_tuple() >= (0, 12)


def symbol_name(operation: Any) -> str:
    """The name of a function or another symbol."""
    return str(ir.StringAttr(operation.attributes["sym_name"]).value)


def is_public(operation: Any) -> bool:
    """Whether a function can be called from outside the module."""
    attributes = operation.attributes
    return (
        "sym_visibility" not in attributes
        or ir.StringAttr(attributes["sym_visibility"]).value == "public"
    )


def locations_are_writable() -> bool:
    """Whether the location of an op in MLIR can be set, which it can since JAX 0.9."""
    return getattr(ir.Operation.location, "fset", None) is not None


def dictionary_items(dictionary: Any) -> list[tuple[str, Any]]:
    """Names and values of a DictAttr or of an op's attributes.

    They iterate over pairs or, since JAX 0.10, names.
    """
    return [
        (item, dictionary[item]) if isinstance(item, str) else (item.name, item.attr)
        for item in dictionary
    ]


def dtype_name(dtype: Any) -> str:
    """MLIR's name of the element type that JAX lowers `dtype` to: `f32`, `bf16`, `i1`, `ui32`."""
    return _dtype_name(np.dtype(dtype))


@functools.cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.name == "float0":  # the tangents of integers
        return "i1"
    with new_context(), ir.Location.unknown():
        return str(mlir.dtype_to_ir_type(dtype))


def element_shape(aval: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an abstract value in the IR: a PRNG key is an array of `ui32` there."""
    physical = core.physical_aval(aval)
    return tuple(physical.shape), physical.dtype


# --- partitioners and meshes ----------------------------------------------------------------------


@contextmanager
def partitioner(name: Partitioner) -> Iterator[None]:
    """Lowers and compiles with the named partitioner inside the block, in this thread.

    The flag is part of the keys of JAX's caches, so lowering the same `Traced` under both
    partitioners gives two modules.

    Raises:
      CompilerError: this JAX does not let one choose.
    """
    flag = getattr(config, "use_shardy_partitioner", None)
    if flag is None:
        if name == "shardy":
            yield
            return
        raise CompilerError(
            f"JAX {version()} has no GSPMD partitioner any more.",
            hint="Use --partitioner shardy, or an older JAX.",
        )
    with flag(name == "shardy"):
        yield


def abstract_mesh(mesh: Mesh) -> AbstractMesh:
    """A JAX mesh of any size without devices; the partitioner is free on every axis (Auto).

    From JAX 0.12 on an AbstractMesh is Explicit unless told otherwise.
    """
    sizes, names = tuple(axis.size for axis in mesh.axes), tuple(axis.name for axis in mesh.axes)
    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


def device_mesh(mesh: Mesh, devices: Sequence[Any]) -> jax.sharding.Mesh:
    """A JAX mesh over real devices, in the order that `mesh` gives them.

    Raises:
      CompilerError: there are fewer devices than the mesh has.
    """
    if len(devices) < mesh.size:
        raise CompilerError(
            f"The mesh has {mesh.size} devices, and there are {len(devices)}.",
            hint="Give a smaller --mesh, or more virtual CPU devices (--on cpu:N).",
        )
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = [devices[number] for number in mesh.devices()]
    return jax.sharding.Mesh(
        grid.reshape([axis.size for axis in mesh.axes]),
        tuple(axis.name for axis in mesh.axes),
        axis_types=(AxisType.Auto,) * len(mesh.axes),
    )


def mesh_context(mesh: Any) -> Any:
    """A context manager in which PartitionSpecs without a mesh mean this one.

    JAX takes those of jit's `in_shardings` and `out_shardings` for a mesh of devices only.
    """
    if isinstance(mesh, jax.sharding.Mesh):
        return jax.set_mesh(mesh)
    return jax.sharding.use_abstract_mesh(mesh)


def mesh_of(mesh: Any, logical_devices: Sequence[int] | None = None) -> Mesh:
    """JAX's Mesh or AbstractMesh as ours.

    Devices are counted by their position in the program's device assignment, as in the IR, so a
    mesh's own order never shows; `logical_devices` is the order where a second mesh of the same
    program differs from the first.
    """
    return Mesh(
        tuple(MeshAxis(str(name), size) for name, size in mesh.shape.items()),
        None if logical_devices is None else tuple(logical_devices),
    )


def mesh_of_attribute(attribute: Any) -> Mesh:
    """An MLIR `#sdy.mesh` attribute as ours."""
    mesh = sdy.MeshAttr(attribute)
    axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
    return Mesh(
        tuple(MeshAxis(axis.name, axis.size) for axis in axes), tuple(mesh.device_ids) or None
    )


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """The entries of JAX's PartitionSpec, which refuses to be iterated when axes are unreduced."""
    return tuple(spec._partitions)


def is_explicit(mesh: Any) -> bool:
    """Whether some axis of JAX's mesh is Explicit: shardings on it are part of the types."""
    return any(kind == AxisType.Explicit for kind in getattr(mesh, "axis_types", ()) or ())


def all_explicit(mesh: Any) -> bool:
    """Whether every axis of JAX's mesh is Explicit (or Manual): no partitioner has a say."""
    return not any(kind == AxisType.Auto for kind in getattr(mesh, "axis_types", ()) or ())


# --- what jit was given ---------------------------------------------------------------------------


def specified(value: Any) -> Any:
    """`value`, or None where JAX has a marker for what was not specified."""
    return None if type(value).__name__ in ("UnspecifiedValue", "AutoLayoutSingleton") else value


def _debug_info(jaxpr: Any) -> Any:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return getattr(jaxpr, "debug_info", None) or jaxpr._debug_info


def _names(names: Sequence[str | None] | None, count: int) -> list[str]:
    known = list(names or ())
    return [str(name or "") for name in known] if len(known) == count else [""] * count


def arguments(traced: Any) -> list[Argument]:
    """The flat arguments that a `jax.stages.Traced` was made for, static ones left out."""
    params, avals = traced._params, traced.jaxpr.in_avals
    # An array and its ShapeDtypeStruct here; only what jit keeps of them from 0.9.
    flat = getattr(traced, "_meta_tys_flat", None)
    flat = traced._args_flat if flat is None else flat
    names = _names(_debug_info(traced.jaxpr).arg_names, len(avals))
    found = []
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
        found.append(
            Argument(name, aval, given, specified(asked), specified(layout) is not None, donated)
        )
    return found


def results(traced: Any) -> list[Result]:
    """The flat results of a `jax.stages.Traced`."""
    params, avals = traced._params, traced.jaxpr.out_avals
    names = _names(_debug_info(traced.jaxpr).result_paths, len(avals))
    return [
        Result(name, aval, specified(asked), specified(layout) is not None)
        for name, aval, asked, layout in zip(
            names, avals, params["out_shardings"], params["out_layouts"], strict=True
        )
    ]


def kept_jaxpr(traced: Any) -> tuple[Any, frozenset[int]]:
    """The jaxpr as it will be lowered, and the flat arguments that it still uses.

    jit drops what no result depends on, constraints included, unless `keep_unused` is set. This
    calls (and so shares the cache of) the very function that lowering calls.
    """
    params = traced._params
    given = [traced.jaxpr, params["keep_unused"], tuple(params["donated_invars"])]
    if version_tuple() < (0, 10):
        given.append(False)  # auto_spmd_lowering
    kept = pxla._dce_jaxpr(*given)
    return kept[0], frozenset(kept[2])


def lowered_signature(lowered: Any) -> tuple[list[Argument], list[Result]]:
    """The flat arguments and results of a `jax.stages.Lowered`, which has no jaxpr any more."""
    compile_args = lowered._lowering.compile_args
    info, found = compile_args["all_args_info"], lowering_arguments(lowered)
    shardings = dict(zip(found.kept, compile_args["in_shardings"][found.constants :], strict=True))
    count = len(info.in_avals)
    avals = info.in_avals[count - lowered.in_tree.num_leaves :]
    names = _names(info.debug_info.arg_names, len(avals))
    given = [
        Argument(name, aval, None, specified(shardings.get(i)), False, i in found.donated)
        for i, (name, aval) in enumerate(zip(names, avals, strict=True))
    ]
    avals = compile_args["global_out_avals"]
    names = _names(info.debug_info.result_paths, len(avals))
    return given, [
        Result(name, aval, specified(sharding), False)
        for name, aval, sharding in zip(names, avals, compile_args["out_shardings"], strict=True)
    ]


def lowering_arguments(lowered: Any) -> LoweringArguments:
    """Reads it off a `jax.stages.Lowered`."""
    lowering = lowered._lowering
    constants = len(getattr(lowering, "const_args", None) or ())
    indices = sorted(lowering.compile_args["kept_var_idx"])
    donated = tuple(lowering._donated_invars)
    # With hoisted constants both lists begin with them.
    kept = tuple(index - constants for index in indices[constants:])
    return LoweringArguments(
        constants,
        kept,
        tuple(i for i, flag in zip(kept, donated[constants:], strict=True) if flag),
        int(lowering.compile_args["num_devices"]),
        tuple(lowering._platforms),
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


# --- running --------------------------------------------------------------------------------------


def call_arguments(
    fun: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without those that `fun`, a jitted function, holds static."""
    info = getattr(fun, "_jit_info", None)
    numbers = getattr(info, "static_argnums", ())
    static = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    names = frozenset(getattr(info, "static_argnames", ()))
    return (
        tuple(value for number, value in enumerate(args) if number not in static),
        {name: value for name, value in kwargs.items() if name not in names},
    )


def lowering_devices(lowered: Any) -> tuple[Any, ...] | None:
    """The devices that a `jax.stages.Lowered` names; None when its meshes are abstract."""
    devices = lowered._lowering._device_list
    return None if devices is None else tuple(devices)


def lowering_platform(device: Any) -> str:
    """What to lower for to run on a device: `cpu`, `tpu`, `cuda` or `rocm`."""
    return str(getattr(device.client, "_raw_platform", device.platform))


def hlo_sharding_text(sharding: Any, ndim: int) -> str:
    """A JAX sharding of any kind as XLA writes it: `{devices=[4,2]<=[8]}`."""
    return str(sharding._to_xla_hlo_sharding(ndim))


def setting(name: str) -> Any:
    """The value of an entry of JAX's configuration, in this thread: `jax_num_cpu_devices`."""
    return getattr(jax.config, name)


def unspecified() -> Any:
    """JAX's marker for a sharding that was not specified."""
    return UNSPECIFIED


def random_keys(aval: Any, seed: int) -> Any:
    """PRNG keys for an abstract key array, made from one seed."""
    keys = jax.random.split(jax.random.key(seed, impl=aval.dtype._impl), math.prod(aval.shape))
    return keys.reshape(aval.shape)


# --- jaxprs ---------------------------------------------------------------------------------------


def scan_body_is_inlined() -> bool:
    """Whether a scan's body is lowered into the loop (0.12) or as a function `closed_call`."""
    return hasattr(core, "eval_jaxpr_p")


def sub_jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    """The jaxprs among an equation's parameters, directly or in a list."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(item, "jaxpr", item), "eqns"):
                yield item


def shard_map_parameters(params: Mapping[str, Any]) -> ShardMap:
    """Reads the parameters of a shard_map equation; manual axes in the order of the mesh."""
    mesh = params["mesh"]
    manual = params.get("newly_manual_axes", params.get("manual_axes", frozenset()))
    return ShardMap(
        mesh=mesh,
        in_specs=tuple(params["in_specs"]),
        out_specs=tuple(params["out_specs"]),
        manual_axes=tuple(name for name in mesh.axis_names if name in manual),
        jaxpr=params["jaxpr"],
    )


def user_frame(equation: Any) -> SourceLocation | None:
    """The innermost line of an equation's traceback that is not JAX's own."""
    frame = source_info_util.user_frame(equation.source_info.traceback)
    if frame is None:
        return None
    # The column as JAX writes it into the IR, where it is counted from 0.
    column = max(frame.start_column, 0)
    return SourceLocation(frame.file_name, frame.start_line, column, frame.function_name)


# --- Shardy's attributes in MLIR ------------------------------------------------------------------


def single_sharding(attribute: Any) -> Any:
    """The ``#sdy.sharding`` of an op with one result, from its ``#sdy.sharding_per_value``."""
    if sdy.TensorShardingAttr.isinstance(attribute):
        return attribute
    return next(iter(sdy.TensorShardingPerValueAttr(attribute).shardings))


def shardings_per_value(attribute: Any) -> list[Any]:
    """The ``#sdy.sharding``s in an ``#sdy.sharding_per_value``."""
    return list(sdy.TensorShardingPerValueAttr(attribute).shardings)


def value_sharding(value: Any) -> Any:
    """The ``#sdy.sharding`` written for a value; None when there is none.

    Those of the arguments of functions stand on the function; other block arguments have none.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        function = owner.owner.operation
        if function.name != "func.func" or "arg_attrs" not in function.attributes:
            return None
        arguments: Any = function.attributes["arg_attrs"]
        return dict(dictionary_items(arguments[ir.BlockArgument(value).arg_number])).get(
            "sdy.sharding"
        )
    operation = owner.operation
    if operation.name == "sdy.sharding_constraint":
        return operation.attributes["sharding"]
    name = "out_shardings" if operation.name == "sdy.manual_computation" else "sdy.sharding"
    if name not in operation.attributes:
        return None
    written = sdy.TensorShardingPerValueAttr(operation.attributes[name])
    return list(written.shardings)[ir.OpResult(value).result_number]


def fully_open(attribute: Any) -> Any:
    """An ``#sdy.sharding`` on the same mesh with all dimensions open; None if this is one."""
    sharding = sdy.TensorShardingAttr(attribute)
    rank = len(sharding.dimension_shardings)
    mesh = str(sharding.mesh_or_ref)
    dims = ", ".join(["{?}"] * rank)
    opened = ir.Attribute.parse(f"#sdy.sharding<{mesh}, [{dims}]>", attribute.context)
    return None if opened == attribute or rank == 0 else opened


def is_tuple(type_: Any) -> bool:
    """Whether an MLIR type is a tuple."""
    return str(type_).startswith("tuple<")


def is_block_argument(value: Any) -> bool:
    """Whether an MLIR value is an argument of a block, not an op's result."""
    return isinstance(value.owner, ir.Block)


def argument_number(value: Any) -> int:
    """Which argument of its block a block argument is."""
    return int(ir.BlockArgument(value).arg_number)


def result_number(value: Any) -> int:
    """Which of its op's results a value is."""
    return int(ir.OpResult(value).result_number)
