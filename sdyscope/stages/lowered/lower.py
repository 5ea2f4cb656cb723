"""From a program to the module that JAX hands to XLA, under either partitioner.

No devices are needed: arguments whose shardings are on an `AbstractMesh` lower for a mesh of any
size.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax

from sdyscope.errors import CompilerError, TargetError, kind_of
from sdyscope.facts.program import Partitioner, Program, Versions
from sdyscope.facts.remarks import Remark
from sdyscope.formatters import Summarized
from sdyscope.graph.collection import no_collection
from sdyscope.stages import compat
from sdyscope.stages.compile_options import CompilerOption
from sdyscope.stages.lowered.request import requested
from sdyscope.stages.stderr import captured_stderr
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import authors_line
from sdyscope.words.partitioners import partitioner_name

WrittenFor = Literal["shardy", "gspmd", "both", "none"]
"""Whose shardings a module carries: `both` makes jaxlib up to 0.10 fall back to GSPMD silently."""

# Shardy's attributes are never inside a string, except on their way through HLO, where they are
# frontend attributes beside the HLO form of the same sharding, and are the ones that count.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHARDY = re.compile(r"\bsdy\.(mesh|sharding|sharding_constraint|manual_computation)\b")
_SHARDY_IN_HLO = re.compile(r"\bxla\.sdy\.")
# HLO's newer named form, `{mesh['data'=4], ...}`, is Shardy's too.
_NAMED = re.compile(r'\bmhlo\.sharding\s*=\s*"\{+mesh\[')
_GSPMD = re.compile(r'\bmhlo\.sharding\s*=(?!\s*"\{+mesh\[)')


# What JAX says, in words that vary, where jax.set_mesh is missing around a program.
_NEEDS_MESH = re.compile(r"(?i)mesh in context|context mesh|mesh context")
_INDIVISIBLE = re.compile(r"divisible|evenly divide")
_NEEDS_DEVICES = re.compile(r"require devices to be present")


class NotLowerable(CompilerError):  # noqa: N818 - a result, named for what it says
    """JAX refuses to lower a program under a partitioner; a result, not a crash.

    Attributes:
        partitioner: which partitioner was asked for; None when tracing failed already.
        reason: JAX's own words.
        stderr: what C++ wrote to standard error on the way.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        partitioner: Partitioner | None = None,
        stderr: str = "",
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, file=file, line=line, hint=hint)
        self.reason = reason or message
        self.partitioner = partitioner
        self.stderr = stderr


