"""The program on real devices: its shards, its results, its time and its memory.

The very module that was lowered is compiled for the devices that are there, so an abstract mesh
needs no rebuilding: its positions become the devices in order.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.execution import ExecutedArray, Execution, Machine, Reference
from sdyscope.program import Partitioner, Program
from sdyscope.source import innermost_line
from sdyscope.stages import compat, inputs, one_device
from sdyscope.stages.doctor import MOST_CPU_DEVICES
from sdyscope.stages.held import (
    array_held,
    device_memory,
    fetched,
    first_line,
    on_host,
    peak_bytes,
    results_held,
)
from sdyscope.stages.lower import LoweredModule, NotLowerable, lower, trace
from sdyscope.stages.stderr import captured_stderr

__all__ = ["WARM_UPS", "Notify", "Runner", "devices_needed", "find_devices", "more_cpu_devices"]

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many of its steps are done, and how many there are."""

#: Steps before the clock is started.
WARM_UPS = 2

#: Says how many CPU devices there are, in XLA_FLAGS.
_COUNT_FLAG = "xla_force_host_platform_device_count"


def _silent(what: str, done: int, total: int) -> None:
    pass


def more_cpu_devices(count: int) -> None:
    """Lets JAX start so many virtual CPU devices, unless a backend has started already."""
    if _COUNT_FLAG in os.environ.get("XLA_FLAGS", ""):
        return  # XLA takes only one of the two.
    wanted = max(count, compat.setting("jax_num_cpu_devices"))
    # JAX refuses once it has devices: then there are as many as there are.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", min(wanted, MOST_CPU_DEVICES))


def devices_needed(program: Program) -> int:
    """How many devices the shardings of a program's arguments are over. Nothing is traced for it.

    1 when they do not say; the module that is lowered from it knows for certain.
    """
    meshes = [program.mesh]
    for leaf in jax.tree.leaves((program.args, dict(program.kwargs))):
        meshes.append(getattr(getattr(leaf, "sharding", None), "mesh", None))
    return max((mesh.size for mesh in meshes if mesh is not None), default=1)


def find_devices(
    needed: int, platform: str | None = None, at_most: int | None = None
) -> tuple[Any, ...]:
    """Devices to run on: the accelerators that are there when they are enough, else CPU devices.

    Args:
      needed: how many the program is for.
      platform: `cpu`, `gpu` or `tpu`; None for the best that has enough.
      at_most: how many may be used; None for all.

    Raises:
      TargetError: there are not enough.
    """
    try:
        found = tuple(jax.devices(platform))[:at_most]
        if platform is None and len(found) < needed and found[0].platform != "cpu":
            found = tuple(jax.devices("cpu"))[:at_most]
    except RuntimeError as error:
        raise TargetError(
            f"There are no {platform or 'usable'} devices: {first_line(error)}",
            hint="`sdyscope doctor` lists the devices that JAX can start.",
        ) from error
    if len(found) < needed:
        raise _too_few(needed, found)
    return found


