"""Which JAX this is, and what its locations leave out."""

from __future__ import annotations

import importlib.util

import jax
import jaxlib.version
from jax._src import source_info_util

from sdyscope.facts.program import Versions
from sdyscope.values.source import PACKAGE


def _hide_own_frames() -> None:
    """Keeps sdyscope's calls, and click's around them, out of the locations that JAX writes.

    The reference models, which stand in the package when it is installed, are user code.
    """
    for entry in PACKAGE.iterdir():
        if entry.name != "models":
            source_info_util.register_exclusion(str(entry))
    source_info_util.register_exclusion("<string>")  # python -c, as the child process is started
    click = importlib.util.find_spec("click")
    for folder in (click and click.submodule_search_locations) or ():
        source_info_util.register_exclusion(folder)


_hide_own_frames()

#: The JAX versions that the tests run on.
TESTED = ("0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.2", "0.12.0")


def version() -> str:
    """JAX's version."""
    return jax.__version__


def versions() -> Versions:
    """The versions of JAX and jaxlib."""
    return Versions(version(), jaxlib.version.__version__)


def version_tuple() -> tuple[int, ...]:
    """JAX's version as numbers, for comparing."""
    return tuple(jax.__version_info__)


def tested_version() -> bool:
    """Whether the tests run on this minor version of JAX."""
    minor = version().split(".")[:2]
    return any(known.split(".")[:2] == minor for known in TESTED)
