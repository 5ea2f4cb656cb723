"""fix: edits of the user's source that pay, tried, priced, proven and ranked."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.cost.cost import cost_of
from sdyscope.analysis.cost.links import axes_levels
from sdyscope.analysis.cost.order import slowest
from sdyscope.analysis.cost.remarks import error_of_estimates
from sdyscope.analysis.diff.entries import compared_entries
from sdyscope.analysis.fix.change import WORTH, Change
from sdyscope.analysis.fix.evidence import Evidence, Weight, evidence
from sdyscope.analysis.fix.expressions import Expression, expressions
from sdyscope.analysis.fix.focus import Focus, focus_on
from sdyscope.analysis.fix.maps import map_specs
from sdyscope.analysis.fix.out_shardings import edited_types, is_type
from sdyscope.analysis.fix.proposals import (
    LiteralSites,
    Proposal,
    constraint_sites,
    dims_of,
    donations,
    fuller_specs,
    new_constraint,
    open_results,
    spec_of,
    specs_near,
)
from sdyscope.analysis.fix.prove import Twin
from sdyscope.analysis.fix.rewrites import mesh_orders, mesh_sizes, partitionable, rewrites
from sdyscope.analysis.fix.rules import edited_rules
from sdyscope.analysis.fix.states import like_parameters
from sdyscope.analysis.fix.values import Figures, Fix, NotTaken, Remedy, Verdict
from sdyscope.analysis.fix.workshop import Rebuild, Workshop
from sdyscope.analysis.memory.memory import memory_of
from sdyscope.analysis.naming.paths import Leaf, kept_for, mirrored
from sdyscope.analysis.naming.roles import pass_rows
from sdyscope.analysis.trials.cost import FLOPS_PER_BYTE, Prediction
from sdyscope.analysis.trials.traffic import traffic
from sdyscope.analysis.trials.trials import Trials
from sdyscope.annotations import Annotation
from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.edits import EditKind, MovedResult, NotTakenBecause, Numbers, SourceEdit
from sdyscope.facts.program import Program
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.remarks import Remark
from sdyscope.facts.tensors import Tensor
from sdyscope.hardware.names import LARGEST_CPU, Hardware
from sdyscope.hardware.specs import Chip, chip_of
from sdyscope.patches.diff import applied, relative, unified_diff
from sdyscope.patches.source import Splice
from sdyscope.staged import Staged, compile_together
from sdyscope.stages.edited.overlay import overlaid, under_settings
from sdyscope.stages.propagated.annotate import DonatedArgument, ShardingEdit
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from sdyscope.analysis.search.space import Setting

#: What is predicted to be better by this part is worth asking XLA's partitioner.
_PROMISING = 0.002

#: Below this, an expression is not behind enough bytes to be worth a constraint.
_LEAST = 0.02

#: How many edits of one place are compiled.
_OF_A_PLACE = 2

#: Of how many edits that make a device compute more another is looked for that makes up for it.
_MADE_UP_FOR = 3

#: Of how many edits, the best first, it is tried which to take together.
_TOGETHER = 12

#: Edits of what goes in and comes out.
_AT_THE_ENDS = ("argument", "result", "donation")

#: How many edits are predicted in the time that tracing one takes.
_PREDICTIONS_A_TRACE = 8

#: Edits of what says how others are sharded, or many.
_TRACED = ("type", "reshard", "logical axis")

#: Edits of what is given: on Explicit axes the types of what is made of it follow.
_TYPING = ("argument", "optimizer state")

#: More edits than are ever taken together.
_MANY = 1 << 10


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried.

    Attributes:
        expressions: how many expressions to constrain, those behind most bytes first.
        arguments: of how many arguments and results to look for the place that shards them.
        edits: how many edits to take together.
        compiles: how many edited programs to compile.
        predictions: how many edits to predict at most.
        specs: how many shardings to try for an expression.
        checks: how many of the best XLA partitions, which costs a second and knows better.
        meshes: how many other sizes of the mesh's axes to trace, where these are asked about.
        placements: of how many ways to shard a constraint's values over all axes to predict what
            they send.
    """

    expressions: int = 8
    arguments: int = 12
    edits: int = 3
    compiles: int = 3
    predictions: int = 240
    specs: int = 8
    checks: int = 8
    placements: int = 24
    meshes: int = 8

    @property
    def traces(self) -> int:
        """How many edits to trace of each kind of which only that tells what is sent.

        Those of values' types on Explicit axes, of what is given there, and of rules.
        """
        return max(self.predictions // _PREDICTIONS_A_TRACE, 1)


@dataclass(frozen=True)
class FixCandidate:
    """Edits that are taken together, and what they promise."""

    proposals: tuple[Proposal, ...]
    prediction: Prediction | None
    change: Change


@dataclass
class _Built:
    """Edits, written, and the program that was traced from the edited source."""

    candidate: FixCandidate
    texts: Mapping[str, str]
    program: Staged
    prediction: Prediction
    as_predicted: bool | None
    after: Figures | None = None
    failure: str = ""


@dataclass(frozen=True)
class Weighed:
    """Edits whose program was compiled, and what that comes to."""

    built: _Built
    change: Change
    verdict: Verdict


def fixed(
    program: Staged,
    rebuild: Rebuild,
    *,
    on: Hardware | str | None = None,
    focus: Focus | str = "",
    effort: Effort = Effort(),
    plan: Sequence[Setting] = (),
    devices: Sequence[Any] | None = None,
    root: str = "",
    alone: Rebuild | None = None,
    notify: Callable[[str, float], None] | None = None,
) -> Fix:
    """See ``Inspection.fix``."""
    if program.program is None:
        program.chosen(None)
        raise TargetError(
            f"{program.name} is a module, and edits are of a program's source.",
            hint="Name the program that it was lowered from.",
        )
    fixer = _Fixer(program, rebuild, on, focus, effort, devices, root, alone, notify)
    return fixer.run(plan)


class _Fixer:
    def __init__(
        self,
        program: Staged,
        rebuild: Rebuild,
        on: Hardware | str | None,
        focus: Focus | str,
        effort: Effort,
        devices: Sequence[Any] | None,
        root: str,
        alone: Rebuild | None,
        notify: Callable[[str, float], None] | None,
    ) -> None:
        self.root, self.alone = root, alone
        self.program, self.asked, self.effort = program, focus, effort
        self.notify = notify or (lambda _, __: None)
        self.began = time.perf_counter()
        self.trials = Trials(program, on)
        self.mesh = self.trials.mesh
        self.on = self.trials.hardware
        self.on_cpu = self.on.platform == "cpu"
        self.workshop = Workshop(program, rebuild, self.on.platform)
        self.twin = Twin(program, devices)
        self.tried = self.compiled = 0
        self.not_taken: list[NotTaken] = []

    # --- all of it --------------------------------------------------------------------------------

    def run(self, plan: Sequence[Setting] = ()) -> Fix:
        self.notify("compiling the program as it is", 0.0)
        collectives = collectives_under(self.program, "shardy", self.on)
        self.focus = (
            focus_on(self.asked, self.program.tensors, collectives)
            if isinstance(self.asked, str)
            else self.asked
        )
        self.base = self.trials.predict(on_cpu=self.on_cpu)
        self.before = self.figures(self.program, self.base)
        self.notify("looking for edits", 0.1)
        if plan:
            proposals = self.of_plan(plan)
            candidates = self.whole(proposals)
        else:
            proposals = self.proposals(collectives)
            self.notify("predicting edits", 0.2)
            self.say_what_has_no_place(proposals)
            untried = [each for each in proposals if not self.has_to_be_traced(each.edit)]
            candidates = self.predicted(untried)
            traced = list(self.traced(self.to_trace(proposals)))
            traced.sort(key=lambda candidate: candidate.change.product)
            checked = self.checked(traced, below=1 + _PROMISING)
            traced = [*checked, *self.traced_together(checked, traced)]
            if self.focus.on_mesh:
                sizes = list(islice(mesh_sizes(self.workshop, self.mesh), self.effort.meshes))
                proposals += sizes
                traced += self.traced(sizes)
            if traced:
                candidates = sorted(
                    [*candidates, *self.promising(traced)],
                    key=lambda candidate: candidate.change.order,
                )
        self.notify("tracing edited sources", 0.5)
        built = list(self.built(candidates))
        self.notify("compiling edited programs", 0.6)
        weighed = in_order(self.weighed(built))
        if weighed and not plan:
            weighed = in_order([*weighed, *self.weighed(self.fuller(weighed[0].built))])
        remedies = self.priced(weighed)
        return Fix(
            name=self.program.name,
            finding=self.focus.words,
            jax_version=self.program.jax_version,
            hardware=self.on,
            meshes=self.program.meshes,
            before=self.before,
            predicted=self.base,
            remedies=tuple(remedies),
            not_taken=tuple(self.not_taken),
            proposed=len(proposals),
            tried=self.tried,
            compiled=self.compiled,
            seconds=time.perf_counter() - self.began,
            notes=(*self.trials.notes, *self.trials.crashes, *self.error_of_times()),
            account=account_of(self.program),
        )

    # --- what could be edited ---------------------------------------------------------------------

    def proposals(self, collectives: Collectives) -> list[Proposal]:
        """Every edit that is looked at, what most bytes are sent for first."""
        about = evidence(self.program, self.focus.of(collectives))
        graph = self.trials.graph
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
            proposals += self.of_expressions(about)
        proposals += edited_types(self.workshop, graph, annotations, self.mesh, about)
        proposals += self.of_arguments(about)
        proposals += edited_rules(self.workshop, self.mesh)
        proposals += donations(self.workshop)
        proposals += open_results(self.workshop)
        proposals += map_specs(self.workshop, graph, self.mesh, about, self.spec_at)
        proposals += rewrites(self.workshop, graph, self.mesh, collectives)
        proposals += partitionable(self.workshop, collectives)
        compiled = self.program.compiled("shardy", self.on)
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
        return edit.kind in _TRACED or (self.has_types and edit.kind in _TYPING)

    def to_trace(self, proposals: Iterable[Proposal]) -> list[Proposal]:
        """Those of the edits that have to be, of each kind as many."""
        edits = [proposal for proposal in proposals if self.has_to_be_traced(proposal.edit)]
        rules = [proposal for proposal in edits if proposal.edit.kind == "logical axis"]
        given = [proposal for proposal in edits if proposal.edit.kind in _TYPING]
        said = [proposal for proposal in edits if proposal.edit.kind in ("type", "reshard")]
        return [
            proposal for each in (said, given, rules) for proposal in each[: self.effort.traces]
        ]

    def of_expressions(self, about: Evidence) -> Iterator[Proposal]:
        """New constraints on what axes went through on their way to the largest collectives."""
        total = float(self.before.sent) or 1.0
        weighted: list[tuple[float, Expression, list[str]]] = []
        for expression in expressions(
            self.trials.graph, self.workshop.spans, self.workshop.editable
        ):
            if any(self.trials.graph.ops[node].is_constraint for node, _ in expression.values):
                continue  # What is constrained there already is edited at its constraint.
            weights = [about.values[value] for value in expression.values if value in about.values]
            sent = sum(weight.sent for weight in weights)
            if sent < _LEAST * total:
                continue
            axes = list(dict.fromkeys(axis for weight in weights for axis in weight.names))
            weighted.append((sent, expression, axes))
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
        from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes

        axes = PropagatedAxes(self.trials.graph, self.program.propagated("shardy"), self.mesh)
        spec = axes.spec(value)
        return spec if isinstance(spec, PartitionSpec) else None

    def specs_of_shape(self, shape: Sequence[int]) -> Iterable[PartitionSpec]:
        """How the author constrains values of a shape elsewhere."""
        for annotation in self.program.annotations("shardy"):
            if annotation.kind == "constraint" and annotation.shape == tuple(shape):
                spec = spec_of(annotation, self.trials.graph, self.mesh)
                if spec is not None:
                    yield spec

    def of_arguments(self, about: Evidence) -> Iterator[Proposal]:
        """Other shardings of arguments and results, at the places of the source that shard them."""
        sites, rows, by_row = LiteralSites(self.workshop, self.mesh), self.rows, self.by_row
        weighed: list[tuple[float, Any, Weight]] = []
        for row in rows:
            asked = row.requested
            if asked is None or asked.sharding is None or asked.sharding.mesh != self.mesh:
                continue
            if not row.shape:
                continue
            weight = about.annotations.get((row.kind, row.path)) or Weight()
            is_meant = self.focus.is_anything or row.path in self.focus.tensors
            redundant = self.redundant(row) if is_meant else 0.0
            weighed.append((weight.sent + redundant, asked, weight))
        weighed.sort(key=lambda each: -each[0])
        seen: set[int] = set()
        looked = 0
        for sent, asked, weight in weighed:
            if looked == self.effort.arguments or not sent:
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

    def of_plan(self, plan: Sequence[Setting]) -> list[Proposal]:
        """The edits after which arguments, results and constraints are as planned.

        What no place of the source shards, or one that other tensors share which are not to be
        sharded so, is among what is not taken.
        """
        sites = LiteralSites(self.workshop, self.mesh)
        specs: dict[tuple[str, str], PartitionSpec] = {
            (member.kind, member.name): spec for member, spec in plan if member.kind != "constraint"
        }
        rows: dict[tuple[str, int], Tensor] = {(row.kind, row.index or 0): row for row in self.rows}
        wanted = {
            key: specs[row.kind, row.name]
            for key, row in rows.items()
            if (row.kind, row.name) in specs
        }
        proposals = list(self.of_constraints(plan))
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
            proposal = None if site is None else site.changed(spec, self.by_row, 0.0)
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
            self.not_taken.append(NotTaken((edit,), because, other))
        return proposals

    def of_constraints(self, plan: Sequence[Setting]) -> Iterator[Proposal]:
        """The edits after which constraints are as planned, or gone."""
        specs = {member.number: spec for member, spec in plan if member.kind == "constraint"}
        annotations = self.program.annotations("shardy")
        graph = self.trials.graph
        for site in constraint_sites(self.workshop, graph, annotations, self.mesh):
            ordinals = {annotation.ordinal for annotation in site.annotations}
            planned = {specs.get(ordinal) for ordinal in ordinals}
            spec = next(iter(planned))
            if len(planned) > 1:
                edit = site.dropped().edit
                self.not_taken.append(NotTaken((edit,), "shared place", edit.name))
            elif spec is not None:
                gone = {*spec.entries} == {UNCONSTRAINED}
                yield site.dropped() if gone else site.changed(spec)
            for ordinal in ordinals:
                specs.pop(ordinal, None)
        lost = [each for each in annotations if each.kind == "constraint" and each.ordinal in specs]
        for annotation in lost:
            before = spec_of(annotation, graph, self.mesh)
            edit = SourceEdit(
                "constraint", annotation.path, before, specs[annotation.ordinal], annotation.source
            )
            self.not_taken.append(NotTaken((edit,), "no place"))

    def whole(self, proposals: Sequence[Proposal]) -> list[FixCandidate]:
        """All edits of a plan, taken together."""
        if not proposals:
            return []
        edits = [edit for proposal in proposals for edit in proposal.trial or ()]
        self.tried += 1
        prediction = self.trials.tried(edits, on_cpu=self.on_cpu)
        return [FixCandidate(tuple(proposals), prediction, self.promise(prediction))]

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
        returned = mirrored([Leaf.of(row) for row in results], leaves).values()
        in_passes = pass_rows(self.trials.graph, arguments, "shardy")
        return {
            arguments[number].index or 0: arguments[parameter].index or 0
            for number, parameter in kept_for(leaves, in_passes, set(returned)).items()
        }

    def say_what_has_no_place(self, proposals: Sequence[Proposal]) -> None:
        """Says what optimizer state should be sharded as its parameters, and no place can say it.

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
            if not (self.focus.is_anything or row.path in self.focus.tensors):
                continue
            own, its = _asked(row, self.mesh), _asked(other, self.mesh)
            rank = len(row.shape or ())
            if own is None or its is None or dims_of(own, rank) == dims_of(its, rank):
                continue
            apart.append((row, own, its))
        if not apart:
            return
        trial = tuple(
            ShardingEdit(row.lowered["shardy"], NamedSharding(self.mesh, its))
            for row, _, its in apart
            if "shardy" in row.lowered
        )
        largest, before, _ = max(apart, key=lambda each: math.prod(each[0].shape or ()))
        edit = SourceEdit("optimizer state", largest.path, before, None, None, len(apart))
        prediction = self.predict([Proposal(edit, trial, dict)])
        if prediction is not None and self.promise(prediction).product < 1 - WORTH:
            self.not_taken.append(NotTaken((edit,), "no place"))

    def redundant(self, row: Any) -> float:
        """Bytes of a tensor that a device holds and would not if all axes sharded it."""
        annotation = row.lowered.get("shardy")
        if annotation is None or annotation.placement is None or row.shape is None:
            return 0.0
        whole = num_bytes(math.prod(row.shape), row.dtype)
        blocks = math.prod(annotation.placement.shards)
        return float(whole / blocks - whole / self.mesh.size)

    # --- what edits promise -----------------------------------------------------------------------

    @cached_property
    def chip(self) -> Chip | None:
        """What the devices are; None where no rates are known, as for CPUs."""
        return chip_of(self.program.compiled("shardy", self.on).device_kind)

    @cached_property
    def slowness(self) -> dict[tuple[str, ...], float]:
        """How many bytes over the fastest axis take as long as one over some axes."""
        topology = self.program.compiled("shardy", self.on).topology
        if self.chip is None or topology is None:
            return {}
        names = [axis.name for axis in self.mesh.axes if axis.size > 1]
        sets = [each for size in (1, 2, 3) for each in combinations(names, size)]
        rates = {
            each: slowest(axes_levels(map(AxisRef, each), self.mesh, topology, self.chip))
            for each in sets
        }
        fastest = max((rate for rate in rates.values() if rate), default=None)
        if fastest is None:
            return {}
        return {each: fastest / rate for each, rate in rates.items() if rate}

    def time(self, prediction: Prediction) -> float:
        """Bytes over the fastest axis that take as long: those that are sent, and arithmetic."""
        sent = sum(row.sent * self.slowness.get(row.axes, 1.0) for row in prediction.traffic)
        per_byte = FLOPS_PER_BYTE if self.chip is None else self.chip.flops_per_byte
        return sent + (prediction.flops or 0.0) / (per_byte or FLOPS_PER_BYTE)

    def promise(self, prediction: Prediction, base: Prediction | None = None) -> Change:
        """What an edited program would take, by two predictions."""
        before = base or self.base
        needs = self.before.total or self.base.held
        held = max(needs + prediction.held - before.held, 1)
        return Change(self.time(prediction) / max(self.time(before), 1.0), held / max(needs, 1))

    def hope(self, proposal: Proposal) -> Change:
        """What an edit promises by what it leaves out; what makes numbers right comes first."""
        if proposal.corrects:
            return Change(0.0)
        return Change(max(1.0 - proposal.saves / max(self.time(self.base), 1.0), 0.0))

    def predict(self, proposals: Sequence[Proposal]) -> Prediction | None:
        """What some edits promise, by Shardy's passes; None where that can't be said."""
        edits = [edit for proposal in proposals for edit in proposal.trial or ()]
        self.tried += 1
        try:
            prediction = self.trials.tried(edits, on_cpu=self.on_cpu)
        except (CompilerError, TargetError):
            return None
        donated = [edit.annotation for edit in edits if isinstance(edit, DonatedArgument)]
        shared = sum(
            tensor.placement.bytes_per_device(tensor.shape or (), tensor.dtype)
            for tensor in donated
            if tensor.placement is not None
        )
        return replace(prediction, shared=prediction.shared + shared)

    def computes_more(self, prediction: Prediction) -> bool:
        """Whether every device computes more, and sends less at that price: that is no remedy."""
        flops = prediction.flops or 0.0
        return bool(self.base.flops) and flops > (self.base.flops or 0.0) * (1 + 2 * WORTH)

    def predicted(self, proposals: Sequence[Proposal]) -> list[FixCandidate]:
        """Single edits that promise something, and edits together that promise more."""
        single: list[FixCandidate] = []
        unknown: list[FixCandidate] = []
        computing: list[FixCandidate] = []
        for proposal in proposals:
            if self.tried >= self.effort.predictions:
                break
            if proposal.trial is None:
                unknown.append(FixCandidate((proposal,), None, self.hope(proposal)))
                continue
            prediction = self.predict([proposal])
            if prediction is not None:
                candidate = FixCandidate((proposal,), prediction, self.promise(prediction))
                (computing if self.computes_more(prediction) else single).append(candidate)
        single.sort(key=lambda candidate: candidate.change.product)
        pairs = self.made_up_for(computing, single)
        by_promise = sorted([*single, *pairs], key=lambda candidate: candidate.change.product)
        good = [each for each in self.checked(by_promise) if each.change.product < 1 - WORTH]
        good.sort(key=lambda candidate: candidate.change.order)
        together = list(self.together(good))
        known = sorted([*unknown, *good, *together], key=lambda candidate: candidate.change.order)
        return [*known, *freeing(single, self.before.total or self.base.held)]

    def made_up_for(
        self, computing: Sequence[FixCandidate], single: Sequence[FixCandidate]
    ) -> Iterator[FixCandidate]:
        """Edits that make a device compute more, each with another with which it does not.

        A product whose axis another tensor brought, say, is not sharded any more when that tensor
        is sharded as it should be, until its own weights are.
        """
        promising = sorted(
            (candidate for candidate in computing if candidate.change.product < 1 - WORTH),
            key=lambda candidate: candidate.change.product,
        )
        others = sorted([*single, *computing], key=lambda candidate: candidate.change.product)
        for candidate in promising[:_MADE_UP_FOR]:
            (proposal,) = candidate.proposals
            elsewhere = (
                other.proposals[0]
                for other in others
                if other.proposals[0].edit.source != proposal.edit.source
            )
            for other in islice(elsewhere, _TOGETHER):
                if self.tried >= self.effort.predictions:
                    return
                prediction = self.predict([proposal, other])
                if prediction is not None and not self.computes_more(prediction):
                    yield FixCandidate((proposal, other), prediction, self.promise(prediction))

    def traced(self, proposals: Iterable[Proposal]) -> Iterator[FixCandidate]:
        """Single edits, each traced to be predicted, whatever they promise.

        Those of the mesh's sizes, of rules, and those that types of values follow.
        """
        for proposal in proposals:
            yield from self.tried_by_trace((proposal,))

    def tried_by_trace(self, proposals: tuple[Proposal, ...]) -> Iterator[FixCandidate]:
        """Edits taken together, traced to be predicted; nothing where JAX refuses them."""
        self.notify("tracing edited sources", 0.3)
        candidate = FixCandidate(proposals, None, Change(1.0))
        edited = self.build(candidate)
        if edited is None:
            return
        self.tried += 1
        change = self.promise(edited.prediction)
        if self.computes_more(edited.prediction):
            change = replace(change, time=max(change.time, 1.0), memory=max(change.memory, 1.0))
        yield replace(candidate, change=change)

    def promising(self, traced: Iterable[FixCandidate]) -> Iterator[FixCandidate]:
        """Those of the traced edits that promise something."""
        for candidate in traced:
            if candidate.change.product < 1 - WORTH:
                yield candidate
            else:
                self.refuse(candidate, "sends no less")

    def traced_together(
        self, checked: Sequence[FixCandidate], traced: Sequence[FixCandidate]
    ) -> Iterator[FixCandidate]:
        """The best of the edits that were traced with others, as long as each wins more.

        The others too that win nothing alone: where one value is sharded as it should be, what is
        made of it has to follow.

        Args:
            checked: single edits, by XLA's partitioner where it was asked.
            traced: the same, as predicted, which those that are taken together are compared with.
        """
        predicted = {_edits(each): each.change for each in traced}

        def likely(candidate: FixCandidate) -> tuple[bool, float]:
            """What the source says of values first, by what either of both promises of it."""
            change = predicted[_edits(candidate)]
            product = min(candidate.change.product, change.product)
            return candidate.proposals[0].edit.kind in _TYPING, product

        single, left = sorted(checked, key=likely), self.effort.traces
        # The best by either: what both make together can be seen by one of them alone.
        starts: dict[int, FixCandidate] = {}
        for each in (checked, traced):
            promises = [candidate.change.product for candidate in each]
            if promises and min(promises) < 1 - WORTH:
                at = promises.index(min(promises))
                starts[at] = checked[at]
        for best in starts.values():
            before = predicted[_edits(best)]
            while len(best.proposals) < self.effort.edits:
                taken = {each.edit.source for each in best.proposals}
                elsewhere = [each for each in single if each.proposals[0].edit.source not in taken]
                others = elsewhere[: min(_TOGETHER, left)]
                left -= len(others)
                more = [
                    candidate
                    for other in others
                    for candidate in self.tried_by_trace((*best.proposals, *other.proposals))
                    if is_worth_it(candidate.change.over(before), other.proposals[0].edit)
                ]
                added = min(more, key=lambda candidate: candidate.change.order, default=None)
                if added is None:
                    break
                best = replace(added, change=best.change.times(added.change.over(before)))
                before = added.change
                yield best

    def checked(
        self, single: Sequence[FixCandidate], below: float = 1 - _PROMISING
    ) -> list[FixCandidate]:
        """The best edits by what XLA's own partitioner makes of them, the rest as predicted.

        Shardy's reshards promise too much of some edits and too little of others, and what is best
        of many is most often one of the first.

        Args:
            single: the edits, the best first.
            below: what they have to promise, to be asked about.
        """
        hopeful = [candidate for candidate in single if candidate.change.product < below]
        places: Counter[object] = Counter()
        asked: list[FixCandidate] = []
        for candidate in hopeful:
            edits = _edits(candidate)
            place = tuple(edit.source for edit in edits)
            if edits[0].kind == "donation" or places[place] == _OF_A_PLACE:
                continue
            places[place] += 1
            asked.append(candidate)
        asked = asked[: self.effort.checks]
        if not asked or self.trials.devices > LARGEST_CPU:
            return list(single)
        self.notify("partitioning the best edits", 0.4)
        try:
            base = replace(self.base, traffic=self.trials.partition(on_cpu=self.on_cpu))
        except (CompilerError, TargetError):
            return list(single)
        known: dict[int, FixCandidate] = {}
        for candidate in asked:
            try:
                prediction = self.partitioned(candidate)
            except (CompilerError, TargetError):
                known[id(candidate)] = replace(candidate, change=Change(1.0))
                continue
            known[id(candidate)] = replace(candidate, change=self.promise(prediction, base))
        return [known.get(id(each), each) for each in single]

    def partitioned(self, candidate: FixCandidate) -> Prediction:
        """What edits promise, with what XLA's partitioner sends after them.

        Raises:
            CompilerError: XLA refuses the program.
            TargetError: it can't be built.
        """
        if candidate.prediction is not None:
            trial = [edit for each in candidate.proposals for edit in each.trial or ()]
            traffic = self.trials.partition(trial, on_cpu=self.on_cpu)
            return replace(candidate.prediction, traffic=traffic)
        edited = self.build(candidate)
        if edited is None:
            raise TargetError("The edited source does not build.")
        traffic = Trials(edited.program, self.on).partition(on_cpu=self.on_cpu)
        return replace(edited.prediction, traffic=traffic)

    def together(self, good: Sequence[FixCandidate]) -> Iterator[FixCandidate]:
        """The best edit with others, as long as each wins something more."""
        if not good:
            return
        best = good[0]
        # Predictions are compared with predictions: XLA's partitioner was asked for single edits.
        assert best.prediction is not None
        predicted = self.promise(best.prediction)
        while len(best.proposals) < self.effort.edits:
            taken = {proposal.edit.source for proposal in best.proposals}
            more: list[FixCandidate] = []
            for other in good[:_TOGETHER]:
                if len(other.proposals) > 1 or other.proposals[0].edit.source in taken:
                    continue
                proposals = (*best.proposals, *other.proposals)
                prediction = self.predict(proposals)
                if prediction is None or self.computes_more(prediction):
                    continue
                candidate = FixCandidate(proposals, prediction, self.promise(prediction))
                # Each edit has to be worth it beside those that are taken already.
                if is_worth_it(candidate.change.over(predicted), other.proposals[0].edit):
                    more.append(candidate)
            added = min(
                more, key=lambda candidate: candidate.change.over(predicted).order, default=None
            )
            if added is None:
                return
            best = replace(added, change=best.change.times(added.change.over(predicted)))
            predicted = added.change
            yield best

    # --- the edited source ------------------------------------------------------------------------

    def built(self, candidates: Sequence[FixCandidate]) -> Iterator[_Built]:
        """What is worth a compile, written and traced from the edited source."""
        self.workshop.survey(
            span
            for candidate in candidates[:12]
            for each in candidate.proposals
            for span in each.spans
        )
        seen: list[Prediction] = []
        places: Counter[object] = Counter()
        count = rewritten = 0
        # The last compile is for memory that is paid with time, where that promises more.
        slower = next(
            (candidate.change.product for candidate in candidates if candidate.change.is_slower),
            None,
        )
        is_kept = slower is not None and slower < candidates[0].change.product
        for candidate in candidates:
            # Of edits of code only the compiled program tells, so they do not wait for their turn.
            is_code = candidate.prediction is None
            kept = is_kept and not candidate.change.is_slower
            if count >= self.effort.compiles - kept and not is_code:
                continue
            if is_code and rewritten == self.effort.compiles:
                continue
            place = tuple((each.edit.kind, each.edit.source) for each in candidate.proposals)
            if places[place] == _OF_A_PLACE:
                continue
            if candidate.prediction is not None and any(
                _alike(candidate.prediction, other) for other in seen
            ):
                continue
            edited = self.build(candidate)
            if edited is None:
                continue
            if (
                candidate.prediction is not None
                and self.promise(edited.prediction).product >= 1 + WORTH
            ):
                self.refuse(candidate, "sends no less")
                continue
            seen.append(candidate.prediction or edited.prediction)
            places[place] += 1
            rewritten += is_code
            count += not is_code
            yield edited

    def build(self, candidate: FixCandidate) -> _Built | None:
        """The edited program, or None, with the reason among what was not taken."""
        try:
            splices: dict[str, list[Splice]] = {}
            for proposal in candidate.proposals:
                for file, file_splices in proposal.write().items():
                    splices.setdefault(file, []).extend(file_splices)
            texts = self.workshop.texts(splices)
        except TargetError as error:
            self.refuse(candidate, "not written", error.message)
            return None
        try:
            program = self.workshop.built(texts)
            edited = Trials(program, self.on)
            prediction = edited.predict(on_cpu=self.on_cpu)
        except SdyscopeError as error:
            self.refuse(candidate, "not built", _sentence(error))
            return None
        if _same_module(program, self.program):
            self.refuse(candidate, "no other program")
            return None
        as_predicted = None
        if candidate.prediction is not None:
            donated = replace(prediction, shared=candidate.prediction.shared)
            as_predicted = _alike(donated, candidate.prediction)
            prediction = donated
        return _Built(candidate, texts, program, prediction, as_predicted)

    def refuse(
        self,
        candidate: FixCandidate,
        why: NotTakenBecause,
        detail: str = "",
        after: Figures | None = None,
    ) -> None:
        refused = NotTaken(_edits(candidate), why, detail, after)
        if refused not in self.not_taken:
            self.not_taken.append(refused)

    def fuller(self, best: _Built) -> list[_Built]:
        """The best edits with a constraint among them that shards its values over all axes.

        That sends no more by prediction, and how much less a device needs only the compile tells.
        """
        needs = self.before.total or self.base.held
        least = min((axis.size for axis in self.mesh.axes if axis.size > 1), default=1)
        most = self.promise(best.prediction).time + WORTH
        candidates: list[FixCandidate] = []
        for at, proposal in enumerate(best.candidate.proposals):
            site = proposal.site
            if site is None or site.block * (least - 1) < WORTH * needs:
                continue
            for spec in islice(
                fuller_specs(proposal.edit.after, site.shape, self.mesh), self.effort.placements
            ):
                proposals = [*best.candidate.proposals]
                proposals[at] = site.changed(spec, proposal.weight)
                prediction = self.predict(proposals)
                if (
                    prediction is not None
                    and not self.computes_more(prediction)
                    and self.promise(prediction).time <= most
                ):
                    change = self.promise(prediction)
                    candidates.append(FixCandidate(tuple(proposals), prediction, change))
        candidates.sort(key=lambda candidate: candidate.change.product)
        edited = map(self.build, candidates[:_OF_A_PLACE])
        return [each for each in edited if each is not None]

    # --- what it comes to -------------------------------------------------------------------------

    def weighed(self, built: Sequence[_Built]) -> list[Weighed]:
        """The edited programs that are worth something, compiled."""
        compile_together([(edited.program, "shardy", self.on) for edited in built])
        weighed: list[Weighed] = []
        for edited in built:
            self.compiled += 1
            try:
                after = self.figures(edited.program, edited.prediction)
            except CompilerError as error:
                self.refuse(edited.candidate, "refused", error.message)
                continue
            edited.after = after
            change = self.change(after)
            verdict = change.verdict
            if verdict == "loses" and is_less_at_no_price(self.before, after):
                verdict = "pays"
            if verdict == "loses":
                self.refuse(edited.candidate, "loses", after=after)
                continue
            weighed.append(Weighed(edited, change, verdict))
        return weighed

    def priced(self, weighed: Sequence[Weighed]) -> list[Remedy]:
        """The edited programs, run, the best first."""
        if weighed:
            self.notify("running the program as it is", 0.75)
            self.twin.run()
        remedies: list[Remedy] = []
        for number, row in enumerate(weighed):
            edited, verdict = row.built, row.verdict
            corrects = any(proposal.corrects for proposal in edited.candidate.proposals)
            # An edit of an annotation changes no number; one of code is not shown unless it is run.
            rewrites = edited.candidate.prediction is None
            proven = [remedy.edits for remedy in remedies if remedy.proven]
            if _edits(edited.candidate) in proven:
                continue  # The same edit, written in another way.
            numbers = Numbers("not compared", reason="another remedy is better and proven")
            if corrects or rewrites or not proven:
                self.notify("comparing numbers", 0.8 + 0.2 * number / len(weighed))
                alone = partial(self.on_one, edited.texts)
                with under_settings(self.workshop.settings(edited.program)):
                    numbers = self.twin.against(
                        edited.program,
                        alone,
                        corrects=corrects,
                        rewrites=rewrites,
                    )
            if numbers.verdict == "corrected":
                verdict = "corrects"
            assert edited.after is not None
            if numbers.verdict == "differ":
                self.refuse(edited.candidate, "numbers differ", after=edited.after)
                continue
            remedies.append(self.remedy(edited, verdict, numbers))
        proven = [remedy.edits for remedy in remedies if remedy.proven]
        self.not_taken = [each for each in self.not_taken if each.edits not in proven]
        # Random numbers can't be compared, and what draws others can still be the best by far.
        return sorted(
            remedies,
            key=lambda edited: (
                edited.verdict != "corrects",
                not edited.proven and edited.numbers.verdict != "other random",
            ),
        )

    def on_one(self, texts: Mapping[str, str]) -> Program:
        """The edited program on a mesh of one device.

        Raises:
            TargetError: it can't be built on another mesh.
        """
        if self.alone is None:
            raise TargetError("The program can't be built on a mesh of one device.")
        with overlaid(texts):
            return self.alone()

    def remedy(self, edited: _Built, verdict: Verdict, numbers: Numbers) -> Remedy:
        assert edited.after is not None
        before = {file: self.workshop.source(file).text for file in edited.texts}
        patch = unified_diff(before, edited.texts, self.root)
        # What was traced is what the patch makes of the files, to the letter.
        for file, text in edited.texts.items():
            if applied(patch, before[file], relative(file, self.root)) != text:
                raise CompilerError(
                    f"The patch of {file} does not produce the text that was traced."
                )
        return Remedy(
            _edits(edited.candidate),
            verdict,
            edited.after,
            edited.as_predicted,
            numbers,
            patch,
            edited.texts,
            before,
            tuple(self.moved(edited.program)),
        )

    def moved(self, edited: Staged) -> Iterator[MovedResult]:
        """The results that an edited program leaves elsewhere, as the compiler says of both."""
        before, after = (memory_of(each, "shardy", self.on) for each in (self.program, edited))
        for entry in compared_entries(before, after, by_name=True).different:
            if entry.kind == "result" and entry.change == "sharding" and entry.a and entry.b:
                yield MovedResult(entry.name, entry.a.sharding, entry.b.sharding)

    def figures(self, program: Staged, prediction: Prediction) -> Figures:
        """What a compiled program sends, holds and takes."""
        collectives = collectives_under(program, "shardy", self.on, origins=False)
        memory = program.compiled("shardy", self.on).memory
        seconds = cost_of(program, "shardy", self.on).sequential
        return Figures(
            count=collectives.total.count,
            sent=collectives.total.sent,
            traffic=traffic(collectives),
            flops=prediction.flops,
            arguments=0 if memory is None else memory.arguments,
            results=0 if memory is None else memory.results,
            temporaries=0 if memory is None else memory.temporaries,
            total=None if memory is None else memory.total,
            seconds=seconds,
        )

    def error_of_times(self) -> Iterator[Remark]:
        """How far the estimates of times are known to be off, where there are any."""
        if self.before.seconds is not None:
            yield error_of_estimates(self.program.compiled("shardy", self.on).device_kind)

    def change(self, after: Figures) -> Change:
        """What an edited program takes once it is compiled."""
        if after.seconds is not None and self.before.seconds:
            time = after.seconds / self.before.seconds
        else:
            time = self.bytes(after) / max(self.bytes(self.before), 1.0)
        if after.total is not None and self.before.total:
            return Change(time, after.total / self.before.total)
        return Change(time)

    def bytes(self, figures: Figures) -> float:
        """Bytes that take as long as a step, where no rates are known."""
        return figures.sent + (figures.flops or 0.0) / FLOPS_PER_BYTE


def freeing(single: Sequence[FixCandidate], held: int) -> list[FixCandidate]:
    """Edits after which a device may hold less of values inside, which only a compile tells.

    They have their turn behind all that a prediction speaks for.

    Args:
        single: single edits, with what is predicted of them.
        held: bytes that a device holds now.
    """
    freed = [
        replace(
            candidate,
            change=Change(1.0, max(1 - candidate.proposals[0].frees / max(held, 1), 0)),
        )
        for candidate in single
        if abs(candidate.change.product - 1) <= _PROMISING
    ]
    freed = [candidate for candidate in freed if candidate.change.memory < 1 - WORTH]
    return sorted(freed, key=lambda candidate: candidate.change.memory)


def is_worth_it(change: Change, edit: SourceEdit) -> bool:
    """Whether an edit is worth it beside others, by what it changes further.

    Less is enough of one that makes nothing worse, as a donation or a weight that is sharded over
    more axes; a constraint that wins little is one more thing to read.
    """
    is_free = change.time <= 1 and change.memory <= 1 and edit.kind in _AT_THE_ENDS
    return not change.is_slower and change.product <= 1 - (WORTH if is_free else 2 * WORTH)


def in_order(weighed: Sequence[Weighed]) -> list[Weighed]:
    """The best first; of what wins as much the least to write.

    That is the fewest edits, and of these what takes something away, and says nothing new.
    """
    least = min((row.change.product for row in weighed if not row.change.is_slower), default=0.0)

    def order(row: Weighed) -> tuple[bool, int, int, float]:
        edits = _edits(row.built.candidate)
        same = row.change.product <= least + WORTH
        says = sum(edit.after is not None for edit in edits)
        return (
            row.change.is_slower,
            len(edits) if same else _MANY,
            says if same else _MANY,
            row.change.product,
        )

    return sorted(weighed, key=order)


def is_less_at_no_price(before: Figures, after: Figures) -> bool:
    """Whether there are fewer collectives, or results in arguments' room, and no more of anything.

    What results have room of their own for is lent to values inside, as long as these need it.
    """
    room = WORTH * (before.total or 0)
    return (
        (after.count < before.count or after.results < before.results - room)
        and after.count <= before.count
        and after.arguments <= before.arguments
        and after.sent <= before.sent
        and (after.total or 0) <= (before.total or 0)
        and (after.flops or 0) <= (before.flops or 0)
        and (after.seconds or 0) <= (before.seconds or 0)
    )


def _alike(first: Prediction, other: Prediction) -> bool:
    return (
        first.traffic == other.traffic and first.held == other.held and first.flops == other.flops
    )


def _sentence(error: SdyscopeError) -> str:
    """What an error says, with the line that its first one announces with a colon."""
    lines = [line.strip() for line in (error.rest or "").splitlines() if line.strip()]
    return " ".join((error.message, *lines[:1])) if error.message.endswith(":") else error.message


def _asked(row: Tensor, mesh: Mesh) -> PartitionSpec | None:
    """How an argument is asked to be sharded on a mesh; None where it is left open."""
    asked = None if row.requested is None else row.requested.sharding
    return None if asked is None or asked.mesh != mesh else asked.spec


def _edits(candidate: FixCandidate) -> tuple[SourceEdit, ...]:
    return tuple(proposal.edit for proposal in candidate.proposals)


def _same_module(first: Staged, other: Staged) -> bool:
    """Whether two programs lower to the same text."""
    return first.lowered["shardy"].text(debug_info=False) == other.lowered["shardy"].text(
        debug_info=False
    )
