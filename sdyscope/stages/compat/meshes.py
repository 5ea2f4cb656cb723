"""Partitioners, and JAX's meshes and specs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax._src import config
from jax._src import mesh as meshes
from jax.extend.mlir.dialects import sdy
from jax.sharding import AbstractMesh, AxisType
from jaxlib import xla_client

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Partitioner
from sdyscope.stages.compat.versions import version
from sdyscope.values.mesh import Mesh, MeshAxis


@contextmanager
def partitioner(name: Partitioner) -> Iterator[None]:
    """Lowers and compiles with the named partitioner inside the block, in this thread.

    The flag is part of the keys of JAX's caches, so lowering the same `Traced` under both
    partitioners gives two modules.

    Raises:
        CompilerError: this JAX does not let one choose.
    """
    flag = getattr(config, "use_shardy_partitioner", None)
    if flag is None:
        if name == "shardy":
            yield
            return
        raise CompilerError(
            f"JAX {version()} has no GSPMD partitioner any more.",
            hint="Use --partitioner shardy, or an older JAX.",
        )
    with flag(name == "shardy"):
        yield


def abstract_mesh(mesh: Mesh) -> AbstractMesh:
    """A JAX mesh of any size without devices; the partitioner is free on every axis (Auto).

    From JAX 0.12 on an AbstractMesh is Explicit unless told otherwise.
    """
    sizes, names = tuple(axis.size for axis in mesh.axes), tuple(axis.name for axis in mesh.axes)
    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


def device_mesh(mesh: Mesh, devices: Sequence[Any]) -> jax.sharding.Mesh:
    """A JAX mesh over real devices, in the order that `mesh` gives them.

    Raises:
        CompilerError: there are fewer devices than the mesh has.
    """
    if len(devices) < mesh.size:
        raise CompilerError(
            f"The mesh has {mesh.size} devices, and there are {len(devices)}.",
            hint="Give a smaller --mesh, or more virtual CPU devices (--on cpu:N).",
        )
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = [devices[number] for number in mesh.devices()]
    return jax.sharding.Mesh(
        grid.reshape([axis.size for axis in mesh.axes]),
        tuple(axis.name for axis in mesh.axes),
        axis_types=(AxisType.Auto,) * len(mesh.axes),
    )


def on_devices(mesh: AbstractMesh, devices: Sequence[Any] = ()) -> jax.sharding.Mesh:
    """The same mesh over devices; by default over stand-ins, for which JAX starts no devices."""
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = list(devices) or _stand_ins(mesh.size).devices()
    return jax.sharding.Mesh(
        grid.reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types
    )


def is_stand_in(device: Any) -> bool:
    """Whether a device is one of `on_devices`' own, on which nothing is run."""
    return any(device.client is client for client in _CLIENTS.values())


#: CPU clients that JAX does not know, by how many devices they have.
_CLIENTS: dict[int, Any] = {}


def _stand_ins(count: int) -> Any:
    if count not in _CLIENTS:
        _CLIENTS[count] = xla_client.make_cpu_client(num_devices=count)
    return _CLIENTS[count]


def mesh_context(mesh: Any) -> Any:
    """A context manager in which PartitionSpecs without a mesh mean this one.

    JAX takes those of jit's `in_shardings` and `out_shardings` for a mesh of devices only.
    """
    if isinstance(mesh, jax.sharding.Mesh):
        return jax.set_mesh(mesh)
    return jax.sharding.use_abstract_mesh(mesh)


@contextmanager
def context_kept() -> Iterator[None]:
    """Within, no mesh is set; afterwards the one that was, whatever `jax.set_mesh` has set."""
    home: Any = meshes if hasattr(meshes, "device_context") else config  # meshes from JAX 0.12 on
    states = (home.abstract_mesh_context_manager, home.device_context)
    before = [state.swap_local(config.config_ext.unset) for state in states]
    try:
        yield
    finally:
        for state, value in zip(states, before, strict=True):
            state.set_local(value)


def has_context_mesh() -> bool:
    """Whether a mesh is set where this is called, so that a PartitionSpec needs no other."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh is not None and bool(mesh.axis_names)


def mesh_of(mesh: Any, logical_devices: Sequence[int] | None = None) -> Mesh:
    """JAX's Mesh or AbstractMesh as ours.

    Devices are counted by their position in the program's device assignment, as in the IR, so a
    mesh's own order never shows; `logical_devices` is the order where a second mesh of the same
    program differs from the first.
    """
    return Mesh(
        tuple(MeshAxis(str(name), size) for name, size in mesh.shape.items()),
        None if logical_devices is None else tuple(logical_devices),
    )


def mesh_of_attribute(attribute: Any) -> Mesh:
    """An MLIR `#sdy.mesh` attribute as ours."""
    mesh = sdy.MeshAttr(attribute)
    axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
    return Mesh(
        tuple(MeshAxis(axis.name, axis.size) for axis in axes), tuple(mesh.device_ids) or None
    )


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """The entries of JAX's PartitionSpec, which refuses to be iterated when axes are unreduced."""
    return tuple(spec._partitions)


def hint_of_abstract_meshes(error: BaseException) -> str | None:
    """What to do where something asks an AbstractMesh for what only one of devices has."""
    if "AbstractMesh does not implement" not in str(error):
        return None
    return (
        "The mesh that a program is given has no devices. Where yours needs some, make one that "
        "has: jax.make_mesh(mesh.axis_sizes, mesh.axis_names)."
    )


def is_explicit(mesh: Any) -> bool:
    """Whether some axis of JAX's mesh is Explicit: shardings on it are part of the types."""
    return any(kind == AxisType.Explicit for kind in getattr(mesh, "axis_types", ()) or ())


def all_explicit(mesh: Any) -> bool:
    """Whether every axis of JAX's mesh is Explicit (or Manual): no partitioner has a say."""
    return not any(kind == AxisType.Auto for kind in getattr(mesh, "axis_types", ()) or ())
