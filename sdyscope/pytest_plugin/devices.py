"""Virtual CPU devices for tests: asked for before JAX starts, which counts its devices once."""

from __future__ import annotations

import os
import re
import sys

from sdyscope.errors import TargetError

#: What JAX reads when it is imported.
_COUNT, _PLATFORMS = "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"
_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def read_count(given: object, asker: str) -> int:
    """A number of devices, as an ini file or a marker gives it.

    Raises:
        TargetError: it is none, or XLA can't make so many.
    """
    from sdyscope.hardware.names import LARGEST_CPU

    text = str(given).strip()
    count = int(text) if re.fullmatch(r"\d{1,9}", text) else 0
    if not 1 <= count <= LARGEST_CPU:
        raise TargetError(
            f"{asker} is {text or 'empty'}, which is not a number of devices.",
            hint=f"Give a number from 1 to {LARGEST_CPU:,}.",
        )
    return count


def provide(count: int, asker: str) -> None:
    """Lets JAX start at least ``count`` virtual CPU devices in this process and its children.

    It starts no other devices, unless JAX_PLATFORMS says so.

    Raises:
        TargetError: JAX has started with fewer devices.
    """
    if _started() is not None:
        check(count, asker)
        return
    flags = _FLAG.findall(os.environ.get("XLA_FLAGS", ""))
    before = os.environ.get(_COUNT, "")
    asked = [int(text) for text in (*flags, before) if text.isdecimal()]
    wanted = max([count, *asked])
    # Processes that tests start have as many, and JAX has when it is imported later.
    os.environ[_COUNT] = str(wanted)
    only_cpu = _PLATFORMS not in os.environ
    if only_cpu:
        os.environ[_PLATFORMS] = "cpu"
    if "jax" in sys.modules:
        from sdyscope.stages.executed import virtual_devices

        virtual_devices.ask(wanted, only_cpu=only_cpu)


def check(count: int, asker: str) -> None:
    """Makes sure that there are so many, where JAX has started.

    Raises:
        TargetError: there are fewer, and it is too late to ask for more.
    """
    have = _started()
    if have is None or have >= count:
        return
    raise TargetError(
        f"{asker} asks for {count:,} CPU devices, and JAX has started with {have:,} already: "
        "something that was imported before uses jax, such as a plugin, a conftest.py or a test "
        "module at its top.",
        hint="Make arrays, meshes and jax.devices() inside of tests and fixtures, or set "
        f"sdyscope_devices = {count} in pytest's ini file, which is read earlier, or "
        f"{_COUNT}={count} in the environment.",
    )


def _started() -> int | None:
    """How many CPU devices JAX has started; None where it has not."""
    if "jax" not in sys.modules:
        return None
    from sdyscope.stages.executed import virtual_devices

    return virtual_devices.started()
