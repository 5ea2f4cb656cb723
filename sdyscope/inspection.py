"""Inspection: everything that there is to know about one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdyscope.analysis.account import account_of
from sdyscope.errors import CompilerError
from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner, Program
from sdyscope.formatters import Displayed
from sdyscope.hardware.names import Hardware
from sdyscope.staged import PARTITIONERS, Staged
from sdyscope.stages.propagated import what_if as wishing
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.sharding import PartitionSpec

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.predicted import PredictedCollectives
    from sdyscope.analysis.collectives.read import Collectives
    from sdyscope.analysis.cost.cost import Cost
    from sdyscope.analysis.fix.effort import Effort
    from sdyscope.analysis.fix.values import Fix
    from sdyscope.analysis.memory.memory import Memory
    from sdyscope.analysis.memory.predicted import PredictedMemory
    from sdyscope.analysis.propagation.explain import Explainer, Explanation
    from sdyscope.analysis.run.values import Run
    from sdyscope.analysis.search.space import Setting
    from sdyscope.analysis.search.strategy import Budget
    from sdyscope.analysis.search.values import Search
    from sdyscope.analysis.trials.cost import Rates
    from sdyscope.analysis.verify.audited import VerifyDocument
    from sdyscope.facts.calibration import Calibration
    from sdyscope.facts.differences import CompiledDiff, LoweredDiff, PropagatedDiff
    from sdyscope.facts.over_time import MemoryOverTime
    from sdyscope.facts.zero import TrainingState
    from sdyscope.lint import LogicalAxes
    from sdyscope.lint.source import SourceDocument
    from sdyscope.snapshots import Snapshot, Stage
    from sdyscope.stages.executed.processes import ProcessGroup
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.values.mesh import Mesh
    from sdyscope.words.findings import Check, Finding


class Inspection(Staged, Displayed):
    """Everything known about one program, or one module or compiled program read from a file.

    Args:
        source: the program, or a module or compiled program that was read from a file.
        partitioners: which to lower under; of a file, the one that its shardings are for.

    The stages import jax when they are first asked for, not before.
    """

    @property
    def account(self) -> Account:
        """What is not known of the program, at the stages that were asked for so far."""
        return account_of(self)

    def check(self) -> Check:
        """Requested against lowered, and the partitioners against each other; errors first."""
        from sdyscope.lint.check import check

        return check(self)

    def lint(
        self,
        *,
        select: Iterable[str] = (),
        ignore: Iterable[str] = (),
        compiled: bool = True,
        on: Hardware | str | None = None,
        logical: LogicalAxes | None = None,
    ) -> tuple[Finding, ...]:
        """What is wrong or worth a look, by the rules of docs/lint.md; errors first.

        Args:
            select: globs of the rules to run; by default all.
            ignore: globs of rules to leave out.
            compiled: whether the program may be compiled, which some rules need.
            on: what to compile for, as ``compiled`` takes it.
            logical: the logical axes of the program's tensors, for the rules about these.

        Raises:
            CompilerError: the program can't be lowered at all.
            TargetError: a glob matches no rule, or there is no such hardware.
        """
        from sdyscope.lint import linted

        return linted(
            self, select=select, ignore=ignore, compiled=compiled, on=on, logical=logical
        ).findings

    def source_lines(
        self,
        on: Hardware | str | None = None,
        *,
        compiled: bool = True,
        context: int = 1,
    ) -> SourceDocument:
        """What each line of the author's files does: shardings, collectives, findings.

        Args:
            on: what to compile for, as ``compiled`` takes it.
            compiled: whether the program may be compiled, without which no collectives are known.
            context: how many lines of text to add above and below each line.

        Raises:
            CompilerError: the program can't be lowered under any partitioner.
            TargetError: there is no such hardware.
        """
        from sdyscope.lint import linted
        from sdyscope.lint.source import source_document

        return source_document(
            self,
            linted(self, compiled=compiled, on=on),
            on,
            compiled=compiled,
            context=context,
        )

    def diff(self, other: Inspection | None = None) -> LoweredDiff:
        """This program under its two partitioners, or this one and another, as they are lowered.

        Two programs are compared under the first partitioner that both have.

        Raises:
            CompilerError: one of the modules can't be made.
            TargetError: there is only one module and nothing to compare it with.
        """
        from sdyscope.analysis.diff.sides import lowered_between

        return lowered_between(self, other)

    def memory(
        self, partitioner: Partitioner | None = None, on: Hardware | str | None = None
    ) -> Memory:
        """Bytes a device: by argument group, shared by donation, and held more than once.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, as ``compiled`` takes it.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: it can't be compiled for that hardware.
        """
        from sdyscope.analysis.memory.memory import memory_of

        return memory_of(self, partitioner, on)

    def memory_over_time(
        self, partitioner: Partitioner | None = None, on: Hardware | str | None = None
    ) -> MemoryOverTime:
        """What a device holds from the first instruction to the last, and at the peak.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, as ``compiled`` takes it.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            SdyscopeError: the text of a compiled program is not scheduled.
            TargetError: it can't be compiled for that hardware.
        """
        from sdyscope.analysis.memory.over_time import over_time_of

        return over_time_of(self, self.memory(partitioner, on))

    def predicted_memory(self, partitioner: Partitioner | None = None) -> PredictedMemory:
        """Bytes a device of arguments and results, where propagation puts them.

        Nothing is compiled, so it is for any mesh; the padding of tiles and what is computed in
        between are not known. Shardy's propagation needs no compiler; GSPMD's is XLA's.

        Args:
            partitioner: whose propagation; by default the first that the program is lowered under.

        Raises:
            CompilerError: the module can't be propagated.
        """
        from sdyscope.analysis.memory.predicted import predicted_memory

        return predicted_memory(self, partitioner)

    def training_state(self, axes: Sequence[str] = ()) -> TrainingState:
        """What a train step keeps of its parameters, and would hold and send by each ZeRO stage.

        The stages are tried on the program: its parameters, its optimizer's state and the results
        that are their next values are sharded so, and XLA's partitioner says what is sent; on more
        than 2,048 devices Shardy's reshards do.

        Args:
            axes: the mesh axes that the stages shard over; by default those that the batch is on.

        Raises:
            CompilerError: the program can't be propagated.
            TargetError: it is no train step, or has no mesh or no such axis.
        """
        from sdyscope.analysis.search.zero import training_state

        return training_state(self, axes)

    def collectives(
        self,
        partitioner: Partitioner | None = None,
        on: Hardware | str | None = None,
        *,
        origins: bool = True,
    ) -> Collectives:
        """Every collective that a step executes, and why it is there.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, as ``compiled`` takes it.
            origins: whether to look for origins, which takes a propagation. Where there is none,
                ``origins_missing`` says why.

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: it can't be compiled for that hardware.
        """
        from sdyscope.analysis.collectives.comms import collectives_under

        return collectives_under(self, partitioner, on, origins=origins)

    def cost(
        self,
        partitioner: Partitioner | None = None,
        on: Hardware | str | None = None,
        *,
        bandwidths: Mapping[str, str | float] | None = None,
        latencies: Mapping[str, str | float] | None = None,
        calibration: Calibration | None = None,
    ) -> Cost:
        """What a step costs at least: an estimate from models of the hardware, no measurement.

        Args:
            partitioner: under which; by default the first that the program is lowered under.
            on: what to compile for, as ``compiled`` takes it.
            bandwidths: what a device sends over a mesh axis, such as ``90GB/s`` or bytes a second,
                by axis; by default what the table of hardware has.
            latencies: what a hop over an axis takes, such as ``1us`` or seconds, likewise.
            calibration: rates that were fitted to traces, where none are given
                (``sdyscope.analysis.cost.calibrate``).

        Raises:
            CompilerError: the compiler refuses the program or aborts on it.
            TargetError: it can't be compiled for that hardware, or there is no such axis or no such
                bandwidth.
        """
        from sdyscope.analysis.cost.cost import cost_of
        from sdyscope.analysis.cost.schedule import with_step

        return with_step(cost_of(self, partitioner, on, bandwidths, latencies, calibration))

    def predicted_collectives(
        self, partitioner: Partitioner = "shardy", *, on_cpu: bool = False
    ) -> PredictedCollectives:
        """Its collectives as Shardy's reshards predict them: not compiled, for any mesh.

        Args:
            partitioner: Shardy; GSPMD's collectives are only known when it has compiled.
            on_cpu: whether as CPUs do it, or as TPUs and GPUs do (``Predictor.predict``).

        Raises:
            CompilerError: the module has no shardings that Shardy propagates, or it refuses it.
        """
        from sdyscope.analysis.collectives.comms import predicted_collectives

        return predicted_collectives(self, partitioner, on_cpu=on_cpu)

    def explainer(
        self, partitioner: Partitioner | None = None, *, conservative: bool = False
    ) -> Explainer:
        """Explains values of a propagation; made once for all values.

        Raises:
            CompilerError: there is no such propagation.
        """
        from sdyscope.analysis.propagation.explain import Explainer

        return Explainer.of(self, partitioner, conservative=conservative)

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
        from sdyscope.analysis.naming.resolve import resolve_value

        chosen = self.chosen(partitioner)
        named = resolve_value(self.graph(chosen), value, self.tensors)
        explainer = self.explainer(chosen, conservative=conservative)
        return tuple(explainer.explain(value) for value in named)

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
        from sdyscope.analysis.diff.sides import propagated_between

        return propagated_between(self, other, partitioner)

    def compiled_diff(
        self,
        other: Inspection | None = None,
        partitioner: Partitioner | None = None,
        *,
        on: Hardware | str | None = None,
        other_on: Hardware | str | None = None,
    ) -> CompiledDiff:
        """What a device sends and holds under the two partitioners, in two programs, on hardware.

        Args:
            other: the other program.
            partitioner: under which two programs, or two kinds of hardware, are compared; by
                default the first that there is.
            on: what to compile for, as ``compiled`` takes it.
            other_on: what to compile the other side for; by default the same. With it and without
                another program, this one is compared on the two kinds of hardware.

        Raises:
            CompilerError: the compiler refuses one side or aborts on it.
            TargetError: there is nothing to compare with, or no such hardware.
        """
        from sdyscope.analysis.diff.sides import compiled_between

        return compiled_between(self, other, partitioner, on, other_on, of_both=True)

    def snapshot(
        self,
        stages: Sequence[Stage] | None = None,
        on: Hardware | str | None = None,
        *,
        partial: bool | None = None,
    ) -> Snapshot:
        """What the shardings are, as text that can be reviewed and compared; docs/snapshot.md.

        A partitioner that the program can't be lowered under is left out, as long as another is
        there; the snapshot's ``account`` says so.

        Args:
            stages: which stages to look at; by default all but ``compiled``, for which the
                program is compiled.
            on: what to compile for, as ``compiled`` takes it.
            partial: whether a stage that a compiler refuses is left out, too, as long as another is
                there; by default where no stages are named.

        Raises:
            CompilerError: the program can't be lowered, or a compiler refuses a stage that is not
                left out.
            TargetError: what was requested is asked of a file, or there is no such hardware.
        """
        from sdyscope.snapshots import take

        return take(self, stages, on=on, partial=partial)

    def verify(self, causes: int = 4) -> VerifyDocument:
        """Audits what is shown of the program against what XLA's dumps say, read by other means.

        The program is compiled once more under each partitioner, plainly, for CPU devices.

        Args:
            causes: of how many sets of annotations to try whether the collectives that they
                explain go without them, of the largest collectives first; 0 for none.

        Raises:
            CompilerError: the program can't be lowered under any partitioner.
            TargetError: it is a compiled program.
        """
        from sdyscope.analysis.verify.verify import verify

        return verify(self, causes)

    def what_if(
        self,
        shardings: Mapping[str, PartitionSpec | str | None] | None = None,
        priorities: Mapping[tuple[str, int], int] | None = None,
    ) -> Inspection:
        """The same program with other annotations. It is not traced or lowered again.

        Args:
            shardings: by the name of an argument, result or constraint what to write there; None
                to write nothing, so that the compiler decides.
            priorities: by name and dimension Shardy's priority, 0 being propagated first.

        Raises:
            TargetError: a tensor is not there, or can't carry what is wished.
            SyntaxTextError: a text is no PartitionSpec.
        """
        wishes = [
            wishing.Wish(
                name,
                parse_partition_spec(spec) if isinstance(spec, str) else spec,
                unspecified=spec is None,
            )
            for name, spec in (shardings or {}).items()
        ]
        wishes += [
            wishing.Wish(name, None, ((dimension, priority),))
            for (name, dimension), priority in (priorities or {}).items()
        ]
        return self.with_wishes(wishes)

    def search(
        self,
        arguments: Sequence[str] = (),
        axes: Sequence[str] | None = None,
        *,
        max_memory: int | None = None,
        rates: Rates | None = None,
        budget: Budget | None = None,
        seed: int = 0,
        tied: bool = True,
        constraints: bool | None = None,
        on: Hardware | str | None = None,
        checks: int = 24,
        compiles: int = 3,
        notify: Callable[[str, float], None] | None = None,
    ) -> Search:
        """Tries other shardings of arguments and constraints, and finds those that cost less.

        Candidates are predicted with Shardy's own passes; the best are partitioned by XLA, and the
        best of those is compiled.

        Args:
            arguments: globs of the arguments' paths. Without any, those whose next value the
                program returns, such as a train step's parameters.
            axes: the mesh axes to place; by default all.
            max_memory: bytes of arguments and results that a device may hold.
            rates: how bytes and FLOPs are weighed against each other.
            budget: how many candidates to predict, or for how many seconds, before the best are
                partitioned; by default 300. More are predicted near those that were partitioned.
            seed: of the random numbers. With it, a search is the same each time.
            tied: whether the same tensor of every layer is sharded alike.
            constraints: whether to try others in place of the constraints inside, or none; by
                default where no arguments are named.
            on: what to compile for, as ``compiled`` takes it.
            checks: how many candidates to have partitioned by XLA, the program itself included.
            compiles: how many candidates to compile at most, until one is confirmed; 0 for none.
            notify: told what is being done, and how much of it is done, from 0 to 1.

        Raises:
            CompilerError: the program itself can't be propagated.
            TargetError: no argument has such a path, the mesh has no such axis, or there is nothing
                to search; or there is no such hardware.
        """
        from sdyscope.analysis.search.searched import searched
        from sdyscope.analysis.search.strategy import Budget
        from sdyscope.analysis.trials.cost import Rates

        return searched(
            self,
            arguments,
            axes,
            limit=max_memory,
            rates=rates or Rates(),
            budget=budget or Budget(),
            seed=seed,
            tied=tied,
            constraints=constraints,
            on=on,
            checks=checks,
            compiles=compiles,
            notify=notify,
        )

    def fix(
        self,
        rebuild: Callable[[], Program],
        finding: str = "",
        *,
        on: Hardware | str | None = None,
        effort: Effort | None = None,
        plan: Sequence[Setting] = (),
        devices: Sequence[Any] | None = None,
        root: str = "",
        alone: Callable[[], Program] | None = None,
        notify: Callable[[str, float], None] | None = None,
    ) -> Fix:
        """Edits of the program's source that send less or hold less, tried, priced and proven.

        Args:
            rebuild: builds the program from the files that Python then imports: a function that
                imports the program's module, and calls it.
            finding: what to fix: a rule of lint, a collective's name or kind, a tensor's path, a
                line, ``mesh``, or ``first-difference``: where the partitioners begin to differ; by
                default anything but other sizes of the mesh's axes.
            on: what to compile for, as ``compiled`` takes it.
            effort: how much to try.
            plan: how to shard some arguments and results: the edits that do so are the only ones
                that are tried. ``Search.plan`` is such a plan.
            devices: what to run the program and the edited one on, to compare their numbers; by
                default what JAX finds.
            root: the folder that the patch's paths are relative to; by default the working
                directory.
            alone: as ``rebuild``, on a mesh of one device: what wrong numbers are compared with.
            notify: told what is being done, and how much of it is done, from 0 to 1.

        Raises:
            CompilerError: the program itself can't be compiled.
            TargetError: it is no program that can be built anew, it is not on one mesh, or there is
                no such finding or hardware.
        """
        from sdyscope.analysis.diff.sides import FIRST_DIFFERENCE
        from sdyscope.analysis.fix.effort import Effort
        from sdyscope.analysis.fix.fix import fixed
        from sdyscope.analysis.fix.focus import focus_on_difference
        from sdyscope.lint import focus_of_rule

        is_difference = finding == FIRST_DIFFERENCE and self.program is not None
        focus = (
            focus_on_difference(Staged(self.source))
            if is_difference
            else focus_of_rule(self, finding, on=on)
        )
        return fixed(
            self,
            rebuild,
            focus=finding if focus is None else focus,
            on=on,
            effort=effort or Effort(),
            plan=plan,
            devices=devices,
            root=root,
            alone=alone,
            notify=notify,
        )

    def run(
        self,
        *,
        steps: int = 10,
        devices: Sequence[Any] | None = None,
        notify: Callable[[str, int, int], None] | None = None,
        group: ProcessGroup | None = None,
        on_mesh: Callable[[Mapping[str, int]], Program] | None = None,
        meshes: Sequence[Mapping[str, int]] = (),
        reference: Callable[..., Any] | None = None,
        profile: bool = False,
        train: bool = False,
    ) -> Run:
        """Runs the program on real devices under each partitioner, and compares its results.

        Where several processes run it together, each calls this and is returned the same: what all
        of them found.

        Args:
            steps: how many steps to time after the warm-up.
            devices: what to run on, in the order of the mesh; by default what JAX finds. A program
                on a mesh of real devices runs on those.
            notify: told what is being done, how many of its steps are done, and of how many.
            group: the processes that run it together, from ``stages.executed.processes.join``; by
                default this one alone.
            on_mesh: makes the same program on a mesh of these axis sizes, with arguments of the
                same shapes. A program with a ``shard_map`` is compared with itself on a mesh of one
                device: the maps' bodies would else be compared with themselves.
            meshes: axis sizes of further meshes to run the program on, with the same values; a mesh
                of one device is always among them.
            reference: what computes the results that the program should have: called with its
                arguments, whole and on one device, and compared with instead of the program's own
                jaxpr without shardings.
            profile: whether to run some more steps under JAX's profiler, and say what each op took.
            train: also run as many steps in a row, each on what the one before returned, on the
                devices and on one, and compare the loss step by step.

        Raises:
            CompilerError: the program can't be lowered under any of the partitioners, or another
                process is gone.
            TargetError: there are too few devices, or this is a module that was read from a file,
                or processes do not have the same program and inputs; or the reference fails, or its
                results have another structure, shape or dtype; or there are meshes and no
                ``on_mesh``; or there is nothing to train, or training in several processes.
        """
        from sdyscope.analysis.run.run import ran

        return ran(
            self,
            steps=steps,
            devices=devices,
            notify=notify,
            group=group,
            on_mesh=on_mesh,
            meshes=meshes,
            reference=reference,
            profile=profile,
            train=train,
        )


def inspect(
    fun: Any,
    *args: Any,
    partitioners: Sequence[Partitioner] = PARTITIONERS,
    name: str | None = None,
    **kwargs: Any,
) -> Inspection:
    """Looks at a jitted function with these arguments. Nothing is run or compiled.

    It is traced at once, within the mesh and all else that is set where this is called.

    Args:
        fun: the result of ``jax.jit``, a ``jax.stages.Traced``, or a ``Program``.
        args: arrays or ``jax.ShapeDtypeStruct``s, with shardings; static arguments as they are.
        partitioners: which to lower under.
        name: what to call it; by default the function's name.
        kwargs: keyword arguments of ``fun``.

    Raises:
        TargetError: ``fun`` is nothing that can be lowered.
        CompilerError: tracing it raised.
    """
    if isinstance(fun, Program):
        inspection = Inspection(fun, partitioners)
    else:
        called = name or getattr(fun, "__name__", None) or getattr(fun, "fun_name", "program")
        inspection = Inspection(Program(str(called), fun, args, kwargs), partitioners)
    # Not later: a `with jax.set_mesh(...)`, or a library's rules, may have ended by then, and many
    # a library leaves its constraints out where there is none.
    _ = inspection.traced
    return inspection


def of_modules(
    modules: Mapping[Partitioner, LoweredModule],
    failures: Mapping[Partitioner, CompilerError],
    mesh: Mesh | None = None,
) -> Inspection:
    """Looks at one program that was lowered before, under one partitioner or several.

    Args:
        modules: its module under each partitioner; at least one.
        failures: why there is none under another.
        mesh: the mesh that its shardings are on, where no module names it, as under GSPMD.
    """
    inspection = Inspection(next(iter(modules.values())), (*modules, *failures))
    inspection.partitioners = (*modules, *failures)
    inspection._lowered = dict(modules), dict(failures)
    if mesh is not None:
        inspection._meshes_beside = {"mesh": mesh}
    return inspection


def read(path: str | Path, *, trusted: bool = False) -> Inspection:
    """Looks at what a file holds: StableHLO or HLO, text or bytecode, or a compiled program.

    Args:
        path: the file.
        trusted: read it in this process at once. Otherwise it is read in a child process first,
            because damaged bytecode can abort the compiler, and with it the whole process.

    Raises:
        SdyscopeError: the file can't be read as a module; says where and why.
    """
    from sdyscope.stages.compiled.text import read_compiled
    from sdyscope.stages.lowered import read as reading

    if (compiled := read_compiled(Path(path))) is not None:
        return Inspection(compiled)
    if not trusted:
        reading.probe(path)
    return Inspection(reading.read(Path(path)))