@dataclass(frozen=True, eq=False, repr=False)
class LoweredModule(Summarized):
    """A module in MLIR, and what is known about where it comes from.

    Attributes:
        name: the program's name, or the module's where it was read from a file.
        module: `ir.Module` of MLIR's Python bindings; None when they cannot read the text.
        context: the MLIR context that the module lives in; None likewise.
        partitioner: which partitioner was asked for; None for a file.
        kept_arguments: flat index, among the arguments that jit was given, of each argument of
            `main` after the hoisted constants; a Ref that the function closes over is counted on
            behind them. None for a file, where all that is left is there.
        constants: how many hoisted constants come first among the arguments of `main`.
        num_devices: devices that the module is partitioned for; 0 when unknown.
        device_order: ids of the devices by their position in the program's mesh, by which the
            module counts them; empty on an abstract mesh, and where that is not known.
        device_platform: what JAX calls their platform: `cpu`, `gpu`, `tpu`; empty likewise.
        platforms: what it was lowered for.
        jax_version: version of the JAX that lowered or read it.
        recorded_by: the JAX that lowered it in a recorded run; None for any other.
        stderr: what C++ wrote to standard error while it was made.
        compiler_options: what jit was told to have it compiled with, by name.
        lowered: the `jax.stages.Lowered`, to be compiled; None for a file.
        path: the file it was read from.
        is_compiled: whether it is what one device runs, of a compiled program's text: it is written
            for no partitioner.
        source_text: the file's text, when only that is there.
        compile_notes: what is worth knowing of what is compiled of it here.
        notes: what else is worth knowing.
    """

    name: str
    module: Any
    context: Any
    partitioner: Partitioner | None = None
    kept_arguments: tuple[int, ...] | None = None
    constants: int = 0
    num_devices: int = 0
    device_order: tuple[int, ...] = ()
    device_platform: str = ""
    platforms: tuple[str, ...] = ()
    jax_version: str = field(default_factory=compat.version)
    recorded_by: Versions | None = None
    stderr: str = ""
    compiler_options: tuple[tuple[str, CompilerOption], ...] = ()
    lowered: Any = None
    path: Path | None = None
    is_compiled: bool = False
    source_text: str | None = None
    compile_notes: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()

    def text(self, debug_info: bool = True) -> str:
        """StableHLO in MLIR's text form, with source locations unless told otherwise."""
        if self.module is None:
            return self.source_text or ""
        return self._printed(debug_info=True) if debug_info else self._plain_text

    def _printed(self, *, debug_info: bool) -> str:
        return str(self.module.operation.get_asm(enable_debug_info=debug_info))

    @cached_property
    def _plain_text(self) -> str:
        return self._printed(debug_info=False)

    def bytecode(self) -> bytes:
        """The module in MLIR's bytecode, of the version that the installed jaxlib writes.

        Raises:
            CompilerError: the bindings could not read the module in the first place.
        """
        if self.module is None:
            raise CompilerError(
                "There is no bytecode of a module that MLIR's bindings could not read.",
                file=self.path and str(self.path),
            )
        file = io.BytesIO()
        self.module.operation.write_bytecode(file)
        return file.getvalue()

    @property
    def compiled_under(self) -> Partitioner:
        """Under which it is compiled; of a file, by its shardings."""
        return self.partitioner or ("gspmd" if self.written_for == "gspmd" else "shardy")

    @cached_property
    def written_for(self) -> WrittenFor:
        """Whose shardings the module really carries, whatever was asked for."""
        text = self.text(debug_info=False)
        # A text of megabytes is searched much faster for a piece than for a pattern.
        if "xla.sdy." in text and _SHARDY_IN_HLO.search(text):
            return "shardy"
        if "{mesh[" in text and _NAMED.search(text):
            return "shardy"
        if "mhlo.sharding" not in text or _GSPMD.search(text) is None:
            return "shardy" if _SHARDY.search(text) else "none"
        # Only now is it worth the time to look outside strings.
        mixed = "sdy." in text and _SHARDY.search(_STRING.sub('""', text))
        return "both" if mixed else "gspmd"

    @cached_property
    def meshes(self) -> dict[str, Mesh]:
        """The module's meshes, by name, also where they came through HLO. GSPMD has none."""
        if self.module is None:
            return {}
        meshes: dict[str, Mesh] = {}
        for operation in self.module.body.operations:
            if operation.operation.name == "sdy.mesh":
                attributes = operation.operation.attributes
                name = compat.text(attributes["sym_name"])
                meshes[name] = compat.mesh_of_attribute(attributes["mesh"])
        attributes = self.module.operation.attributes
        if "mhlo.frontend_attributes" in attributes:
            frontend = compat.ir.DictAttr(attributes["mhlo.frontend_attributes"])
            if "xla.sdy.meshes" in frontend:
                text = compat.text(frontend["xla.sdy.meshes"])
                try:
                    parsed = compat.ir.Attribute.parse(text, self.context)
                    written: Any = compat.ir.DictAttr(parsed)
                    for item in written:
                        meshes[item.name] = compat.mesh_of_attribute(item.attr)
                except Exception as error:  # MLIRError, or ValueError for another attribute
                    raise CompilerError(
                        f"The module's xla.sdy.meshes are not a dictionary of meshes: {text[:80]}",
                        file=self.path,
                    ) from error
        return meshes

    @cached_property
    def num_partitions(self) -> int:
        """The module's `mhlo.num_partitions`; 1 when it says nothing."""
        if self.module is None:
            return 1
        attributes = self.module.operation.attributes
        if "mhlo.num_partitions" not in attributes:
            return 1
        return int(compat.ir.IntegerAttr(attributes["mhlo.num_partitions"]).value)


