"""Where in a program values begin to differ from those of its counterpart.

From a result that differs one goes back through what it is made of, through values that differ, to
the first whose own inputs do not. A few dozen values are looked at in each round, evenly over what
is left, ends of scopes first; each halves what is left many times over, and takes a compile of both
sides. Where the op is a loop or a shard_map, the search goes on in its body; where it is a `cond`,
in the branch that both sides take.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sdyscope.analysis.run.numerics import (
    LARGEST,
    coarsest,
    relative_error,
    tolerance,
    whole_ratio,
)
from sdyscope.errors import SdyscopeError
from sdyscope.facts.findings import InnerDifference, Inside, Regrouped
from sdyscope.facts.inside import Frame, InnerLevel, InnerValue, OtherOps, Place
from sdyscope.values.mesh import Mesh

#: How many values are looked at in a round.
VALUES = 64

#: Bytes of all of them that are too many.
BYTES = 1 << 30

#: How often both sides are compiled at most for one level.
ROUNDS = 6


class LevelSource(Protocol):
    """Where values come from, of a program and of its counterpart."""

    def level(self, entered: tuple[int, ...] = ()) -> InnerLevel:
        """The values of a body; raises `OtherOps`."""
        ...

    def look(self, places: Sequence[Place]) -> Mapping[Place, tuple[Any, Any]]:
        """Values on both sides."""
        ...


@dataclass(frozen=True)
class _Compared:
    """A value beside its counterpart.

    Attributes:
        agrees: whether they differ by no more than rounding; None where that can't be said.
        error: relative error.
        ratio: how many times as large it is.
    """

    agrees: bool | None
    error: float = 0.0
    ratio: float | None = None


_UNKNOWN = _Compared(None)


def first_difference(
    source: LevelSource,
    index: int,
    result: str,
    computed_in: Sequence[str],
    mesh: Mesh | None = None,
    base: Mesh | None = None,
    others: Sequence[int] = (),
) -> Inside:
    """The first value inside that differs, of those that a result is made of.

    Args:
        source: gives values inside.
        index: the flat index of the result, which differs.
        result: its name.
        computed_in: element types that the program computes in.
        mesh: the program's mesh.
        base: that of the counterpart; None where it is the jaxpr without shardings.
        others: flat indices of other results that differ: of all of them that one is searched which
            the program has first. A loss says more than a gradient, in which sums over devices are
            in other places.
    """
    try:
        made_at = source.level().results
        earliest = min(
            (each for each in (index, *others) if made_at[each] is not None),
            key=lambda each: made_at[each] or 0,
            default=index,
        )
        result_inside = _Search(source, computed_in).result(earliest)
    except OtherOps:
        return Inside(result, why="other ops")
    except SdyscopeError as error:
        return Inside(result, why="failed", reason=error.message.rstrip("."))
    except Exception as error:  # compiling and running raise every kind of error
        text = str(error).strip().partition("\n")[0].rstrip(".:") or "no message"
        return Inside(result, why="failed", reason=f"{type(error).__name__}: {text}")
    if result_inside is None:
        return Inside(result, why="gone")
    sizes = {} if mesh is None else mesh.shape
    axes = tuple(
        name for name, size in sizes.items() if size > 1 and result_inside.compared.ratio == size
    )
    value = result_inside.value
    first = InnerDifference(
        value.op,
        value.scope,
        value.source,
        value.dtype,
        value.shape,
        result_inside.compared.error,
        result_inside.compared.ratio,
        axes,
        base,
        result_inside.iteration,
        result_inside.looked,
        result_inside.unseen,
        _regrouped(value, result_inside.counterpart, sizes),
        _reordered(value, sizes),
    )
    return Inside(result, first)


@dataclass(frozen=True)
class _FirstDifference:
    value: InnerValue
    counterpart: InnerValue | None
    compared: _Compared
    iteration: int | None
    looked: int
    unseen: int


class _Search:
    """One search, through bodies inside of bodies."""

    def __init__(self, source: LevelSource, computed_in: Sequence[str]) -> None:
        self._source, self._computed_in = source, computed_in
        self._looked = 0

    def result(self, index: int) -> _FirstDifference | None:
        """What a result that differs comes from; None where it does not differ here."""
        level = self._source.level()
        root = level.results[index]
        if root is None:
            return None
        compared = self._look(level, [root], ())[root]
        return None if compared.agrees else self._within(level, root, compared, ())

    def _look(
        self, level: InnerLevel, numbers: Sequence[int], turns: tuple[int, ...]
    ) -> Mapping[int, _Compared]:
        comparable = [number for number in numbers if level.values[number].dtype]
        pairs = self._source.look([level.values[number].place for number in comparable])
        self._looked += len(comparable)
        return dict.fromkeys(numbers, _UNKNOWN) | {
            number: self._compared(level, level.values[number], pairs, turns)
            for number in comparable
        }

    def _allowed(self, dtype: str) -> float:
        return tolerance(coarsest(dtype, self._computed_in))

    def _within(
        self, level: InnerLevel, root: int, compared: _Compared, turns: tuple[int, ...]
    ) -> _FirstDifference:
        """The first value that differs at a level, or inside of it.

        Args:
            level: the level.
            root: number of a value that differs.
            compared: how it does.
            turns: at which iteration to look, of each loop around.
        """
        number, unseen, known = search(
            level.values, root, compared, lambda numbers: self._look(level, numbers, turns)
        )
        value = level.values[number]
        try:
            inner = self._entered(level, value, turns) if value.body else None
        except Exception:
            # XLA refuses some conditionals with more results: the op is known all the same.
            if value.body != "cond":
                raise
            inner = None
        if inner is not None:
            return inner
        loops = [frame for frame in level.frames if frame.kind == "scan"]
        last = turns[-1] if turns else None
        if last is not None and loops[-1].reverse:
            last = loops[-1].sizes[0] - 1 - last
        counterpart = level.counterparts[number] if level.counterparts else None
        return _FirstDifference(value, counterpart, known[number], last, self._looked, unseen)

    def _compared(
        self,
        level: InnerLevel,
        value: InnerValue,
        pairs: Mapping[Place, tuple[Any, Any]],
        turns: tuple[int, ...],
    ) -> _Compared:
        here, there = pairs[value.place]
        if here is None or there is None:
            return _UNKNOWN
        return compared_inside(here, there, level.frames, turns, self._allowed(value.dtype))

    def _entered(
        self, outside: InnerLevel, value: InnerValue, turns: tuple[int, ...]
    ) -> _FirstDifference | None:
        """What is found in the body of an op; None where all that it makes agrees there."""
        path, output = value.place
        bodies = [path]
        if value.body == "cond":
            chosen = value.chosen_by
            if chosen is None or not self._look(outside, [chosen], turns)[chosen].agrees:
                return None
            bodies = [(*path, branch) for branch in range(value.branches)]
        for body in bodies:
            level = self._source.level(body)
            # A loop's results are what its last iteration carries, and rows of all of them.
            of_body = level.results
            if value.body != "scan":
                of_body = of_body[output : output + 1]
            roots = [
                number
                for number in dict.fromkeys(of_body)
                if number is not None and level.values[number].dtype
            ]
            if not roots:
                continue
            pairs = self._source.look([level.values[number].place for number in roots])
            self._looked += len(roots)
            for inner in _turns(level, outside, turns):
                for number in roots:
                    compared = self._compared(level, level.values[number], pairs, inner)
                    if compared.agrees is False:
                        return self._within(level, number, compared, inner)
        return None


def _turns(
    level: InnerLevel, outside: InnerLevel, turns: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """The iterations of the loop that a level is the body of, in the order of execution."""
    (frame,) = level.frames[len(outside.frames) :] or (None,)
    if frame is None or frame.kind != "scan":
        yield turns
        return
    numbers = range(frame.sizes[0])
    for number in reversed(numbers) if frame.reverse else numbers:
        yield (*turns, number)


def _regrouped(
    value: InnerValue, counterpart: InnerValue | None, sizes: Mapping[str, int]
) -> Regrouped | None:
    """Whether a reshape makes groups of a device's part as it would make them of the whole."""
    if counterpart is None or value.op != "reshape":
        return None
    (own,), (whole,) = value.operands, counterpart.operands
    more = len(value.shape) - len(own)
    if more < 1 or len(whole) != len(own) or len(counterpart.shape) != len(value.shape):
        return None
    for dim in range(len(own)):
        parts = whole[dim] // own[dim] if own[dim] else 0
        is_split = all(
            before[:dim] == after[:dim]
            and before[dim + 1 :] == after[dim + 1 + more :]
            and before[dim] == math.prod(after[dim : dim + 1 + more])
            for before, after in ((own, value.shape), (whole, counterpart.shape))
        )
        if is_split and parts > 1 and 1 < value.shape[dim] == counterpart.shape[dim]:
            axes = tuple(name for name, size in sizes.items() if size == parts)
            return Regrouped(own[dim], whole[dim], value.shape[dim], axes)
    return None


