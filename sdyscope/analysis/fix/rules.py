"""Edits of the rules that map logical axes to mesh axes.

One rule shards arguments, their next values and constraints alike. Which, only the program knows
that is built with another: it is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest

from sdyscope.analysis.fix.proposals import Proposal, Splices, dims_of, spec_of_dims
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.facts.edits import SourceEdit
from sdyscope.patches.configuration import configured_rules
from sdyscope.patches.rules import LogicalRule, logical_rules
from sdyscope.stages.edited.observed import Shape
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.source import SourceLocation


def edited_rules(
    workshop: Workshop, mesh: Mesh, weigh: Callable[[Shape], float]
) -> Iterator[Proposal]:
    """The edits after which a logical axis is mapped to other mesh axes.

    One of each rule comes first, then the next of each; those of arrays of most weight first.

    Args:
        workshop: the program.
        mesh: its mesh.
        weigh: what is sent and held for arrays of a shape.
    """
    sizes = [axis.name for axis in mesh.axes if axis.size > 1]
    rules = [
        rule for file in workshop.files for rule in logical_rules(workshop.source(file), mesh.shape)
    ]
    for file, text in workshop.configurations.items():
        rules += configured_rules(file, text, mesh.shape)
    if not rules:
        return
    named = workshop.observed.shapes
    weights = {name: sum(map(weigh, named.get(name, ()))) for name in {rule.name for rule in rules}}
    seen: set[tuple[str, str]] = set()

    def order(rule: LogicalRule) -> tuple[bool, float, int]:
        # A further rule of a name is for where the axes of the first are taken. What is not sharded
        # yet is most often what could be.
        key = (rule.file, rule.name)
        is_further = key in seen
        seen.add(key)
        return is_further, -weights[rule.name], len(*dims_of(PartitionSpec((rule.axes,)), 1))

    rules.sort(key=order)
    for each in zip_longest(*(list(_edits(rule, sizes, weights[rule.name])) for rule in rules)):
        yield from (proposal for proposal in each if proposal is not None)


def _edits(rule: LogicalRule, axes: list[str], weight: float) -> Iterator[Proposal]:
    """The edits of one rule: an axis more, another one, one less."""
    before = PartitionSpec((rule.axes,))
    (now,) = dims_of(before, 1)
    free = [axis for axis in axes if axis not in now]
    others = [
        *((*now, axis) for axis in free),
        *((axis,) for axis in free if now),
        *(tuple(kept for kept in now if kept != axis) for axis in now if axis in axes),
    ]
    for after in dict.fromkeys(map(spec_of_dims, zip(others, strict=True))):
        source = SourceLocation(rule.file, rule.line, rule.column)
        edit = SourceEdit("logical axis", rule.name, before, after, source)
        written: Splices = {rule.file: [rule.with_axes(*after.entries)]}
        yield Proposal(edit, None, partial(dict, written), weight)
