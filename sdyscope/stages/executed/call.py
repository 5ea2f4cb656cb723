"""A compiled program with its arguments on their devices, called step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from sdyscope.facts.execution import ExecutedArray
from sdyscope.stages import compat
from sdyscope.stages.executed.device_arrays import array_held, copied, put
from sdyscope.stages.lowered.signature import SignatureArgument


class Call:
    """An executable with its arguments on their devices; those that it donates are put anew.

    Args:
        compiled: a `jax.stages.Compiled`.
        traced: the `jax.stages.Traced` that it is of.
        values: its flat arguments, on the host or anywhere.
        devices: what it was compiled for, in order.
        home: where to put an argument that nothing places.
    """

    def __init__(
        self,
        compiled: Any,
        traced: Any,
        values: Sequence[Any],
        devices: Sequence[Any],
        home: Any,
    ) -> None:
        self.compiled, self.traced, self.devices, self.home = compiled, traced, devices, home
        self.given = compat.arguments(traced)
        self.kept = compat.kept_jaxpr(traced)[1]
        # None for an argument that jit dropped.
        self._accepted = traced.in_tree.flatten_up_to(compiled.input_shardings)
        self._formats = None
        if any(argument.layout for argument in self.given):
            self._formats = traced.in_tree.flatten_up_to(compiled.input_formats)
        compat.take_small_numbers(compiled)
        self.values = [self._put(i, value) for i, value in enumerate(values)]

    def carry(self, results: Sequence[Any], into: Mapping[int, int]) -> None:
        """Makes results the arguments of the next call.

        Args:
            results: the results of a call.
            into: of each that is an argument of the next, which.
        """
        for result, argument in into.items():
            self.values[argument] = self._put(argument, results[result])

    def _put(self, index: int, value: Any) -> Any:
        """An argument where it was asked to be, or else where the compiler wants it."""
        argument, accepted = self.given[index], self._accepted[index]
        asked = argument.given if argument.asked is None else argument.asked
        asked = getattr(asked, "sharding", asked)  # of a Format, with a layout
        if isinstance(asked, jax.sharding.NamedSharding) and asked.mesh.shape:
            accepted = _on_devices(asked, self.devices)
        array = put(value, accepted or self.home)
        if self._formats is None or not argument.layout or index not in self.kept:
            return array
        format_ = self._formats[index]
        return jax.device_put(array, type(format_)(format_.layout, array.sharding))

    def fresh(self) -> list[Any]:
        """The arguments of one call."""
        return [
            copied(value, _where(value, argument)) if argument.donated else value
            for value, argument in zip(self.values, self.given, strict=True)
        ]

    def __call__(self) -> list[Any]:
        """Runs it once.

        Returns:
            The flat results, when all of them are there.
        """
        return [self._on_its_devices(result) for result in self._call(self.fresh())]

    def _on_its_devices(self, result: Any) -> Any:
        """A result whose sharding JAX has left on a mesh without devices (0.10), on the devices."""
        asked = result.sharding
        if not isinstance(asked, jax.sharding.NamedSharding) or isinstance(
            asked.mesh, jax.sharding.Mesh
        ):
            return result
        return jax.make_array_from_single_device_arrays(
            result.shape,
            _on_devices(asked, self.devices),
            [shard.data for shard in result.addressable_shards],
        )

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


def _where(value: Any, argument: SignatureArgument) -> Any:
    """Where an array is, with its layout if jit was given one."""
    return value.format if argument.layout else value.sharding


def _on_devices(sharding: jax.sharding.NamedSharding, devices: Sequence[Any]) -> Any:
    """A sharding on an abstract mesh as one on these devices."""
    mesh = sharding.mesh
    if isinstance(mesh, jax.sharding.Mesh):
        return sharding
    mesh = compat.on_devices(mesh, devices)
    return jax.sharding.NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