def _reordered(value: InnerValue, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of a `ppermute` that are not in the order of the mesh.

    JAX numbers the devices of a `ppermute` in the mesh's order (until 0.11.1, which refuses
    another), and those of every other collective and of `axis_index` in the order of the call.
    """
    named = [axis for axis in value.over if sizes.get(axis, 1) > 1]
    in_order = sorted(named, key=list(sizes).index)
    return value.over if value.op == "ppermute" and named != in_order else ()


# --- the search -----------------------------------------------------------------------------------


def search(
    values: Sequence[InnerValue],
    root: int,
    compared: _Compared,
    look: Callable[[Sequence[int]], Mapping[int, _Compared]],
) -> tuple[int, int, dict[int, _Compared]]:
    """The value from which a difference comes.

    Args:
        values: in the order of execution.
        root: the number of one that differs.
        compared: how it does.
        look: compares others.

    Returns:
        The number of one that differs and is made of none that do; how many values it may be made
        of were not looked at; and what is known of each that was.
    """
    known = {root: compared}
    first = root
    for _ in range(ROUNDS):
        reach = _reach(values, first, known)
        left = [number for number in reach if number not in known]
        if not left:
            return first, 0, known
        known.update(look(_sample(values, left)))
        first = min(
            (k for k in _reach(values, first, known) if known.get(k, _UNKNOWN).agrees is False),
            default=first,
        )
    left = [number for number in _reach(values, first, known) if number not in known]
    return first, len(left), known


def _reach(values: Sequence[InnerValue], number: int, known: Mapping[int, _Compared]) -> list[int]:
    """What a value is made of, in order, not through values that agree."""
    unknown: set[int] = set()
    left = [*values[number].inputs]
    while left:
        current = left.pop()
        if current not in unknown and known.get(current, _UNKNOWN).agrees is not True:
            unknown.add(current)
            left += values[current].inputs
    return sorted(unknown)


def _sample(values: Sequence[InnerValue], numbers: Sequence[int]) -> list[int]:
    """Some of the values: the last ones of scopes where there are many; evenly."""
    if len(numbers) > VALUES:
        ends = [
            number
            for number, following in itertools.pairwise((*numbers, None))
            if number is not None
            and (following is None or values[number].scope != values[following].scope)
        ]
        if len(ends) >= VALUES // 2:
            numbers = ends
    for count in itertools.takewhile(bool, (min(VALUES, len(numbers)) >> k for k in range(8))):
        step = len(numbers) / count
        chosen = [numbers[math.ceil((k + 1) * step) - 1] for k in range(count)]
        if count == 1 or sum(values[number].size for number in chosen) <= BYTES:
            return chosen
    return list(numbers[-1:])


# --- comparing ------------------------------------------------------------------------------------


def compared_arrays(here: Any, there: Any, allowed: float) -> _Compared:
    """Two arrays of the same shape; of others nothing can be said."""
    if here is None or there is None or here.shape != there.shape:
        return _UNKNOWN
    error = relative_error(here, there)
    if error <= allowed:
        return _Compared(True, error)
    if not allowed and error < LARGEST:
        # Rounding may turn a comparison, or move an index, and what is exact then differs a little.
        return _Compared(None, error)
    return _Compared(False, error, whole_ratio(here, there, allowed))


def compared_inside(
    here: Any, there: Any, frames: Sequence[Frame], turns: Sequence[int], allowed: float
) -> _Compared:
    """A value with dimensions in front for the loops and shard_maps around it.

    Where both sides have the same blocks, these are compared. Where the counterpart has one block,
    those of a shard_map may be its parts along a dimension, replicas of it, or what add up to it:
    along each axis one of these has to fit.

    Args:
        here: the value.
        there: what it is in the counterpart.
        frames: what is around it, outermost first.
        turns: at which iteration to look, of each loop.
        allowed: the relative error that rounding explains.
    """
    left, at = list(turns), list[int | slice]()
    axes, other_axes = list[int](), list[int]()
    for frame in frames:
        if frame.kind == "scan":
            at.append(left.pop(0))
        else:
            at += [slice(None)] * len(frame.sizes)
            axes += frame.sizes
            other_axes += frame.other_sizes
    index = tuple(at)
    here, there = here[index], there[index]
    if axes == other_axes:
        return compared_arrays(here, there, allowed)
    if any(size != 1 for size in other_axes):
        return _UNKNOWN
    return _blocks_compared(here, there.reshape(there.shape[len(axes) :]), axes, allowed)


def _blocks_compared(here: Any, there: Any, axes: Sequence[int], allowed: float) -> _Compared:
    """Blocks, with a dimension in front for each axis, against a whole."""
    shape = here.shape[len(axes) :]
    if len(shape) != there.ndim or any(
        whole % part if part else whole for part, whole in zip(shape, there.shape, strict=True)
    ):
        return _UNKNOWN
    times = [whole // part if part else 1 for part, whole in zip(shape, there.shape, strict=True)]
    fits = [fit for fit in _put_together(here, axes, times, allowed) if fit is not None]
    if not fits:
        return _UNKNOWN
    every = [compared_arrays(fit, there, allowed) for fit in fits]
    return next((comparison for comparison in every if comparison.agrees), every[0])


def _put_together(
    here: Any, axes: Sequence[int], times: Sequence[int], allowed: float
) -> Iterator[Any]:
    """Everything that blocks can be blocks of, by the sizes; the last axis is put together first.

    Args:
        here: the blocks.
        axes: the sizes of the dimensions in front.
        times: how many blocks each dimension of the whole is.
        allowed: the relative error by which replicas may differ.
    """
    if not axes:
        if all(count == 1 for count in times):
            yield here
        return
    size, at = axes[-1], len(axes) - 1
    first = np.take(here, 0, axis=at)
    if size == 1:
        yield from _put_together(first, axes[:-1], times, allowed)
        return
    for dim, count in enumerate(times):
        if count % size == 0 and count > 1:
            joined = np.concatenate(np.split(here, size, axis=at), axis=len(axes) + dim)
            left = [count // size if k == dim else count for k, count in enumerate(times)]
            yield from _put_together(np.squeeze(joined, at), axes[:-1], left, allowed)
    replicas = (np.take(here, k, axis=at) for k in range(1, size))
    if all(relative_error(replica, first) <= allowed for replica in replicas):
        yield from _put_together(first, axes[:-1], times, allowed)
        return
    if here.dtype.kind in "fciu":
        wide = here.astype(np.result_type(here.dtype, np.float64))
        for joined in (wide.sum(at), wide.mean(at)):
            yield from _put_together(joined, axes[:-1], times, allowed)
    if here.dtype.kind in "fiu":
        for joined in (here.max(at), here.min(at)):
            yield from _put_together(joined, axes[:-1], times, allowed)
