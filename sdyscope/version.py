"""Which sdyscope this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

#: Of a clone that is not installed. A semantic version, as SARIF asks for one.
FROM_SOURCE = "0.0.0+source"


def own_version() -> str:
    """The version that is installed; `FROM_SOURCE` where none is."""
    try:
        return version("sdyscope")
    except PackageNotFoundError:
        return FROM_SOURCE
