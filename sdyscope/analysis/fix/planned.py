"""The edits after which a program is sharded as planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sdyscope.analysis.fix.considered import Considered
from sdyscope.analysis.fix.proposals import LiteralSites, Proposal, constraint_sites, spec_of
from sdyscope.analysis.fix.values import NotTaken
from sdyscope.facts.edits import EditKind, NotTakenBecause, SourceEdit
from sdyscope.facts.tensors import Tensor
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec

if TYPE_CHECKING:
    from sdyscope.analysis.search.space import Setting


def planned(
    considered: Considered, plan: Sequence[Setting]
) -> tuple[list[Proposal], list[NotTaken]]:
    """The edits after which arguments, results and constraints are as planned.

    What no place of the source shards, or one that other tensors share which are not to be
    sharded so, is among what is not taken.
    """
    sites = LiteralSites(considered.workshop, considered.mesh)
    specs: dict[tuple[str, str], PartitionSpec] = {
        (member.kind, member.name): spec for member, spec in plan if member.kind != "constraint"
    }
    rows: dict[tuple[str, int], Tensor] = {
        (row.kind, row.index or 0): row for row in considered.rows
    }
    wanted = {
        key: specs[row.kind, row.name] for key, row in rows.items() if (row.kind, row.name) in specs
    }
    not_taken: list[NotTaken] = []
    proposals = list(_of_constraints(considered, plan, not_taken))
    left: dict[
        tuple[EditKind, PartitionSpec | None, PartitionSpec, NotTakenBecause, str], list[Tensor]
    ] = {}
    # The place of an argument leads to that of its next value.
    for key in sorted(wanted):
        if key not in wanted:
            continue
        row, spec = rows[key], wanted.pop(key)
        asked = row.requested
        before = None if asked is None or asked.sharding is None else asked.sharding.spec
        site = None if before is None or asked is None else sites.of(asked, before)
        proposal = None if site is None else site.changed(spec, considered.by_row, 0.0)
        why: NotTakenBecause | None = None
        other = ""
        if before is None:
            why = "left open"
        elif site is None or proposal is None:
            why = "no place"
        else:
            parts = (site,) if site.beside is None else (site, site.beside)
            others = {each for part in parts for each in part.tensors} - {key}
            apart = sorted(each for each in others if wanted.get(each) != spec)
            if apart:
                why, other = "shared place", rows[apart[0]].name
            else:
                proposals.append(proposal)
                for each in others:
                    del wanted[each]
        if why is not None:
            kind: EditKind = "result" if row.kind == "result" else "argument"
            left.setdefault((kind, before, spec, why, other), []).append(row)
    for (kind, before, after, because, other), tensors in left.items():
        edit = SourceEdit(kind, tensors[0].path, before, after, None, len(tensors))
        not_taken.append(NotTaken((edit,), because, other))
    return proposals, not_taken


def _of_constraints(
    considered: Considered, plan: Sequence[Setting], not_taken: list[NotTaken]
) -> Iterator[Proposal]:
    """The edits after which constraints are as planned, or gone."""
    specs = {member.number: spec for member, spec in plan if member.kind == "constraint"}
    annotations = considered.program.annotations("shardy")
    graph = considered.graph
    for site in constraint_sites(considered.workshop, graph, annotations, considered.mesh):
        ordinals = {annotation.ordinal for annotation in site.annotations}
        planned = {specs.get(ordinal) for ordinal in ordinals}
        spec = next(iter(planned))
        if len(planned) > 1:
            edit = site.dropped().edit
            not_taken.append(NotTaken((edit,), "shared place", edit.name))
        elif spec is not None:
            gone = {*spec.entries} == {UNCONSTRAINED}
            yield site.dropped() if gone else site.changed(spec)
        for ordinal in ordinals:
            specs.pop(ordinal, None)
    lost = [each for each in annotations if each.kind == "constraint" and each.ordinal in specs]
    for annotation in lost:
        before = spec_of(annotation, graph, considered.mesh)
        edit = SourceEdit(
            "constraint", annotation.path, before, specs[annotation.ordinal], annotation.source
        )
        not_taken.append(NotTaken((edit,), "no place"))