def trace(program: Program) -> Any:
    """The program's `jax.stages.Traced`: its jaxpr, with everything jit was asked for.

    Raises:
        TargetError: `program.fun` is nothing that can be traced.
        NotLowerable: tracing raised, which is an error in the program.
    """
    fun = program.fun
    if isinstance(fun, jax.stages.Traced):
        return fun
    if isinstance(fun, jax.stages.Lowered):
        raise TargetError(
            f"{program.name} was lowered already, so what it was made from is not known.",
            hint="Give `jitted.trace(...)` instead of `jitted.lower(...)`.",
        )
    if not hasattr(fun, "lower"):
        raise TargetError(
            f"The function of {program.name} is {kind_of(fun)}, not a jitted one.",
            hint="Give the result of jax.jit(...), before it is called.",
        )
    try:
        with no_collection():  # JAX keeps what it makes of a program, which is a sixth of the time.
            return _trace(fun, program)
    except TargetError:  # of a reference model, in its own words
        raise
    except Exception as error:  # the user's own code runs here: anything can come out
        raise _not_lowerable(program.name, "traced", error) from error


def _trace(fun: Any, program: Program) -> Any:
    try:
        return compat.traced(fun, program.args, program.kwargs)
    except (RuntimeError, ValueError) as error:
        mesh = program.mesh if program.mesh is not None else _mesh_of_arguments(program)
        if mesh is None or not _NEEDS_MESH.search(str(error)):
            raise
    # PartitionSpecs without a mesh mean the mesh that is set around them.
    with compat.mesh_context(mesh):
        return compat.traced(fun, program.args, program.kwargs)


def _mesh_of_arguments(program: Program) -> Any:
    """The one mesh that the arguments' shardings are on; None where there is none, or several."""
    leaves = jax.tree.leaves((program.args, dict(program.kwargs)))
    shardings = [getattr(leaf, "sharding", None) for leaf in leaves]
    meshes = {
        sharding.mesh for sharding in shardings if isinstance(sharding, jax.sharding.NamedSharding)
    }
    return meshes.pop() if len(meshes) == 1 else None


def trace_for(program: Program, traced: Any, partitioner: Partitioner) -> Any:
    """The program's trace as a partitioner needs it: `traced`, unless it was made for the other.

    Raises:
        NotLowerable: tracing it again raised.
    """
    if compat.is_traced_for(traced, partitioner) or isinstance(program.fun, jax.stages.Traced):
        return traced
    with compat.partitioner(partitioner):
        return trace(program)


def lower(
    program: Program | Any,
    partitioner: Partitioner,
    platforms: Sequence[str] | None = ("cpu",),
    *,
    name: str | None = None,
    devices: Sequence[Any] = (),
) -> LoweredModule:
    """Lowers a program under one partitioner.

    Args:
        program: a `Program`, a `jax.stages.Traced` (trace once, lower under both), or a
            `jax.stages.Lowered`, which is taken as it is.
        partitioner: which one; JAX's configuration is as before afterwards.
        platforms: what to lower for. None: the platform of the devices that the program names.
        name: what to call it; the program's name unless given.
        devices: those that callbacks are lowered for on an abstract mesh; by default virtual CPU
            devices on which nothing runs.

    Raises:
        NotLowerable: JAX refuses, or has no such partitioner.
        TargetError: `program` is nothing that can be lowered.
    """
    if name is None:
        name = program.name if isinstance(program, Program) else compat.function_name(program)
    stage = program.fun if isinstance(program, Program) else program
    if not isinstance(stage, jax.stages.Lowered | jax.stages.Traced):
        stage = trace(program)
    with captured_stderr() as written:
        if isinstance(stage, jax.stages.Lowered):
            lowered = stage
        else:
            lowered = _lower(stage, name, partitioner, platforms, written, devices)
        arguments = compat.lowering_arguments(lowered)
        module: Any = lowered.compiler_ir(dialect="stablehlo")
    lowered_module = LoweredModule(
        name=name,
        module=module,
        context=module.context,
        partitioner=partitioner,
        kept_arguments=arguments.kept,
        constants=arguments.constants,
        num_devices=arguments.num_devices,
        device_order=tuple(device.id for device in arguments.devices),
        device_platform=next((str(device.platform) for device in arguments.devices), ""),
        platforms=arguments.platforms,
        stderr=written(),
        compiler_options=compat.compiler_options(lowered),
        lowered=lowered,
    )
    if lowered is stage and lowered_module.written_for not in (partitioner, "none"):
        raise NotLowerable(
            f"{name} was lowered already, under {partitioner_name(lowered_module.written_for)}, "
            f"not under {partitioner_name(partitioner)}.",
            partitioner=partitioner,
            hint="Give `jitted.trace(...)` instead of `jitted.lower(...)` to have both.",
        )
    return lowered_module


