"""The program on real devices: its shards, its results, its time and its memory.

The very module that was lowered is compiled for the devices that are there, so an abstract mesh
needs no rebuilding: its positions become the devices in order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

import jax
import numpy as np

from sdyscope.errors import CompilerError, SdyscopeError, TargetError, first_line
from sdyscope.facts.execution import Execution, InputSource, Machine, Process, Reference
from sdyscope.facts.program import Partitioner, Program
from sdyscope.stages import compat
from sdyscope.stages.executed import one_device
from sdyscope.stages.executed.call import Call
from sdyscope.stages.executed.device_arrays import (
    array_held,
    device_memory,
    digest,
    fetched,
    on_host,
    peak_bytes,
)
from sdyscope.stages.executed.devices import find_devices, too_few
from sdyscope.stages.executed.processes import ALONE, NotTogether, ProcessGroup
from sdyscope.stages.executed.reference_function import called, function_name
from sdyscope.stages.executed.replicas import firsts_results, unequal_replicas
from sdyscope.stages.lowered import inputs
from sdyscope.stages.lowered.lower import LoweredModule, NotLowerable, lower, trace
from sdyscope.stages.stderr import captured_stderr
from sdyscope.values.source import authors_line
from sdyscope.words.partitioners import partitioner_name

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many of its steps are done, and how many there are."""

_Result = TypeVar("_Result")

#: Of a custom_partitioning's callbacks, in a module's text.
_ADDRESS = re.compile(r"\d{12,}")

#: Steps before the clock is started.
WARM_UPS = 2

#: How many steps a trace has at most.
TRACED = 5

#: Seconds that a process in which a step failed waits for the others to fail as well: one that
#: runs on waits for this one, and never comes.
FAILING_TOGETHER = 10.0


def _silent(what: str, done: int, total: int) -> None:
    pass


