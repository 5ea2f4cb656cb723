"""Reads what JAX says where the carry of a loop, or the results of branches, differ in their types.

The messages are those of ``jax._src.lax.control_flow``; the types in them are as
``float32[8@data,16]{V:data}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sdyscope.facts.refusals import DifferingTypes

_TYPE = r"\w+\[[^\]]*\](?:\{[^}]*\})?"
_CARRY = re.compile(
    r"(?i:the) input carry (?:component )?(?P<value>\S+) has type "
    rf"(?P<first>{_TYPE}) but the corresponding output carry component has type (?P<second>{_TYPE})"
)
_NAME = r"branch ?\d+|\S+?"
_BRANCH = re.compile(r"^branch ?(?=\d+$)")
_BRANCHES = re.compile(
    rf"(?i:the) output of (?P<value>{_NAME})(?: at path (?P<path>\S+))? has type (?P<first>{_TYPE})"
    rf" but the corresponding output of (?P<other>{_NAME}) has type (?P<second>{_TYPE})"
)


def differing(message: str) -> Iterator[DifferingTypes[str]]:
    """The types that a message of JAX is about; none of another message."""
    for carry in _CARRY.finditer(message):
        yield DifferingTypes("carry", carry["value"], "", "", carry["first"], carry["second"])
    for each in _BRANCHES.finditer(message):
        value, other = (_BRANCH.sub("branch ", each[name]) for name in ("value", "other"))
        yield DifferingTypes(
            "branch", value, other, each["path"] or "", each["first"], each["second"]
        )
