"""How often the body of a ``stablehlo.while`` runs, where the module tells."""

from __future__ import annotations

from typing import Any

from sdyscope.hlo.loops import MIRRORED, trips
from sdyscope.stages import compat
from sdyscope.stages.propagated.mlir_ops import owner
from sdyscope.values.passing import passes

_CONSTANTS = frozenset({"stablehlo.constant", "sdy.constant"})


def trip_count(loop: Any) -> int | None:
    """How often the body of a loop runs; None where the module does not tell.

    The pattern is that of a counted loop, such as JAX's scans: an argument of the loop that is
    compared with a constant, begins with a constant, and grows by a constant.

    Args:
        loop: the ``stablehlo.while``.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    compared = owner(_end(condition).operands[0])
    if compared is None or compared.name != "stablehlo.compare":
        return None
    direction = compat.comparison_direction(compared)
    left, right = compared.operands
    if _number(left) is not None:
        left, right, direction = right, left, MIRRORED.get(direction, "")
    limit, index = _number(right), _argument(left, condition)
    if limit is None or index is None or direction not in MIRRORED:
        return None
    first = _number(loop.operands[index])
    step = _step(body, index)
    if first is None or not step:
        return None
    return trips(first, limit, step, direction)


def _end(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _step(body: Any, index: int) -> int | None:
    """By how much an argument of the loop grows."""
    grown = owner(_through(_end(body).operands[index]))
    if grown is None or grown.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = grown.operands
    if grown.name == "stablehlo.add" and _number(left) is not None:
        left, right = right, left
    size = _number(right)
    if size is None or _argument(left, body) != index:
        return None
    return size if grown.name == "stablehlo.add" else -size


def _argument(value: Any, block: Any) -> int | None:
    """Which argument of a block a value is."""
    value = _through(value)
    if not compat.is_block_argument(value) or value.owner != block:
        return None
    return compat.argument_number(value)


def _through(value: Any) -> Any:
    """The value before it was only passed on."""
    made_by = owner(value)
    while (
        made_by is not None
        and len(made_by.operands) == 1
        and passes(made_by.name, "unchanged", "type", "shape")
    ):
        value = made_by.operands[0]
        made_by = owner(value)
    return value


def _number(value: Any) -> int | None:
    """The number that a value always is."""
    made_by = owner(_through(value))
    if made_by is None or made_by.name not in _CONSTANTS:
        return None
    numbers = compat.integers(made_by.attributes["value"])
    return numbers[0] if numbers is not None and len(numbers) == 1 else None