class Runner:
    """One program on one set of devices, under any partitioner and on a single device.

    Args:
        program: what to run.
        traced: its `jax.stages.Traced`; None to trace it here.
        modules: the modules that were lowered already; those for another platform are not used.
        devices: what to run on, in the order of the mesh's positions; None to find some. A program
            on a mesh of real devices runs on those.
        steps: how many steps to time.
        notify: told what is going on.
        group: the processes that run it, each with a `Runner` of its own; by default this one
            alone.
        alone: makes the same program on a mesh of one device; None where there is none.
        function: what computes the results that the program should have, to compare with; None to
            compare with the program's own jaxpr.
        values: flat values for the arguments; None to ask the program, or to make some.
        under: under which partitioners it is to run, where no modules are given.
        traces: folder for a profiler's trace under each partitioner; None to make none.

    Raises:
        CompilerError: the program can't be traced.
        TargetError: there are too few devices, or the program's inputs do not fit, or are not the
            same in every process.
    """

    def __init__(
        self,
        program: Program,
        traced: Any = None,
        modules: Mapping[Partitioner, LoweredModule] | None = None,
        devices: Sequence[Any] | None = None,
        steps: int = 10,
        notify: Notify | None = None,
        group: ProcessGroup = ALONE,
        alone: Callable[[], Program] | None = None,
        function: Callable[..., Any] | None = None,
        values: Sequence[Any] | None = None,
        traces: Path | None = None,
        under: Sequence[Partitioner] = (),
    ) -> None:
        self.traces = traces
        self.program, self.group = program, group
        self._alone, self._function = alone, function
        self._traced_alone: Any = None
        self._unsharded: dict[int, Callable[..., Sequence[Any]]] = {}
        self._given_devices = devices
        self.traced = trace(program) if traced is None else traced
        self.steps = steps
        self.notify = notify or _silent
        self._modules = dict(modules or {})
        #: Those asked for come first: what these refuse is said.
        self._under = (*dict.fromkeys((*(under or self._modules), *get_args(Partitioner))),)
        self._executables: dict[Partitioner, tuple[Any, float]] = {}
        #: Whether XLA simplifies the algebra of what is compiled for one device. Its simplifier has
        #: bugs: with it the blocks of a shard_map, one behind the other, can be something else.
        self.simplifies = True
        own, needed = self._own_devices()
        if own is None:
            available = tuple(find_devices(needed) if devices is None else devices)
            if len(available) < needed:
                raise too_few(needed, [available])
            own = available[:needed]
        self.devices: tuple[Any, ...] = own
        #: Those of this process.
        self.local = [device for device in own if device.process_index == group.number]
        without = [member.number for member in self._members() if not member.devices]
        if group.count > 1 and without:
            some = "1 device" if len(own) == 1 else f"{len(own):,} devices"
            raise TargetError(
                f"The program is for {some}, and process {without[0]} of {group.count} has none.",
                hint="Let it run on more devices, or in fewer --processes.",
            )
        if values is None:
            self.notify("making the inputs", 0, 1)
            self.values, self.inputs = inputs.concrete_arguments(program, self.traced)
        else:
            self.values, self.inputs = list(values), InputSource("arguments")

    def _members(self) -> list[Process]:
        """The processes, with their devices."""
        return [
            replace(
                member,
                devices=tuple(
                    position
                    for position, device in enumerate(self.devices)
                    if device.process_index == member.number
                ),
            )
            for member in self.group.members
        ]

    def check_same(self) -> None:
        """Checks that every process has the same program and the same inputs.

        Raises:
            TargetError: they have not.
        """
        if self.group.count == 1:
            return
        programs = {
            partitioner: digest(_ADDRESS.sub("", module.text(debug_info=False)))
            for partitioner, module in self._modules.items()
        }
        gathered = self.group.all_of(
            (programs, [*map(digest, self.values)]),
            "made its inputs",
            tuple[dict[Partitioner, str], list[str]],
        )
        for number, (lowered, values) in enumerate(gathered):
            if lowered != gathered[0][0]:
                self.group.agreed = True
                raise TargetError(
                    f"{self.group.words(number)} has lowered a different program than process 0.",
                    hint="JAX requires them to be identical: look for what depends on "
                    "jax.process_index(), the host, the time, or the order of a set, which "
                    "PYTHONHASHSEED=0 fixes.",
                )
            other = [k for k, value in enumerate(values) if value != gathered[0][1][k]]
            if other:
                self.group.agreed = True
                name = compat.arguments(self.traced)[other[0]].name
                raise TargetError(
                    f"The argument {name} is not the same in "
                    f"{self.group.words(number)} and in process 0.",
                    hint="Every process makes all values, and JAX requires them to be "
                    "identical: draw random ones from a fixed seed.",
                )

    def _own_devices(self) -> tuple[tuple[Any, ...] | None, int]:
        """The devices that the program itself names, None on an abstract mesh; and how many."""
        module = next(iter(self._modules.values()), None) or self._any_module()
        return compat.lowering_devices(module.lowered), module.num_devices

    def _any_module(self) -> LoweredModule:
        """What it lowers to; for a CPU, which needs no devices, where it has all that it needs."""
        devices = self._given_devices or jax.devices()
        platforms = dict.fromkeys(("cpu", compat.lowering_platform(devices[0])))
        refused: CompilerError | None = None
        for platform in platforms:
            for partitioner in self._under:
                try:
                    return lower(self.traced, partitioner, (platform,))
                except CompilerError as error:
                    refused = refused or error
        assert refused is not None
        raise refused

    @property
    def machine(self) -> Machine:
        """What it runs on."""
        first = self.devices[0]
        return Machine(
            first.platform,
            first.device_kind,
            tuple(map(str, self.devices)),
            len(jax.devices(first.platform)),
            first.platform == "cpu" and len(self.devices) > 1,
            tuple(self._members()) if self.group.count > 1 else (),
        )

    # --- sharded ----------------------------------------------------------------------------------

    def run(self, partitioner: Partitioner) -> Execution:
        """Runs the program under a partitioner. What goes wrong is part of the result.

        Raises:
            CompilerError: the step failed in this process and not in the others, or another process
                is gone.
        """
        if partitioner in self.group.crashed:
            return Execution(partitioner, failure=self.group.crashed[partitioner])
        self.group.under(partitioner)
        execution = self._run(partitioner)
        self.group.under(None)
        return execution

    def _run(self, partitioner: Partitioner) -> Execution:
        self.notify(f"compiling for {partitioner_name(partitioner)}", 0, 1)
        compiled, failure = _tried(partitioner, lambda: self._compiled(partitioner))
        failure = self._of_any(failure, "compiled it")
        if failure is not None or compiled is None:
            return failure or Execution(partitioner)
        executable, seconds = compiled
        # Together before anything else is said: who fails here has nothing to say of the rest.
        first, failure = _tried(partitioner, lambda: self._first(partitioner, executable))
        failure = self._of_any(failure, "run it")
        if failure is not None or first is None:
            return failure or Execution(partitioner)
        execution, failure = _tried(
            partitioner, lambda: self._measured(partitioner, seconds, *first)
        )
        return self._of_any(failure, "timed it") or execution or Execution(partitioner)

    def _of_any(self, failure: Execution | None, what: str) -> Execution | None:
        """The failure that any process met: the first one's."""
        if self.group.count == 1:
            return failure
        try:
            # Only running is done together: the others may have failed with this one, or wait.
            seconds = FAILING_TOGETHER if failure and what != "compiled it" else None
            said = self.group.all_of(
                failure and (failure.partitioner, failure.failure, failure.hint, failure.refused),
                what,
                tuple[Partitioner, str, str, bool] | None,
                seconds,
            )
            failures = [None if fields is None else Execution(*fields) for fields in said]
        except NotTogether as error:
            if failure is None:
                raise
            raise CompilerError(
                f"It does not run under {partitioner_name(failure.partitioner)} in "
                f"{self.group.words(self.group.number)}: {failure.failure}",
                hint=failure.hint,
            ) from error
        number, met = next(
            ((k, failure) for k, failure in enumerate(failures) if failure), (0, None)
        )
        if met is None or all(failure and failure.failure == met.failure for failure in failures):
            return met
        return replace(met, failure=f"{self.group.words(number)}: {met.failure}")

    def call(self, partitioner: Partitioner) -> Call:
        """The program compiled for its devices, with its arguments on them.

        Raises:
            Exception: whatever compiling it raises.
        """
        return self._call(self._compiled(partitioner)[0])

    def _call(self, compiled: Any) -> Call:
        return Call(compiled, self.traced, self.values, self.devices, self.local[0])

    def _first(self, partitioner: Partitioner, compiled: Any) -> tuple[Call, list[Any], int | None]:
        """Puts the arguments and runs the first step; and the peak of memory before."""
        self.notify(f"placing the arguments for {partitioner_name(partitioner)}", 0, 1)
        call = self._call(compiled)
        used_before = peak_bytes(self.local)
        self.notify(f"warming up {partitioner_name(partitioner)}", 0, WARM_UPS)
        return call, call(), used_before

    def _measured(
        self,
        partitioner: Partitioner,
        seconds: float,
        call: Call,
        results: list[Any],
        used_before: int | None,
    ) -> Execution:
        unequal = unequal_replicas(results, self.devices, self.group)
        arrays = (
            *call.arguments(),
            *(
                array_held("result", k, result, self.devices, unequal[k])
                for k, result in enumerate(results)
            ),
        )
        names = [result.name for result in compat.results(self.traced)]
        outputs, notes = fetched(results, names, self.devices)
        results.clear()
        for done in range(1, WARM_UPS):
            self.notify(f"warming up {partitioner_name(partitioner)}", done, WARM_UPS)
            call()
        times = []
        for done in range(self.steps):
            self.notify(f"running under {partitioner_name(partitioner)}", done, self.steps)
            times.append(call.seconds())
        self.notify(f"running under {partitioner_name(partitioner)}", self.steps, self.steps)
        if self.traces is not None:
            self._traced(partitioner, call, self.traces / partitioner)
        return Execution(
            partitioner,
            arrays=arrays,
            outputs=tuple(outputs),
            compile_seconds=seconds,
            step_seconds=tuple(times),
            memory=device_memory(call.compiled, self.local, used_before),
            notes=tuple(notes),
        )

    def _traced(self, partitioner: Partitioner, call: Call, folder: Path) -> None:
        """Runs some more steps while JAX's profiler looks on, which slows them down."""
        steps = min(self.steps, TRACED)
        with jax.profiler.trace(str(folder)):
            for done in range(steps):
                self.notify(f"profiling {partitioner_name(partitioner)}", done, steps)
                call.seconds()

    def _compiled(self, partitioner: Partitioner) -> tuple[Any, float]:
        """The executable, made once, and how long XLA took."""
        if partitioner not in self._executables:
            self._executables[partitioner] = self._compile(partitioner)
        return self._executables[partitioner]

    def _compile(self, partitioner: Partitioner) -> tuple[Any, float]:
        platform = compat.lowering_platform(self.devices[0])
        module = self._modules.get(partitioner)
        if (
            module is None
            or module.platforms != (platform,)
            or compat.lowered_on_stand_ins(module.lowered)
            or compat.lowering_client(module.lowered) is not self.devices[0].client
        ):
            # JAX compiles a program without devices by the client of its default device.
            with jax.default_device(self.local[0]):
                module = lower(self.traced, partitioner, (platform,), devices=self.devices)
        own = compat.lowering_devices(module.lowered)
        # A program that names its devices takes no others.
        chosen = None if own is not None and own == self.devices else self.devices
        with captured_stderr(), compat.partitioner(partitioner):
            start = time.perf_counter()
            compiled = module.lowered.compile(device_assignment=chosen)
            return compiled, time.perf_counter() - start

    # --- on one device ----------------------------------------------------------------------------

    def reference(self) -> Reference:
        """Runs the same step on the first of its devices. What goes wrong is part of the result.

        What is not the same in every process, bit by bit, is process 0's in all of them: a process
        that computes something wrong would else agree with itself.

        Raises:
            CompilerError: another process is gone.
            TargetError: the function to compare with fails, or returns something of another form.
        """
        if self._function is None:
            return firsts_results(self.own_reference(), self.group)
        return firsts_results(
            self.group.together(self._given_reference, "run the reference"), self.group
        )

    def _given_reference(self) -> Reference:
        assert self._function is not None
        self.notify("running the reference", 0, 1)
        outputs, seconds = called(
            self._function, self.program, self.traced, self.values, self.local[0]
        )
        self.notify("running the reference", 1, 1)
        return replace(
            self._about_the_step(),
            function=function_name(self._function),
            outputs=tuple(outputs),
            step_seconds=seconds,
        )

    @property
    def compute_dtypes(self) -> tuple[str, ...]:
        """Floating point dtypes that a step computes in on its devices' platform."""
        return one_device.compute_dtypes(self.traced, self.local[0].platform)

    @property
    def given_step(self) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
        """A step of the function to compare with, on flat values; None where there is none."""
        function = self._function
        if function is None:
            return None
        return lambda values: called(function, self.program, self.traced, values, self.local[0])[0]

    def _about_the_step(self) -> Reference:
        """What counts when results are compared, whatever they are compared with."""
        return Reference(
            compute_dtypes=self.compute_dtypes,
            draws_random_numbers=one_device.draws_random_numbers(self.traced),
            threefry_partitionable=bool(compat.setting("jax_threefry_partitionable")),
            has_shard_maps=one_device.has_shard_maps(self.traced),
        )

    def own_reference(self) -> Reference:
        """Runs the program's own jaxpr in this process, without shardings, on one device."""
        self.notify("running on one device", 0, 1)
        reference = self._about_the_step()
        try:
            outputs, seconds = self._on_one(self.traced)
        except Exception as error:  # as in run
            return replace(reference, failure=in_words(error))
        self.notify("running on one device", 1, 1)
        reference = replace(
            reference,
            outputs=tuple(outputs),
            step_seconds=seconds,
            is_simplified=self.simplifies,
        )
        return self._beside_alone(reference) if reference.has_shard_maps else reference

    def _beside_alone(self, reference: Reference) -> Reference:
        """The same, compared with what the program computes on a mesh of one device."""
        if self._alone is None:
            return replace(reference, alone_failure="the program can't be built for one")
        try:
            traced = self.traced_alone()
            if _types(traced) != _types(self.traced):
                why = "its arguments or results have other shapes there"
                return replace(reference, alone_failure=why)
            outputs, _ = self._on_one(traced)
        except SdyscopeError as error:
            return replace(reference, alone_failure=error.message.rstrip("."))
        except Exception as error:  # as in run
            return replace(reference, alone_failure=in_words(error))
        return replace(reference, alone=tuple(outputs))

    def built_for_one(self) -> Any:
        """The `jax.stages.Traced` of a program with shard_maps on a mesh of one device.

        None for a program without, and where it can't be built or has other shapes there.
        """
        if self._alone is None or not one_device.has_shard_maps(self.traced):
            return None
        try:
            traced = self.traced_alone()
        except SdyscopeError:
            return None
        return traced if _types(traced) == _types(self.traced) else None

    def traced_alone(self) -> Any:
        """The `jax.stages.Traced` of the same program on a mesh of one device.

        Raises:
            SdyscopeError: it can't be made there.
        """
        assert self._alone is not None
        if self._traced_alone is None:
            traced = trace(self._alone())
            if (devices := one_device.mapped_devices(traced)) > 1:
                # A mesh of the module's own; what agrees there agrees with itself.
                raise TargetError(f"its shard_maps are on {devices:,} devices there, too")
            self._traced_alone = traced
        return self._traced_alone

    def _on_one(self, traced: Any, values: Sequence[Any] | None = None) -> tuple[list[Any], float]:
        # The same function each time: JAX compiles it once.
        if id(traced) not in self._unsharded:
            self._unsharded[id(traced)] = one_device.unsharded(traced)
        return self.on_one_device(self._unsharded[id(traced)], values)

    def results_on_one_device(self, values: Sequence[Any] | None = None) -> list[Any]:
        """What the program's own jaxpr makes of flat values, by default its own, on one device.

        Raises:
            Exception: whatever running it raises.
        """
        return self._on_one(self.traced, values)[0]

    def jitted_for_one(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, jitted as those are that are compared with."""
        options = None if self.simplifies else {"xla_disable_hlo_passes": "algsimp"}
        return jax.jit(function, compiler_options=options)

    def on_one_device(
        self, function: Callable[..., Sequence[Any]], values: Sequence[Any] | None = None
    ) -> tuple[list[Any], float]:
        """What a function makes of the program's arguments on the first of its devices.

        Args:
            function: takes and returns flat arrays.
            values: what to give it; None for the program's arguments.

        Returns:
            Its results on the host, None for those that can't be fetched, and the seconds of a
                call.
        """
        device = self.local[0]
        with jax.default_device(device):
            jitted = self.jitted_for_one(function)
            given = self.values if values is None else values
            values = [jax.device_put(on_host(value), device) for value in given]
            results = jax.block_until_ready(jitted(*values))
            outputs = _whole(results, [device])
            start = time.perf_counter()
            jax.block_until_ready(jitted(*values))
            return outputs, time.perf_counter() - start

    # --- others beside it -------------------------------------------------------------------------

    def beside(
        self,
        program: Program,
        traced: Any = None,
        *,
        alike: bool = True,
        at_most: int | None = None,
    ) -> Runner:
        """Runs another program on the same values.

        Args:
            program: the other program.
            traced: the same, where it is traced already.
            alike: whether its first results must be of the types of this program's.
            at_most: how many devices there are on its mesh; None for any number.

        Raises:
            CompilerError: it can't be traced.
            TargetError: there are too few devices, or its arguments or results have other shapes,
                or it is on a larger mesh of its own: what agrees there agrees with itself.
        """
        traced = trace(program) if traced is None else traced
        (arguments, results), (its, more) = _types(self.traced), _types(traced)
        if arguments != its or (alike and results != more[: len(results)]):
            raise TargetError("Its arguments or results have other shapes there.")
        runner = Runner(
            program,
            traced,
            devices=self._given_devices,
            steps=self.steps,
            notify=self.notify,
            group=self.group,
            values=self.values,
            under=self._under,
        )
        if at_most is not None and len(runner.devices) > at_most:
            raise TargetError(f"It runs on {len(runner.devices):,} devices there, too.")
        return runner

    def value(self, argument: int) -> Any:
        """What the program is given for an argument, by its flat index: on the host, numpy."""
        return np.asarray(on_host(self.values[argument]))

    def results(self, partitioner: Partitioner) -> list[Any]:
        """The results of a step on the host, None for those that can't be fetched.

        Raises:
            Exception: whatever compiling or running it raises.
        """
        return _whole(self.call(partitioner)(), self.devices)


def _whole(results: Sequence[Any], devices: Sequence[Any]) -> list[Any]:
    """Results on the host, of which this process holds all; None for what can't be fetched."""
    blocks, _ = fetched(results, [""] * len(results), devices)
    return [None if block is None else block[0].values for block in blocks]


def _types(traced: Any) -> tuple[list[tuple[Any, ...]], ...]:
    """Shapes and dtypes of the flat arguments and results of a `jax.stages.Traced`."""
    flat = (compat.arguments(traced), compat.results(traced))
    return tuple([(array.aval.shape, str(array.aval.dtype)) for array in each] for each in flat)


def _tried(
    partitioner: Partitioner, act: Callable[[], _Result]
) -> tuple[_Result | None, Execution | None]:
    """What came of it, or how it failed."""
    try:
        return act(), None
    except NotTogether:
        raise
    except NotLowerable as error:
        return None, Execution(
            partitioner, failure=error.message, hint=error.hint or "", refused=True
        )
    except SdyscopeError as error:
        return None, Execution(partitioner, failure=error.message, hint=error.hint or "")
    except Exception as error:  # XLA and the user's callbacks raise every kind of error
        return None, Execution(partitioner, failure=in_words(error))


def in_words(error: Exception) -> str:
    """What an error of the program, of JAX or of XLA says, with the line where it is the user's."""
    line = authors_line(error)
    where = f" ({line})" if line else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"
