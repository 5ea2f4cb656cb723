"""What two propagations differ in, by where it begins: as a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sdyscope.analysis.diff.propagated import (
    DifferentValue,
    Group,
    PropagatedSide,
    inputs,
    propagated_diff,
)
from sdyscope.analysis.diff.value_differences import (
    AFTER,
    BEFORE,
    Beginning,
    DifferingValue,
    Input,
    PropagatedDiff,
)
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.errors import CompilerError
from sdyscope.inspection import Inspection
from sdyscope.words.sharding import REPLICATED, placement_text, short


def _plain(reason: str) -> str:
    """`folded before`, where the sides of a comparison are called so."""
    return re.sub(rf"\bunder (?={BEFORE}|{AFTER})", "", reason)


def program(
    name: str,
    sides: tuple[PropagatedSide, PropagatedSide],
    describers: tuple[Decisions, Decisions],
    *,
    by_name: bool = False,
) -> PropagatedDiff:
    """Compares two propagations and makes the document of it.

    Args:
      name: what to call what is compared.
      sides: the propagations.
      describers: those of each side.
      by_name: the two are different programs.
    """
    found = propagated_diff(*sides, by_name=by_name)
    only_a = only_b = 0
    if by_name:
        pairs = value_pairs(sides[0].graph, sides[1].graph, by_name=True)
        only_a = sum(value not in pairs for value in sides[0].propagated.values)
        paired = set(pairs.values())
        only_b = sum(value not in paired for value in sides[1].propagated.values)
    made = Documents.of(sides, describers)
    return PropagatedDiff(
        name=name,
        a=found.label_a,
        b=found.label_b,
        same=found.is_same and not (only_a or only_b),
        same_values=found.same,
        different_values=found.different,
        only_a=only_a,
        only_b=only_b,
        not_comparable={_plain(why): count for why, count in found.not_comparable.items()},
        beginnings=tuple(map(made.beginning, found.groups)),
        propagation_a=sides[0].propagated,
        propagation_b=sides[1].propagated,
    )


def what_if(
    before: Inspection, after: Inspection, *, conservative: bool = False
) -> Iterator[PropagatedDiff]:
    """What other annotations change, under each partitioner that propagates both programs.

    Args:
      before: the program as it is.
      after: the program with other annotations.
      conservative: whether Shardy is to propagate the second one conservatively.
    """
    for partitioner in after.lowered:
        if partitioner not in before.lowered:
            continue
        is_other = conservative and partitioner == "shardy"
        try:
            two = after.propagated_side(partitioner, AFTER, conservative=is_other)
        except CompilerError:
            continue  # It is one of the failures.
        one = before.propagated_side(partitioner, BEFORE)
        describers = Decisions.of(before, one.propagated), Decisions.of(after, two.propagated)
        yield program(f"{after.name} under {partitioner}", (one, two), describers)


@dataclass(frozen=True)
class Documents:
    """Makes documents of values that are sharded differently.

    Attributes:
      sides: the propagations.
      describers: those of each side.
    """

    sides: tuple[PropagatedSide, PropagatedSide]
    describers: tuple[Decisions, Decisions]

    @classmethod
    def of(
        cls, sides: tuple[PropagatedSide, PropagatedSide], describers: tuple[Decisions, Decisions]
    ) -> Documents:
        """For two sides; GSPMD names no axes, which then are those of the other side's mesh."""
        meshes = [describer.mesh for describer in describers]
        for describer, other in zip(describers, reversed(meshes), strict=True):
            describer.mesh = describer.mesh or other
        return cls(sides, describers)

    def beginning(self, group: Group) -> Beginning:
        """A place where differences begin, with all that follow."""
        return Beginning(
            self.value(group.begins),
            tuple(self._inputs(group)),
            group.count,
            group.bytes,
            group.bytes_a,
            group.bytes_b,
            tuple(map(self.value, group.follows)),
        )

    def _inputs(self, group: Group) -> Iterator[Input]:
        before = inputs(self.sides[0].graph, group.begins.a)
        for value, name in zip(before, group.inputs, strict=True):
            yield Input(name, short(self.describers[0].sharded(value)))

    def value(self, found: DifferentValue) -> DifferingValue:
        """One value, with its sharding on both sides."""
        value = found.value
        shown = [
            describer.sharded(one)
            for describer, one in zip(self.describers, (found.a, found.b), strict=True)
        ]
        words = [
            placement_text(one.placement, one.mesh)
            if one.placement
            else f"{REPLICATED} on every device"
            for one in shown
        ]
        return DifferingValue(
            value.name,
            value.kind,
            value.ssa,
            value.shape,
            value.dtype,
            found.bytes,
            value.source,
            short(shown[0]),
            short(shown[1]),
            words[0],
            words[1],
            found.bytes_a,
            found.bytes_b,
        )
