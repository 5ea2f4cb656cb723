"""Virtual CPU devices, asked for before JAX starts: it counts its devices once."""

from __future__ import annotations

import jax

from sdyscope.stages import compat


def started() -> int | None:
    """How many CPU devices JAX has started; None where it has started no devices yet."""
    if not compat.backends_are_initialized():
        return None
    try:
        return len(jax.devices("cpu"))
    except RuntimeError:  # JAX_PLATFORMS names other platforms only
        return 0


def ask(count: int, *, only_cpu: bool) -> None:
    """Has JAX, which was imported and has started no devices, start so many CPU devices.

    Args:
        count: how many at least.
        only_cpu: whether JAX starts no other devices, unless a platform was chosen already.
    """
    wanted = max(count, compat.setting("jax_num_cpu_devices"))
    jax.config.update("jax_num_cpu_devices", wanted)
    if only_cpu and not compat.setting("jax_platforms"):
        jax.config.update("jax_platforms", "cpu")
