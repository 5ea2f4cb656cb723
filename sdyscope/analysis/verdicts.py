"""What came of each tensor, from the request to the end of propagation, in one word."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sdyscope.analysis.propagation.propagate import ProgramValue
from sdyscope.analysis.show import ShownTensor

Verdict: TypeAlias = Literal[
    "agrees",
    "differs",
    "moved",
    "partitioners",
    "missing",
    "impossible",
    "decided",
    "dropped",
    "gone",
    "none",
]
"""``agrees``: as requested everywhere; ``differs``: lowered otherwise than requested; ``moved``:
propagation put it elsewhere than requested; ``partitioners``: they put it differently; ``missing``:
a module does not have it; ``impossible``: its sharding can't be read or can't be; ``decided``: by
the partitioner, nobody asked; ``dropped``: an argument that jit dropped; ``gone``: folded, or
merged with others; ``none``: nothing places it."""


def verdict_on(tensor: ShownTensor | None, value: ProgramValue | None) -> Verdict:
    """What came of a tensor of a program.

    Args:
        tensor: what was requested and lowered of it; None where it is a value inside.
        value: what it is after propagation; None where that is not known.
    """
    if tensor is not None:
        if tensor.dropped:
            return "dropped"
        if tensor.disagrees:
            return "differs"
        if tensor.by_author and not tensor.lowered:
            return "missing"
        if tensor.problem:
            return "impossible"
    if value is not None:
        if value.disagrees:
            return "moved"
        if value.same is False:
            return "partitioners"
        if tensor is None or tensor.requested is None:
            fates = {said.fate for said in value.propagated.values()}
            if fates and fates <= {"folded", "not partitioned"}:
                return "gone"
            return (
                "decided"
                if any(propagated.placement for propagated in value.propagated.values())
                else "none"
            )
    if tensor is None:
        return "none"
    if tensor.requested is not None:
        return "agrees"
    return "decided" if tensor.lowered else "none"
