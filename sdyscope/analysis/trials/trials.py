"""Tries edits of a lowered program: predicted by Shardy, partitioned by XLA, compiled.

Nothing is traced again. ``search``, ``fix``, ``explain`` and ``verify`` ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.analysis.trials.cost import Prediction
from sdyscope.analysis.trials.traffic import reduce_scatters, traffic
from sdyscope.annotations import Annotation
from sdyscope.errors import TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.facts.traffic import Traffic
from sdyscope.graph import OpGraph, build
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import read_hlo
from sdyscope.staged import Staged
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.predicted import PredictedCollectives, Predictor
    from sdyscope.analysis.trials.try_edits import TryEdits
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit, ShardingEdit

Written: TypeAlias = tuple[str, int, PartitionSpec]
"""What an argument, result or constraint is to say: its kind, its number in the module (of a
constraint among all constraints and ``shard_map``s), its sharding."""


@dataclass(frozen=True, slots=True)
class CompiledCandidate:
    """What the compiler made of one way to shard the program.

    Attributes:
        measured: its collectives and memory; the FLOPs are the predicted ones.
        cost: bytes that would take as long; None where they were not weighed.
        temporaries: bytes a device that it needs besides; None where the compiler does not say.
        total: bytes a device in all; None where the compiler does not say.
        seconds: how long the compile took.
        hardware: what it was compiled for.
        comparable: whether its collectives cost what they do elsewhere. A CPU's do not: it has no
            reduce-scatter, and computes and sends bf16 as f32.
    """

    measured: Prediction
    temporaries: int | None
    total: int | None
    seconds: float
    hardware: str
    comparable: bool
    cost: float | None = None


class Trials:
    """Tries edits of one program under Shardy.

    Args:
        program: the program.
        on: what to compile for, as ``Staged.compiled`` takes it.

    Attributes:
        mesh: the mesh of the program.
        notes: what there is to know of its predictions, once one was made.

    Raises:
        TargetError: the program is not for Shardy, or not on one mesh, or there is no such
            hardware.
    """

    def __init__(self, program: Staged, on: Hardware | str | None = None) -> None:
        from sdyscope.stages.compiled.compiler import partitions

        self.program = program
        self.lowered: LoweredModule = program.for_shardy()
        self.graph: OpGraph = program.graph("shardy")
        mesh = program.only_mesh("shardy")
        if mesh is None or not any(known == mesh for known in self.graph.meshes.values()):
            raise TargetError(
                f"{program.name} is not on one mesh whose axes could be placed.",
                hint="Give at least one argument a NamedSharding on the mesh.",
            )
        self.mesh: Mesh = mesh
        self.devices = partitions(self.lowered, self.graph)
        self.hardware, _ = program.hardware_for("shardy", on)
        self.notes: dict[Remark | str, None] = {}
        self._as_it_is: CompiledCandidate | None = None
        self._try_edits: TryEdits | None = None
        self._edits: dict[Staged, Edits] = {}

    @cached_property
    def _predictor(self) -> Predictor:
        from sdyscope.analysis.collectives.predicted import Predictor

        return Predictor(self.lowered, self.graph)

    # --- edits ------------------------------------------------------------------------------------

    def changes(
        self, written: Sequence[Written], program: Staged | None = None
    ) -> list[ShardingEdit]:
        """Other shardings of arguments, results and constraints, as edits of a module.

        Args:
            written: what they are to say.
            program: whose module; by default this program's.

        Raises:
            TargetError: the module has no such constraint.
        """
        program = program or self.program
        if program not in self._edits:
            self._edits[program] = Edits(program.name, program.annotations("shardy"), self.mesh)
        return list(map(self._edits[program].of, written))

    # --- what they come to ------------------------------------------------------------------------

    def predict(self, edits: Sequence[ModuleEdit] = (), *, on_cpu: bool = False) -> Prediction:
        """What the program would send, compute and hold, by Shardy's own passes.

        Args:
            edits: what to write.
            on_cpu: whether as CPUs do it; see ``Predictor.predict``.

        Raises:
            CompilerError: a pass of Shardy failed.
            TargetError: an edit that the module can't carry.
        """
        prediction = self._predictor.predict(edits, on_cpu=on_cpu)
        if not edits:
            self.notes.update(dict.fromkeys(prediction.collectives.notes))
        return figures(prediction)

    def tried(self, edits: Sequence[ModuleEdit], *, on_cpu: bool = False) -> Prediction:
        """As ``predict``, in a child process, so that a crash of Shardy is an error of one trial.

        Raises:
            CompilerError: a pass of Shardy failed, or crashed.
            TargetError: an edit that the module can't carry.
        """
        from sdyscope.analysis.trials.try_edits import TryEdits

        if self._try_edits is None:
            self._try_edits = TryEdits(self.lowered, self.graph)
        return self._try_edits.predict(edits, on_cpu=on_cpu)

    @property
    def crashes(self) -> tuple[Remark, ...]:
        """What is to be said of trials that crashed Shardy."""
        trials = self._try_edits
        if trials is None or not trials.crashed:
            return ()
        return (Remark("crashed", trials.crash, count=trials.crashed),)

    def partition(
        self, edits: Sequence[ModuleEdit] = (), *, on_cpu: bool = False
    ) -> tuple[Traffic, ...]:
        """What XLA's partitioner makes the program send.

        Args:
            edits: what to write.
            on_cpu: whether as CPUs do it, which have no reduce-scatter and send bf16 as f32.

        Raises:
            CompilerError: XLA refuses it.
        """
        from sdyscope.analysis.collectives.on_cpu import collectives_on_cpu
        from sdyscope.analysis.collectives.read import collectives
        from sdyscope.stages.compiled.spmd import spmd
        from sdyscope.stages.propagated.annotate import annotate

        changed = annotate(self.lowered, self.graph, edits)
        module = read_hlo(spmd(changed, build(changed.module)).hlo)
        sent = collectives(module, (self.mesh,))
        return traffic(collectives_on_cpu(sent) if on_cpu else reduce_scatters(sent, module))

    def compile(self, written: Sequence[Written] = ()) -> CompiledCandidate:
        """What the compiler makes of the program with some tensors sharded otherwise.

        Raises:
            CompilerError: the compiler refuses it.
            TargetError: there is no such hardware, or its compiler is not installed.
        """
        from sdyscope.analysis.collectives.slices import collectives_of
        from sdyscope.stages.compiled.compiler import compile_module
        from sdyscope.stages.propagated.annotate import annotate

        if not written and self._as_it_is is not None:
            return self._as_it_is
        there = self.program.lowered_for(self.hardware.platform, "shardy")
        changed = annotate(
            there.lowered["shardy"], there.graph("shardy"), self.changes(written, there)
        )
        compiled = compile_module(changed, self.hardware, partitioner="shardy")
        collectives = collectives_of(compiled, compiled.module, (self.mesh,))
        memory = compiled.memory
        measured = Prediction(
            traffic(collectives),
            0 if memory is None else memory.arguments,
            0 if memory is None else memory.outputs,
            0 if memory is None else memory.aliases,
        )
        figures = CompiledCandidate(
            measured,
            None if memory is None else memory.temporaries,
            None if memory is None else memory.total,
            compiled.compile_seconds,
            str(compiled.hardware),
            compiled.hardware is not None and compiled.hardware.platform != "cpu",
        )
        if not written:
            self._as_it_is = figures
        return figures


def figures(prediction: PredictedCollectives) -> Prediction:
    """What a search needs of a prediction."""
    return Prediction(
        traffic(prediction.collectives),
        prediction.argument_bytes,
        prediction.result_bytes,
        flops=float(prediction.flops),
    )


class Edits:
    """What is to be written, as edits of a program's module, each made once.

    Args:
        name: the program's.
        annotations: what is written in the module now.
        mesh: the mesh of the specs.
    """

    def __init__(self, name: str, annotations: Iterable[Annotation], mesh: Mesh) -> None:
        self._name, self._mesh = name, mesh
        self._known: dict[Written, ShardingEdit] = {}
        self._there: dict[tuple[str, int | None], Annotation] = {
            (each.kind, each.ordinal if each.kind == "constraint" else each.index): each
            for each in annotations
            if each.kind in ("argument", "result", "constraint")
        }

    def of(self, written: Written) -> ShardingEdit:
        """The edit.

        Raises:
            TargetError: the module has no such constraint.
        """
        from sdyscope.stages.propagated.annotate import ShardingEdit

        edit = self._known.get(written)
        if edit is None:
            kind, number, spec = written
            there = self._there.get((kind, number))
            if there is None:
                raise TargetError(f"{self._name} is lowered without one of the {kind}s.")
            edit = self._known[written] = ShardingEdit(there, NamedSharding(self._mesh, spec))
        return edit
