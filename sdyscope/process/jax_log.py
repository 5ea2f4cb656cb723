"""What JAX logs of plugins that it can't start: a line each, in place of a traceback.

JAX's CUDA plugin is installed to compile for GPUs that are not there (`--on cuda:...`), and can't
find a driver each time that devices are started.
"""

from __future__ import annotations

import logging

#: The logger of `jax/_src/xla_bridge.py`, which starts plugins.
_LOGGER = "jax._src.xla_bridge"


def tell_briefly() -> None:
    """From now on an exception that JAX logs when it starts plugins is told in one line."""
    logger = logging.getLogger(_LOGGER)
    if _without_traceback not in logger.filters:
        logger.addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        record.msg, record.args = f"{record.getMessage()}: {reason}", ()
        record.exc_info = record.exc_text = None
    return True
