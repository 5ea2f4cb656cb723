"""explain: why a value is sharded as it is, axis by axis, and why it is not sharded otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sdyscope.analysis.account import account_of
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import named_value, resolve_value
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.analysis.propagation.flow import Flow, Ref
from sdyscope.analysis.propagation.obstacles import Obstacles
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.errors import CompilerError
from sdyscope.facts.account import Account
from sdyscope.facts.counterfactuals import (
    CollectiveCauses,
    Counterfactual,
    DifferenceCauses,
    RematerializationCauses,
)
from sdyscope.facts.decided import DecidedValue, ExplanationNote
from sdyscope.facts.failures import Failure, failures
from sdyscope.facts.moves import Absence, Chain, Closed
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import NamedValue, Propagated, PropagatedValue, ValueId
from sdyscope.staged import Staged
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation

#: How many of the values are named that became one.
_NAMED = 5


@dataclass(frozen=True)
class Explanation:
    """Why one value is sharded as it is.

    Attributes:
        value: which value, and its names.
        decided: what each partitioner decided for it.
        before: the same without the changes that were wished for; nothing without any.
        chains: for each axis on each dimension, how it came there (Shardy only).
        absences: for each axis that a neighbouring tensor has and this value could have had, what
            stopped it (Shardy only).
        closed: of each dimension without an axis the annotation that lets it take none, if there
            is one (Shardy only).
        notes: what else there is to know.
        counterfactual: what brings its axes and what would change its sharding, where that was
            asked for.
        unanswered: why there is no answer to that for this value; empty where there is one.
        callers: the lines behind that of the value, the nearest first, where other values come to
            it by other ways.
    """

    value: NamedValue
    decided: Mapping[Partitioner, DecidedValue]
    before: Mapping[Partitioner, DecidedValue]
    chains: tuple[Chain, ...]
    absences: tuple[Absence, ...]
    closed: tuple[Closed, ...] = ()
    notes: tuple[ExplanationNote, ...] = ()
    counterfactual: Counterfactual | None = None
    unanswered: str = ""
    callers: tuple[SourceLocation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainDocument:
    """The document of `sdyscope explain --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        value: what was asked for.
        meshes: the meshes that its shardings are on.
        propagations: by whom it was propagated, and how much that is worth.
        failures: which partitioners did not, and why.
        changes: the annotations that were changed: what was wished for.
        values: every value that was meant.
        collectives: the collectives, where the word names these.
        rematerializations: the full rematerializations, likewise.
        differences: the first difference between the partitioners, likewise.
        account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.explain/4"] = "sdyscope.explain/4"
    name: str
    value: str
    meshes: dict[str, Mesh]
    propagations: tuple[Propagated, ...]
    failures: tuple[Failure, ...]
    changes: tuple[str, ...]
    values: tuple[Explanation, ...]
    collectives: tuple[CollectiveCauses, ...] = ()
    rematerializations: tuple[RematerializationCauses, ...] = ()
    differences: tuple[DifferenceCauses, ...] = ()
    account: Account


class Explainer:
    """Explains values of one propagation; build it once and ask for many.

    Args:
        decisions: the values of the propagation.
    """

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.propagated = decisions.propagated
        self.graph = decisions.graph

    @classmethod
    def of(
        cls, program: Staged, partitioner: Partitioner | None = None, *, conservative: bool = False
    ) -> Explainer:
        """Explains values of a propagation of a program; made once.

        Raises:
            CompilerError: there is no such propagation.
        """
        chosen = program.chosen(partitioner)
        propagated = program.propagated(chosen, conservative=conservative, explained=True)
        return program.once(
            (cls, chosen, conservative), lambda: cls(Decisions.of(program, propagated))
        )

    @property
    def flow(self) -> Flow:
        """How shardings travelled."""
        return self.decisions.flow

    @property
    def pointers(self) -> Pointers:
        """Where each part of an axis comes from."""
        return self.decisions.pointers

    @cached_property
    def obstacles(self) -> Obstacles:
        """What stopped axes."""
        return Obstacles(self.flow, self.pointers, self.decisions.annotations)

    def explain(self, value: NamedValue | ValueId) -> Explanation:
        """Why a value of the lowered module is sharded as it is."""
        named = value if isinstance(value, NamedValue) else named_value(self.graph, value)
        propagated_value = self.propagated.values[named.id]
        decided = self.decisions.decided(named.id)
        assert decided is not None
        op = self.graph.ops[named.id[0]]
        chains: tuple[Chain, ...] = ()
        absences: tuple[Absence, ...] = ()
        closed: tuple[Closed, ...] = ()
        notes = [*self._notes(propagated_value, decided)]
        if propagated_value.node is not None and self.propagated.partitioner == "shardy":
            ref: Ref | None = (propagated_value.node, propagated_value.result)
            if op.is_result:
                ref = self.propagated.graph.returned.get(op.result)
            if ref is not None:
                chains = tuple(map(self.pointers.chain, self.pointers.held(propagated_value)))
                absences = self.obstacles.absences(ref)
                closed = self.obstacles.closed(ref)
                if not (absences or closed or self.flow.parts(self.flow.root(ref))):
                    note = ExplanationNote("untouched" if named.shape else "no dimension")
                    notes.append(self.all_manual(named.id) or note)
        by = {self.propagated.partitioner: decided}
        callers = self.graph.ways_to(op)
        return Explanation(named, by, {}, chains, absences, closed, tuple(notes), callers=callers)

    def _notes(
        self, propagated_value: PropagatedValue, decided: DecidedValue
    ) -> Iterator[ExplanationNote]:
        if propagated_value.fate == "merged":
            names = decided.merged_with[:_NAMED]
            yield ExplanationNote("merged", names, decided.merged - len(names))
        elif propagated_value.fate != "kept":
            yield ExplanationNote(propagated_value.fate)
        if propagated_value.node is None:
            return
        if self.propagated.partitioner != "shardy":
            yield self.annotated(propagated_value.id, decided) or ExplanationNote("not recorded")
        elif not self.propagated.steps:
            yield ExplanationNote("no steps")
        elif (cut := self.cut(propagated_value)) is not None:
            yield cut

    def annotated(self, value: ValueId, decided: DecidedValue) -> ExplanationNote | None:
        """That the module itself places a value where it is."""
        op = self.graph.ops[value[0]]
        for annotation in self.decisions.annotations:
            if op.is_result:
                is_on = annotation.kind == "result" and annotation.index == op.result
            else:
                is_on = annotation.kind in ("argument", "constraint") and annotation.op == op.id
            if is_on and annotation.placement and annotation.placement == decided.placement:
                return ExplanationNote("annotated", (annotation.kind,))
        return None

    def all_manual(self, value: ValueId) -> ExplanationNote | None:
        """That no axis could come to a value: the program itself places it along all of them."""
        decided = self.decisions.decided(value)
        place = None if decided is None else decided.placement
        if place is None or not place.manual:
            return None
        is_all = math.prod(digit.size for digit in place.manual) == place.num_devices
        return ExplanationNote("all manual") if is_all else None

    def cut(self, result: PropagatedValue) -> ExplanationNote | None:
        """The parts of axes of a returned value that Shardy has taken off the result of main."""
        op = self.graph.ops[result.id[0]]
        returned = self.graph.returned.get(op.result) if op.is_result else None
        value = None if returned is None else self.propagated.values.get(returned)
        axes: list[dict[AxisRef, None]] = [
            {
                axis: None
                for dim in each.sharding.dim_shardings
                for axis in dim.axes
                if axis.sub_axis_info is not None
            }
            if each is not None and isinstance(each.sharding, TensorSharding)
            else {}
            for each in (value, result)
        ]
        cut = tuple(str(axis) for axis in axes[0] if axis not in axes[1])
        return ExplanationNote("parts of axes", cut) if cut else None


def explain_document(
    program: Staged,
    value: str,
    before: Staged | None = None,
    *,
    conservative: bool = False,
    changes: Sequence[str] = (),
) -> ExplainDocument:
    """Explains what a word names.

    Args:
        program: the program, with other annotations if so wished.
        value: a pytree path, a scope path, ``file.py:line``, or an SSA name.
        before: the program as it is, to compare with; None where nothing is changed.
        conservative: whether Shardy is to propagate conservatively.
        changes: what was changed, in words.

    Raises:
        SdyscopeError: no value has this name, or no partitioner propagates the program.
    """
    sides, failed = propagations(program, conservative)
    main = next(iter(sides))
    earlier = {}
    if before is not None:
        earlier = {p: Explainer.of(before, p).decisions for p in sides if p in before.lowered}
    explainer = Explainer.of(program, main, conservative=conservative and main == "shardy")
    pairs = {p: value_pairs(explainer.graph, side.graph) for p, side in sides.items() if p != main}

    def under_each(
        id_: ValueId, by: Mapping[Partitioner, Decisions]
    ) -> dict[Partitioner, DecidedValue]:
        by_partitioner = {}
        for partitioner, side in by.items():
            own = pairs[partitioner].get(id_) if partitioner in pairs else id_
            decided = None if own is None else side.decided(own)
            if decided is not None:
                by_partitioner[partitioner] = decided
        return by_partitioner

    return ExplainDocument(
        name=program.name,
        value=value,
        meshes=program.meshes,
        propagations=tuple(side.propagated for side in sides.values()),
        failures=(*failures(program.failures), *failed),
        changes=tuple(changes),
        values=tuple(
            replace(
                explainer.explain(named),
                decided=under_each(named.id, sides),
                before=under_each(named.id, earlier),
            )
            for named in resolve_value(explainer.graph, value, program.tensors)
        ),
        account=account_of(program),
    )


def propagations(
    program: Staged, conservative: bool
) -> tuple[dict[Partitioner, Decisions], tuple[Failure, ...]]:
    """What each partitioner decided, and why others did not; Shardy first.

    Args:
        program: the program.
        conservative: whether Shardy is to propagate conservatively.

    Raises:
        SdyscopeError: none propagates it.
    """
    sides: dict[Partitioner, Decisions] = {}
    failed: dict[Partitioner, CompilerError] = {}
    for partitioner in sorted(program.lowered, key=lambda partitioner: partitioner != "shardy"):
        try:
            sides[partitioner] = Explainer.of(
                program, partitioner, conservative=conservative and partitioner == "shardy"
            ).decisions
        except CompilerError as error:
            failed[partitioner] = error
    if not sides:
        raise next(iter(failed.values()))
    return sides, failures(failed)