def _lower(
    traced: Any,
    name: str,
    partitioner: Partitioner,
    platforms: Sequence[str] | None,
    written: Any,
    devices: Sequence[Any],
) -> Any:
    if not compat.is_traced_for(traced, partitioner):
        needed = "a sharding_rule" if partitioner == "shardy" else "infer_sharding_from_operands"
        raise NotLowerable(
            f"{name} can't be lowered under {partitioner_name(partitioner)}: its "
            f"custom_partitioning was traced without {needed}.",
            partitioner=partitioner,
            hint="Give def_partition both, and the Program the function that jax.jit returned.",
        )
    try:
        with (
            compat.partitioner(partitioner),
            compat.refs_named(traced),
            compat.result_types_written(),
        ):
            chosen = None if platforms is None else tuple(platforms)
            lowered = _for_devices(traced, chosen, devices)
            if compat.lowering_arguments(lowered).num_devices > 1:
                return lowered
            mesh = compat.abstract_mesh_inside(traced)
            whole = None if mesh is None else compat.lowered_for(traced, mesh, chosen)
            return lowered if whole is None else whole
    except Exception as error:  # JAX raises every kind of error from here
        raise _not_lowerable(
            name,
            f"lowered under {partitioner_name(partitioner)}",
            error,
            partitioner,
            written(),
            traced,
        ) from error


def _for_devices(traced: Any, platforms: tuple[str, ...] | None, devices: Sequence[Any]) -> Any:
    """Lowers; where callbacks ask for devices, and the mesh has none, with some on it."""
    try:
        return traced.lower(lowering_platforms=platforms)
    except ValueError as error:
        mesh = compat.mesh_without_devices(traced)
        if mesh is None or not _NEEDS_DEVICES.search(str(error)):
            raise
        return compat.lowered_for(traced, compat.on_devices(mesh, devices), platforms)


def _indivisible(stage: Any) -> str | None:
    """Which argument or result can't be cut as it is requested: JAX tells its shape only."""
    for tensor in requested(stage):
        if tensor.kind not in ("argument", "result") or tensor.sharding is None:
            continue
        place = to_placement(tensor.sharding, len(tensor.shape))
        for dim, padding in enumerate(place.padding(tensor.shape)):
            if padding:
                size, parts = tensor.shape[dim], place.shards[dim]
                return (
                    f"It is {tensor.path}, whose dimension {dim} of size {size:,} does not divide "
                    f"into {parts:,}: take another size or another mesh."
                )
    return None


def _not_lowerable(
    name: str,
    verb: str,
    error: Exception,
    partitioner: Partitioner | None = None,
    stderr: str = "",
    stage: Any = None,
) -> NotLowerable:
    reason = str(error).split("\n--------------------\nFor simplicity")[0].strip()
    first, _, rest = reason.partition("\n")
    hint = None
    if _NEEDS_DEVICES.search(reason):
        hint = "Callbacks need real devices: put the arguments on a jax.make_mesh(...)."
    elif _NEEDS_MESH.search(reason):
        hint = "Give the Program its mesh: Program(..., mesh=mesh)."
    elif stage is not None and _INDIVISIBLE.search(reason):
        hint = _indivisible(stage)
    else:
        hint = compat.hint_of_platforms(error) or compat.hint_of_abstract_meshes(error)
    line = authors_line(error)
    refusal = NotLowerable(
        f"{name} can't be {verb}: {type(error).__name__}: {first or 'no message'}",
        reason=reason,
        partitioner=partitioner,
        stderr=stderr,
        file=line.file if line else None,
        line=line.line if line else None,
        hint=hint,
    )
    refusal.rest = rest
    return refusal
