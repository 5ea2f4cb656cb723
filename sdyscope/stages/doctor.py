"""What this JAX, this machine and the plugins that are installed allow.

Everything is tried, not assumed: jax is imported inside the functions, so that its absence, too, is
a finding.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import LARGEST_CPU

if TYPE_CHECKING:
    from sdyscope.stages.compiled.topology import Mismatch

Area: TypeAlias = Literal["versions", "partitioners", "bindings", "devices", "optional"]

State: TypeAlias = Literal["ok", "warning", "missing"]

_EXTRAS_OF_JAX = ("tpu", "cuda12", "cuda12-local", "cuda13")

#: Plugins of which one is enough.
_CUDA = ("jax-cuda12-plugin", "jax-cuda13-plugin")

#: Distribution, what it is needed for, and how it is installed; by an extra of JAX as `{extra}`.
_OPTIONAL = (
    ("libtpu", "--on tpu:..., present or not", "{tpu}"),
    (
        "jax-cuda12-plugin",
        "--on cuda:..., present or not",
        "{cuda12-local}; to run on GPUs, {cuda12}",
    ),
    ("jax-cuda13-plugin", "the same with CUDA 13", "{cuda13}"),
    ("haliax", "the reference model levanter-gpt2", "pip install 'haliax>=1.4.dev0'"),
    ("pytest", "the fixtures and assertions of `sdyscope docs pytest`", "pip install 'pytest>=8'"),
    ("ai-edge-model-explorer", "looking at `sdyscope graph`", "pip install ai-edge-model-explorer"),
    ("xdsl", "the benchmark of the op graph", "pip install xdsl"),
)


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that this environment can or cannot do.

    Attributes:
        area: the group that it is listed under.
        name: what it is.
        state: `ok`; `warning` when it is there but not as tested; `missing` when it is not there.
        needed: whether commands other than `run` fail without it.
        found: the version, the devices or the error that was met.
        advice: what to do about it; empty when there is nothing to do.
    """

    area: Area
    name: str
    state: State
    needed: bool
    found: str
    advice: str = ""


def examine() -> tuple[Capability, ...]:
    """Looks at everything, in the order in which it is worth reading.

    This starts the JAX backends that are installed, accelerators included.
    """
    return (*_versions(), *_partitioners(), *_bindings(), *_devices(), *_optional_packages())


def _versions() -> Iterator[Capability]:
    yield Capability("versions", "Python", "ok", True, platform.python_version())
    for name in ("jax", "jaxlib"):
        yield _jax_version(name)


def _jax_version(name: str) -> Capability:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Capability("versions", name, "missing", True, "not installed", "pip install jax")
    try:
        from sdyscope.stages import compat
    except Exception as error:
        if "failed to map segment" in str(error):
            raise  # It is not JAX that is wrong: memory ran out.
        # Whatever else it raises is the finding; after half an import that is an AttributeError.
        return Capability(
            "versions",
            name,
            "missing",
            True,
            f"{version}, which this sdyscope cannot use: {_first_line(error)}",
            "Install a tested version of JAX.",
        )
    if compat.tested_version():
        return Capability("versions", name, "ok", True, version)
    return Capability(
        "versions",
        name,
        "warning",
        True,
        f"{version}, not tested",
        f"Tested: {', '.join(compat.TESTED)}. Most things work on versions in between.",
    )


def _partitioners() -> Iterator[Capability]:
    yield _partitioner("Shardy", "shardy", "sdy.sharding")
    yield _partitioner("GSPMD", "gspmd", "mhlo.sharding")


def _partitioner(name: str, partitioner: Partitioner, attribute: str) -> Capability:
    """Lowers one line under the partitioner and looks for its annotation."""
    needed = partitioner == "shardy"
    try:
        text = _lower_one_line(partitioner)
    except Exception as error:
        # Whatever it raises is the finding.
        advice = "" if needed else "Use --partitioner shardy, or a JAX that still has GSPMD."
        return Capability("partitioners", name, "missing", needed, _first_line(error), advice)
    if attribute in text:
        return Capability("partitioners", name, "ok", needed, "lowers")
    return Capability(
        "partitioners",
        name,
        "missing",
        needed,
        f"JAX lowers, but writes no {attribute}",
        "Is JAX_USE_SHARDY_PARTITIONER set?" if needed else "Use --partitioner shardy.",
    )


