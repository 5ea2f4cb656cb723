"""What a program needs to be run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax._src import distributed, xla_bridge
from jax._src.named_sharding import UNSPECIFIED
from jaxlib import xla_client

from sdyscope.stages.compat.meshes import is_stand_in
from sdyscope.stages.compat.versions import version_tuple


def backends_are_initialized() -> bool:
    """Whether JAX has started its devices, which it does once."""
    return bool(xla_bridge.backends_are_initialized())


def read_compiler_flags() -> None:
    """Has XLA read its flags now, if it has not yet: what `XLA_FLAGS` says later, it ignores."""
    xla_client.CompileOptions()


def hint_of_platforms(error: BaseException) -> str | None:
    """What to do about an error, where JAX can't start the devices that JAX_PLATFORMS names."""
    asked = os.environ.get("JAX_PLATFORMS")
    if not asked or not isinstance(error, RuntimeError | AssertionError):
        return None
    try:
        jax.devices()
    except (RuntimeError, AssertionError):  # no more than an assertion where a plugin is missing
        return (
            f"JAX can't start its devices with JAX_PLATFORMS={asked}: unset it, or set it to cpu. "
            "`sdyscope doctor` says what there is."
        )
    return None


def distributed_client() -> Any:
    """The client of the coordination service that `jax.distributed` joined; None when alone."""
    return distributed.global_state.client


def distributed_place() -> tuple[int, int]:
    """Which process this is, and how many there are, without starting devices."""
    state = distributed.global_state
    return int(state.process_id), int(state.num_processes)


def call_arguments(
    fun: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without those that `fun`, a jitted function, holds static."""
    names = frozenset(getattr(getattr(fun, "_jit_info", None), "static_argnames", ()))
    static = _static_numbers(fun, len(args))
    return (
        tuple(value for number, value in enumerate(args) if number not in static),
        {name: value for name, value in kwargs.items() if name not in names},
    )


def with_static_arguments(
    fun: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Sequence[Any],
    named: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with other values in place of all that `fun` does not hold static.

    Args:
        fun: a jitted function.
        args: what it is called with.
        kwargs: likewise, by name.
        values: the other values, as `call_arguments` gives them.
        named: likewise, by name.
    """
    static, left = _static_numbers(fun, len(args)), iter(values)
    full = tuple(value if number in static else next(left) for number, value in enumerate(args))
    return full, {**kwargs, **named}


def _static_numbers(fun: Any, count: int) -> set[int]:
    """Which of so many arguments in a row a jitted function holds static."""
    numbers = getattr(getattr(fun, "_jit_info", None), "static_argnums", ())
    return {n % count for n in numbers if -count <= n < count}


def lowering_devices(lowered: Any) -> tuple[Any, ...] | None:
    """The devices that a `jax.stages.Lowered` names; None when its meshes are abstract."""
    devices = lowered._lowering._device_list
    return None if devices is None or is_stand_in(devices[0]) else tuple(devices)


def lowering_client(lowered: Any) -> Any:
    """The client of devices that a `jax.stages.Lowered` is compiled by, whatever these are."""
    return lowered._lowering.compile_args["backend"]


def lowered_on_stand_ins(lowered: Any) -> bool:
    """Whether a `jax.stages.Lowered` names devices only because callbacks ask for some."""
    devices = lowered._lowering._device_list
    return devices is not None and is_stand_in(devices[0])


def lowering_platform(device: Any) -> str:
    """What to lower for to run on a device: `cpu`, `tpu`, `cuda` or `rocm`."""
    return str(getattr(device.client, "_raw_platform", device.platform))


def take_small_numbers(compiled: Any) -> None:
    """Has a `jax.stages.Compiled` take numbers of less than a byte, such as `int4`, as jit does.

    It compares layouts, which say how many bits an element has only of what is compiled, not of
    arrays (JAX 0.11 and older), and refuses what it was compiled for.
    """

    def is_small(layout: Any) -> bool:
        names = ("sub_byte_element_size_in_bits", "_sub_byte_element_size_in_bits")  # 0.8: private
        return any(getattr(layout, name, 0) for name in names)

    executable = compiled._executable
    layouts = getattr(executable, "_xla_in_layouts", None)
    if layouts is not None and version_tuple() < (0, 12):
        taken = [None if is_small(layout) else layout for layout in layouts]
        executable._xla_in_layouts = taken


def hlo_sharding_text(sharding: Any, ndim: int) -> str:
    """A JAX sharding of any kind as XLA writes it: `{devices=[4,2]<=[8]}`."""
    return str(sharding._to_xla_hlo_sharding(ndim))


def setting(name: str) -> Any:
    """The value of an entry of JAX's configuration, in this thread: `jax_num_cpu_devices`."""
    return getattr(jax.config, name)


def unspecified() -> Any:
    """JAX's marker for a sharding that was not specified."""
    return UNSPECIFIED


def random_keys(aval: Any, seed: int) -> Any:
    """PRNG keys for an abstract key array, made from one seed."""
    keys = jax.random.split(jax.random.key(seed, impl=aval.dtype._impl), math.prod(aval.shape))
    return keys.reshape(aval.shape)
