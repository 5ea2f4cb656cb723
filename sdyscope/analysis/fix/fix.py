"""fix: edits of the user's source that pay, tried, priced, proven and ranked."""

from __future__ import annotations

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
from sdyscope.analysis.fix.considered import TYPING, Considered
from sdyscope.analysis.fix.effort import Effort
from sdyscope.analysis.fix.focus import Focus, focus_on
from sdyscope.analysis.fix.planned import planned
from sdyscope.analysis.fix.proposals import (
    Proposal,
    fuller_specs,
)
from sdyscope.analysis.fix.prove import Twin
from sdyscope.analysis.fix.rewrites import mesh_sizes
from sdyscope.analysis.fix.values import Figures, Fix, NotTaken, Remedy, Verdict
from sdyscope.analysis.fix.workshop import Rebuild, Workshop
from sdyscope.analysis.memory.memory import memory_of
from sdyscope.analysis.naming.next_values import pairs_of_table
from sdyscope.analysis.naming.structure import compute_alike
from sdyscope.analysis.trials.cost import FLOPS_PER_BYTE, Prediction
from sdyscope.analysis.trials.traffic import traffic
from sdyscope.analysis.trials.trials import Trials
from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.edits import MovedResult, NotTakenBecause, Numbers, SourceEdit
from sdyscope.facts.program import Program
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import LARGEST_CPU, Hardware
from sdyscope.hardware.specs import Chip, chip_of
from sdyscope.patches.diff import applied, relative, unified_diff
from sdyscope.patches.source import Splice
from sdyscope.staged import Staged, compile_together
from sdyscope.stages import compat
from sdyscope.stages.edited.overlay import overlaid, under_settings
from sdyscope.stages.propagated.annotate import DonatedArgument
from sdyscope.stages.propagated.what_if import Wish
from sdyscope.values.mesh import AxisRef

if TYPE_CHECKING:
    from sdyscope.analysis.search.space import Setting

#: What is predicted to be better by this part is worth asking XLA's partitioner.
_PROMISING = 0.002

#: How many edits of one place are compiled.
_OF_A_PLACE = 2

#: Of how many edits that make a device compute more another is looked for that makes up for it.
_MADE_UP_FOR = 3

#: Of how many edits, the best first, it is tried which to take together.
_TOGETHER = 12

#: Edits of what goes in and comes out.
_AT_THE_ENDS = ("argument", "result", "donation")

#: More edits than are ever taken together.
_MANY = 1 << 10


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
    moved: tuple[MovedResult, ...] = ()
    next_step: Figures | None = None
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
    effort: Effort = Effort(),  # noqa: B008 - a frozen value
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


def moved_results(
    program: Staged, edited: Staged, on: Hardware | str | None
) -> Iterator[MovedResult]:
    """The results that an edited program leaves elsewhere, as the compiler says of both."""
    before, after = (memory_of(each, "shardy", on) for each in (program, edited))
    given = [
        {held.name: held.placement for held in memory.tensors if held.kind == "argument"}
        for memory in (before, after)
    ]
    arguments = _next_values(program)
    asked = {each.name for each in compat.arguments(edited.traced) if each.asked is not None}
    for entry in compared_entries(before, after, by_name=True).different:
        if entry.kind == "result" and entry.change == "sharding" and entry.a and entry.b:
            argument = arguments.get(entry.name, "")
            was, then = (placements.get(argument) for placements in given)
            is_fed = was == entry.a.placement and then != entry.b.placement
            fed = argument if is_fed else ""
            yield MovedResult(entry.name, entry.a.sharding, entry.b.sharding, fed, fed in asked)


def _is_fed(moved: MovedResult) -> bool:
    return bool(moved.no_longer_fed)


