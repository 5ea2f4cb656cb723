"""Hardware, there or not, as devices that XLA can compile for.

Runs in a child process: libtpu aborts on topologies that it does not have (`v5e:32x32`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlib import xla_client

from sdyscope.errors import TargetError
from sdyscope.hardware.gpus import gpus, target_config
from sdyscope.hardware.names import Hardware

__all__ = ["QUIET", "compile_devices", "environment", "missing_plugin", "starting"]

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

#: What a process is told that starts accelerators: to leave their memory to others.
_SHARING: Mapping[str, str] = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

#: Modules of which one must be installed to compile for a platform, and the extra that brings it.
_PLUGINS: Mapping[str, Sequence[str]] = {
    "tpu": ("libtpu",),
    "cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
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
    made = {**_SHARING, **os.environ}
    if made.get("JAX_PLATFORMS") == "cpu":
        del made["JAX_PLATFORMS"]
    if platforms:
        made["JAX_PLATFORMS"] = platforms
    return made


def missing_plugin(on: Hardware) -> TargetError | None:
    """Why nothing can be compiled for some hardware: its compiler is not installed."""
    modules = _PLUGINS.get(on.platform, ())
    if on.present or not modules or any(importlib.util.find_spec(name) for name in modules):
        return None
    return TargetError(
        f"{on} needs {modules[0]}, which is not installed.",
        hint=f"pip install 'sdyscope[{on.platform}]'",
    )


def compile_devices(on: Hardware, count: int) -> tuple[Any, ...]:
    """The devices of a topology, in the compiler's own order; for CPUs `count` virtual ones.

    Of devices that are present, which are started here, the first `count`.

    Raises:
      TargetError: the compiler knows no such topology, the GPU's description can't be read, or what
        was present can't be used.
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
    try:
        return Path(config).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise TargetError(
            f"The description of the GPU can't be read: {why}.",
            file=config,
            hint=f"Name one of {', '.join(gpus())}, or a text file with a GpuTargetConfigProto.",
        ) from error
