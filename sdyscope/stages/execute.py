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
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.execution import (
    DeviceMemory,
    ExecutedArray,
    Execution,
    Extent,
    Machine,
    Reference,
    Shard,
)
from sdyscope.program import Partitioner, Program
from sdyscope.source import innermost_line
from sdyscope.stages import compat, inputs, one_device
from sdyscope.stages.lower import LoweredModule, NotLowerable, lower, trace
from sdyscope.stages.stderr import captured_stderr

__all__ = ["WARM_UPS", "Notify", "Runner", "devices_needed", "find_devices", "more_cpu_devices"]

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many of its steps are done, and how many there are."""

#: Steps before the clock is started.
WARM_UPS = 2

#: XLA runs a program on at most so many virtual CPU devices.
MOST_CPU_DEVICES = 2048


def _silent(what: str, done: int, total: int) -> None:
    pass


def more_cpu_devices(count: int) -> None:
    """Lets JAX start so many virtual CPU devices, unless a backend has started already."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
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
            f"There are no {platform or 'usable'} devices: {_first(error)}",
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
        used_before = _peak(self.devices)
        self.notify(f"warming up {partitioner}", 0, WARM_UPS)
        results = call()
        arrays = (*call.arguments(), *_results(results, self.devices))
        outputs, notes = _fetched(results, [result.name for result in compat.results(self.traced)])
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
            memory=_memory(compiled, self.devices, used_before),
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

    def reference(self, again: Callable[[], Program] | None = None) -> Reference:
        """Runs the same step on the first of the devices. What goes wrong is part of the result.

        Args:
          again: builds the program on a mesh of one device, for when the traced one can't be
            stripped of its shardings.
        """
        self.notify("running on one device", 0, 1)
        device = self.devices[0]
        dtypes = one_device.compute_dtypes(self.traced, device.platform)
        random = one_device.draws_random_numbers(self.traced)
        found = Reference(
            compute_dtypes=dtypes,
            draws_random_numbers=random,
            threefry_partitionable=bool(compat.setting("jax_threefry_partitionable")),
        )
        try:
            how, outputs, seconds = self._on_one(device, again)
        except SdyscopeError as error:
            return replace(found, failure=" ".join(filter(None, (error.message, error.hint))))
        except Exception as error:  # as in run
            return replace(found, failure=_in_words(error))
        self.notify("running on one device", 1, 1)
        return replace(found, outputs=tuple(outputs), how=how, step_seconds=seconds)

    def _on_one(
        self, device: Any, again: Callable[[], Program] | None
    ) -> tuple[str, list[Any], float]:
        with jax.default_device(device):
            try:
                function = jax.jit(one_device.unsharded(self.traced))
            except CompilerError as error:
                if again is None:
                    raise
                try:
                    program = again()
                except SdyscopeError:
                    raise error from None
                return self._again(device, program)
            values = [jax.device_put(_on_host(value), device) for value in self.values]

            def call() -> Sequence[Any]:
                return list(jax.block_until_ready(function(*values)))

            return "the same jaxpr without its sharding constraints", *self._timed(call)

    def _again(self, device: Any, program: Program) -> tuple[str, list[Any], float]:
        traced = trace(program)
        mine, theirs = self.traced.jaxpr.in_avals, traced.jaxpr.in_avals
        if [(a.shape, a.dtype) for a in mine] != [(a.shape, a.dtype) for a in theirs]:
            raise CompilerError("On a mesh of one device the program takes other arguments.")
        one = Runner(program, traced, devices=[device])
        compiled, _ = one._compiled("shardy")
        call = _Call(compiled, traced, self.values, one.devices)
        return "the program built again on a mesh of one device", *self._timed(call)

    def _timed(self, call: Callable[[], Sequence[Any]]) -> tuple[list[Any], float]:
        names = [result.name for result in compat.results(self.traced)]
        fetched, _ = _fetched(call(), names)
        start = time.perf_counter()
        call()
        return fetched, time.perf_counter() - start


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
        return jax.device_put(_on_host(value), accepted or self.devices[0])

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
            _array("argument", index, self.values[index], self.devices)
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


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _on_host(value: Any) -> Any:
    """A value that is on no devices but the host's, so that it can be put anywhere."""
    if _is_key(value):
        data: Any = np.asarray(jax.random.key_data(value))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    return np.asarray(value) if isinstance(value, jax.Array) else value


def _fetched(results: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Results as numpy arrays, None where that can't be, and a sentence on each of those."""
    outputs: list[Any] = []
    notes = []
    for name, result in zip(names, results, strict=True):
        try:
            outputs.append(np.asarray(jax.random.key_data(result) if _is_key(result) else result))
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            # Partial results that nothing reduced, or shards of other processes.
            outputs.append(None)
            notes.append(f"{name} can't be fetched whole, so it is not compared: {_first(error)}")
    return outputs, notes


def _results(results: Sequence[Any], devices: Sequence[Any]) -> list[ExecutedArray]:
    return [_array("result", index, result, devices) for index, result in enumerate(results)]


def _array(
    kind: Literal["argument", "result"], index: int, array: Any, devices: Sequence[Any]
) -> ExecutedArray:
    positions = {device: position for position, device in enumerate(devices)}
    whole, _ = compat.element_shape(array.aval)
    shards = [
        Shard(
            positions[shard.device],
            tuple(_extents(shard.index, whole)),
            (*shard.data.shape, *whole[array.ndim :]),
            shard.replica_id,
        )
        for shard in array.addressable_shards
    ]
    return ExecutedArray(
        kind,
        index,
        tuple(whole),
        compat.hlo_sharding_text(array.sharding, array.ndim),
        array.ndim,
        tuple(sorted(shards, key=lambda shard: shard.device)),
    )


def _extents(index: Sequence[slice], shape: Sequence[int]) -> list[Extent]:
    # Of PRNG keys the index has their words as well.
    return [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]


def _peak(devices: Sequence[Any]) -> int | None:
    """Most bytes that were ever in use on one of the devices, if the backend counts them."""
    counts = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    known = [int(count) for count in counts if count is not None]
    return max(known, default=None)


def _memory(compiled: Any, devices: Sequence[Any], before: int | None) -> DeviceMemory:
    peak = _peak(devices)
    told = compiled.memory_analysis()
    if told is None:
        return DeviceMemory(peak=peak, peak_is_bound=peak == before)
    return DeviceMemory(
        told.argument_size_in_bytes,
        told.output_size_in_bytes,
        told.alias_size_in_bytes,
        told.temp_size_in_bytes,
        peak,
        peak is not None and peak == before,
    )


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no message"
    first, traceback, _ = lines[0].partition(": Traceback (most recent call last)")
    # What a callback raised is in the last line.
    return f"{first}: {lines[-1]}" if traceback else first


def _in_words(error: Exception) -> str:
    line = innermost_line(error, (Path(jax.__file__).parent, Path(__file__).parents[1]))
    where = f" ({line})" if line else ""
    return f"{type(error).__name__}: {_first(error)}{where}"
