"""Which programs of two directories are compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.commands.opening import Opened
from sdyscope.facts.remarks import Remark

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection


@dataclass(frozen=True)
class Paired:
    """The programs of two directories.

    Attributes:
      pairs: those that are compared.
      only_a: names of those that only the first directory has.
      only_b: names of those that only the second has.
      notes: what is not compared.
    """

    pairs: tuple[tuple[Inspection, Inspection], ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    notes: tuple[Remark, ...]


_Key: TypeAlias = Callable[[Opened, "Inspection"], Hashable]


def chosen(opened: Opened, *, everything: bool) -> tuple[list[Inspection], tuple[Remark, ...]]:
    """The programs to compare, and how many are left out.

    Of a recorded run, these are the functions that are not JAX's, unless there are none, or
    everything is asked for.
    """
    kept = list(opened.programs if everything else opened.own)
    left_out = len(opened.programs) - len(kept)
    return kept, (Remark("JAX's own", opened.word, left_out),) if left_out else ()


def paired(first: Opened, second: Opened, *, everything: bool) -> Paired:
    """Pairs programs of one name.

    Of several, first those of recorded runs meet whose arguments and results have the same shapes,
    for the same partitioner if possible, in the order in which they were written. A single one that
    is left on each side meets the other, whatever its shapes. Modules whose shapes were not
    recorded meet in their order.
    """
    left, notes_a = chosen(first, everything=everything)
    right, notes_b = chosen(second, everything=everything)
    pairs: list[tuple[Inspection, Inspection]] = []
    for key in (_name_shapes_and_partitioner, _name_and_shapes):
        pairs += _take(first, second, left, right, key)
    recorded = first.record is not None and second.record is not None
    for key in (_name_and_partitioner, _name):
        pairs += _take(first, second, left, right, key, only_single=recorded)
    return Paired(
        tuple(pairs),
        tuple(_words(first, program) for program in left),
        tuple(_words(second, program) for program in right),
        (*notes_a, *notes_b),
    )


def _take(
    first: Opened,
    second: Opened,
    left: list[Inspection],
    right: list[Inspection],
    key: _Key,
    *,
    only_single: bool = False,
) -> list[tuple[Inspection, Inspection]]:
    """Takes what has the same key off both lists."""
    ours, theirs = _grouped(first, left, key), _grouped(second, right, key)
    pairs = []
    for one, group in ours.items():
        others = theirs.get(one, [])
        if only_single and (len(group), len(others)) != (1, 1):
            continue
        pairs += list(zip(group, others, strict=False))
    for one, two in pairs:
        left.remove(one)
        right.remove(two)
    return pairs


def _grouped(
    opened: Opened, programs: Sequence[Inspection], key: _Key
) -> dict[Hashable, list[Inspection]]:
    groups: dict[Hashable, list[Inspection]] = {}
    for program in programs:
        groups.setdefault(key(opened, program), []).append(program)
    return groups


def _name(opened: Opened, program: Inspection) -> Hashable:
    known = opened.program_of(program)
    return program.name if known is None else known.name


def _name_and_partitioner(opened: Opened, program: Inspection) -> Hashable:
    return _name(opened, program), program.partitioners


def _name_and_shapes(opened: Opened, program: Inspection) -> Hashable:
    known = opened.program_of(program)
    if known is None:
        return program  # it meets nothing by shapes that are not known
    return known.name, known.arguments, known.results


def _name_shapes_and_partitioner(opened: Opened, program: Inspection) -> Hashable:
    return _name_and_shapes(opened, program), program.partitioners


def _words(opened: Opened, program: Inspection) -> str:
    known = opened.program_of(program)
    return program.name if known is None else known.words
