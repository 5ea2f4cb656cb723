"""Tags: ``sid12`` in names of locations, 12 being an op's node in the lowered module's graph.

``stages.align.tags`` writes them; here they are read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_TAG = re.compile(r"(?<![A-Za-z0-9_])sid(\d+)(?![A-Za-z0-9_])")
_OWN_TAG = re.compile(r"\d+")
_TAGS = re.compile(r"sid\d+(?:[;/]sid\d+)*")


def sids(names: str | Iterable[str]) -> tuple[int, ...]:
    """The nodes that tags name, in order and each once.

    Args:
        names: names of a location (``Location.names``), an ``op_name``, or the value of the
            frontend attribute: ``sid615;sid614``, ``12``, ``jit(f)/sid12``.
    """
    numbers: dict[int, None] = {}
    for text in (names,) if isinstance(names, str) else names:
        if _OWN_TAG.fullmatch(text):
            numbers[int(text)] = None
        elif "sid" in text:
            for number in _TAG.findall(text):
                numbers[int(number)] = None
    return tuple(numbers)


def is_tag(scope: str) -> bool:
    """Whether a scope is nothing but tags."""
    return _TAGS.fullmatch(scope) is not None
