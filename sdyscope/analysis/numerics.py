"""Results against the same step on one device, within a tolerance that the dtypes justify.

An error is measured against the largest element of the result. Element by element would blame the
small ones: what cancels in a sum leaves the rounding of its terms, in whatever order they came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Largest relative error of rounding to a dtype, the unit roundoff: 2**-p with p bits of precision.
ROUNDOFF: Mapping[str, float] = {
    "f64": 2.0**-53,
    "f32": 2.0**-24,
    "tf32": 2.0**-11,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "f8E3M4": 2.0**-5,
    "f8E4M3": 2.0**-4,
    "f8E4M3FN": 2.0**-4,
    "f8E4M3FNUZ": 2.0**-4,
    "f8E4M3B11FNUZ": 2.0**-4,
    "f8E5M2": 2.0**-3,
    "f8E5M2FNUZ": 2.0**-3,
}

#: Sharding changes the order of sums: n terms, added in two orders, differ by about sqrt(n)
#: roundings, and a million terms is what the sums of a step come to.
ROUNDINGS_OF_A_SUM = 1024

#: Narrower dtypes are summed in f32, and rounded again between ops: a chain of about so many.
ROUNDINGS_OF_A_CHAIN = 32

#: What is wrong by half of its largest element is wrong in any dtype.
LARGEST = 0.5

#: Elements that are compared at once.
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Numeric:
    """One result under one partitioner against the same result on one device.

    Attributes:
      path: The result's pytree path.
      index: Its flat index.
      dtype: MLIR element type.
      coarsest: The floating point dtype whose rounding the tolerance allows for; the result's own,
        or a narrower one that the step computes in; empty where results must be the same.
      max_abs: Largest absolute difference; infinite where just one of the two is not finite.
      max_rel: That, over the largest absolute value of the result on one device.
      tolerance: Largest `max_rel` allowed; 0 for exact.
      where: Position of the largest difference; None when there is none.
    """

    path: str
    index: int
    dtype: str
    coarsest: str
    max_abs: float
    max_rel: float
    tolerance: float
    where: tuple[int, ...] | None

    @property
    def within(self) -> bool:
        """Whether the error is one that rounding explains."""
        return self.max_rel <= self.tolerance


def element_dtype(dtype: str) -> str:
    """The floating point dtype in a dtype: `f32` of `complex<f32>`; empty for integers."""
    inner = dtype.removeprefix("complex<").removesuffix(">")
    return inner if inner in ROUNDOFF else ""


def coarsest(dtype: str, computed_in: Iterable[str]) -> str:
    """The dtype whose rounding shows in results of `dtype`.

    Args:
      dtype: MLIR element type of the result.
      computed_in: element types that the step computes in.

    Returns:
      Empty for integers and booleans, which must be the same.
    """
    own = element_dtype(dtype)
    if not own:
        return ""
    return max({own, *filter(None, map(element_dtype, computed_in))}, key=ROUNDOFF.__getitem__)


def tolerance(dtype: str) -> float:
    """Largest error allowed, relative to the largest element; 0 for what is no float."""
    if not dtype:
        return 0.0
    roundings = ROUNDINGS_OF_A_SUM if dtype in ("f32", "f64") else ROUNDINGS_OF_A_CHAIN
    return min(roundings * ROUNDOFF[dtype], LARGEST)


def numeric(
    path: str, index: int, dtype: str, computed_in: Iterable[str], actual: Any, expected: Any
) -> Numeric:
    """Compares two numpy arrays of one shape; NaNs in the same places are the same."""
    rounded = coarsest(dtype, computed_in)
    largest, scale, where = _difference(actual, expected)
    relative = 0.0 if largest == 0 else largest / scale if scale else math.inf
    return Numeric(path, index, dtype, rounded, largest, relative, tolerance(rounded), where)


def _difference(actual: Any, expected: Any) -> tuple[float, float, tuple[int, ...] | None]:
    """Largest absolute difference, largest finite magnitude expected, and where the first is."""
    import numpy as np

    if actual.shape != expected.shape:
        return math.inf, 0.0, None
    flat_actual, flat_expected = actual.reshape(-1), expected.reshape(-1)
    largest, scale, where = 0.0, 0.0, None
    for start in range(0, flat_actual.size, _BLOCK):
        one, two = (_wide(part[start : start + _BLOCK]) for part in (flat_actual, flat_expected))
        with np.errstate(invalid="ignore", over="ignore"):
            magnitude = np.abs(two)
            difference = np.abs(one - two)
        same = (one == two) | (np.isnan(one) & np.isnan(two))
        difference = np.where(same, 0.0, np.where(np.isfinite(difference), difference, np.inf))
        scale = max(scale, float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0)))
        at = int(np.argmax(difference))
        if difference[at] > largest:
            largest, where = float(difference[at]), start + at
    if where is None:
        return largest, scale, None
    return largest, scale, tuple(int(i) for i in np.unravel_index(where, actual.shape))


def _wide(part: Any) -> Any:
    """As the widest dtype that tells every value apart."""
    import numpy as np

    if np.iscomplexobj(part):
        return part.astype(np.complex128)
    # Large integers are not all float64s; extended precision has 64 bits where there is any.
    integer = np.issubdtype(part.dtype, np.integer) and part.dtype.itemsize == 8
    return part.astype(np.longdouble if integer else np.float64)
