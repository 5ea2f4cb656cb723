"""Inspection: one program through the stages, each computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sdyscope.analysis import check as checking
from sdyscope.analysis import diff as diffing
from sdyscope.analysis import what_if as wishing
from sdyscope.analysis.module_findings import fallback, not_lowerable, not_understood
from sdyscope.annotations import Annotation, read_annotations
from sdyscope.errors import CompilerError, TargetError
from sdyscope.findings import Finding
from sdyscope.graph import OpGraph, build, read_text
from sdyscope.hardware import Hardware, parse_hardware
from sdyscope.mesh import Mesh
from sdyscope.partitioned import Partitioned
from sdyscope.program import Partitioner, Program, RequestedTensor
from sdyscope.propagated import Propagated
from sdyscope.sharding import PartitionSpec
from sdyscope.tensors import LoweredTensors, TensorTable, tensor_table

if TYPE_CHECKING:
    from sdyscope.analysis.explain import Explainer, Explanation
    from sdyscope.analysis.memory import Memory
    from sdyscope.analysis.propagated_diff import PropagatedDiff, PropagatedSide
    from sdyscope.analysis.run import Run
    from sdyscope.stages.lower import LoweredModule

PARTITIONERS: tuple[Partitioner, ...] = ("shardy", "gspmd")


class Inspection:
    """Everything known about one program, or one module read from a file.

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
        self._propagated: dict[tuple[Partitioner, bool, bool], Propagated | CompilerError] = {}
        self._explainers: dict[tuple[Partitioner, bool], Explainer] = {}
        self._partitioned: dict[tuple[Partitioner, Hardware], Partitioned] = {}

    def __repr__(self) -> str:
        return f"<Inspection of {self.name} under {' and '.join(self.partitioners)}>"

    @property
    def name(self) -> str:
        """The program's name, or the file's."""
        return self.source.name

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
        stage = self.traced
        for partitioner in self.partitioners:
            try:
                modules[partitioner] = lower(stage, partitioner, name=self.name)
            except CompilerError as error:
                failures[partitioner] = error
        if not modules:
            raise next(iter(failures.values()))
        return modules, failures

    def graph(
        self,
        partitioner: Partitioner | None = None,
        *,
        at: Literal["lowered", "propagated"] = "lowered",
    ) -> OpGraph:
        """The op graph of the module under a partitioner (default: the first there is).

        Args:
            partitioner: whose.
            at: whether values carry the shardings that are written, or those that were decided.

        Raises:
            CompilerError: JAX can't lower the program under it, or it can't be propagated.
        """
        chosen = self._chosen(partitioner)
        if at == "propagated":
            from sdyscope.analysis.propagated_graph import propagated_graph

            return propagated_graph(self.graph(chosen), self.propagated(chosen))
        if chosen not in self._graphs:
            lowered = self.lowered[chosen]
            if lowered.module is None:
                self._graphs[chosen] = read_text(lowered.source_text or "")
            else:
                self._graphs[chosen] = build(lowered.module)
        return self._graphs[chosen]

    def annotations(self, partitioner: Partitioner | None = None) -> tuple[Annotation, ...]:
        """The shardings written in the module under a partitioner, in lowering order."""
        chosen = self._chosen(partitioner)
        if chosen not in self._annotations:
            self._annotations[chosen] = read_annotations(self.graph(chosen))
        return self._annotations[chosen]

    def _chosen(self, partitioner: Partitioner | None) -> Partitioner:
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

    def check(self) -> checking.Check:
        """Requested against lowered, and the partitioners against each other."""
        return checking.check(self.tensors, self.module_findings())

    def module_findings(self) -> tuple[Finding, ...]:
        """What there is to say about whole modules, before any tensor is looked at."""
        findings = list(not_lowerable(self.failures, alone=not self.lowered))
        for partitioner, lowered in self.lowered.items():
            findings += fallback(partitioner, lowered.found)
            findings += not_understood(partitioner, self.graph(partitioner))
        return tuple(findings)

    def diff(self, other: Inspection | None = None) -> diffing.Diff:
        """This program under its two partitioners, or this one and another; see ``compared``."""
        return self.compared(other)[0]

    def compared(
        self, other: Inspection | None = None
    ) -> tuple[diffing.Diff, tuple[diffing.Side, diffing.Side]]:
        """What ``diff`` finds, and the two sides that it compared.

        Two programs are compared under the first partitioner that both have.

        Raises:
            CompilerError: one of the modules can't be made.
            TargetError: there is only one module and nothing to compare it with.
        """
        if other is None:
            one, two = self._both_partitioners()
            sides = (self._side(one, one), self._side(two, two))
            return diffing.diff(*sides, across_partitioners=True), sides
        one, two = self._partitioner_of_both(other)
        labels = _labels(self.source, other.source)
        sides = (self._side(one, labels[0]), other._side(two, labels[1]))
        return diffing.diff(*sides, across_partitioners=one != two), sides

    def _both_partitioners(self) -> tuple[Partitioner, Partitioner]:
        if self.program is None or len(self.partitioners) < 2:
            raise TargetError(
                f"{self.name} is one module, so there is nothing to compare it with.",
                hint="Name a second target, or a program with --partitioner both.",
            )
        return self.partitioners[0], self.partitioners[1]

    def _partitioner_of_both(self, other: Inspection) -> tuple[Partitioner, Partitioner]:
        """The first that both are lowered under, or the first of each."""
        shared = [p for p in self.lowered if p in other.lowered]
        if shared:
            return shared[0], shared[0]
        return next(iter(self.lowered)), next(iter(other.lowered))

    def propagated(
        self,
        partitioner: Partitioner | None = None,
        *,
        by_xla: bool = False,
        conservative: bool = False,
    ) -> Propagated:
        """What propagation decided for every value of the module under a partitioner.

        Shardy's own passes run in this process, for a mesh of any size. GSPMD's propagation is part
        of XLA, which compiles the module just so far, in a process of its own.

        Args:
            partitioner: whose; by default the first that the program is lowered under.
            by_xla: have XLA compile the module for Shardy as well. Then there are no steps.
            conservative: Shardy's conservative propagation, which leaves conflicts unsharded.

        Raises:
            CompilerError: the module can't be made, or the compiler refuses it.
            TargetError: the module could not be read by MLIR, or ``conservative`` is asked for
                where it can't be had.
        """
        chosen = self._chosen(partitioner)
        by_xla = by_xla or chosen == "gspmd"
        if conservative and by_xla:
            raise TargetError(
                "Conservative propagation is Shardy's, and not what XLA runs.",
                hint="Ask for it with --partitioner shardy.",
            )
        key = (chosen, by_xla, conservative)
        if key not in self._propagated:
            try:
                self._propagated[key] = self._propagate(chosen, by_xla, conservative)
            except CompilerError as error:
                self._propagated[key] = error
        found = self._propagated[key]
        if isinstance(found, CompilerError):
            raise found
        return found

    def _propagate(self, chosen: Partitioner, by_xla: bool, conservative: bool) -> Propagated:
        lowered, graph = self.lowered[chosen], self.graph(chosen)
        if lowered.module is None:
            raise TargetError(
                f"{self.name} can't be propagated: MLIR's bindings could not read it.",
                hint="Read it with the version of JAX that wrote it.",
            )
        if by_xla:
            from sdyscope.stages.xla_dump import propagated_by_xla

            return propagated_by_xla(lowered, graph, chosen)
        from sdyscope.stages.propagate import propagate

        return propagate(lowered, graph, conservative=conservative)

    def partitioned(
        self, partitioner: Partitioner | None = None, on: Hardware | str | None = None
    ) -> Partitioned:
        """What one device runs and holds, as the compiler of some hardware made it.

        The program is lowered again for that hardware and compiled ahead of time, in a process of
        its own; nothing is run, and no device need be there.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, such as ``tpu:v5e:4x4``; by default a virtual CPU device for
                each partition.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: there is no such hardware, it has another number of devices than the
                program, or its compiler is not installed.
        """
        from sdyscope.stages.lower import lower
        from sdyscope.stages.partition import default_hardware, partition

        chosen = self._chosen(partitioner)
        module, graph = self.lowered[chosen], self.graph(chosen)
        hardware = parse_hardware(on) if isinstance(on, str) else on
        if hardware is None or (hardware.platform == "cpu" and hardware.count is None):
            hardware = default_hardware(module, graph)
        key = (chosen, hardware)
        if key not in self._partitioned:
            own_graph: OpGraph | None = graph
            if self.program is not None and hardware.platform not in module.platforms:
                module, own_graph = lower(self.traced, chosen, (hardware.platform,)), None
            made = partition(module, hardware, graph=own_graph, partitioner=chosen)
            self._partitioned[key] = replace(made, name=self.name)
        return self._partitioned[key]

    def memory(
        self, partitioner: Partitioner | None = None, on: Hardware | str | None = None
    ) -> Memory:
        """Bytes a device: by argument group, shared by donation, and held more than once.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, as ``partitioned`` takes it.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: it can't be compiled for that hardware.
        """
        from sdyscope.analysis.memory import memory

        chosen = self._chosen(partitioner)
        return memory(self.tensors, self.partitioned(chosen, on), self._only_mesh(chosen))

    def _only_mesh(self, partitioner: Partitioner) -> Mesh | None:
        """The mesh with axes that shardings are on, where there is just one."""
        found = {asked.sharding.mesh for asked in self.requested if asked.sharding is not None}
        found |= {
            mesh for mesh in self.graph(partitioner).meshes.values() if isinstance(mesh, Mesh)
        }
        named = {mesh for mesh in found if mesh.axes}
        return named.pop() if len(named) == 1 else None

    def explainer(
        self, partitioner: Partitioner | None = None, *, conservative: bool = False
    ) -> Explainer:
        """Explains values of a propagation; made once for all values.

        Raises:
            CompilerError: there is no such propagation.
        """
        from sdyscope.analysis.explain import Explainer

        key = (self._chosen(partitioner), conservative)
        if key not in self._explainers:
            propagated = self.propagated(key[0], conservative=conservative)
            self._explainers[key] = Explainer(
                propagated, self.graph(key[0]), self.annotations(key[0])
            )
        return self._explainers[key]

    def explain(
        self, value: str, partitioner: Partitioner | None = None, *, conservative: bool = False
    ) -> tuple[Explanation, ...]:
        """Why a value is sharded as it is: for each axis, the chain from the user's annotation.

        Args:
            value: a pytree path, a scope path or its end, ``file.py:line``, or an SSA name. It may
                name several values, which are all explained.
            partitioner: whose propagation; only Shardy's says where axes come from.
            conservative: Shardy's conservative propagation.

        Raises:
            CompilerError: there is no such propagation.
            TargetError: no value has this name.
        """
        from sdyscope.analysis.values import resolve_value

        chosen = self._chosen(partitioner)
        named = resolve_value(self.graph(chosen), value)
        explainer = self.explainer(chosen, conservative=conservative)
        return tuple(explainer.explain(one) for one in named)

    def propagated_diff(
        self, other: Inspection | None = None, partitioner: Partitioner | None = None
    ) -> PropagatedDiff:
        """Values that are sharded differently under the two partitioners, or in two programs.

        Args:
            other: the other program.
            partitioner: for two programs, whose propagation; by default the first that both have.

        Raises:
            CompilerError: one of the two can't be propagated.
            TargetError: there is only one module and nothing to compare it with.
        """
        from sdyscope.analysis.propagated_diff import propagated_diff

        return propagated_diff(
            *self.propagated_sides(other, partitioner), by_name=other is not None
        )

    def propagated_sides(
        self, other: Inspection | None = None, partitioner: Partitioner | None = None
    ) -> tuple[PropagatedSide, PropagatedSide]:
        """The two propagations that ``propagated_diff`` compares."""
        if other is None:
            one, two = self._both_partitioners()
            return self.propagated_side(one, one), self.propagated_side(two, two)
        one, two = self._partitioner_of_both(other)
        labels = _labels(self.source, other.source)
        return (
            self.propagated_side(partitioner or one, labels[0]),
            other.propagated_side(partitioner or two, labels[1]),
        )

    def propagated_side(
        self, partitioner: Partitioner, label: str, *, conservative: bool = False
    ) -> PropagatedSide:
        """One propagation as it is compared with others.

        Raises:
            CompilerError: there is no such propagation.
        """
        from sdyscope.analysis.propagated_diff import PropagatedSide

        found = self.propagated(partitioner, conservative=conservative)
        return PropagatedSide(label, self.graph(partitioner), found)

    def what_if(
        self,
        shardings: Mapping[str, PartitionSpec | str] | None = None,
        priorities: Mapping[tuple[str, int], int] | None = None,
    ) -> Inspection:
        """The same program with other annotations. It is not traced or lowered again.

        Args:
            shardings: by the name of an argument, result or constraint what to write there.
            priorities: by name and dimension Shardy's priority, 0 being propagated first.

        Raises:
            TargetError: a tensor is not there, or can't carry what is wished.
            SyntaxTextError: a text is no PartitionSpec.
        """
        from sdyscope.syntax.partition_spec import parse_partition_spec

        wishes = [
            wishing.Wish(name, parse_partition_spec(spec) if isinstance(spec, str) else spec)
            for name, spec in (shardings or {}).items()
        ]
        wishes += [
            wishing.Wish(name, None, ((dimension, priority),))
            for (name, dimension), priority in (priorities or {}).items()
        ]
        return self.with_wishes(wishes)

    def with_wishes(self, wishes: Sequence[wishing.Wish]) -> Inspection:
        """See ``what_if``."""
        graphs = {partitioner: self.graph(partitioner) for partitioner in self.lowered}
        modules, failures = wishing.rewritten(self.lowered, graphs, self.tensors, wishes)
        made = Inspection(self.source, self._asked)
        made._lowered = modules, {**self.failures, **failures}
        if self.program is not None:
            made.traced, made.requested = self.traced, self.requested
        return made

    def run(
        self,
        *,
        steps: int = 10,
        devices: Sequence[Any] | None = None,
        notify: Callable[[str, int, int], None] | None = None,
    ) -> Run:
        """Runs the program on real devices under each partitioner, and on one device.

        Args:
            steps: how many steps to time after the warm-up.
            devices: what to run on, in the order of the mesh; by default what JAX finds. A program
                on a mesh of real devices runs on those.
            notify: told what is being done, how many of its steps are done, and of how many.

        Raises:
            CompilerError: the program can't be lowered under any of the partitioners.
            TargetError: there are too few devices, or this is a module that was read from a file.
        """
        if self.program is None:
            raise TargetError(
                f"{self.name} is a module without values to run it on.",
                hint="Name the program that it was lowered from.",
            )
        from sdyscope.analysis.run import judge
        from sdyscope.stages.execute import Runner

        runner = Runner(self.program, self.traced, self.lowered, devices, steps, notify)
        executions = [runner.run(partitioner) for partitioner in self.partitioners]
        reference = runner.reference()
        return judge(self.name, runner.machine, runner.inputs, self.tensors, executions, reference)

    def _side(self, partitioner: Partitioner, label: str) -> diffing.Side:
        return diffing.Side(label, self.graph(partitioner), self.annotations(partitioner))