def _too_few(needed: int, found: Sequence[Any]) -> TargetError:
    platform, have = found[0].platform, len(found)
    are = f"there is {have}" if have == 1 else f"there are {have}"
    if platform != "cpu":
        hint = f"Give a smaller --mesh, or --platform cpu for {needed} virtual CPU devices."
    elif _COUNT_FLAG in os.environ.get("XLA_FLAGS", ""):
        hint = f"Give a smaller --mesh, or leave --{_COUNT_FLAG} out of XLA_FLAGS."
    elif needed > MOST_CPU_DEVICES:
        hint = f"Give a smaller --mesh: XLA runs at most {MOST_CPU_DEVICES:,} virtual CPU devices."
    else:
        hint = (
            f"Give a smaller --mesh, or --devices {needed}; in Python, set "
            f"jax_num_cpu_devices to {needed} before JAX is used."
        )
    return TargetError(
        f"The program needs {needed:,} devices, and {are} ({platform.upper()}).", hint=hint
    )


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

    Raises:
      CompilerError: the program can't be traced.
      TargetError: there are too few devices, or the program's inputs do not fit.
    """

    def __init__(
        self,
        program: Program,
        traced: Any = None,
        modules: Mapping[Partitioner, LoweredModule] | None = None,
        devices: Sequence[Any] | None = None,
        steps: int = 10,
        notify: Notify | None = None,
    ) -> None:
        self.program = program
        self.traced = trace(program) if traced is None else traced
        self.steps = steps
        self.notify = notify or _silent
        self._modules = dict(modules or {})
        own, needed = self._own_devices()
        if own is None:
            found = tuple(find_devices(needed) if devices is None else devices)
            if len(found) < needed:
                raise _too_few(needed, found)
            own = found[:needed]
        self.devices: tuple[Any, ...] = own
        self.values, self.inputs = inputs.concrete_arguments(program, self.traced)

    def _own_devices(self) -> tuple[tuple[Any, ...] | None, int]:
        """The devices that the program itself names, None on an abstract mesh; and how many."""
        module = next(iter(self._modules.values()), None) or self._any_module()
        return compat.lowering_devices(module.lowered), module.num_devices

    def _any_module(self) -> LoweredModule:
        try:
            return lower(self.traced, "shardy")
        except CompilerError:
            return lower(self.traced, "gspmd")

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
        )

    # --- sharded ----------------------------------------------------------------------------------

    def run(self, partitioner: Partitioner) -> Execution:
        """Runs the program under a partitioner. What goes wrong is part of the result."""
        try:
            return self._run(partitioner)
        except NotLowerable as error:
            return Execution(
                partitioner, failure=error.message, hint=error.hint or "", refused=True
            )
        except SdyscopeError as error:
            return Execution(partitioner, failure=error.message, hint=error.hint or "")
        except Exception as error:  # XLA and the user's callbacks raise every kind of error
            return Execution(partitioner, failure=_in_words(error))

    def _run(self, partitioner: Partitioner) -> Execution:
        self.notify(f"compiling for {partitioner}", 0, 1)
        compiled, seconds = self._compiled(partitioner)
        call = _Call(compiled, self.traced, self.values, self.devices)
        used_before = peak_bytes(self.devices)
        self.notify(f"warming up {partitioner}", 0, WARM_UPS)
        results = call()
        arrays = (*call.arguments(), *results_held(results, self.devices))
        outputs, notes = fetched(results, [result.name for result in compat.results(self.traced)])
        del results
        for done in range(1, WARM_UPS):
            self.notify(f"warming up {partitioner}", done, WARM_UPS)
            call()
        times = []
        for done in range(self.steps):
            self.notify(f"running under {partitioner}", done, self.steps)
            times.append(call.seconds())
        self.notify(f"running under {partitioner}", self.steps, self.steps)
        return Execution(
            partitioner,
            arrays=arrays,
            outputs=tuple(outputs),
            compile_seconds=seconds,
            step_seconds=tuple(times),
            memory=device_memory(compiled, self.devices, used_before),
            notes=tuple(notes),
        )

    def _compiled(self, partitioner: Partitioner) -> tuple[Any, float]:
        platform = compat.lowering_platform(self.devices[0])
        module = self._modules.get(partitioner)
        if module is None or module.platforms != (platform,):
            module = lower(self.traced, partitioner, (platform,))
        own = compat.lowering_devices(module.lowered)
        # A program that names its devices takes no others.
        chosen = None if own is not None and own == self.devices else self.devices
        with captured_stderr(), compat.partitioner(partitioner):
            start = time.perf_counter()
            compiled = module.lowered.compile(device_assignment=chosen)
            return compiled, time.perf_counter() - start

    # --- on one device ----------------------------------------------------------------------------

    def reference(self) -> Reference:
        """Runs the same step on the first of the devices. What goes wrong is part of the result."""
        self.notify("running on one device", 0, 1)
        device = self.devices[0]
        found = Reference(
            compute_dtypes=one_device.compute_dtypes(self.traced, device.platform),
            draws_random_numbers=one_device.draws_random_numbers(self.traced),
            threefry_partitionable=bool(compat.setting("jax_threefry_partitionable")),
        )
        try:
            outputs, seconds = self._on_one(device)
        except Exception as error:  # as in run
            return replace(found, failure=_in_words(error))
        self.notify("running on one device", 1, 1)
        return replace(found, outputs=tuple(outputs), step_seconds=seconds)

    def _on_one(self, device: Any) -> tuple[list[Any], float]:
        names = [result.name for result in compat.results(self.traced)]
        with jax.default_device(device):
            function = jax.jit(one_device.unsharded(self.traced))
            values = [jax.device_put(on_host(value), device) for value in self.values]
            outputs, _ = fetched(jax.block_until_ready(function(*values)), names)
            start = time.perf_counter()
            jax.block_until_ready(function(*values))
            return outputs, time.perf_counter() - start


class _Call:
    """An executable with its arguments on their devices; those that it donates are put anew."""

    def __init__(
        self, compiled: Any, traced: Any, values: Sequence[Any], devices: Sequence[Any]
    ) -> None:
        self.compiled, self.traced, self.devices = compiled, traced, devices
        self.given = compat.arguments(traced)
        self.kept = compat.kept_jaxpr(traced)[1]
        # None for an argument that jit dropped.
        accepted = traced.in_tree.flatten_up_to(compiled.input_shardings)
        self.values = [self._put(i, value, accepted[i]) for i, value in enumerate(values)]

    def _put(self, index: int, value: Any, accepted: Any) -> Any:
        """An argument where it was asked to be, or else where the compiler wants it."""
        argument = self.given[index]
        asked = argument.given if argument.asked is None else argument.asked
        asked = getattr(asked, "sharding", asked)  # of a Format, with a layout
        if isinstance(asked, jax.sharding.NamedSharding) and asked.mesh.shape:
            accepted = _on_devices(asked, self.devices)
        return jax.device_put(on_host(value), accepted or self.devices[0])

    def fresh(self) -> list[Any]:
        """The arguments of one call."""
        return [
            jax.device_put(value, value.sharding, may_alias=False) if argument.donated else value
            for value, argument in zip(self.values, self.given, strict=True)
        ]

    def __call__(self) -> list[Any]:
        return self._call(self.fresh())

    def _call(self, flat: Sequence[Any]) -> list[Any]:
        args, kwargs = jax.tree.unflatten(self.traced.in_tree, flat)
        return jax.tree.leaves(jax.block_until_ready(self.compiled(*args, **kwargs)))

    def seconds(self) -> float:
        """How long one call takes, from its start until every result is there."""
        flat = jax.block_until_ready(self.fresh())
        start = time.perf_counter()
        self._call(flat)
        return time.perf_counter() - start

    def arguments(self) -> list[ExecutedArray]:
        """What lies on the devices, of the arguments that jit kept."""
        return [
            array_held("argument", index, self.values[index], self.devices)
            for index in sorted(self.kept)
        ]


def _on_devices(sharding: jax.sharding.NamedSharding, devices: Sequence[Any]) -> Any:
    """A sharding on an abstract mesh as one on these devices."""
    mesh = sharding.mesh
    if isinstance(mesh, jax.sharding.Mesh):
        return sharding
    grid = np.empty(len(devices), dtype=object)
    grid[:] = devices
    made = jax.sharding.Mesh(
        grid.reshape(tuple(mesh.shape.values())), mesh.axis_names, axis_types=mesh.axis_types
    )
    return jax.sharding.NamedSharding(made, sharding.spec, memory_kind=sharding.memory_kind)


def _in_words(error: Exception) -> str:
    line = innermost_line(error, (Path(jax.__file__).parent, Path(__file__).parents[1]))
    where = f" ({line})" if line else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"
