"""Staged: one program through the stages, each computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from sdyscope.analysis import what_if as wishing
from sdyscope.errors import CompilerError, TargetError
from sdyscope.graph import OpGraph
from sdyscope.hardware import Hardware, parse_hardware
from sdyscope.lowered import PARTITIONERS, Lowered
from sdyscope.partitioned import Partitioned
from sdyscope.program import Partitioner
from sdyscope.propagated import Propagated

if TYPE_CHECKING:
    from sdyscope.stages.lower import LoweredModule

__all__ = ["PARTITIONERS", "Staged", "compile_together"]

_Compile: TypeAlias = tuple[Partitioner, Hardware]


class Staged(Lowered):
    """One program, or one module read from a file, through the stages.

    Args:
        source: the program, or a module that was read from a file.
        partitioners: which to lower under; of a file, the one that its shardings are for.

    The stages import jax when they are first asked for, not before.
    """

    _wishes: tuple[Sequence[wishing.Wish], ...] = ()

    @cached_property
    def _propagated(self) -> dict[tuple[Partitioner, bool, bool], Propagated | CompilerError]:
        return {}

    @cached_property
    def _partitioned(self) -> dict[_Compile, Partitioned | CompilerError]:
        return {}

    @cached_property
    def _for(self) -> dict[tuple[Partitioner, str], Staged]:
        return {}

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
        chosen = self.chosen(partitioner)
        if at == "propagated":
            from sdyscope.analysis.propagated_graph import propagated_graph

            return propagated_graph(self.graph(chosen), self.propagated(chosen))
        return super().graph(chosen)

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
            on: what to compile for, such as ``tpu:v5e:4x4``, or ``devices`` for those present;
                by default a virtual CPU device for each partition.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: there is no such hardware, it has another number of devices than the
                program, or its compiler is not installed.
        """
        from sdyscope.stages.partition import partition

        chosen = self.chosen(partitioner)
        hardware, note = self._hardware(chosen, on)
        key = (chosen, hardware)
        if key not in self._partitioned:
            module, graph = self._compiled(chosen, hardware)
            made = partition(module, hardware, graph=graph, partitioner=chosen)
            self._partitioned[key] = replace(made, name=self.name)
        found = self._partitioned[key]
        if isinstance(found, CompilerError):
            raise found
        return replace(found, notes=(note, *found.notes)) if note else found

    def compile_together(self, on: Hardware | str | None = None) -> None:
        """Compiles the program under its partitioners at the same time; see the function."""
        compile_together([(self, partitioner, on) for partitioner in self.lowered])

    def _hardware(self, chosen: Partitioner, on: Hardware | str | None) -> tuple[Hardware, str]:
        """What to compile for, and what there is to say about it."""
        from sdyscope.stages.partition import default_hardware, partitions
        from sdyscope.stages.present import resolved

        module, graph = self.lowered[chosen], self.graph(chosen)
        hardware, note = parse_hardware(on) if isinstance(on, str) else on, ""
        if hardware is not None and hardware.present:
            hardware, note = resolved(hardware, partitions(module, graph))
        if hardware is None or (hardware.platform == "cpu" and hardware.count is None):
            hardware = default_hardware(module, graph)
        return hardware, note

    def _compiled(self, chosen: Partitioner, hardware: Hardware) -> tuple[LoweredModule, OpGraph]:
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
        from sdyscope.stages.lower import lower

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

    def with_wishes(self, wishes: Sequence[wishing.Wish]) -> Self:
        """The same program with other annotations; see ``Inspection.what_if``."""
        graphs = {partitioner: self.graph(partitioner) for partitioner in self.lowered}
        modules, failures = wishing.rewritten(self.lowered, graphs, self.tensors, wishes)
        made = self._with_modules(modules, {**self.failures, **failures})
        made._wishes = (*self._wishes, wishes)
        return made

    def under(self, partitioners: Sequence[Partitioner]) -> Self:
        """The same program under some of its partitioners only; it is not traced again."""
        kept = tuple(one for one in self.partitioners if one in partitioners)
        if kept == self.partitioners:
            return self
        if "_lowered" not in self.__dict__:
            made = type(self)(self.source, kept)
            if self.program is not None:
                made.traced, made.requested = self.traced, self.requested
            return made
        modules = {one: module for one, module in self.lowered.items() if one in kept}
        failures = {one: error for one, error in self.failures.items() if one in kept}
        made = self._with_modules(modules, failures)
        made._asked, made._wishes = kept, self._wishes
        # They are of the same modules: what is known of one is known of the other.
        made._graphs, made._annotations = self._graphs, self._annotations
        made._propagated, made._partitioned, made._for = (
            self._propagated,
            self._partitioned,
            self._for,
        )
        return made

    def _with_modules(
        self,
        modules: dict[Partitioner, LoweredModule],
        failures: dict[Partitioner, CompilerError],
    ) -> Self:
        """The same program, not traced again, with other modules."""
        made = type(self)(self.source, self._asked)
        made._lowered = modules, failures
        if self.program is not None:
            made.traced, made.requested = self.traced, self.requested
        return made


def compile_together(
    asked: Iterable[tuple[Staged, Partitioner, Hardware | str | None]],
) -> None:
    """Compiles several programs at the same time, so that ``Staged.partitioned`` has them.

    What a compiler refuses ``partitioned`` raises. Hardware that is present is left to one process
    at a time.

    Args:
        asked: each program, under which partitioner, and what to compile it for.

    Raises:
        TargetError: as of ``Staged.partitioned``.
    """
    from sdyscope.stages.partition import compiling

    with ExitStack() as running:
        waiting: dict[tuple[Staged, _Compile], Callable[[], Partitioned]] = {}
        for program, partitioner, on in asked:
            if partitioner not in program.lowered:
                continue  # ``partitioned`` says why.
            key = (partitioner, program._hardware(partitioner, on)[0])
            if key in program._partitioned or (program, key) in waiting or key[1].present:
                continue
            try:
                module, graph = program._compiled(*key)
                begun = compiling(module, key[1], graph=graph, partitioner=partitioner)
                waiting[program, key] = running.enter_context(begun)
            except CompilerError as error:
                program._partitioned[key] = error
        for (program, key), made in waiting.items():
            try:
                program._partitioned[key] = replace(made(), name=program.name)
            except CompilerError as error:
                program._partitioned[key] = error
