"""Ops that pass their operand on: as it is, or in another form.

One table for all who follow a tensor through such ops, by the names that they have in StableHLO,
Shardy, MHLO and HLO, and as primitives of JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Passing: TypeAlias = Literal[
    "unchanged", "type", "shape", "order", "bits", "repeated", "part", "block"
]
"""How an op passes its operand on.

``unchanged``: the result is the operand, perhaps with another sharding, layout or memory; ``type``:
the same numbers in another element type; ``shape``: the same elements in the same order;
``order``: the same dimensions in another order; ``bits``: the same bits read as another type;
``repeated``: along new or longer dimensions; ``part``: a slice; ``block``: the block of one device,
or the whole of the blocks.
"""

#: The ways that leave a value whole, with all its elements and no others.
FORMS: Final[tuple[Passing, ...]] = ("unchanged", "type", "shape", "order")

_PASSING: Final[Mapping[str, Passing]] = {
    "sharding_constraint": "unchanged",
    "reshard": "unchanged",
    "propagation_barrier": "unchanged",
    "optimization_barrier": "unchanged",
    "opt_barrier": "unchanged",  # HLO's name for it
    "copy": "unchanged",
    "copy_start": "unchanged",  # a copy to another memory, meanwhile
    "copy_done": "unchanged",
    "convert": "type",
    "reshape": "shape",
    "bitcast": "shape",  # HLO's, of a reshape that moves nothing
    "transpose": "order",
    "bitcast_convert": "bits",
    "broadcast": "repeated",
    "broadcast_in_dim": "repeated",
    "slice": "part",
    "dynamic_slice": "part",
}

CALLS: Final[Mapping[str, Passing]] = {
    "Sharding": "unchanged",
    "annotate_device_placement": "unchanged",
    "SPMDFullToShardShape": "block",
    "SPMDShardToFullShape": "block",
}
"""The same of custom calls, by their targets."""


@functools.cache
def passing(name: str) -> Passing | None:
    """How an op passes its operand on; None where it does not.

    An op with several results, such as a barrier, passes each operand on as the result of its
    number.

    Args:
        name: its name with or without a dialect, or an HLO opcode.
    """
    return _PASSING.get(name.rpartition(".")[2].replace("-", "_"))


def opcodes(*ways: Passing) -> frozenset[str]:
    """The HLO opcodes of the ops that pass their operand on in one of these ways."""
    return frozenset(name.replace("_", "-") for name, way in _PASSING.items() if way in ways)


def passes(name: str, *ways: Passing) -> bool:
    """Whether an op passes its operand on in one of these ways; see ``passing``."""
    return passing(name) in ways