def _next_values(program: Staged) -> Mapping[str, str]:
    """Of each result that is an argument's next value that argument, by path.

    What only has the path of a donated argument is taken for it: the caller has that no longer, and
    an edit that pays only where it goes on with something else is not to be called good.
    """
    tensors = program.tensors
    pairs = pairs_of_table(tensors, ("shardy", program.graph("shardy")))
    rows = {(row.kind, row.index): row for row in tensors.tensors}
    return {
        rows["result", result].path: rows["argument", argument].path
        for result, (argument, relation) in pairs.items()
        if relation == "next value"
        or (relation != "gradient" and rows["argument", argument].is_donated)
    }


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
        considered = Considered(self.workshop, self.trials, self.focus, self.effort)
        if plan:
            proposals, self.not_taken = planned(considered, plan)
            candidates = self.whole(proposals)
        else:
            proposals = considered.proposals(collectives)
            self.notify("predicting edits", 0.2)
            self.say_what_has_no_place(considered.without_place(proposals))
            untried = [each for each in proposals if not considered.has_to_be_traced(each.edit)]
            candidates = self.predicted(untried)
            traced = list(self.traced(considered.to_trace(proposals)))
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
            notes=(
                *self.trials.notes,
                *considered.notes,
                *self.trials.crashes,
                *self.error_of_times(),
                *self.counted_once(collectives),
            ),
            account=account_of(self.program),
        )

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
        return replace(prediction, shared=prediction.shared + donated_bytes(edits))

    def computes_more(self, prediction: Prediction) -> bool:
        """Whether every device computes more, and sends less at that price: that is no remedy."""
        flops = prediction.flops or 0.0
        return bool(self.base.flops) and flops > (self.base.flops or 0.0) * (1 + 2 * WORTH)

    def whole(self, proposals: Sequence[Proposal]) -> list[FixCandidate]:
        """All edits of a plan, taken together."""
        if not proposals:
            return []
        edits = [edit for proposal in proposals for edit in proposal.trial or ()]
        self.tried += 1
        prediction = self.trials.tried(edits, on_cpu=self.on_cpu)
        return [FixCandidate(tuple(proposals), prediction, self.promise(prediction))]

    def say_what_has_no_place(self, proposal: Proposal | None) -> None:
        """Says of an edit that no place can be written for what it would win."""
        prediction = None if proposal is None else self.predict([proposal])
        if proposal is None or prediction is None:
            return
        if self.promise(prediction).product < 1 - WORTH:
            self.not_taken.append(NotTaken((proposal.edit,), "no place"))

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
            return candidate.proposals[0].edit.kind in TYPING, product

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
        if not _is_donated(candidate, program):
            self.refuse(candidate, "not donated")
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
            edited.moved = tuple(moved_results(self.program, edited.program, self.on))
            edited.next_step = self.next_step(edited)
            # Of a loop every step but the first is the next one.
            steps = [self.change(step) for step in (after, edited.next_step) if step is not None]
            change = max(steps, key=lambda step: step.product)
            verdict = change.verdict
            if verdict == "pays" and edited.next_step is None and any(map(_is_fed, edited.moved)):
                verdict = "trade"  # What the next one takes is not known.
            if verdict == "pays" and after.sends_more_from(self.before) is not None:
                # In a loop that turns often enough it loses: only the user knows.
                verdict, change = "trade", replace(change, time=max(change.time, 1 + 2 * WORTH))
            if verdict == "loses" and is_less_at_no_price(self.before, after):
                verdict = "pays"
            if verdict == "loses":
                self.refuse(edited.candidate, "loses", after=after)
                continue
            weighed.append(Weighed(edited, change, verdict))
        return weighed

    def next_step(self, edited: _Built) -> Figures | None:
        """What the edited program takes with its next values as its arguments.

        None where that is the same program, where JAX refuses it, or where no PartitionSpec says
        how they are sharded.
        """
        fed = list(filter(_is_fed, edited.moved))
        wishes = [Wish(each.no_longer_fed, each.after.spec) for each in fed if each.after]
        if not fed or len(wishes) < len(fed) or any(each.is_refused for each in fed):
            return None
        try:
            program = edited.program.with_wishes(wishes)
            return self.figures(program, Trials(program, self.on).predict(on_cpu=self.on_cpu))
        except SdyscopeError:
            return None

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
            # Of a rule the edited program tells which it is.
            rewrites = edited.candidate.prediction is None and not compute_alike(
                edited.program.graph("shardy"), self.program.graph("shardy")
            )
            redraws = any(edit.kind == "setting" for edit in _edits(edited.candidate))
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
                        redraws=redraws,
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
        before = {file: self.workshop.text(file) for file in edited.texts}
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
            edited.moved,
            edited.after.sends_more_from(self.before),
            edited.next_step,
        )

    def figures(self, program: Staged, prediction: Prediction) -> Figures:
        """What a compiled program sends, holds and takes."""
        collectives = collectives_under(program, "shardy", self.on, origins=False)
        memory = program.compiled("shardy", self.on).memory
        seconds = cost_of(program, "shardy", self.on, scopes=False).sequential
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
            looped=sum(
                each.count * part.sent
                for each in collectives.collectives
                if each.unknown_trips
                for part in each.parts
            ),
        )

    def error_of_times(self) -> Iterator[Remark]:
        """How far the estimates of times are known to be off, where there are any."""
        if self.before.seconds is not None:
            yield error_of_estimates(self.program.compiled("shardy", self.on).device_kind)

    def counted_once(self, collectives: Collectives) -> Iterator[Remark]:
        """That loops of unknown trip count are weighed as if they ran once, where there are any."""
        if count := sum(each.unknown_trips for each in collectives.collectives):
            yield Remark("counted once", count=count)

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


def _is_donated(candidate: FixCandidate, program: Staged) -> bool:
    """Whether a program donates what edits donate: they may be of another function's jit."""
    given = {
        name
        for proposal in candidate.proposals
        if proposal.edit.kind == "donation"
        for name in proposal.names
    }
    rows = program.tensors.tensors
    return given <= {row.path for row in rows if row.kind == "argument" and row.is_donated}


def donated_bytes(edits: Iterable[object]) -> int:
    """Bytes a device of the arguments that edits donate, each once, wherever that is written."""
    donated = {
        edit.annotation.index: edit.annotation
        for edit in edits
        if isinstance(edit, DonatedArgument)
    }
    return sum(
        tensor.placement.bytes_per_device(tensor.shape or (), tensor.dtype)
        for tensor in donated.values()
        if tensor.placement is not None
    )


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
        and after.looped <= before.looped
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


def _edits(candidate: FixCandidate) -> tuple[SourceEdit, ...]:
    return tuple(proposal.edit for proposal in candidate.proposals)


def _same_module(first: Staged, other: Staged) -> bool:
    """Whether two programs lower to the same text."""
    return first.lowered["shardy"].text(debug_info=False) == other.lowered["shardy"].text(
        debug_info=False
    )
