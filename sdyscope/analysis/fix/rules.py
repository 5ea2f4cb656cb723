"""Edits of the rules that map logical axes to mesh axes.

One rule shards arguments, their next values and constraints alike. Which, only the program knows
that is built with another: it is traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

from sdyscope.analysis.fix.proposals import Proposal, Splices
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.facts.edits import SourceEdit
from sdyscope.patches.rules import LogicalRule, logical_rules
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec, SpecEntry
from sdyscope.values.source import SourceLocation


def edited_rules(workshop: Workshop, mesh: Mesh) -> Iterator[Proposal]:
    """The edits after which a logical axis is mapped to other mesh axes.

    One of each rule comes first, then the next of each.

    Args:
        workshop: the program.
        mesh: its mesh.
    """
    sizes = [axis.name for axis in mesh.axes if axis.size > 1]
    rules = [
        rule for file in workshop.files for rule in logical_rules(workshop.source(file), mesh.shape)
    ]
    # What is not sharded yet is most often what could be.
    rules.sort(key=lambda rule: len(rule.axes))
    for each in zip_longest(*(list(_edits(rule, sizes)) for rule in rules)):
        yield from (proposal for proposal in each if proposal is not None)


def _edits(rule: LogicalRule, axes: list[str]) -> Iterator[Proposal]:
    """The edits of one rule: an axis more, another one, one less."""
    free = [axis for axis in axes if axis not in rule.axes]
    others = [
        *((*rule.axes, axis) for axis in free),
        *((axis,) for axis in free if rule.axes),
        *(tuple(kept for kept in rule.axes if kept != axis) for axis in rule.axes),
    ]
    for after in dict.fromkeys(others):
        edit = SourceEdit(
            "logical axis",
            rule.name,
            PartitionSpec((_entry(rule.axes),)),
            PartitionSpec((_entry(after),)),
            SourceLocation(rule.source.file, rule.line),
        )
        written: Splices = {rule.source.file: [rule.with_axes(after)]}
        yield Proposal(edit, None, partial(dict, written))


def _entry(axes: tuple[str, ...]) -> SpecEntry:
    return axes if len(axes) > 1 else axes[0] if axes else None
