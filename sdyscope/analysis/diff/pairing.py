"""Which programs of two directories or runs, and which of their tensors, are compared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Generic, TypeVar

from sdyscope.annotations import Annotation
from sdyscope.facts.program import RequestedTensor
from sdyscope.facts.recorded import RecordedProgram

_Item = TypeVar("_Item")
_Program = TypeVar("_Program")


@dataclass(frozen=True)
class PairCandidate(Generic[_Program]):
    """A program that a partner is looked for.

    Attributes:
        program: the program.
        name: its name; of a recorded run that of its function.
        partitioners: under which it was lowered.
        recorded: what a recorded run says of it; None where there is no run.
    """

    program: _Program
    name: str
    partitioners: tuple[str, ...]
    recorded: RecordedProgram | None = None

    @property
    def types(self) -> Hashable:
        """Types of its arguments and results; itself, which meets nothing, where not known."""
        if self.recorded is None:
            return id(self)
        return self.recorded.arguments, self.recorded.results

    @property
    def words(self) -> str:
        """What to call it where it has no partner."""
        return self.name if self.recorded is None else self.recorded.words


@dataclass(frozen=True)
class Paired(Generic[_Program]):
    """The programs of two sides.

    Attributes:
        pairs: those that are compared.
        only_a: those that only the first side has.
        only_b: those that only the second has.
    """

    pairs: tuple[tuple[_Program, _Program], ...]
    only_a: tuple[PairCandidate[_Program], ...]
    only_b: tuple[PairCandidate[_Program], ...]


def paired(
    first: Sequence[PairCandidate[_Program]],
    second: Sequence[PairCandidate[_Program]],
    *,
    recorded: bool,
) -> Paired[_Program]:
    """Pairs programs of one name.

    Of several, first those of recorded runs meet whose arguments and results have the same shapes,
    for the same partitioner if possible, in the order in which they were written. A single one that
    is left on each side meets the other, whatever its shapes. Modules whose shapes were not
    recorded meet in their order.

    Args:
        first: the programs of the first side.
        second: those of the second.
        recorded: whether both are recorded runs.
    """
    left, right = list(first), list(second)
    pairs: list[tuple[_Program, _Program]] = []
    keys: tuple[tuple[Callable[[PairCandidate[_Program]], Hashable], bool], ...] = (
        (lambda value: (value.name, value.types, value.partitioners), False),
        (lambda value: (value.name, value.types), False),
        (lambda value: (value.name, value.partitioners), recorded),
        (lambda value: value.name, recorded),
    )
    for key, only_single in keys:
        pairs += _taken(left, right, key, only_single=only_single)
    return Paired(tuple(pairs), tuple(left), tuple(right))


def _taken(
    left: list[PairCandidate[_Program]],
    right: list[PairCandidate[_Program]],
    key: Callable[[PairCandidate[_Program]], Hashable],
    *,
    only_single: bool,
) -> list[tuple[_Program, _Program]]:
    """Takes what has the same key off both lists."""
    ours, theirs = _grouped(left, key), _grouped(right, key)
    pairs = []
    for shared, group in ours.items():
        others = theirs.get(shared, [])
        if only_single and (len(group), len(others)) != (1, 1):
            continue
        pairs += list(zip(group, others, strict=False))
    for a, b in pairs:
        left.remove(a)
        right.remove(b)
    return [(a.program, b.program) for a, b in pairs]


def _grouped(
    programs: Sequence[PairCandidate[_Program]], key: Callable[[PairCandidate[_Program]], Hashable]
) -> dict[Hashable, list[PairCandidate[_Program]]]:
    groups: dict[Hashable, list[PairCandidate[_Program]]] = {}
    for program in programs:
        groups.setdefault(key(program), []).append(program)
    return groups


def paired_by(
    left: Iterable[_Item],
    right: Iterable[_Item],
    key: Callable[[_Item], Hashable],
    key_right: Callable[[_Item], Hashable] | None = None,
) -> tuple[list[_Item], list[_Item], list[tuple[_Item, _Item]]]:
    """Pairs what has the same key on both sides, in order.

    Args:
        left: one side.
        right: the other.
        key: the key.
        key_right: that of the right side, where it is another.

    Returns:
        What is left of both sides, and the pairs.
    """
    waiting: dict[Hashable, list[_Item]] = {}
    for item in right:
        waiting.setdefault((key_right or key)(item), []).append(item)
    rest: list[_Item] = []
    pairs: list[tuple[_Item, _Item]] = []
    for item in left:
        if others := waiting.get(key(item)):
            pairs.append((item, others.pop(0)))
        else:
            rest.append(item)
    return rest, [item for others in waiting.values() for item in others], pairs


_Tensor = TypeVar("_Tensor", bound=Annotation | RequestedTensor)


def boundary_numbers(
    a: Iterable[_Tensor],
    b: Iterable[_Tensor],
    paths: tuple[Callable[[str], str], Callable[[str], str]],
    written: Callable[[_Tensor], Hashable],
) -> dict[int, Hashable]:
    """Which are the same operand or result of a ``shard_map`` that has more of them on one side.

    By their ids, in place of their numbers: of those of one path in order those on which the same
    is written. JAX returns as many residuals as a backward pass needs, before or among others.

    Args:
        a: the tensors of the first side.
        b: those of the second.
        paths: for each side, gives the path to compare of one in it.
        written: what is written on one, or asked for.
    """
    sides: list[dict[Hashable, dict[int, list[_Tensor]]]] = [{}, {}]
    for side, own, path in zip(sides, (a, b), paths, strict=True):
        for tensor in own:
            if tensor.kind.startswith("shard_map"):
                of_path = side.setdefault((tensor.kind, path(tensor.path)), {})
                of_path.setdefault(tensor.ordinal, []).append(tensor)
    numbers: dict[int, Hashable] = {}
    for key in sides[0].keys() & sides[1].keys():
        for left, right in zip(sides[0][key].values(), sides[1][key].values(), strict=False):
            if len(left) == len(right):
                continue
            ours, theirs = (list(map(written, each)) for each in (left, right))
            matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
            for block in matcher.get_matching_blocks():
                for at in range(block.size):
                    pair = left[block.a + at], right[block.b + at]
                    numbers |= {id(each): ("same", pair[0].index) for each in pair}
            for each in (*left, *right):
                numbers.setdefault(id(each), id(each))
    return numbers