def _lower_one_line(partitioner: Partitioner) -> str:
    import jax
    import numpy as np

    from sdyscope.stages import compat
    from sdyscope.values.mesh import Mesh, MeshAxis

    mesh = compat.abstract_mesh(Mesh((MeshAxis("data", 2),)))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    argument = jax.ShapeDtypeStruct((8,), np.float32, sharding=sharding)
    with compat.partitioner(partitioner):
        traced = jax.jit(lambda x: x + 1).trace(argument)
        return str(traced.lower(lowering_platforms=("cpu",)).as_text())


def _bindings() -> Iterator[Capability]:
    update = "Install a tested version of JAX."
    try:
        from jax.extend.mlir import ir
        from jax.extend.mlir.dialects import func, sdy, stablehlo
    except Exception as error:
        yield Capability("bindings", "MLIR", "missing", True, _first_line(error), update)
    else:
        modules = (ir, func, sdy, stablehlo)
        names = ", ".join(module.__name__.rpartition(".")[2] for module in modules)
        yield Capability("bindings", "MLIR", "ok", True, names)
    try:
        from sdyscope.stages import compat

        compat.hlo.HloSharding.from_string("{devices=[2]<=[2]}")
    except Exception as error:
        yield Capability("bindings", "HLO", "missing", False, _first_line(error), update)
    else:
        yield Capability("bindings", "HLO", "ok", False, "HloSharding")


def _devices() -> Iterator[Capability]:
    try:
        import jax

        first = jax.devices()
        others = (device for client in _backends().values() for device in client.devices())
        # Each once: the first are of one of the backends, which may be called otherwise (cuda).
        devices = {(device.platform, device.id): device for device in (*first, *others)}
        by_kind = Counter((each.platform, each.device_kind) for each in devices.values())
    except Exception as error:
        yield Capability(
            "devices",
            "any",
            "missing",
            False,
            _first_line(error),
            "`run` needs devices; JAX_PLATFORMS=cpu gives it virtual CPU devices.",
        )
        return
    for (platform_name, kind), count in by_kind.items():
        words = f"{count}" if kind == platform_name else f"{count} × {kind}"
        yield Capability("devices", platform_name, "ok", False, words)
    limited = os.environ.get("JAX_PLATFORMS", "")
    if limited:
        yield Capability(
            "devices",
            "JAX_PLATFORMS",
            "ok",
            False,
            limited,
            "Other devices are not looked for while it is set.",
        )
    yield Capability(
        "devices", "virtual CPU devices", "ok", False, f"up to {LARGEST_CPU:,} in one process"
    )


def _backends() -> dict[str, Any]:
    from jax.extend import backend

    return dict(backend.backends())


def _optional_packages() -> Iterator[Capability]:
    from sdyscope.stages.compiled.topology import install_text

    mismatches, jax = _mismatches(), _version("jax")
    brought = {extra: install_text(extra, jax) for extra in _EXTRAS_OF_JAX}
    for name, purpose, install in _OPTIONAL:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in _CUDA and any(map(_is_installed, _CUDA)):
                continue
            yield Capability(
                "optional",
                name,
                "missing",
                False,
                "not installed",
                f"For {purpose}: {install.format_map(brought)}",
            )
        else:
            mismatch = mismatches.get(name)
            if mismatch is None:
                yield Capability("optional", name, "ok", False, version)
            else:
                words = f"{version}, JAX {mismatch.jax} asks for {mismatch.wanted}"
                yield Capability("optional", name, "warning", False, words, mismatch.advice)


def _is_installed(name: str) -> bool:
    return any(metadata.Distribution.discover(name=name))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # which is told elsewhere
        return "..."


def _mismatches() -> dict[str, Mismatch]:
    """Compilers that are not the ones that JAX asks for, by their distribution."""
    try:
        from sdyscope.stages.compiled.topology import mismatched_plugin
    except ImportError:  # no JAX, which is told elsewhere
        return {}
    mismatches = [mismatched_plugin(platform) for platform in ("tpu", "cuda")]
    return {mismatch.distribution: mismatch for mismatch in mismatches if mismatch is not None}


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
