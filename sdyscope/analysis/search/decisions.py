"""From a program's tensors to the decisions of a search."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.memory.held import group_of
from sdyscope.analysis.naming.globs import glob
from sdyscope.analysis.naming.paths import Leaf, kept_for, mirrored, pattern
from sdyscope.analysis.search.space import (
    Decision,
    Kind,
    Member,
    Option,
    Part,
    Setting,
    as_option,
    kept,
    opened,
    options,
)
from sdyscope.errors import ConversionError, TargetError, did_you_mean
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.values.convert import to_named_sharding, to_placement
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec

#: How many arguments a hint names.
_NAMED = 6


@dataclass(frozen=True)
class Space:
    """What is searched.

    Attributes:
        mesh: the mesh of the program.
        axes: the axes that may be placed, in the order of the mesh.
        decisions: what is decided, the largest first.
        size: how many candidates there are.
        notes: what else there is to know.
    """

    mesh: Mesh
    axes: tuple[str, ...]
    decisions: tuple[Decision, ...]
    notes: tuple[Remark, ...] = ()

    __document__ = ("axes", "decisions", "size")

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return math.prod(len(decision.options) for decision in self.decisions)

    def settings(self, assignment: Sequence[int]) -> tuple[Setting, ...]:
        """What has to be written on the program for the option of each decision.

        A result whose argument has a sharding gets the same, if it was left open.
        """
        return tuple(
            setting
            for decision, number in zip(self.decisions, assignment, strict=True)
            for setting in decision.settings(number)
        )


def space(
    table: TensorTable,
    partitioner: Partitioner,
    mesh: Mesh,
    patterns: Sequence[str] = (),
    axes: Sequence[str] | None = None,
    *,
    in_passes: Collection[int] | None = None,
    tied: bool = True,
    constraints: bool | None = None,
) -> Space:
    """The decisions of a search.

    Args:
        table: the program's tensors.
        partitioner: in whose module they are numbered.
        mesh: the mesh whose axes are placed.
        patterns: globs of the arguments to search. Without any, those whose next value the program
            returns: the parameters of a train step, and what an optimizer keeps of them.
        axes: the axes to place; by default all that have more than one device.
        in_passes: which of the partitioner's arguments the passes use, counted in the order of
            the table; None where that is not known.
        tied: whether the same tensor of every layer is one decision.
        constraints: whether to search the author's constraints, too, each line as one decision; by
            default where no pattern says what is meant.

    Raises:
        TargetError: a pattern matches no argument, the mesh has no such axis, or there is nothing
            that could be sharded otherwise.
    """
    chosen = _axes(mesh, axes)
    rows = table.of("argument", partitioner)
    leaves = [Leaf.of(row) for row in rows]
    outputs = table.of("result", partitioner)
    mirrors = mirrored([Leaf.of(row) for row in outputs], leaves)
    carried = set(mirrors.values())
    wanted = _wanted(rows, patterns, carried)
    leads = kept_for(leaves, in_passes, carried, wanted)
    groups: dict[tuple[object, ...], list[int]] = {}
    for number in wanted:
        if number in leads:
            continue
        leaf = leaves[number]
        same = pattern(leaf.path) if tied else number
        groups.setdefault((same, leaf.shape, leaf.dtype), []).append(number)
    followers: dict[int, list[int]] = {}
    for number, leader in leads.items():
        followers.setdefault(leader, []).append(number)
    returned: dict[int, list[int]] = {}
    for result, argument in mirrors.items():
        returned.setdefault(argument, []).append(result)
    sizes = {axis: mesh.shape[axis] for axis in chosen}
    decisions, alone = [], 0
    for numbers in groups.values():
        members: list[Member] = []
        for number in numbers:
            members.append(member(rows[number], partitioner, mesh, "searched"))
            for other in followers.get(number, ()):
                members.append(member(rows[other], partitioner, mesh, "follows"))
        for number in numbers:
            for argument in (number, *followers.get(number, ())):
                members += [
                    member(outputs[result], partitioner, mesh, "result")
                    for result in returned.get(argument, ())
                ]
        first = rows[numbers[0]]
        decision = _decision(first, leaves[numbers[0]], len(numbers), members, mesh, sizes)
        if len(decision.options) > 1:
            decisions.append(decision)
        else:
            alone += decision.tensors
    inside: list[Decision] = []
    if constraints or (constraints is None and not patterns):
        inside = list(_constraints(table, partitioner, mesh, sizes))
    if not decisions and not inside:
        raise TargetError(
            f"No axis of {', '.join(chosen)} divides a dimension of what is searched.",
            hint="Name other --axes, or other arguments with --argument.",
        )
    notes = [Remark("no choice", count=alone)] if alone else []
    stay = len(_authored(table, partitioner)) - sum(len(decision.members) for decision in inside)
    if stay:
        notes.append(Remark("constraints stay", count=stay))
    decisions.sort(key=lambda decision: -decision.bytes)
    inside.sort(key=lambda decision: -decision.bytes)
    return Space(mesh, chosen, (*decisions, *inside), tuple(notes))


def _authored(table: TensorTable, partitioner: Partitioner) -> list[Tensor]:
    """The constraints that the author wrote, and none that JAX wrote for types or PRNG keys."""
    return [
        row
        for row in table.tensors
        if row.kind == "constraint"
        and (there := row.lowered.get(partitioner)) is not None
        and there.is_authored
        and not there.of_key
    ]


def _constraints(
    table: TensorTable, partitioner: Partitioner, mesh: Mesh, sizes: Mapping[str, int]
) -> Iterator[Decision]:
    """The constraints that the author wrote, those of one line as one decision.

    Those stay as they are that are on another mesh, in a ``shard_map``, or of several ranks or
    several shardings on one line.
    """
    lines: dict[object, list[Tensor]] = {}
    for row in _authored(table, partitioner):
        there = row.lowered[partitioner]
        lines.setdefault(there.source or there.ordinal, []).append(row)
    for rows in lines.values():
        members = [member(row, partitioner, mesh, "searched") for row in rows]
        shapes = {row.shape for row in rows}
        if any(row.lowered[partitioner].manual for row in rows) or None in shapes:
            continue
        ranks, specs = {len(shape or ()) for shape in shapes}, {each.spec for each in members}
        start = as_option(members[0].spec, next(iter(ranks)))
        if len(ranks) > 1 or len(specs) > 1 or start is None:
            continue
        fixed = kept(start, sizes)
        # What divides the sizes of all of them.
        common = tuple(
            max(math.gcd(*each) // math.prod(mesh.shape[axis] for axis in part or ()), 1)
            for each, part in zip(
                zip(*(row.divisible for row in rows), strict=True), fixed, strict=True
            )
        )
        choices, limited = options(common, sizes, fixed)
        first = rows[0]
        shape = first.shape or ()
        yield Decision(
            first.name,
            shape,
            first.dtype,
            tuple(members),
            tuple(dict.fromkeys((start, opened(len(shape)), *choices))),
            sum(num_bytes(math.prod(row.shape or ()), row.dtype) for row in rows),
            limited,
            first.lowered[partitioner].source,
        )


def _axes(mesh: Mesh, axes: Sequence[str] | None) -> tuple[str, ...]:
    sizes = mesh.shape
    for axis in axes or ():
        if axis not in sizes:
            raise TargetError(
                f"The mesh has no axis {axis!r}.", hint=f"It has {', '.join(sizes) or 'none'}."
            )
    placeable = tuple(
        axis for axis, size in sizes.items() if size > 1 and (axes is None or axis in axes)
    )
    if not placeable:
        raise TargetError(
            "There is no axis to place: each has one device only.",
            hint="Choose another mesh with --mesh.",
        )
    return placeable


def _wanted(rows: Sequence[Tensor], patterns: Sequence[str], returned: set[int]) -> list[int]:
    """Numbers of the arguments that are asked for, in order."""
    names = [row.name for row in rows]
    if not patterns:
        if not returned:
            raise TargetError(
                "No argument's next value is among the results, so the parameters are not known.",
                hint=_to_name(rows),
            )
        return [number for number, row in enumerate(rows) if number in returned and row.shape]
    numbers: set[int] = set()
    for text in patterns:
        matching = [n for n, name in enumerate(names) if glob(text).fullmatch(name)]
        if not matching:
            close = did_you_mean(text.rstrip("*"), names, most=3, cutoff=0.4, quoted=False)
            raise TargetError(
                f"No argument's path matches {text!r}.",
                hint=f"The pattern must match the whole path. {close}"
                if close
                else "The pattern must match the whole path: end it with * to match a prefix.",
            )
        numbers.update(matching)
    return [number for number in sorted(numbers) if rows[number].shape]


def _to_name(rows: Sequence[Tensor]) -> str:
    """How to name the parameters, with the arguments that there are."""
    groups = [*dict.fromkeys(group_of(row.name, "argument") for row in rows if row.shape)]
    if not groups:
        return "No argument has a dimension."
    several = ", ".join(groups[:_NAMED]) + (", ..." if len(groups) > _NAMED else "")
    return f"Name them, such as --argument '{groups[0]}*'. The arguments are {several}."


def member(row: Tensor, partitioner: Partitioner, mesh: Mesh, part: Part) -> Member:
    """An argument, result or constraint of a module, as decisions are about them."""
    there = row.lowered[partitioner]
    spec = _spec(row, partitioner, mesh)
    if row.kind == "constraint":
        return Member("constraint", row.name, there.ordinal, spec, part)
    assert there.index is not None
    kind: Kind = "result" if row.kind == "result" else "argument"
    return Member(kind, row.name, there.index, spec, part, row.is_donated)


def _spec(row: Tensor, partitioner: Partitioner, mesh: Mesh) -> PartitionSpec | None:
    """How a tensor is sharded in the program; None where that is open or has no such form."""
    there, rank = row.lowered[partitioner], len(row.shape or ())
    asked = row.asked
    if asked is not None and asked.mesh != mesh:
        return None  # it stays there unless it gets a sharding on this mesh
    # The module may say otherwise than was asked for: it is what is searched.
    if asked is not None and (there.open_dims or there.placement == to_placement(asked, rank)):
        return asked.spec
    if there.placement is None or there.open_dims:
        return None
    try:
        return to_named_sharding(there.placement, rank, mesh).spec
    except ConversionError:
        return None


def _decision(
    row: Tensor,
    leaf: Leaf,
    count: int,
    members: Sequence[Member],
    mesh: Mesh,
    sizes: Mapping[str, int],
) -> Decision:
    rank = len(leaf.shape)
    starts = {as_option(m.spec, rank) for m in members if m.part != "result" or m.spec is not None}
    start = starts.pop() if len(starts) == 1 else None
    fixed: Option | None = None
    shape = row.divisible
    if start is not None:
        fixed = kept(start, sizes)
        shape = tuple(
            max(size // math.prod(mesh.shape[axis] for axis in part or ()), 1)
            for size, part in zip(shape, fixed, strict=True)
        )
    choices, limited = options(shape, sizes, fixed)
    name = pattern(leaf.path) if count > 1 else leaf.path
    total = sum(member.kind == "argument" for member in members)
    return Decision(
        name,
        leaf.shape,
        leaf.dtype,
        tuple(members),
        (start, *(option for option in choices if option != start)),
        total * num_bytes(math.prod(leaf.shape), leaf.dtype),
        limited,
    )
