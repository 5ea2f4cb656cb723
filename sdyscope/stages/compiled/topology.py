"""Hardware, there or not, as devices that XLA can compile for.

Runs in a child process: libtpu aborts on topologies that it does not have (`v5e:32x32`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from jaxlib import xla_client
from packaging.requirements import Requirement

from sdyscope.errors import TargetError, read_text
from sdyscope.hardware.gpus import gpus, target_config
from sdyscope.hardware.names import Hardware
from sdyscope.process import child

#: Environment in which libtpu looks for no TPU and no metadata server, and keeps no log files.
QUIET: Mapping[str, str] = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "TPU_LOG_DIR": "disabled",
    # Without a TPU there is nothing that two processes could fight for.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

#: Modules of which one must be installed to compile for a platform, and the extra that brings it.
_PLUGINS: Mapping[str, Sequence[str]] = {
    "tpu": ("libtpu",),
    "cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
}

#: The extras of JAX that bring them, and nothing that only a run needs.
_EXTRAS: Mapping[str, Sequence[str]] = {
    "tpu": ("tpu",),
    "cuda": ("cuda12-local", "cuda13-local"),
}


def environment(on: Hardware) -> dict[str, str]:
    """The environment of a process that compiles for some hardware.

    An accelerator is started only where those that are present are asked for.
    """
    if on.present:
        return starting(f"{on.platform},cpu")
    return {**os.environ, **QUIET}


def starting(platforms: str = "") -> dict[str, str]:
    """The environment of a process that starts accelerators, by default all that JAX finds.

    Commands set ``JAX_PLATFORMS=cpu`` for themselves, so that this is no wish of the user's.
    """
    environment = {**child.SHARING, **os.environ}
    if environment.get("JAX_PLATFORMS") == "cpu":
        del environment["JAX_PLATFORMS"]
    if platforms:
        environment["JAX_PLATFORMS"] = platforms
    return environment


def missing_plugin(on: Hardware) -> TargetError | None:
    """Why nothing can be compiled for some hardware: its compiler is not installed."""
    modules = _PLUGINS.get(on.platform, ())
    if on.present or not modules or any(importlib.util.find_spec(name) for name in modules):
        return None
    return TargetError(
        f"{on} needs {modules[0]}, which is not installed.",
        hint=install_text(_EXTRAS[on.platform][0]),
    )


def install_text(extra: str, jax: str = "") -> str:
    """The command that installs what an extra of JAX brings, in the version that fits.

    Args:
        extra: the extra: ``tpu``.
        jax: version of JAX; by default that of the one that is installed.
    """
    return f"pip install 'jax[{extra}]=={jax or metadata.version('jax')}'"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A compiler of another version than the installed JAX asks for.

    Attributes:
        distribution: its name: ``libtpu``.
        version: the version that is installed: ``0.0.51``.
        wanted: what JAX's own metadata asks for: ``libtpu==0.0.42.*``.
        jax: version of JAX.
        extra: the extra of JAX that brings the right one.
    """

    distribution: str
    version: str
    wanted: str
    jax: str
    extra: str

    def __str__(self) -> str:
        """In a sentence, without its full stop."""
        there = f"{self.distribution} {self.version} is installed"
        return f"{there}, and JAX {self.jax} asks for {self.wanted}"

    @property
    def advice(self) -> str:
        """The command that installs what fits."""
        return install_text(self.extra, self.jax)


def mismatched_plugin(platform: str) -> Mismatch | None:
    """How the compiler for a platform does not fit JAX, by JAX's own pins; None where it does.

    Two binaries of different versions mostly work together; where they do not, the program is not
    to blame.
    """
    extras = _EXTRAS.get(platform, ())
    version = metadata.version("jax")
    for text in (metadata.requires("jax") or ()) if extras else ():
        requirement = Requirement(text)
        extra = next((name for name in extras if _is_in(requirement, name)), None)
        if extra is None:
            continue
        try:
            there = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(there, prereleases=True):
            asked = Requirement(f"{requirement.name}{requirement.specifier}")
            return Mismatch(requirement.name, there, str(asked), version, extra)
    return None


def _is_in(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement comes with an extra, and not without."""
    marker = requirement.marker
    return (
        marker is not None
        and marker.evaluate({"extra": extra})
        and not marker.evaluate({"extra": ""})
    )


def compile_devices(on: Hardware, count: int) -> tuple[Any, ...]:
    """The devices of a topology, in the compiler's own order; for CPUs `count` virtual ones.

    Of devices that are present, which are started here, the first `count`.

    Raises:
        TargetError: the compiler knows no such topology, the GPU's description can't be read, or
            what was present can't be used.
    """
    if on.present:
        return _present(on, count)
    if on.platform == "cpu":
        client: Any = xla_client.make_cpu_client(num_devices=count)
        return tuple(client.devices())
    from jax.experimental import topologies

    try:
        return tuple(topologies.get_topology_desc(**_arguments(on)).devices)
    except TargetError:
        raise
    except Exception as error:  # by several names, from Python and from C++
        said = str(error).strip().partition("\n")[0].rstrip(".")
        raise TargetError(f"The compiler has no topology {on}: {said}.") from error


def _present(on: Hardware, count: int) -> tuple[Any, ...]:
    import jax

    try:
        return tuple(jax.devices(on.platform))[:count]
    except RuntimeError as error:
        said = str(error).strip().partition("\n")[0].rstrip(".")
        raise TargetError(f"JAX can't start {on}: {said}.") from error


def _arguments(on: Hardware) -> dict[str, Any]:
    if on.platform == "tpu":
        options = {"num_slices": on.slices} if on.slices > 1 else {}
        return {"platform": "tpu", "topology_name": f"{on.chip}:{on.topology}", **options}
    return {
        "platform": "cuda",
        "topology_name": "",
        "target_config": _gpu(on.config),
        "topology": on.topology,
    }


def _gpu(config: str) -> str:
    """The description of a GPU that is known by name, or that is in a file."""
    if config in gpus():
        return target_config(gpus()[config])
    hint = f"Name one of {', '.join(gpus())}, or a text file with a GpuTargetConfigProto."
    return read_text(config, "description of the GPU", hint=hint)
