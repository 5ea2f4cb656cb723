"""Kinds of ops that are, or become, something else on their way to a partitioner."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.graph import Op, TensorType
from sdyscope.graph.op_kinds import CONSTRAINTS

COMMUTATIVE = frozenset(
    f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
)
#: What ops that are their operand become, where they are not gone.
KEPT_IDENTITIES = CONSTRAINTS | {"mhlo.copy"}


def is_identity(op: Op) -> bool:
    """Whether an op's results are its operands."""
    return op.passing == "unchanged"


def is_same_op(mine: Op, theirs: Op) -> bool:
    """Whether two ops do the same to their operands; block arguments do nothing."""
    if mine.is_argument:
        return False
    return mine.kind == theirs.kind or (is_identity(mine) and theirs.kind in KEPT_IDENTITIES)


def same_types(mine: Sequence[TensorType], theirs: Sequence[TensorType]) -> bool:
    """Whether values have the same shapes and dtypes."""
    if mine == theirs:
        return True  # Mostly the same objects, which is told at once.
    if len(mine) != len(theirs):
        return False
    for own, other in zip(mine, theirs, strict=True):
        if own is not other and (own.shape != other.shape or own.dtype != other.dtype):
            return False
    return True
