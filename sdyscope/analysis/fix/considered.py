"""What could be edited in a program's source, the places of most bytes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.fix.effort import Effort
from sdyscope.analysis.fix.evidence import Evidence, Weight, evidence
from sdyscope.analysis.fix.expressions import Expression, expressions
from sdyscope.analysis.fix.focus import Focus
from sdyscope.analysis.fix.maps import map_specs
from sdyscope.analysis.fix.out_shardings import edited_types, is_type
from sdyscope.analysis.fix.proposals import (
    LiteralSites,
    Proposal,
    constraint_sites,
    dims_of,
    donations,
    new_constraint,
    open_results,
    spec_of,
    specs_near,
)
from sdyscope.analysis.fix.rewrites import mesh_orders, partitionable, rewrites
from sdyscope.analysis.fix.rules import edited_rules
from sdyscope.analysis.fix.states import like_parameters
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.analysis.naming.next_values import next_values_of_rows
from sdyscope.analysis.naming.paths import Leaf, kept_for
from sdyscope.analysis.naming.roles import pass_rows
from sdyscope.analysis.trials.trials import Trials
from sdyscope.annotations import Annotation
from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.remarks import Remark
from sdyscope.facts.tensors import Tensor
from sdyscope.stages.propagated.annotate import ShardingEdit
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, PartitionSpec

#: Below this, an expression is not behind enough bytes to be worth a constraint.
_LEAST = 0.02

#: How often the program is built without finding a place that shards any argument.
_PATIENCE = 24

#: Edits of what says how others are sharded, or many.
_TRACED = ("type", "reshard", "logical axis")

#: Edits of what is given: on Explicit axes the types of what is made of it follow.
TYPING = ("argument", "optimizer state")


class Considered:
    """The edits that are looked at.

    Args:
        workshop: the program.
        trials: its graph and mesh.
        focus: what is to be fixed.
        effort: how much is looked at.
    """

    def __init__(self, workshop: Workshop, trials: Trials, focus: Focus, effort: Effort) -> None:
        self.workshop, self.program, self.graph = workshop, workshop.program, trials.graph
        self.mesh, self.on, self.focus, self.effort = trials.mesh, trials.hardware, focus, effort

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What was not looked for any further."""
        return (Remark("places not found", count=_PATIENCE),) if self.sites.is_given_up else ()

    def proposals(self, collectives: Collectives) -> list[Proposal]:
        """Every edit that is looked at, what most bytes are sent for first."""
        about = evidence(self.program, self.focus.of(collectives))
        graph = self.graph
        annotations = self.program.annotations("shardy")
        proposals: list[Proposal] = []
        written = [annotation for annotation in annotations if not is_type(annotation)]
        for site in constraint_sites(self.workshop, graph, written, self.mesh):
            weights = [
                weight for annotation in site.annotations if (weight := about.of(annotation))
            ]
            sent = sum(weight.sent for weight in weights)
            axes = [axis for weight in weights for axis in weight.names]
            proposals.append(site.dropped(sent))
            if site.spec is not None and sent:
                near = specs_near(site.spec, site.shape, self.mesh, axes)
                proposals += [site.changed(spec, sent) for spec in near]
        if not self.has_types:
            proposals += self.of_expressions(about, collectives.total.sent)
        proposals += edited_types(self.workshop, graph, annotations, self.mesh, about)
        proposals += self.of_arguments(about)
        proposals += edited_rules(self.workshop, self.mesh, partial(self.of_shape, about))
        proposals += donations(self.workshop)
        proposals += open_results(self.workshop)
        proposals += map_specs(self.workshop, graph, self.mesh, about, self.spec_at)
        compiled = self.program.compiled("shardy", self.on)
        proposals += rewrites(self.workshop, graph, self.mesh, collectives, compiled.module)
        proposals += partitionable(self.workshop, collectives)
        proposals += mesh_orders(self.workshop, self.mesh, collectives, compiled)
        proposals = [
            proposal
            for proposal in proposals
            if self.focus.allows(proposal.edit, proposal.weight, proposal.names)
        ]
        # What is to be traced has an order of its own.
        return sorted(
            proposals,
            key=lambda each: 0.0 if each.edit.kind in _TRACED else -each.weight,
        )

    @cached_property
    def has_types(self) -> bool:
        """Whether the program is on Explicit axes, where types say how values are sharded."""
        return any(map(is_type, self.program.annotations("shardy")))

    def has_to_be_traced(self, edit: SourceEdit) -> bool:
        """Whether only tracing tells what an edit makes: types of values follow it, or a rule."""
        return edit.kind in _TRACED or (self.has_types and edit.kind in TYPING)

    def to_trace(self, proposals: Iterable[Proposal]) -> list[Proposal]:
        """Those of the edits that have to be, of each kind as many."""
        edits = [proposal for proposal in proposals if self.has_to_be_traced(proposal.edit)]
        rules = [proposal for proposal in edits if proposal.edit.kind == "logical axis"]
        given = [proposal for proposal in edits if proposal.edit.kind in TYPING]
        said = [proposal for proposal in edits if proposal.edit.kind in ("type", "reshard")]
        return [
            proposal for each in (said, given, rules) for proposal in each[: self.effort.traces]
        ]

    def of_expressions(self, about: Evidence, total: float) -> Iterator[Proposal]:
        """New constraints on what axes went through on their way to the largest collectives."""
        weighted: list[tuple[float, Expression, list[str]]] = []
        for expression in expressions(self.graph, self.workshop.spans, self.workshop.editable):
            if any(self.graph.ops[node].is_constraint for node, _ in expression.values):
                continue  # What is constrained there already is edited at its constraint.
            weight = about.of_values(expression.values)
            if weight.sent >= _LEAST * (total or 1.0):
                weighted.append((weight.sent, expression, weight.names))
        # Of those on the same chains the first decides for all behind it.
        weighted.sort(key=lambda each: (-each[0], each[1].values))
        for sent, expression, axes in weighted[: self.effort.expressions]:
            specs: dict[PartitionSpec, None] = {}
            for value in expression.values[:1]:
                now = self.spec_at(value)
                specs.update(dict.fromkeys(self.specs_of_shape(expression.shape)))
                specs.update(dict.fromkeys(specs_near(now, expression.shape, self.mesh, axes)))
            for spec in [*specs][: self.effort.specs]:
                yield new_constraint(self.workshop, expression, self.mesh, spec, sent)

    def spec_at(self, value: ValueId) -> PartitionSpec | None:
        """How propagation shards a value; None where it has no form of JAX's."""
        axes = PropagatedAxes(self.graph, self.program.propagated("shardy"), self.mesh)
        spec = axes.spec(value)
        return spec if isinstance(spec, PartitionSpec) else None

    def specs_of_shape(self, shape: Sequence[int]) -> Iterable[PartitionSpec]:
        """How the author constrains values of a shape elsewhere."""
        for annotation in self.program.annotations("shardy"):
            if annotation.kind == "constraint" and annotation.shape == tuple(shape):
                spec = spec_of(annotation, self.graph, self.mesh)
                if spec is not None:
                    yield spec

    @cached_property
    def sites(self) -> LiteralSites:
        """The places that shard arguments and results."""
        return LiteralSites(self.workshop, self.mesh, patience=_PATIENCE)

    def of_arguments(self, about: Evidence) -> Iterator[Proposal]:
        """Other shardings of arguments and results, at the places of the source that shard them."""
        sites, rows, by_row = self.sites, self.rows, self.by_row
        weighed: list[tuple[float, Any, Weight]] = []
        for row in rows:
            asked = row.requested
            if asked is None or asked.sharding is None or asked.sharding.mesh != self.mesh:
                continue
            if not row.shape:
                continue
            weight = about.annotations.get((row.kind, row.path)) or Weight()
            redundant = self.redundant(row) if self.is_meant(row) else 0.0
            weighed.append((weight.sent + redundant, asked, weight))
        weighed.sort(key=lambda each: -each[0])
        seen: set[int] = set()
        looked = 0
        for sent, asked, weight in weighed:
            if looked == self.effort.arguments or not sent or sites.is_given_up:
                break
            site = sites.of(asked, asked.sharding.spec)
            if site is None or id(site) in seen:
                continue
            seen.add(id(site))
            looked += 1
            alike = like_parameters(self.workshop, site, self.parameters, by_row, sent)
            if alike is not None:
                yield alike
            for spec in specs_near(site.spec, site.shape, self.mesh, weight.names):
                proposal = site.changed(spec, by_row, sent)
                if proposal is not None:
                    yield proposal

    def of_shape(self, about: Evidence, shape: Sequence[int]) -> float:
        """What is sent for annotations of arrays of a shape, and held more than once of these."""
        written = self.program.annotations("shardy")
        sent = about.sent_for(each for each in written if each.shape == tuple(shape))
        held = [
            self.redundant(row)
            for row in self.rows
            if row.shape == tuple(shape) and self.is_meant(row)
        ]
        return sent + sum(held)

    @cached_property
    def rows(self) -> list[Tensor]:
        """The arguments and results that the author could shard."""
        return [
            row
            for row in self.program.tensors.tensors
            if row.kind in ("argument", "result") and row.requested is not None
        ]

    @cached_property
    def by_row(self) -> dict[tuple[str, int], Annotation]:
        """What the module says of them, by kind and flat index."""
        return {
            (row.kind, row.index or 0): row.lowered["shardy"]
            for row in self.rows
            if "shardy" in row.lowered
        }

    @cached_property
    def parameters(self) -> dict[int, int]:
        """By the index of an argument that an optimizer keeps, that of its parameter."""
        arguments = self.program.tensors.of("argument", "shardy")
        results = self.program.tensors.of("result", "shardy")
        leaves = [Leaf.of(row) for row in arguments]
        known = next_values_of_rows(results, arguments, "shardy", self.graph)
        returned = {value.argument for value in known.values()}
        in_passes = pass_rows(self.graph, arguments, "shardy")
        return {
            arguments[number].index or 0: arguments[parameter].index or 0
            for number, parameter in kept_for(leaves, in_passes, returned).items()
        }

    def without_place(self, proposals: Sequence[Proposal]) -> Proposal | None:
        """Optimizer state to be sharded as its parameters, which no place can say; None for none.

        Most often one sharding is written for the whole state, whatever its parameters have.
        """
        written = {
            name for each in proposals if each.edit.kind == "optimizer state" for name in each.names
        }
        rows = {row.index or 0: row for row in self.rows if row.kind == "argument"}
        apart: list[tuple[Tensor, PartitionSpec, PartitionSpec]] = []
        for index, parameter in self.parameters.items():
            row, other = rows.get(index), rows.get(parameter)
            if row is None or other is None or row.path in written:
                continue
            if not self.is_meant(row):
                continue
            own, its = _asked(row, self.mesh), _asked(other, self.mesh)
            rank = len(row.shape or ())
            if own is None or its is None or dims_of(own, rank) == dims_of(its, rank):
                continue
            apart.append((row, own, its))
        if not apart:
            return None
        trial = tuple(
            ShardingEdit(row.lowered["shardy"], NamedSharding(self.mesh, its))
            for row, _, its in apart
            if "shardy" in row.lowered
        )
        largest, before, _ = max(apart, key=lambda each: math.prod(each[0].shape or ()))
        edit = SourceEdit("optimizer state", largest.path, before, None, None, len(apart))
        return Proposal(edit, trial, dict)

    def is_meant(self, row: Tensor) -> bool:
        """Whether what is to be fixed is anything, or this tensor."""
        return self.focus.is_anything or row.path in self.focus.tensors

    def redundant(self, row: Any) -> float:
        """Bytes of a tensor that a device holds and would not if all axes sharded it."""
        annotation = row.lowered.get("shardy")
        if annotation is None or annotation.placement is None or row.shape is None:
            return 0.0
        whole = num_bytes(math.prod(row.shape), row.dtype)
        blocks = math.prod(annotation.placement.shards)
        return float(whole / blocks - whole / self.mesh.size)


def _asked(row: Tensor, mesh: Mesh) -> PartitionSpec | None:
    """How an argument is asked to be sharded on a mesh; None where it is left open."""
    return None if row.asked is None or row.asked.mesh != mesh else row.asked.spec
