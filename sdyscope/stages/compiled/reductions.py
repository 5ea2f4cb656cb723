"""What XLA makes of the all-reduces that Shardy puts in, beyond taking them as they are.

On CPUs, one all-reduce for each dimension that is reduced (``AllReduceAlongShardingDims`` of its
``spmd_partitioner.cc``). On TPUs and GPUs one for all dimensions, and one for a sum of several
(``all_reduce_folder.cc``, ``all_reduce_reassociate.cc`` in ``xla/hlo/transforms/collectives``).
"""

from __future__ import annotations

from typing import Any

from sdyscope.errors import SdyscopeError
from sdyscope.stages.compiled.value_shardings import ValueReader
from sdyscope.stages.propagated.mlir_ops import owner
from sdyscope.syntax import shardy
from sdyscope.values.mesh import AxisRef
from sdyscope.values.sharding import TensorSharding


class Sums:
    """Finds all-reduces of one block whose results are only added to each other's."""

    def __init__(self) -> None:
        #: By value: what it is reduced over, and the number of the all-reduce that it could be of.
        self._pending: dict[int, tuple[object, int]] = {}

    def all_reduce(self, operation: Any, number: int) -> None:
        """Remembers an ``sdy.all_reduce``, which is the collective of this number."""
        attributes = operation.attributes
        over = (attributes["reduction_axes"], attributes["out_sharding"])
        self._wait(operation.results[0], over, number)

    def add(self, operation: Any) -> int | None:
        """The number of the all-reduce that a ``stablehlo.add`` spares; None for none."""
        if not self._pending:
            return None
        left, right = (self._pending.get(hash(operand)) for operand in operation.operands)
        if left is None or right is None or left[0] != right[0] or left[1] == right[1]:
            return None
        self._wait(operation.results[0], *left)
        return right[1]

    def _wait(self, value: Any, over: object, number: int) -> None:
        if sum(1 for _ in value.uses) == 1:
            self._pending[hash(value)] = (over, number)


def axes_of_dimensions(
    value: Any, shardings: tuple[TensorSharding | None, ...], values: ValueReader
) -> tuple[tuple[AxisRef, ...], ...]:
    """The axes that each of the dimensions that an op reduces is sharded over.

    Args:
        value: what the op makes, before it is reduced over devices.
        shardings: those of the op's operands.
        values: what was read before.
    """
    made_by = owner(value)
    if made_by is None or "sdy.sharding_rule" not in made_by.attributes:
        return ()
    try:
        rule = shardy.parse_op_sharding_rule(values.text(made_by.attributes["sdy.sharding_rule"]))
    except SdyscopeError:
        return ()
    by_factor: dict[int, tuple[AxisRef, ...]] = {}
    for mapping, sharding in zip(rule.operand_mappings, shardings, strict=True):
        dims = () if sharding is None else sharding.dim_shardings
        for factors, dim in zip(mapping.dim_mappings, dims, strict=False):
            factor = factors.factor_indices[0]
            if dim.axes and len(factors.factor_indices) == 1 and factor in rule.reduction_factors:
                by_factor.setdefault(factor, dim.axes)
    return tuple(by_factor.values())
