"""Staged: one program through the stages, each computed when it is first asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from sdyscope.annotations import Annotation, read_annotations, unplaced
from sdyscope.errors import (
    READ_COMPILED,
    CompilerError,
    MissingStageError,
    SdyscopeError,
    TargetError,
)
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner, Program, RequestedTensor, Versions
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.remarks import Remark
from sdyscope.facts.snapshots import Stage
from sdyscope.facts.tensors import LoweredTensors, TensorTable, tensor_table
from sdyscope.graph import OpGraph, Sharding, build, read_text
from sdyscope.hardware.names import Hardware, parse_hardware
from sdyscope.once import Once
from sdyscope.process.progress import doing
from sdyscope.stages.propagated import what_if as wishing
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.source import SourceLocation
from sdyscope.words.account import unknown_text
from sdyscope.words.counts import listed
from sdyscope.words.partitioners import partitioner_name

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit

PARTITIONERS: tuple[Partitioner, ...] = ("shardy", "gspmd")

_Compile: TypeAlias = tuple[Partitioner, Hardware]

_Value = TypeVar("_Value")


class Staged(Once):
    """One program, or one module read from a file, through the stages.

    Args:
        source: the program, or a module or compiled program that was read from a file.
        partitioners: which to lower under; of a file, the one that its shardings are for.

    The stages import jax when they are first asked for, not before. Of a compiled program that was
    read there is just the last one: nothing was requested or traced, and a module that is asked for
    raises a ``MissingStageError``.
    """

    _wishes: tuple[Sequence[wishing.Wish], ...] = ()
    #: Meshes that are known from elsewhere, as of its Shardy module: GSPMD's modules name none.
    _meshes_beside: Mapping[str, Mesh] = {}

    def __init__(
        self,
        source: Program | LoweredModule | Compiled,
        partitioners: Sequence[Partitioner] = PARTITIONERS,
    ) -> None:
        if isinstance(source, Program) and hasattr(source.fun, "compiler_ir"):
            # A jax.stages.Lowered is one module, whose requests are not known, as a file's.
            source = _lowered_before(source)
        self.source = source
        self._asked = tuple(partitioners)
        self._graphs: dict[Partitioner, OpGraph] = {}
        self._annotations: dict[Partitioner, tuple[Annotation, ...]] = {}
        self._read: dict[Partitioner, tuple[Annotation, ...]] = {}
        #: What the compiler of a recorded run made, by partitioner.
        self.recorded: dict[Partitioner, Compiled] = {}
        #: Files with what the JAX of a recorded run propagates, by partitioner.
        self.recorded_propagations: dict[Partitioner, Path] = {}
        self._is_as_recorded = False

    def __repr__(self) -> str:
        under = " and ".join(self.partitioners)
        return (
            f"<{type(self).__name__} of {self.name}{f' under {under}' if under else ', compiled'}>"
        )

    @property
    def name(self) -> str:
        """The program's name, or the file's."""
        return self.source.name

    @property
    def file(self) -> str | None:
        """The file that the module was read from, or the words that name it; None for a program."""
        path = getattr(self.source, "path", None)
        return None if path is None else str(path)

    def compiler_of(self, compiled: Compiled) -> str | None:
        """The JAX that compiled it, ``JAX 0.10.2``; None for a compiled program's text.

        It is a recorded run's, else the one that has the program here.
        """
        if self.is_compiled:
            return None
        return str(compiled.recorded_by or Versions(self.jax_version))

    @property
    def jax_version(self) -> str:
        """The version of JAX that lowered or read it; empty for a compiled program's text."""
        if isinstance(self.source, Compiled):
            return ""
        return str(next(iter(self.lowered.values())).jax_version)

    @property
    def program(self) -> Program | None:
        """The program; None for a file."""
        return self.source if isinstance(self.source, Program) else None

    @cached_property
    def partitioners(self) -> tuple[Partitioner, ...]:
        """What the program is lowered under, or what a file's shardings are written for."""
        if isinstance(self.source, Program):
            return self._asked
        if isinstance(self.source, Compiled):
            return ()
        return (self.source.compiled_under,)

    @cached_property
    def traced(self) -> Any:
        """The ``jax.stages.Traced``; None for a file.

        Raises:
            CompilerError: tracing the program raised.
        """
        if self.program is None:
            return None
        from sdyscope.stages.lowered.lower import trace

        doing(f"tracing {self.name}")
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
        from sdyscope.stages.lowered.lower import trace_for

        assert self.program is not None
        return trace_for(self.program, self.traced, partitioner)

    @cached_property
    def requested(self) -> tuple[RequestedTensor, ...]:
        """What the program's author asked for; nothing for a file, which does not say."""
        if self.traced is None:
            return ()
        from sdyscope.stages.lowered.request import requested

        return requested(self.traced)

    @property
    def device_order(self) -> tuple[int, ...]:
        """Ids of the devices by their position in the mesh; empty where that is not known."""
        if self.is_compiled:
            return ()
        return next((module.device_order for module in self.lowered.values()), ())

    @property
    def device_platform(self) -> str:
        """What JAX calls their platform: ``cpu``, ``gpu``, ``tpu``; empty likewise."""
        if self.is_compiled:
            return ""
        return next((module.device_platform for module in self.lowered.values()), "")

    @property
    def authors_order(self) -> tuple[int, ...]:
        """The same where nobody but the mesh's author decides the order: on CPU; empty elsewhere.

        On accelerators JAX orders devices by their links (``jax.make_mesh``), so that one program
        has another order on each kind.
        """
        return self.device_order if self.device_platform == "cpu" else ()

    @cached_property
    def lowered(self) -> Mapping[Partitioner, LoweredModule]:
        """The module under each partitioner that JAX can lower for; the rest in ``failures``."""
        return self._lowered[0]

    @cached_property
    def failures(self) -> Mapping[Partitioner, CompilerError]:
        """Why there is no module under a partitioner; a compiled text was asked for none."""
        return {} if self.is_compiled else self._lowered[1]

    @cached_property
    def _lowered(
        self,
    ) -> tuple[dict[Partitioner, LoweredModule], dict[Partitioner, CompilerError]]:
        if isinstance(self.source, Compiled):
            raise compiled_already(self.source)
        if not isinstance(self.source, Program):
            return {self.partitioners[0]: self.source}, {}
        from sdyscope.stages.lowered.lower import lower

        modules: dict[Partitioner, LoweredModule] = {}
        failures: dict[Partitioner, CompilerError] = {}
        for partitioner in self.partitioners:
            try:
                doing(f"lowering {self.name} for {partitioner_name(partitioner)}")
                stage = self._traced_for(partitioner)
                modules[partitioner] = lower(stage, partitioner, name=self.name)
            except CompilerError as error:
                failures[partitioner] = error
        if not modules:
            raise next(iter(failures.values()))
        return modules, failures

    def annotations(self, partitioner: Partitioner | None = None) -> tuple[Annotation, ...]:
        """The shardings written in the module under a partitioner, in lowering order.

        Those on boundaries of a ``shard_map`` have the name of its function, which is not in the
        module.
        """
        chosen = self.chosen(partitioner)
        written = self._written(chosen)
        if not self.requested or not any(each.kind.startswith("shard_map") for each in written):
            return written
        if chosen not in self._annotations:
            named = {
                (there.op, there.kind, there.index): there
                for tensor in self.tensors.tensors
                if tensor.mapped and (there := tensor.lowered.get(chosen)) is not None
            }
            self._annotations[chosen] = tuple(
                named.get((each.op, each.kind, each.index), each) for each in written
            )
        return self._annotations[chosen]

    def _written(self, partitioner: Partitioner) -> tuple[Annotation, ...]:
        """As ``annotations``, as far as the module says."""
        if partitioner not in self._read:
            self._read[partitioner] = read_annotations(self.graph(partitioner))
        return self._read[partitioner]

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
            raise TargetError(f"{self.name} was not lowered under {partitioner_name(partitioner)}.")
        return partitioner

    @cached_property
    def tensors(self) -> TensorTable:
        """The table: a row a tensor, with what was requested and what each module says."""
        modules = {
            partitioner: LoweredTensors(
                self._written(partitioner), lowered.kept_arguments, lowered.constants
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
        if isinstance(self.source, Compiled):
            return {} if self.source.mesh is None else {"mesh": self.source.mesh}
        meshes: dict[str, Mesh] = {}
        for partitioner in self.lowered:
            for name, mesh in self.graph(partitioner).meshes.items():
                if isinstance(mesh, Mesh):
                    meshes.setdefault(name, mesh)
        for name, mesh in self._meshes_beside.items():
            meshes.setdefault(name, mesh)
        for asked in self.requested:
            if asked.sharding is not None and asked.sharding.mesh not in meshes.values():
                name, number = "mesh", 0
                while name in meshes:
                    number += 1
                    name = f"mesh_{number}"
                meshes[name] = asked.sharding.mesh
        return meshes

    def only_mesh(self, partitioner: Partitioner | None) -> Mesh | None:
        """The mesh with axes that shardings are on, where there is just one."""
        if self.is_compiled:
            return only_mesh(self.meshes.values())
        meshes = {asked.sharding.mesh for asked in self.requested if asked.sharding is not None}
        meshes |= {
            mesh for mesh in self.graph(partitioner).meshes.values() if isinstance(mesh, Mesh)
        }
        # GSPMD's module names none: it is that of Shardy's.
        return only_mesh(meshes or self.meshes.values())

    def for_shardy(self) -> LoweredModule:
        """The module with Shardy's shardings, in a copy of which annotations can be edited.

        Raises:
            TargetError: the program has GSPMD's alone.
        """
        if "shardy" not in self.lowered:
            raise TargetError(
                f"{self.name} has GSPMD's shardings, and edits are propagated with Shardy.",
                hint="Name the program that it was lowered from.",
            )
        return self.lowered["shardy"]

    @cached_property
    def _propagated(self) -> dict[tuple[Partitioner, bool, bool], Propagated | CompilerError]:
        return {}

    @cached_property
    def _compiled(self) -> dict[_Compile, Compiled | CompilerError]:
        return {}

    @cached_property
    def _compiling(self) -> dict[_Compile, Callable[[], Compiled]]:
        """What waits for a compile that has begun."""
        return {}

    @cached_property
    def _for(self) -> dict[tuple[Partitioner, str], Staged]:
        return {}

    def graph(
        self,
        partitioner: Partitioner | None = None,
        *,
        at: Stage | Sequence[Stage] = "lowered",
        on: Hardware | str | None = None,
    ) -> OpGraph:
        """The op graph of the module under a partitioner (default: the first there is).

        Args:
            partitioner: whose.
            at: the stage whose shardings nodes carry, or several: `lowered`, what is written in the
                module, and `propagated`, what was decided, of all values; `requested` and
                `compiled` of those that they say something of (see ``stages.stage_shardings``).
                An op's own ``shardings`` are those that were decided where that is asked for, and
                otherwise those that are written.
            on: what to compile for, as ``compiled`` takes it.

        Raises:
            CompilerError: JAX can't lower the program under it, or it can't be propagated or
                compiled.
            TargetError: what was requested is asked of a file, or there is no such hardware.
        """
        chosen = self.chosen(partitioner)
        stages = (at,) if isinstance(at, str) else tuple(at)
        if {*stages} - {"lowered"}:
            return self._graph_at(stages, chosen, on)
        if chosen not in self._graphs:
            lowered = self.lowered[chosen]
            doing(f"reading {self.name} as it is lowered for {partitioner_name(chosen)}")
            if lowered.module is None:
                self._graphs[chosen] = read_text(lowered.source_text or "")
            else:
                self._graphs[chosen] = build(lowered.module)
        return self._graphs[chosen]

    def _graph_at(
        self, stages: Sequence[Stage], partitioner: Partitioner, on: Hardware | str | None
    ) -> OpGraph:
        from sdyscope.stages.stage_shardings import (
            compiled_shardings,
            propagated_graph,
            requested_shardings,
        )

        graph = lowered = self.graph(partitioner)
        if "propagated" in stages:
            graph = propagated_graph(lowered, self.propagated(partitioner))
        beside: dict[str, Mapping[ValueId, Sharding]] = {}
        if "requested" in stages:
            if self.traced is None:
                raise self.no_request()
            beside["requested"] = requested_shardings(self.tensors, partitioner, lowered)
        if "compiled" in stages:
            beside["compiled"] = compiled_shardings(
                self.compiled(partitioner, on), partitioner, lowered, self.only_mesh(partitioner)
            )
        return replace(graph, beside=beside) if beside else graph

    def no_request(self) -> TargetError:
        """The error that it is not known what was requested, as of any module in a file."""
        return TargetError(
            f"{self.name} is a module that was lowered before, which does not say what was "
            "requested.",
            hint="Leave requested out of the stages.",
        )

    def propagated(
        self,
        partitioner: Partitioner | None = None,
        *,
        by_xla: bool = False,
        conservative: bool = False,
        explained: bool = False,
    ) -> Propagated:
        """What propagation decided for every value of the module under a partitioner.

        Shardy's own passes run here, for a mesh of any size. GSPMD's propagation is part
        of XLA, which compiles the module just so far, in a process of its own.

        Args:
            partitioner: whose; by default the first that the program is lowered under.
            by_xla: have XLA compile the module for Shardy as well. Then there are no steps.
            conservative: Shardy's conservative propagation, which leaves conflicts unsharded.
            explained: whether origins and steps will be asked for: they are made meanwhile.

        Raises:
            CompilerError: the module can't be made or read by MLIR, or the compiler refuses it.
            TargetError: ``conservative`` is asked for where it can't be had.
        """
        chosen = self.chosen(partitioner)
        by_xla = by_xla or chosen == "gspmd"
        if conservative and by_xla:
            raise TargetError(
                "Conservative propagation is Shardy's, and not what XLA runs.",
                hint="Ask for it with --partitioner shardy.",
            )
        key = (chosen, by_xla, conservative)
        if key not in self._propagated:
            try:
                self.graph(chosen)  # Read before, so that what is told last is what is done.
                doing(f"propagating the shardings of {self.name} with {partitioner_name(chosen)}")
                self._propagated[key] = self._propagate(chosen, by_xla, conservative, explained)
            except CompilerError as error:
                self._propagated[key] = self._with_unplaced(error, chosen)
            doing(f"looking at the propagated shardings of {self.name}")
        propagated = self._propagated[key]
        if isinstance(propagated, CompilerError):
            raise propagated
        return propagated

    def _propagate(
        self, chosen: Partitioner, by_xla: bool, conservative: bool, explained: bool
    ) -> Propagated:
        """What propagation decides; what another JAX lowered, its own might decide otherwise."""
        doubt = self.propagated_by_another(chosen)
        if doubt is not None and not conservative and (chosen == "gspmd" or not by_xla):
            propagated = self._propagated_in_run(chosen)
            if propagated is not None:
                return propagated
        propagated = self._propagated_here(chosen, by_xla, conservative, explained)
        if doubt is None:
            return propagated
        notes = propagated.notes
        if chosen in (self.recorded or ("shardy",)) and not conservative:
            notes = (*notes, Remark("propagation can be kept", doubt.said))
        return replace(propagated, doubts=(doubt, *propagated.doubts), notes=notes)

    def _propagated_in_run(self, chosen: Partitioner) -> Propagated | None:
        """What a recorded run's own JAX decides; None where that was not kept."""
        from sdyscope.stages.propagated.recorded_propagation import read_propagation

        file = self.recorded_propagations.get(chosen)
        if file is None:
            return None
        return read_propagation(file, self.lowered[chosen], self.graph(chosen))

    @staticmethod
    def _versions() -> Versions:
        from sdyscope.stages import compat

        return compat.versions()

    def other_jax(self, partitioner: Partitioner) -> Versions | None:
        """The JAX of a recorded run that lowered the program; None where it is this one."""
        by = self.lowered[partitioner].recorded_by
        return by if by is not None and by.differs(self._versions()) else None

    def propagated_by_another(self, partitioner: Partitioner) -> Remark | None:
        """That this JAX propagates what a recorded run's own JAX lowered, where that is another."""
        by = self.other_jax(partitioner)
        if by is None:
            return None
        return Remark("another JAX propagated", str(by), names=((str(self._versions()), 0),))

    @property
    def recorded_platform(self) -> str:
        """What a recorded run compiled the program for: `cpu`, `gpu`, `tpu`; empty if unknown."""
        return next((compiled.recorded_platform for compiled in self.recorded.values()), "")

    def as_recorded(self) -> Self:
        """The same program, whose compiled stage is what the recorded run's own compiler made."""
        recorded = copy(self)
        recorded._is_as_recorded = True
        return recorded

    def _propagated_here(
        self, chosen: Partitioner, by_xla: bool, conservative: bool, explained: bool
    ) -> Propagated:
        lowered, graph = self.lowered[chosen], self.graph(chosen)
        if lowered.module is None:
            raise CompilerError(
                f"{self.name} can't be propagated: MLIR's bindings could not read it.",
                hint="Read it with the version of JAX that wrote it.",
            )
        if by_xla:
            from sdyscope.stages.propagated.xla_dump import propagated_by_xla

            return propagated_by_xla(lowered, graph, chosen)
        from sdyscope.stages.propagated.propagate import propagate

        return propagate(lowered, graph, conservative=conservative, explained=explained)

    @property
    def is_compiled(self) -> bool:
        """Whether it is a compiled program's text, without the stages before."""
        return isinstance(self.source, Compiled)

    @property
    def compiled_under(self) -> tuple[Partitioner | None, ...]:
        """What ``compiled`` takes: the partitioners; None alone for a compiled program's text.

        Raises:
            CompilerError: the program can't be lowered under any.
        """
        return (None,) if isinstance(self.source, Compiled) else tuple(self.lowered)

    def under_each(
        self, make: Callable[[Partitioner | None], _Value], on: Hardware | str | None = None
    ) -> tuple[tuple[_Value, ...], dict[Partitioner, CompilerError]]:
        """What is made of each compiled program, and under which partitioners there is none.

        They are compiled at the same time.

        Args:
            make: makes it of what was compiled under a partitioner.
            on: what to compile for, as ``compiled`` takes it.

        Raises:
            CompilerError: it can't be compiled under any of them.
            TargetError: it can't be compiled for this hardware.
        """
        refused = dict(self.failures)
        self.compile_together(on)
        values: list[_Value] = []
        for partitioner in self.compiled_under:
            try:
                values.append(make(partitioner))
            except CompilerError as error:
                if partitioner is None:
                    raise
                refused[partitioner] = error
        if not values:
            raise next(iter(refused.values()))
        return tuple(values), refused

    def compiled(
        self, partitioner: Partitioner | None = None, on: Hardware | str | None = None
    ) -> Compiled:
        """What one device runs and holds, as the compiler of some hardware made it.

        The program is lowered again for that hardware and compiled ahead of time, in a process of
        its own; nothing is run, and no device need be there.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, such as ``tpu:v5e:4x4``, or ``devices`` for those present;
                by default a virtual CPU device for each partition.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: there is no such hardware, it has another number of devices than the
                program, or its compiler is not installed.
        """
        if isinstance(self.source, Compiled):
            for option, given in (("--partitioner", partitioner), ("--on", on)):
                if given is not None:
                    raise compiled_already(self.source, option)
            return self.source
        chosen = self.chosen(partitioner)
        recorded = self._recorded_for(chosen, on)
        if recorded is not None:
            return recorded
        hardware, remark = self.hardware_for(chosen, on)
        key = (chosen, hardware)
        if key not in self._compiled:
            doing(f"compiling {self.name} for {hardware} with {partitioner_name(chosen)}")
            self._make(key, lambda: self._compile(*key))
        outcome = self._compiled[key]
        if isinstance(outcome, CompilerError):
            raise outcome
        if remark is None:
            return outcome
        remarked = (remark, *outcome.notes)
        return self.once((Compiled, key, remark), lambda: replace(outcome, notes=remarked))

    def check_compilable(self, partitioner: Partitioner | None) -> None:
        """Finds what is known, before it is compiled for CPUs, to stand in the way of ``compiled``.

        Args:
            partitioner: as ``compiled`` takes it.

        Raises:
            CompilerError: it can't be lowered for this hardware, or Python would have to partition.
            TargetError: as of ``compiled``.
        """
        if isinstance(self.source, Compiled):
            return
        from sdyscope.stages.compiled.compiler import check_hardware

        chosen = self.chosen(partitioner)
        if self._recorded_for(chosen, None) is None:
            hardware, _ = self.hardware_for(chosen, None)
            check_hardware(*self._module_for(chosen, hardware), hardware)

    def _recorded_for(self, partitioner: Partitioner, on: Hardware | str | None) -> Compiled | None:
        """What the compiler of a recorded run made, where that is what is to be looked at.

        What another JAX made, or a run's own Python partitioned, can't be made again here, and what
        was made for an accelerator not for virtual CPU devices; unless a partitioner that the run
        did not compile under is to be compared with that.
        """
        recorded = self.recorded.get(partitioner)
        if on is not None or recorded is None:
            return None
        from sdyscope.stages.compiled.compiler import asks_python

        is_lasting = (
            self._is_as_recorded
            or self.other_jax(partitioner) is not None
            or (self.recorded_platform != "cpu" and {*self.recorded} >= {*self.lowered})
            or asks_python(self.graph(partitioner))
        )
        return recorded if is_lasting else None

    def _with_unplaced(self, error: CompilerError, partitioner: Partitioner) -> CompilerError:
        """An error of the compiler with the shardings that it may be about.

        Where one can't be, it is the cause: nothing else is advised.
        """
        unknowns = tuple(unplaced(self.annotations(partitioner), partitioner))
        is_certain = any(unknown.kind == "impossible" for unknown in unknowns)
        hint = None if is_certain else error.hint
        error.hint = "\n".join(filter(None, (hint, *map(unknown_text, unknowns)))) or None
        return error

    def _compile(self, partitioner: Partitioner, hardware: Hardware) -> Compiled:
        from sdyscope.stages.compiled.compiler import compile_module

        module, graph = self._module_for(partitioner, hardware)
        return compile_module(module, hardware, graph=graph, partitioner=partitioner)

    def _make(self, key: _Compile, compile_: Callable[[], Compiled]) -> None:
        """Keeps what a compile makes, one that has begun or this one, or why there is nothing."""
        try:
            self._compiled[key] = replace(self._compiling.get(key, compile_)(), name=self.name)
        except CompilerError as error:
            self._compiled[key] = self._with_unplaced(error, key[0])
        doing(f"looking at what {self.name} compiles to")

    def compile_together(self, on: Hardware | str | None = None) -> None:
        """Compiles the program under its partitioners at the same time; see the function."""
        compile_together([(self, partitioner, on) for partitioner in self.compiled_under])

    @contextmanager
    def compiling(
        self, on: Hardware | str | None = None
    ) -> Iterator[Sequence[tuple[Staged, Partitioner]]]:
        """Compiles the program under its partitioners while the caller does something else.

        ``compiled`` then waits for what it is asked for. What has not ended at the end is stopped.
        Yields what is being compiled: the program as it is lowered for the hardware, and the
        partitioner.
        """
        with ExitStack() as running:
            begun: list[tuple[Staged, Partitioner]] = []
            try:
                asked = [(self, partitioner, on) for partitioner in self.compiled_under]
                for program, (partitioner, hardware) in _begin(asked, running):
                    begun.append((program.lowered_for(hardware.platform, partitioner), partitioner))
            except SdyscopeError:
                running.close()  # ``compiled`` says what is wrong.
            yield begun

    def hardware_for(
        self, chosen: Partitioner, on: Hardware | str | None
    ) -> tuple[Hardware, Remark | None]:
        """What to compile for, and what there is to say about it."""
        from sdyscope.stages.compiled.compiler import default_hardware, partitions
        from sdyscope.stages.compiled.present import resolved

        module, graph = self.lowered[chosen], self.graph(chosen)
        hardware, remark = parse_hardware(on) if isinstance(on, str) else on, None
        if hardware is not None and hardware.present:
            hardware, remark = resolved(hardware, partitions(module, graph))
        if hardware is None or (hardware.platform == "cpu" and hardware.count is None):
            hardware = default_hardware(module, graph)
        return hardware, remark

    def _module_for(self, chosen: Partitioner, hardware: Hardware) -> tuple[LoweredModule, OpGraph]:
        """The module that is compiled for hardware, and its graph."""
        lowered = self.lowered_for(hardware.platform, chosen)
        return lowered.lowered[chosen], lowered.graph(chosen)

    def lowered_for(self, platform: str, partitioner: Partitioner) -> Staged:
        """The program as it is lowered for a platform, which is how it is compiled for that.

        Args:
            platform: ``cpu``, ``tpu`` or ``cuda``.
            partitioner: under which.

        Raises:
            CompilerError: JAX can't lower it for the platform.
        """
        from sdyscope.stages.lowered.lower import lower

        module = self.lowered[partitioner]
        if self.program is None or platform in module.platforms:
            return self
        key = (partitioner, platform)
        if key not in self._for:
            stage = self._traced_for(partitioner)
            other = lower(stage, partitioner, (platform,), name=self.name)
            if self._wishes:
                again = self._with_modules({partitioner: other}, {})
                for wishes in self._wishes:
                    again = again.with_wishes(wishes)
                other = again.lowered[partitioner]
            self._for[key] = Staged(other, [partitioner])
            self._for[key].partitioners = (partitioner,)
        return self._for[key]

    def lowered_of(self, compiled: Compiled) -> Staged | None:
        """The program as it was lowered to be compiled; None where that is not known, of a text.

        Raises:
            CompilerError: as ``lowered_for``.
        """
        if compiled.partitioner is None:
            return None
        if compiled.recorded_by is not None:
            return self
        if compiled.hardware is None:
            return None
        return self.lowered_for(compiled.hardware.platform, compiled.partitioner)

    def with_wishes(self, wishes: Sequence[wishing.Wish]) -> Self:
        """The same program with other annotations; see ``Inspection.what_if``."""
        graphs = {partitioner: self.graph(partitioner) for partitioner in self.lowered}
        modules, failures = wishing.rewritten(self.lowered, graphs, self.tensors, wishes)
        program = self._with_modules(modules, {**self.failures, **failures})
        program._wishes = (*self._wishes, wishes)
        return program

    def with_edits(self, edits: Mapping[Partitioner, Sequence[ModuleEdit]]) -> Self:
        """The same program with edits of its modules.

        Args:
            edits: of each partitioner's module; of the others there is none then.

        Raises:
            TargetError: an edit that a module can't carry; says which and why.
        """
        from sdyscope.stages.propagated.annotate import annotate

        modules = {
            partitioner: annotate(self.lowered[partitioner], self.graph(partitioner), written)
            for partitioner, written in edits.items()
        }
        return self._with_modules(modules, {})

    def propagations(self) -> Iterator[tuple[Partitioner, Propagated | CompilerError]]:
        """The propagations that somebody has asked for, or why there is none."""
        for (partitioner, _, _), propagated in self._propagated.items():
            if partitioner in self.lowered:
                yield partitioner, propagated

    def compilations(self) -> Iterator[tuple[Partitioner, Compiled | CompilerError]]:
        """The compiled programs that somebody has asked for, or why there is none."""
        for (partitioner, _), compiled in self._compiled.items():
            if partitioner in self.lowered:
                yield partitioner, compiled

    def under(self, partitioners: Sequence[Partitioner]) -> Self:
        """The same program under some of its partitioners only; it is not traced again."""
        kept = tuple(
            partitioner for partitioner in self.partitioners if partitioner in partitioners
        )
        if kept == self.partitioners:
            return self
        if "_lowered" not in self.__dict__:
            return self._anew(kept)
        modules = {name: module for name, module in self.lowered.items() if name in kept}
        failures = {name: error for name, error in self.failures.items() if name in kept}
        program = self._with_modules(modules, failures)
        program.partitioners = kept
        program._meshes_beside = self.meshes
        program._asked, program._wishes = kept, self._wishes
        program.recorded, program._is_as_recorded = self.recorded, self._is_as_recorded
        program.recorded_propagations = self.recorded_propagations
        # They are of the same modules: what is known of one is known of the other.
        program._graphs, program._read = self._graphs, self._read
        program._annotations = self._annotations
        program._propagated, program._for = self._propagated, self._for
        program._compiled, program._compiling = self._compiled, self._compiling
        return program

    def _with_modules(
        self,
        modules: dict[Partitioner, LoweredModule],
        failures: dict[Partitioner, CompilerError],
    ) -> Self:
        """The same program, not traced again, with other modules."""
        program = self._anew(self._asked)
        # A module that was read has one; of a recorded program there are two.
        program.partitioners = self.partitioners
        program._lowered = modules, failures
        return program

    def _anew(self, partitioners: Sequence[Partitioner]) -> Self:
        """The same program, not traced again, of which nothing else is known yet."""
        program = type(self)(self.source, partitioners)
        if self.program is not None:
            program.traced, program.requested = self.traced, self.requested
        return program


def compile_together(
    asked: Iterable[tuple[Staged, Partitioner | None, Hardware | str | None]],
) -> None:
    """Compiles several programs at the same time, so that ``Staged.compiled`` has them.

    What a compiler refuses ``compiled`` raises. Hardware that is present is left to one process
    at a time.

    Args:
        asked: each program, under which partitioner, and what to compile it for.

    Raises:
        TargetError: as of ``Staged.compiled``.
    """
    with ExitStack() as running:
        waiting = _begin(asked, running)
        if len(waiting) > 1:
            every = Counter(f"{program.name} for {on} with {by}" for program, (by, on) in waiting)
            times = [
                f"{label} ({count} times)" if count > 1 else label for label, count in every.items()
            ]
            doing(f"compiling {listed(times)}")
        for (program, key), finish in waiting.items():
            program._make(key, finish)


def _begin(
    asked: Iterable[tuple[Staged, Partitioner | None, Hardware | str | None]], running: ExitStack
) -> dict[tuple[Staged, _Compile], Callable[[], Compiled]]:
    """Begins to compile programs, and gives what waits for each; they end with the stack."""
    from sdyscope.stages.compiled.compiler import compiling

    waiting: dict[tuple[Staged, _Compile], Callable[[], Compiled]] = {}
    for program, partitioner, on in asked:
        if partitioner is None or partitioner not in program.lowered:
            continue  # ``compiled`` says why.
        if program._recorded_for(partitioner, on) is not None:
            continue
        key = (partitioner, program.hardware_for(partitioner, on)[0])
        if key in program._compiled or key[1].present:
            continue
        if key not in program._compiling:
            try:
                doing(f"compiling {program.name} for {key[1]} with {partitioner_name(partitioner)}")
                module, graph = program._module_for(*key)
                begun = compiling(module, key[1], graph=graph, partitioner=partitioner)
                program._compiling[key] = running.enter_context(begun)
                running.callback(program._compiling.pop, key)
            except CompilerError as error:
                program._compiled[key] = program._with_unplaced(error, partitioner)
                continue
        waiting[program, key] = program._compiling[key]
    return waiting


def compiled_already(compiled: Compiled, option: str = "") -> TargetError:
    """What is said of a compiled program's text that is asked for more than it has.

    Args:
        compiled: the program.
        option: what can't be asked for; empty for a stage.
    """
    file = compiled.path or compiled.name
    if option:
        return TargetError(
            f"{file} is a compiled program: {option} can't change it.", hint=f"Leave {option} out."
        )
    return MissingStageError(
        f"{file} is a compiled program: the stages before are not in it.",
        hint=f"{READ_COMPILED} Or name the program itself.",
    )


def _lowered_before(program: Program) -> LoweredModule:
    from sdyscope.stages.lowered.lower import NotLowerable, lower

    try:
        module = lower(program, "shardy")
    except NotLowerable:
        module = lower(program, "gspmd")
    return replace(module, name=program.name)
