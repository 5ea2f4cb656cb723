"""The same program on several meshes: the same parameters and batch, and the results compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from sdyscope.analysis.run.inside import first_difference
from sdyscope.analysis.run.numerics import (
    Numeric,
    difference,
    numeric,
    ratio_of,
    worst_error,
)
from sdyscope.analysis.run.values import MeshComparison, MeshRun, StepTime
from sdyscope.errors import SdyscopeError
from sdyscope.facts.execution import Execution, HostBlock, Reference
from sdyscope.facts.findings import DependsOnMesh, Inside, NotOnMesh, Observation
from sdyscope.facts.program import Partitioner, Program
from sdyscope.facts.tensors import TensorTable
from sdyscope.values.mesh import Mesh

if TYPE_CHECKING:
    from sdyscope.stages.executed.execute import Runner

Make: TypeAlias = Callable[[Mapping[str, int]], Program]
"""Makes the same program on a mesh of these axes."""


def on_one_device(axes: Sequence[str]) -> Mesh:
    """The mesh of one device with these axes."""
    return Mesh.of(dict.fromkeys(axes, 1))


@dataclass
class _Side:
    """The program on one mesh."""

    mesh: Mesh
    runner: Runner | None
    executions: tuple[Execution, ...]
    failure: str = ""

    def outputs(self) -> tuple[tuple[HostBlock, ...] | None, ...]:
        """Its results under the first partitioner that runs it; empty where none does."""
        return next(
            (execution.outputs for execution in self.executions if not execution.failure), ()
        )


def across_meshes(
    runner: Runner,
    executions: Sequence[Execution],
    own: Mesh | None,
    make: Make,
    meshes: Sequence[Mapping[str, int]],
    reference: Reference,
    table: TensorTable,
) -> tuple[tuple[MeshRun, ...], tuple[Observation, ...]]:
    """Runs a program on other meshes, and compares its results.

    A mesh of one device is always among them. What is compared with is a function of the user's
    where there is one, else the program on one device, else on the first mesh that runs it.

    Args:
        runner: runs the program on its own mesh.
        executions: what came of that, with its results.
        own: that mesh.
        make: makes the program on another one.
        meshes: axis sizes of each; an axis that only another mesh has is of size 1.
        reference: the user's function's results, or the program's own without shardings.
        table: what the results are called.
    """
    every = _every(own, meshes)
    sides = []
    for mesh in every:
        if mesh == own:
            sides.append(_Side(mesh, runner, tuple(executions)))
        else:
            sides.append(
                _run(runner, mesh, make, [execution.partitioner for execution in executions])
            )
    base = next((side for side in sides if side.mesh.size == 1 and side.outputs()), None)
    base = base or next((side for side in sides if side.outputs()), None)
    outputs: Sequence[Any] = reference.outputs if reference.function else ()
    if base is not None and not reference.function:
        outputs = [None if output is None else output[0].values for output in base.outputs()]
    comparison = _Comparison(base, outputs, reference, table)
    rows = tuple(map(comparison.of, sides))
    # The smallest that differs is cheapest to look into, and the others most often differ alike.
    wrong = (side for side, row in zip(sides, rows, strict=True) if row.differs)
    smallest = min(wrong, key=lambda side: side.mesh.size, default=None)
    observations = [
        observation
        for side, row in zip(sides, rows, strict=True)
        for observation in comparison.observed(side, row, look_inside=side is smallest)
    ]
    return rows, tuple(observations)


def _every(own: Mesh | None, meshes: Sequence[Mapping[str, int]]) -> list[Mesh]:
    """One device, the program's own mesh, and the others, each once and with all axes."""
    shapes = [*([own.shape] if own is not None else []), *meshes]
    axes = list(dict.fromkeys(axis for shape in shapes for axis in shape))
    filled = [Mesh.of({axis: shape.get(axis, 1) for axis in axes}) for shape in shapes]
    if own is not None and own.shape == filled[0].shape:
        filled[0] = own  # With the order of its devices.
    distinct: dict[tuple[tuple[str, int], ...], Mesh] = {}
    for mesh in (on_one_device(axes), *filled):
        distinct.setdefault(tuple(mesh.shape.items()), mesh)
    if own is not None and own.size == 1:
        distinct[tuple(own.shape.items())] = own
    return list(distinct.values())


