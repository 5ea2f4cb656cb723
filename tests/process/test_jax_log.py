"""What JAX logs of plugins."""

import logging

from sdyscope.process.jax_log import tell_briefly


def test_a_plugin_that_fails_is_one_line(capsys):
    logger = logging.getLogger("jax._src.xla_bridge")
    handler = logging.StreamHandler()
    before = list(logger.filters)
    logger.addHandler(handler)
    try:
        tell_briefly()
        tell_briefly()
        try:
            raise RuntimeError("Unable to load CUDA.\nIs it installed?")
        except RuntimeError:
            logger.exception("error when calling %s", "plugin.initialize()")
        logger.warning("nothing %s", "wrong")
    finally:
        logger.removeHandler(handler)
        logger.filters[:] = before
    assert capsys.readouterr().err == (
        "error when calling plugin.initialize(): Unable to load CUDA.\nnothing wrong\n"
    )