def _lowered_before(program: Program) -> LoweredModule:
    from sdyscope.stages.lower import NotLowerable, lower

    try:
        module = lower(program, "shardy")
    except NotLowerable:
        module = lower(program, "gspmd")
    return replace(module, name=program.name)


def _labels(a: Program | LoweredModule, b: Program | LoweredModule) -> tuple[str, str]:
    """What to call two things: a program's name, as much of a file's path as tells them apart."""
    paths = [
        (source.name,) if isinstance(source, Program) or source.path is None else source.path.parts
        for source in (a, b)
    ]
    for length in range(1, max(map(len, paths)) + 1):
        one, two = ["/".join(parts[-length:]).replace("//", "/") for parts in paths]
        if one != two:
            return one, two
    return f"{one} (a)", f"{two} (b)"


def inspect(
    fun: Any,
    *args: Any,
    partitioners: Sequence[Partitioner] = PARTITIONERS,
    name: str | None = None,
    **kwargs: Any,
) -> Inspection:
    """Looks at a jitted function with these arguments. Nothing is run or compiled.

    Args:
        fun: the result of ``jax.jit``, a ``jax.stages.Traced``, or a ``Program``.
        args: arrays or ``jax.ShapeDtypeStruct``s, with shardings; static arguments as they are.
        partitioners: which to lower under.
        name: what to call it; by default the function's name.
        kwargs: keyword arguments of ``fun``.

    Raises:
        TargetError: ``fun`` is nothing that can be lowered.
    """
    if isinstance(fun, Program):
        return Inspection(fun, partitioners)
    called = name or getattr(fun, "__name__", None) or getattr(fun, "fun_name", "program")
    return Inspection(Program(str(called), fun, args, kwargs), partitioners)


def read(path: str | Path, *, trusted: bool = False) -> Inspection:
    """Looks at a module in a file: StableHLO or HLO, text or bytecode.

    Args:
        path: the file.
        trusted: read it in this process at once. Otherwise it is read in a child process first,
            because damaged bytecode can abort the compiler, and with it the whole process.

    Raises:
        SdyscopeError: the file can't be read as a module; says where and why.
    """
    from sdyscope.stages import read as reading

    if not trusted:
        reading.probe(path)
    return Inspection(reading.read(Path(path)))