def _run(runner: Runner, mesh: Mesh, make: Make, partitioners: Sequence[Partitioner]) -> _Side:
    from sdyscope.stages.executed.execute import in_words

    try:
        there = runner.beside(make(mesh.shape), at_most=mesh.size)
    except SdyscopeError as error:
        return _Side(mesh, None, (), error.message)
    except Exception as error:  # the user's own code: anything can come out
        return _Side(mesh, None, (), in_words(error))
    executions = tuple(there.run(partitioner) for partitioner in partitioners)
    failures = [execution.failure for execution in executions if execution.failure]
    failure = failures[0] if len(failures) == len(executions) else ""
    return _Side(mesh, there, executions, failure)


@dataclass(frozen=True)
class _Comparison:
    """What the program on each mesh is compared with.

    Attributes:
        base: the program on the mesh that the others are compared with; None where none ran.
        outputs: the results that all are to have.
        reference: says what the program computes in, and which function the results are of.
        table: what they are called.
    """

    base: _Side | None
    outputs: Sequence[Any]
    reference: Reference
    table: TensorTable

    @property
    def names(self) -> dict[int, tuple[str, str]]:
        """Path and dtype of each result."""
        rows = (row for row in self.table.tensors if row.kind == "result")
        return {row.index or 0: (row.path, row.dtype) for row in rows}

    def of(self, side: _Side) -> MeshRun:
        """What came of the program on a mesh."""
        is_base = side is self.base and not self.reference.function
        return MeshRun(
            side.mesh,
            side.mesh.size,
            is_base,
            side.failure,
            {execution.partitioner: self._compared(execution) for execution in side.executions},
        )

    def _errors(self, execution: Execution) -> list[Numeric]:
        return [
            numeric(
                *(self.names[index][0], index, self.names[index][1]),
                self.reference.compute_dtypes,
                [
                    difference(
                        block,
                        expected,
                        self.reference.before_result(index),
                        self.reference.jumps_of(index),
                    )
                    for block in blocks
                ],
                self.reference.moved_result(index),
            )
            for index, (blocks, expected) in enumerate(
                zip(execution.outputs, self.outputs, strict=False)
            )
            if blocks is not None and expected is not None and index in self.names
        ]

    def _compared(self, execution: Execution) -> MeshComparison:
        errors = self._errors(execution)
        wrong = sum(not error.within for error in errors)
        telling = [error for error in errors if error.tells]
        worst = worst_error(telling)
        step = StepTime.of(execution.step_seconds)
        noise = tuple(error.path for error in errors if error.is_noise)
        return MeshComparison(execution.failure, len(telling), wrong, worst, step, noise)

    def observed(self, side: _Side, row: MeshRun, *, look_inside: bool) -> Iterator[Observation]:
        """What is wrong on a mesh, or why nothing is known of it."""
        if row.failure:
            missing = NotOnMesh(row.mesh, row.failure.rstrip(".:"))
            yield Observation("not-compared", "note", missing)
        before: set[tuple[str, float]] = set()
        for execution in side.executions:
            compared = row.compared[execution.partitioner]
            worst = compared.worst
            if not compared.differing or worst is None:
                continue
            # Both partitioners make the same of what is wrong in the program itself.
            said = worst.path, float(f"{worst.error:.2g}")
            if said not in before:
                before.add(said)
                fact = self._difference(side, execution, worst, compared.differing)
                if look_inside:
                    fact = replace(fact, inside=self._inside(side, execution, worst))
                yield Observation("depends-on-mesh", "error", fact, worst.path, "result")

    def _difference(
        self, side: _Side, execution: Execution, worst: Numeric, differing: int
    ) -> DependsOnMesh:
        blocks, expected = execution.outputs[worst.index], self.outputs[worst.index]
        assert blocks is not None
        before = self.reference.before_result(worst.index)
        ratio, of_change = ratio_of(worst, blocks[0].values, expected, before)
        shape = side.mesh.shape.items()
        return DependsOnMesh(
            worst.path,
            differing,
            worst.error,
            ratio,
            tuple(name for name, size in shape if size > 1 and ratio == size),
            mesh=side.mesh,
            base=None if self.base is None or self.base.mesh.size == 1 else self.base.mesh,
            function=self.reference.function,
            by_change=of_change,
        )

    def _inside(self, side: _Side, execution: Execution, worst: Numeric) -> Inside | None:
        from sdyscope.stages.executed.inside import Insides

        base = self.base
        if side.runner is None or base is None or base.runner is None or base is side:
            return None
        if worst.by_change:
            return None  # Where values begin to differ is told by all of each.
        side.runner.notify("looking inside", 0, 1)
        source = Insides(side.runner, execution.partitioner, base.runner.traced)
        return first_difference(
            source,
            worst.index,
            worst.path,
            self.reference.compute_dtypes,
            side.mesh,
            base.mesh,
            [error.index for error in self._errors(execution) if not error.within],
        )
