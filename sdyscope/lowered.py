"""Lowered: one program as JAX lowers it, each part computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sdyscope.annotations import Annotation, read_annotations
from sdyscope.errors import CompilerError, TargetError
from sdyscope.graph import OpGraph, build, read_text
from sdyscope.mesh import Mesh
from sdyscope.program import Partitioner, Program, RequestedTensor
from sdyscope.source import SourceLocation
from sdyscope.tensors import LoweredTensors, TensorTable, tensor_table

if TYPE_CHECKING:
    from sdyscope.stages.lower import LoweredModule

__all__ = ["PARTITIONERS", "Lowered"]

PARTITIONERS: tuple[Partitioner, ...] = ("shardy", "gspmd")


class Lowered:
    """One program, or one module read from a file: what was asked for, and what JAX writes of it.

    Args:
        source: the program, or a module that was read from a file.
        partitioners: which to lower under; of a file, the one that its shardings are for.

    The stages import jax when they are first asked for, not before.
    """

    def __init__(
        self,
        source: Program | LoweredModule,
        partitioners: Sequence[Partitioner] = PARTITIONERS,
    ) -> None:
        if isinstance(source, Program) and hasattr(source.fun, "compiler_ir"):
            # A jax.stages.Lowered is one module, whose requests are not known, as a file's.
            source = _lowered_before(source)
        self.source = source
        self._asked = tuple(partitioners)
        self._graphs: dict[Partitioner, OpGraph] = {}
        self._annotations: dict[Partitioner, tuple[Annotation, ...]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name} under {' and '.join(self.partitioners)}>"

    @property
    def name(self) -> str:
        """The program's name, or the file's."""
        return self.source.name

    @property
    def file(self) -> str | None:
        """The file that the module was read from, or the words that name it; None for a program."""
        path = getattr(self.source, "path", None)
        return None if path is None else str(path)

    @property
    def program(self) -> Program | None:
        """The program; None for a file."""
        return self.source if isinstance(self.source, Program) else None

    @cached_property
    def partitioners(self) -> tuple[Partitioner, ...]:
        """What the program is lowered under, or what a file's shardings are written for."""
        if isinstance(self.source, Program):
            return self._asked
        return ("gspmd",) if self.source.found == "gspmd" else ("shardy",)

    @cached_property
    def traced(self) -> Any:
        """The ``jax.stages.Traced``; None for a file.

        Raises:
            CompilerError: tracing the program raised.
        """
        if self.program is None:
            return None
        from sdyscope.stages.lower import trace

        return trace(self.program)

    @property
    def defined_at(self) -> SourceLocation | None:
        """Where the program's function begins; None for a file, and where JAX does not know it."""
        if self.traced is None:
            return None
        from sdyscope.stages.compat import defined_at

        return defined_at(self.traced)

    def _traced_for(self, partitioner: Partitioner) -> Any:
        """What is lowered for a partitioner: nearly always the one trace that there is."""
        from sdyscope.stages.lower import trace_for

        assert self.program is not None
        return trace_for(self.program, self.traced, partitioner)

    @cached_property
    def requested(self) -> tuple[RequestedTensor, ...]:
        """What the program's author asked for; nothing for a file, which does not say."""
        if self.traced is None:
            return ()
        from sdyscope.stages.request import requested

        return requested(self.traced)

    @cached_property
    def lowered(self) -> Mapping[Partitioner, LoweredModule]:
        """The module under each partitioner that JAX can lower for; the rest in ``failures``."""
        return self._lowered[0]

    @cached_property
    def failures(self) -> Mapping[Partitioner, CompilerError]:
        """Why there is no module under a partitioner."""
        return self._lowered[1]

    @cached_property
    def _lowered(
        self,
    ) -> tuple[dict[Partitioner, LoweredModule], dict[Partitioner, CompilerError]]:
        if not isinstance(self.source, Program):
            return {self.partitioners[0]: self.source}, {}
        from sdyscope.stages.lower import lower

        modules: dict[Partitioner, LoweredModule] = {}
        failures: dict[Partitioner, CompilerError] = {}
        for partitioner in self.partitioners:
            try:
                stage = self._traced_for(partitioner)
                modules[partitioner] = lower(stage, partitioner, name=self.name)
            except CompilerError as error:
                failures[partitioner] = error
        if not modules:
            raise next(iter(failures.values()))
        return modules, failures

    def graph(self, partitioner: Partitioner | None = None) -> OpGraph:
        """The op graph of the module under a partitioner (default: the first there is).

        Raises:
            CompilerError: JAX can't lower the program under it.
        """
        chosen = self.chosen(partitioner)
        if chosen not in self._graphs:
            lowered = self.lowered[chosen]
            if lowered.module is None:
                self._graphs[chosen] = read_text(lowered.source_text or "")
            else:
                self._graphs[chosen] = build(lowered.module)
        return self._graphs[chosen]

    def annotations(self, partitioner: Partitioner | None = None) -> tuple[Annotation, ...]:
        """The shardings written in the module under a partitioner, in lowering order."""
        chosen = self.chosen(partitioner)
        if chosen not in self._annotations:
            self._annotations[chosen] = read_annotations(self.graph(chosen))
        return self._annotations[chosen]

    def chosen(self, partitioner: Partitioner | None) -> Partitioner:
        """The partitioner, or the first that the program is lowered under.

        Raises:
            CompilerError: the program can't be lowered under it.
            TargetError: it was not asked to be.
        """
        if partitioner is None:
            return next(iter(self.lowered))
        if partitioner in self.failures:
            raise self.failures[partitioner]
        if partitioner not in self.lowered:
            raise TargetError(f"{self.name} was not lowered under {partitioner}.")
        return partitioner

    @cached_property
    def tensors(self) -> TensorTable:
        """The table: a row a tensor, with what was requested and what each module says."""
        modules = {
            partitioner: LoweredTensors(
                self.annotations(partitioner), lowered.kept_arguments, lowered.constants
            )
            for partitioner, lowered in self.lowered.items()
        }
        return tensor_table(self.requested, modules)

    @cached_property
    def meshes(self) -> dict[str, Mesh]:
        """The meshes of the program, by their symbols in its modules.

        A mesh that shardings were requested on and that no module has, as under GSPMD, is called
        ``mesh``, or ``mesh_1`` and so on.
        """
        found: dict[str, Mesh] = {}
        for partitioner in self.lowered:
            for name, mesh in self.graph(partitioner).meshes.items():
                if isinstance(mesh, Mesh):
                    found.setdefault(name, mesh)
        for asked in self.requested:
            if asked.sharding is not None and asked.sharding.mesh not in found.values():
                name, number = "mesh", 0
                while name in found:
                    number += 1
                    name = f"mesh_{number}"
                found[name] = asked.sharding.mesh
        return found

    def only_mesh(self, partitioner: Partitioner) -> Mesh | None:
        """The mesh with axes that shardings are on, where there is just one."""
        found = {asked.sharding.mesh for asked in self.requested if asked.sharding is not None}
        found |= {
            mesh for mesh in self.graph(partitioner).meshes.values() if isinstance(mesh, Mesh)
        }
        named = {mesh for mesh in found if mesh.axes}
        return named.pop() if len(named) == 1 else None


def _lowered_before(program: Program) -> LoweredModule:
    from sdyscope.stages.lower import NotLowerable, lower

    try:
        module = lower(program, "shardy")
    except NotLowerable:
        module = lower(program, "gspmd")
    return replace(module, name=program.name)
