"""Results against the same step on one device, within a tolerance that the dtypes justify.

The error of a result is the norm of the difference over the norm of the result: the root of the sum
of squares. Element by element would blame a few without cause: what cancels in a sum leaves the
rounding of its terms, and Adam's first step makes of such a gradient, whatever its size, a whole
step up or down. What is summed wrongly, or lies on the wrong device, is wrong in many elements.

A result that is nearly its argument, as parameters after a step are, is also compared by what the
step changed: a small step of a wrong gradient leaves parameters nearly as a right one does. A
change may be off by half of itself, as Adam's first step goes by the sign of each gradient, and by
what rounding to its dtype loses.

Some results are noise: the gradient of a bias that a softmax or a normalization takes out again is
zero but for rounding. Where a result is wrong, the step on one device is run once more with its
arguments rounded otherwise; what that moves as far is not blamed, and said not to be compared. But
what is wrong by half of itself, or of its change, is noise only where that is moved by a quarter: a
gradient that is a sum in place of a mean is not, in bf16 either.

Where an optimizer goes by the sign of a gradient, as Lion does, a few elements jump in each run,
and others in the next. Where a result is still wrong, arguments are rounded in several ways: it is
noise if what differs is few elements, each of which jumps half as far in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sdyscope.facts.execution import BlockDifference, Extent, HostBlock, OtherOnOneDevice
from sdyscope.formatters import in_place

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
    "f8E8M0FNU": 2.0**-1,
    "f6E2M3FN": 2.0**-4,
    "f6E3M2FN": 2.0**-3,
    "f4E2M1FN": 2.0**-2,
}

#: Why results are equal that say nothing of what computed them.
TELLS_NOTHING = "no result is finite, other than zero and more than rounding noise"

#: Sharding changes the order of sums: n terms, added in two orders, differ by about sqrt(n)
#: roundings, and a million terms is what the sums of a step come to.
ROUNDINGS_OF_A_SUM = 1024

#: Narrower dtypes are summed in f32, and rounded again between ops: a chain of about so many.
ROUNDINGS_OF_A_CHAIN = 32

#: What is wrong by half is wrong in any dtype.
LARGEST = 0.5

#: A result is noise where it is wrong by at most so many times what rounding the arguments moves.
_TIMES_MOVED = 4

#: At most so much of a block is few elements, and each jumps by at least half of its difference.
_FEW, _JUMPED = 1 / 8, 0.5

#: How near a ratio is to a whole number that is taken for one.
_WHOLE = 1e-3

#: Elements that are compared at once.
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Numeric:
    """One result under one partitioner against the same result on one device.

    Attributes:
        path: the result's pytree path.
        index: its flat index.
        dtype: MLIR element type.
        coarsest: the floating point dtype whose rounding the tolerance allows for; the result's
            own, or a narrower one that the step computes in; empty where results must be the same.
        error: norm of the difference over the norm of the result on one device; infinite where just
            one of the two is not finite, and where all of the result should be zero and is not.
        tolerance: largest error allowed; 0 for the very same.
        within: whether the error is one that rounding explains.
        max_abs: largest absolute difference of an element; infinite where just one is not finite.
        where: position of that element; None when there is no difference.
        device: position of the first device that holds it; None where that is not known.
        pair: the element as it is there, and on one device; empty when there is no difference.
        norm: norm of the result on one device, of its finite numbers.
        tells: whether there is something to compare: not where all is zero or not finite, here and
            there, nor where it is noise.
        wrong: positions of the devices whose own blocks exceed the tolerance; empty where the
            result was compared in one piece.
        right: those whose blocks do not.
        not_finite: how many of its elements are NaN, or the same infinity, here and on one device.
        change: norm of what the step changes in the argument that the result may be the next value
            of, over the norm of the result; None where there is no such argument.
        by_change: whether error and tolerance are shares of that change: where it is wrong and the
            result as a whole is within its own tolerance.
        is_noise: whether it is wrong by no more than rounding the arguments moves it on one device,
            or in a few elements that this makes jump: tolerance is then what that allows.
    """

    path: str
    index: int
    dtype: str
    coarsest: str
    error: float
    tolerance: float
    max_abs: float
    where: tuple[int, ...] | None
    device: int | None = None
    pair: tuple[str, ...] = ()
    norm: float = math.nan
    wrong: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    not_finite: int = 0
    change: float | None = None
    by_change: bool = False
    is_noise: bool = False

    @property
    def excess(self) -> float:
        """The error as a share of the tolerance."""
        if not self.tolerance or math.isinf(self.error):
            return math.inf if self.error else 0.0
        return self.error / self.tolerance

    __document__ = in_place(tolerance=("tolerance", "within"), norm=("norm", "tells"))

    @property
    def within(self) -> bool:
        """Whether the error is one that rounding explains."""
        return self.error <= self.tolerance

    @property
    def tells(self) -> bool:
        """Whether there is something to compare."""
        return bool(self.norm or self.error) and not self.is_noise

    @property
    def hides_change(self) -> bool:
        """Whether the step changes so little that rounding would hide it if that were wrong."""
        return self.change is not None and bool(self.norm) and self.change <= hidden(self.dtype)


class Excused(NamedTuple):
    """An error, and the largest that is allowed."""

    error: float
    allowed: float


def worst_error(errors: Iterable[Numeric]) -> Numeric | None:
    """The one that comes nearest to its tolerance, or exceeds it most; noise is none."""
    telling = (error for error in errors if not error.is_noise)
    return max(telling, key=lambda error: error.excess, default=None)


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
    """Largest error allowed; 0 for what is no float."""
    if not dtype:
        return 0.0
    roundings = ROUNDINGS_OF_A_SUM if dtype in ("f32", "f64") else ROUNDINGS_OF_A_CHAIN
    # What a chain in 8 bits comes to excuses all; rounding the arguments tells what is noise.
    widest = max(ROUNDINGS_OF_A_CHAIN * ROUNDOFF["bf16"], 2 * ROUNDOFF[dtype])
    return min(roundings * ROUNDOFF[dtype], widest, LARGEST)


def hidden(dtype: str) -> float:
    """Largest change, over the norm of what is changed, that may be wrong and not be seen.

    Two results that are rounded to their dtype are apart by a unit in the last place at most, two
    roundoffs, and half of a change that is larger than two of these is more than that.
    """
    own = element_dtype(dtype)
    return 4 * ROUNDOFF[own] if own else 0.0


def error_of_change(distance: float, norm: float, change: float, dtype: str) -> Excused | None:
    """The error of what a step changes; None where rounding hides it, and where it is in bounds.

    Args:
        distance: norm of the difference.
        norm: that of the result on one device.
        change: that of what the step changed in its argument there.
        dtype: MLIR element type.
    """
    least = hidden(dtype)
    if not least or not math.isfinite(distance) or change <= least * norm:
        return None
    allowed = LARGEST + least / 2 * norm / change
    error = distance / change
    return Excused(error, allowed) if error > allowed else None


def other_on_one_device(
    index: int,
    here: Any,
    alone: Any,
    dtype: str,
    computed_in: Iterable[str],
    before: Any = None,
    moved: float = 0.0,
) -> OtherOnOneDevice | None:
    """How a result is not what the program computes on a mesh of one device; None where it is.

    Args:
        index: which result.
        here: its values, as an array.
        alone: what they are on one device.
        dtype: MLIR element type.
        computed_in: element types that the step computes in.
        before: the argument that the result may be the next value of; None for none.
        moved: how far rounding the arguments moves it; see ``Reference.moved``.
    """
    apart = [difference(HostBlock.whole(here), alone, before)]
    whole = numeric("", index, dtype, computed_in, apart, moved)
    if whole.within and not whole.is_noise:
        return None
    ratio, of_change = ratio_of(whole, here, alone, before)
    # Noise is no multiple.
    is_noise = whole.is_noise and ratio is None
    return OtherOnOneDevice(index, whole.error, ratio, of_change, is_noise)


def ratio_of(wrong: Numeric, here: Any, there: Any, before: Any) -> tuple[float | None, bool]:
    """How many times as large all of a wrong result is, or all that the step changed in it.

    Args:
        wrong: how wrong it is.
        here: the result.
        there: what it should be.
        before: the argument that it may be the next value of; None for none.

    Returns:
        The whole number, None where it is none; and whether it, or the error, is of the change.
    """
    ratio = None if wrong.by_change else whole_ratio(here, there, tolerance(wrong.coarsest))
    if ratio is not None or before is None or wrong.change is None:
        return ratio, False
    wide = np.complex128 if np.iscomplexobj(here) else np.float64
    start = np.asarray(before).astype(wide)
    rounding = hidden(wrong.dtype) / (wrong.change or math.inf)
    ratio = whole_ratio(
        np.asarray(here).astype(wide) - start,
        np.asarray(there).astype(wide) - start,
        max(tolerance(wrong.coarsest), rounding),
        min(max(_WHOLE, rounding), 0.1),
    )
    return ratio, wrong.by_change or ratio is not None


def relative_error(here: Any, there: Any) -> float:
    """Norm of the difference of two arrays over the norm of the second; NaNs agree with NaNs.

    Infinite where just one of two elements is not finite, and where all of the second is zero and
    the first is not.
    """
    apart = difference(HostBlock.whole(here), there)
    if not apart.distance:
        return 0.0
    return apart.distance / apart.norm if apart.norm else math.inf


def whole_ratio(here: Any, there: Any, allowed: float, whole: float = _WHOLE) -> float | None:
    """How many times as large all of an array is as another; None where it is no whole number.

    Args:
        here: an array.
        there: one of the same shape.
        allowed: the relative error that rounding explains.
        whole: how near the ratio has to be to a whole number.
    """
    wide = np.complex128 if np.iscomplexobj(here) else np.float64
    actual, expected = (np.asarray(each).astype(wide) for each in (here, there))
    with np.errstate(all="ignore"):
        own, norm = float(np.linalg.norm(actual)), float(np.linalg.norm(expected))
        if not (norm and own and math.isfinite(own / norm)):
            return None
        times = own / norm
        is_same = float(np.linalg.norm(actual - times * expected)) <= allowed * own
    is_whole = is_same and times > 1.5 and abs(times - round(times)) < whole
    return float(round(times)) if is_whole else None


def numeric(
    path: str,
    index: int,
    dtype: str,
    computed_in: Iterable[str],
    differences: Sequence[BlockDifference],
    moved: float = 0.0,
) -> Numeric:
    """One result, of which every block was compared; of replicas of a block the worst counts.

    Args:
        path: its pytree path.
        index: its flat index.
        dtype: MLIR element type.
        computed_in: element types that the step computes in.
        differences: of every block.
        moved: how far rounding the arguments moves it on one device; see ``Reference.moved``.
    """
    blocks: dict[tuple[Extent, ...], BlockDifference] = {}
    for block in differences:
        before = blocks.get(block.index)
        if before is None or (block.distance, block.largest) > (before.distance, before.largest):
            blocks[block.index] = block
    distance = math.hypot(*(block.distance for block in blocks.values()))
    norm = math.hypot(*(block.norm for block in blocks.values()))
    worst = max(blocks.values(), key=lambda block: block.largest)
    differs = distance > 0 or worst.where is not None
    rounded = coarsest(dtype, computed_in)
    own = Excused((distance / norm if norm else math.inf) if differs else 0.0, tolerance(rounded))
    changes = [block.change for block in blocks.values() if block.change is not None]
    change = math.hypot(*changes) if len(changes) == len(blocks) else None
    of_change = None
    if change is not None and own.error <= own.allowed:
        of_change = error_of_change(distance, norm, change, dtype)
    shown = of_change or own
    allowed = _TIMES_MOVED * moved
    half = LARGEST * (norm if change is None else min(change, norm))
    is_noise = (
        shown.error > shown.allowed
        and distance <= allowed
        # Of tokens, say, any that rounding moves may be another.
        and (not rounded or distance <= half or moved >= half / 2)
    )
    if is_noise:
        shown = shown._replace(allowed=shown.error / distance * allowed)
    elif shown.error > shown.allowed and 0 < distance < math.inf:
        left = math.hypot(
            *(each.distance if each.steady is None else each.steady for each in blocks.values())
        )
        is_noise = shown.error * left / distance <= shown.allowed
        shown = shown._replace(allowed=shown.error) if is_noise else shown
    wrong = [block.distance > tolerance(rounded) * block.norm for block in differences]
    held = [
        (block.device, is_wrong)
        for block, is_wrong in zip(differences, wrong, strict=True)
        if block.device is not None
    ]
    return Numeric(
        path,
        index,
        dtype,
        rounded,
        shown.error,
        shown.allowed,
        worst.largest,
        worst.where,
        worst.device,
        worst.pair,
        norm,
        tuple(device for device, is_wrong in held if is_wrong),
        tuple(device for device, is_wrong in held if not is_wrong),
        sum(block.not_finite for block in blocks.values()),
        None if change is None else change / norm if norm else math.inf if change else 0.0,
        of_change is not None,
        is_noise,
    )


def difference(
    actual: HostBlock, expected: Any, before: Any = None, jumps: Any = None
) -> BlockDifference:
    """A block against the whole result on one device, a numpy array; NaNs agree with NaNs.

    Args:
        actual: the block.
        expected: the whole result on one device.
        before: all of the argument that it may be the next value of; None for none.
        jumps: how far rounding moves each element of the whole result; None where not known.
    """
    block = expected[tuple(slice(*extent) for extent in actual.index)]
    if actual.values.shape != block.shape:
        return BlockDifference(actual.index, math.inf, 0.0, math.inf, None, actual.device)
    flat_actual, flat_expected = actual.values.reshape(-1), block.reshape(-1)
    norm, distance, largest, where, not_finite = 0.0, 0.0, 0.0, None, 0
    for start in range(0, flat_actual.size, _BLOCK):
        ours, theirs = (
            _wide(part[start : start + _BLOCK]) for part in (flat_actual, flat_expected)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            magnitude = np.abs(theirs)
            apart = np.abs(ours - theirs)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        apart = np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))
        # hypot and a scaled norm: squares of large numbers are not numbers any more.
        is_finite = np.isfinite(magnitude)
        not_finite += int(np.count_nonzero(same & ~is_finite))
        norm = math.hypot(norm, _norm(np.where(is_finite, magnitude, 0.0)))
        distance = math.hypot(distance, _norm(apart))
        at = int(np.argmax(apart))
        if apart[at] > largest:
            largest, where = float(apart[at]), start + at
    position: tuple[int, ...] | None = None
    pair: tuple[str, ...] = ()
    if where is not None:
        pair = (_shown(flat_actual[where]), _shown(flat_expected[where]))
        local = np.unravel_index(where, block.shape)
        starts = (start for start, _ in actual.index)
        position = tuple(start + int(i) for start, i in zip(starts, local, strict=True))
    change = (
        None if before is None else _change(block, before[tuple(slice(*e) for e in actual.index)])
    )
    steady = None
    if jumps is not None and distance:
        steady = _steady(actual.values, block, jumps[tuple(slice(*e) for e in actual.index)])
    return BlockDifference(
        actual.index,
        distance,
        norm,
        largest,
        position,
        actual.device,
        pair,
        not_finite,
        change,
        steady,
    )


def _steady(here: Any, there: Any, jumps: Any) -> float:
    """Norm of the difference of two arrays without a few elements that jump about as far."""
    ours, theirs = _wide(here.reshape(-1)), _wide(there.reshape(-1))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(ours - theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    apart = np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))
    jumped = np.flatnonzero((apart > 0) & (_JUMPED * apart <= jumps.reshape(-1)))
    few = max(1, int(_FEW * apart.size))
    apart[jumped[np.argsort(-apart[jumped])[:few]]] = 0.0
    return _norm(apart)


def _change(block: Any, before: Any) -> float:
    """Norm of what is finite of the difference of two arrays of one shape."""
    norm = 0.0
    now, was = block.reshape(-1), before.reshape(-1)
    for start in range(0, now.size, _BLOCK):
        ours, theirs = (_wide(part[start : start + _BLOCK]) for part in (now, was))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(ours - theirs)
        norm = math.hypot(norm, _norm(np.where(np.isfinite(apart), apart, 0.0)))
    return norm


def _shown(element: Any) -> str:
    """`0.333333`, `-7`, `nan`."""
    if np.iscomplexobj(element):
        return f"{complex(element):.6g}"
    return str(element) if element.dtype.kind in "iub" else f"{float(element):.6g}"


def _norm(values: Any) -> float:
    """Root of the sum of squares."""
    largest = float(np.max(values, initial=0.0))
    if largest == 0 or math.isinf(largest):
        return largest
    return largest * math.sqrt(float(np.sum(np.square(values / largest))))


def _wide(part: Any) -> Any:
    """As the widest dtype that tells every value apart."""
    if np.iscomplexobj(part):
        return part.astype(np.complex128)
    # Large integers are not all float64s; extended precision has 64 bits where there is any.
    integer = np.issubdtype(part.dtype, np.integer) and part.dtype.itemsize == 8
    return part.astype(np.longdouble if integer else np.float64)
