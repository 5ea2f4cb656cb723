"""Floating-point operations of matmuls and convolutions, on the blocks that a device holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

#: Ops whose arithmetic is counted.
MATMULS = frozenset({"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"})

_CONTRACTED = re.compile(r"lhs_contracting_dimensions = \[([\d, ]*)\]")
_KERNEL = re.compile(r"x\[([^\]]*)\]->")


def matmul_flops(
    operation: Any,
    left: Sequence[int],
    right: Sequence[int],
    result: Sequence[int],
    text: Callable[[Any], str] = str,
) -> int:
    """A multiplication and an addition for each product, as XLA's cost analysis counts them.

    Args:
        operation: one of ``MATMULS``.
        left: shape of the block of its first operand.
        right: of its second operand.
        result: of its result.
        text: the text of an attribute.
    """
    if operation.name == "stablehlo.convolution":
        # [0, 1, i, o]: every number of the result is a sum over all of the kernel but `o`.
        match = _KERNEL.search(text(operation.attributes["dimension_numbers"]))
        names = [] if match is None else [name.strip() for name in match[1].split(",")]
        summed = [size for name, size in zip(names, right, strict=False) if name != "o"]
        return 2 * math.prod(result) * math.prod(summed)
    if operation.name == "stablehlo.dot":
        return 2 * math.prod(result) * (left[-1] if left else 1)
    numbers = _contracted(text(operation.attributes["dot_dimension_numbers"]))
    return 2 * math.prod(result) * math.prod(left[number] for number in numbers)


@lru_cache(1 << 8)
def _contracted(text: str) -> tuple[int, ...]:
    match = _CONTRACTED.search(text)
    return () if match is None else tuple(int(n) for n in match[1].split(",") if n.strip())
