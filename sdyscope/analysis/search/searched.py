"""Searches shardings of a program: its stages, put at the search's disposal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sdyscope.analysis.account import account_of
from sdyscope.analysis.search.cost import Prediction, Rates, Traffic
from sdyscope.analysis.search.decisions import space
from sdyscope.analysis.search.search import Setting, search
from sdyscope.analysis.search.strategy import Budget
from sdyscope.analysis.search.traffic import reduce_scatters, traffic
from sdyscope.analysis.search.values import Compiled, Search
from sdyscope.annotations import Annotation
from sdyscope.errors import TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.graph import OpGraph, build
from sdyscope.hardware.names import LARGEST_CPU, Hardware, parse_hardware
from sdyscope.staged import Staged
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ShardingEdit

__all__ = ["searched"]


def searched(
    program: Staged,
    arguments: Sequence[str] = (),
    axes: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    rates: Rates = Rates(),  # noqa: B008 (frozen)
    budget: Budget = Budget(),  # noqa: B008
    seed: int = 0,
    tied: bool = True,
    on: Hardware | str | None = None,
    checks: int = 24,
    compiles: int = 3,
    notify: Callable[[str, float], None] | None = None,
) -> Search:
    """See ``Inspection.search``."""
    from sdyscope.analysis.collectives.predicted import Predictor

    if "shardy" not in program.lowered:
        raise TargetError(
            f"{program.name} has GSPMD's shardings, and a search propagates with Shardy.",
            hint="Name the program that it was lowered from.",
        )
    chosen = program.chosen("shardy")
    lowered, graph = program.lowered[chosen], program.graph(chosen)
    mesh = program.only_mesh(chosen)
    if mesh is None or not any(found == mesh for found in graph.meshes.values()):
        raise TargetError(
            f"{program.name} is not on one mesh whose axes could be placed.",
            hint="Give at least one argument a NamedSharding on the mesh.",
        )
    for axis in rates.bandwidths:
        if axis not in mesh.shape:
            raise TargetError(
                f"The mesh has no axis {axis!r}.", hint=f"It has {', '.join(mesh.shape)}."
            )
    found = space(program.tensors, chosen, mesh, arguments, axes, tied=tied)
    writer = _Writer(found.mesh, program.annotations(chosen))
    predictor = Predictor(lowered, graph)
    notes: dict[Remark | str, None] = {}

    def predict(settings: Sequence[Setting]) -> Prediction:
        made = predictor.predict(writer.changes(settings))
        if not settings:
            notes.update(dict.fromkeys(made.collectives.notes))
        return Prediction(
            traffic(made.collectives),
            made.argument_bytes,
            made.result_bytes,
            flops=float(made.flops),
        )

    compiler = _Compiler(program, lowered, graph, mesh, on)
    compilable = on is not None or compiler.devices <= LARGEST_CPU
    if not compilable:
        notes[Remark("too many devices", count=LARGEST_CPU)] = None
    inside = sum(annotation.kind == "constraint" for annotation in program.annotations(chosen))
    if inside:
        notes[Remark("constraints stay", count=inside)] = None
    if on is not None and compiles:
        compiler.compile(())  # hardware that does not fit is better known before than after
    result = search(
        found,
        predict,
        None if compiler.devices > LARGEST_CPU else compiler.partition,
        compiler.compile if compilable else None,
        rates=rates,
        limit=limit,
        budget=budget,
        seed=seed,
        checks=checks,
        compiles=compiles,
        notify=notify,
    )
    return replace(
        result,
        notes=(*result.notes, *notes),
        name=program.name,
        jax_version=lowered.jax_version,
        meshes=program.meshes,
        account=account_of(program),
    )


class _Writer:
    """Turns settings into changes of a module's annotations."""

    def __init__(self, mesh: Mesh, annotations: Sequence[Annotation]) -> None:
        self._mesh = mesh
        self._there = {
            (annotation.kind, annotation.index): annotation
            for annotation in annotations
            if annotation.kind in ("argument", "result") and annotation.index is not None
        }

    def changes(self, settings: Sequence[Setting]) -> list[ShardingEdit]:
        from sdyscope.stages.propagated.annotate import ShardingEdit

        return [
            ShardingEdit(self._there[member.kind, member.number], NamedSharding(self._mesh, spec))
            for member, spec in settings
        ]


class _Compiler:
    """Compiles the program with other shardings, for one kind of hardware."""

    def __init__(
        self,
        program: Staged,
        lowered: LoweredModule,
        graph: OpGraph,
        mesh: Mesh,
        on: Hardware | str | None,
    ) -> None:
        from sdyscope.stages.compiled.compiler import default_hardware, partitions
        from sdyscope.stages.compiled.present import resolved

        self.devices = partitions(lowered, graph)
        hardware = parse_hardware(on) if isinstance(on, str) else on
        if hardware is not None and hardware.present:
            hardware, _ = resolved(hardware, self.devices)
        if hardware is None or (hardware.platform == "cpu" and hardware.count is None):
            hardware = default_hardware(lowered, graph)
        self._program, self._lowered, self._graph = program, lowered, graph
        self._mesh, self._hardware = mesh, hardware
        self._writer = _Writer(mesh, program.annotations("shardy"))
        self._as_it_is: Compiled | None = None

    def partition(self, settings: Sequence[Setting]) -> tuple[Traffic, ...]:
        """What XLA's partitioner makes the program send with some settings.

        Raises:
            CompilerError: XLA refuses it.
        """
        from sdyscope.analysis.collectives.read import collectives
        from sdyscope.hlo import read_hlo
        from sdyscope.stages.compiled.spmd import spmd
        from sdyscope.stages.propagated.annotate import annotate

        changed = annotate(self._lowered, self._graph, self._writer.changes(settings))
        module = read_hlo(spmd(changed, build(changed.module)))
        return traffic(reduce_scatters(collectives(module, (self._mesh,)), module))

    def compile(self, settings: Sequence[Setting]) -> Compiled:
        """What the compiler makes of the program with some settings.

        Raises:
            CompilerError: the compiler refuses it.
            TargetError: there is no such hardware, or its compiler is not installed.
        """
        from sdyscope.analysis.collectives.slices import collectives_of
        from sdyscope.hlo import read_hlo
        from sdyscope.stages.compiled.compiler import compile_module
        from sdyscope.stages.propagated.annotate import annotate

        if not settings and self._as_it_is is not None:
            return self._as_it_is
        there = self._program.lowered_for(self._hardware.platform, "shardy")
        changes = _Writer(self._mesh, there.annotations("shardy")).changes(settings)
        changed = annotate(there.lowered["shardy"], there.graph("shardy"), changes)
        made = compile_module(changed, self._hardware, partitioner="shardy")
        found = collectives_of(made, read_hlo(made.hlo), (self._mesh,))
        memory = made.memory
        measured = Prediction(
            traffic(found),
            0 if memory is None else memory.arguments,
            0 if memory is None else memory.outputs,
            0 if memory is None else memory.aliases,
        )
        compiled = Compiled(
            measured,
            None if memory is None else memory.temporaries,
            None if memory is None else memory.total,
            made.compile_seconds,
            str(made.hardware),
            made.hardware is not None and made.hardware.platform != "cpu",
        )
        if not settings:
            self._as_it_is = compiled
        return compiled
