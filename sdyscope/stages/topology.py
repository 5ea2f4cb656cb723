"""Hardware that need not be there, as devices that XLA can compile for.

Runs in a child process: libtpu aborts on topologies that it does not have (`v5e:32x32`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlib import xla_client

from sdyscope.errors import TargetError
from sdyscope.hardware import Hardware

__all__ = ["QUIET", "compile_devices", "missing_plugin"]

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


def missing_plugin(on: Hardware) -> TargetError | None:
    """Why nothing can be compiled for some hardware: its compiler is not installed."""
    modules = _PLUGINS.get(on.platform, ())
    if not modules or any(importlib.util.find_spec(name) for name in modules):
        return None
    return TargetError(
        f"{on} needs {modules[0]}, which is not installed.",
        hint=f"pip install 'sdyscope[{on.platform}]'",
    )


def compile_devices(on: Hardware, count: int) -> tuple[Any, ...]:
    """The devices of a topology, in the compiler's own order; for CPUs `count` virtual ones.

    Raises:
      TargetError: the compiler knows no such topology, or the GPU's description can't be read.
    """
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


def _arguments(on: Hardware) -> dict[str, Any]:
    if on.platform == "tpu":
        options = {"num_slices": on.slices} if on.slices > 1 else {}
        return {"platform": "tpu", "topology_name": f"{on.chip}:{on.topology}", **options}
    try:
        config = Path(on.config).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise TargetError(
            f"The description of the GPU can't be read: {why}.",
            file=on.config,
            hint="Give a text file with XLA's GpuTargetConfigProto.",
        ) from error
    return {
        "platform": "cuda",
        "topology_name": "",
        "target_config": config,
        "topology": on.topology,
    }
