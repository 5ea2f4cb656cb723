"""Reads what JAX says where the carry of a loop, or the results of branches, differ in their types.

The messages are those of ``jax._src.lax.control_flow``; the types in them are as
``float32[8@data,16]{V:data}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Differing:
    """Two types that have to be equal.

    Attributes:
        kind: of a carry, what goes in and what comes out; of branches, what two of them return.
        value: the carry, or the first branch.
        other: the other branch; empty of a carry.
        path: of a branch, where in its result; empty for all of it.
        first: the type of what goes in, or of the first branch's.
        second: the type of what comes out, or of the other branch's.
    """

    kind: Literal["carry", "branch"]
    value: str
    other: str
    path: str
    first: str
    second: str

    @property
    def function(self) -> str:
        """The branch whose type is ``first``; empty of a carry."""
        return self.value if self.other else ""


def differing(message: str) -> Iterator[Differing]:
    """The types that a message of JAX is about; none of another message."""
    for carry in _CARRY.finditer(message):
        yield Differing("carry", carry["value"], "", "", carry["first"], carry["second"])
    for each in _BRANCHES.finditer(message):
        value, other = (_BRANCH.sub("branch ", each[name]) for name in ("value", "other"))
        yield Differing("branch", value, other, each["path"] or "", each["first"], each["second"])
