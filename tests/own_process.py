"""Command lines of sdyscope, each in a process of its own."""

import os
import subprocess
import sys

from xla_flags import QUICK

#: Where how many devices there are is what is tested, whatever runs the tests has set.
DEVICES_UNSAID = {"JAX_NUM_CPU_DEVICES": None, "XLA_FLAGS": QUICK}


def command_line(*words):
    return [sys.executable, "-m", "sdyscope", *map(str, words)]


def environment(**variables):
    """This process's, with these set; None unsets one."""
    named = {**os.environ, **variables}
    return {name: value for name, value in named.items() if value is not None}


def in_own_process(*words, cwd=None, timeout=None, **variables):
    """What a command line did, with these variables set."""
    return subprocess.run(
        command_line(*words),
        env=environment(**variables),
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
