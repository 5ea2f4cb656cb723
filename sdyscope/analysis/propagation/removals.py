"""What becomes of a collective, a rematerialization or a first difference without annotations.

Every answer is the compiler's: annotations are taken away, or lose an axis, in a copy of the
module, which XLA's partitioner then partitions, or both partitioners propagate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.diff.sides import FIRST_DIFFERENCE, partitioners_differ, propagated_between
from sdyscope.analysis.propagation.counterfactuals import (
    REMEDIES,
    AnnotationGroup,
    Counterfactuals,
    GroupEdit,
    axes_of,
    check_can_be_edited,
    is_in,
    without_axes,
)
from sdyscope.analysis.propagation.explain import ExplainDocument
from sdyscope.analysis.propagation.smallest import EditSet, smallest_sets
from sdyscope.annotations import Annotation, op_name, scope_of
from sdyscope.errors import CompilerError, ConversionError, TargetError, one_of
from sdyscope.facts.counterfactuals import (
    CollectiveCauses,
    DifferenceCauses,
    RematerializationCauses,
    Removals,
    TriedCause,
    TriedEdits,
)
from sdyscope.facts.edits import EditKind, SourceEdit
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, build
from sdyscope.hardware.names import VIRTUAL_CPUS
from sdyscope.process.progress import doing
from sdyscope.staged import Staged
from sdyscope.values.convert import to_named_sharding, to_tensor_sharding
from sdyscope.values.sharding import NamedSharding, PartitionSpec
from sdyscope.values.source import line_of

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.totals import Collective, Collectives
    from sdyscope.facts.differences import DifferingValue, PropagatedDiff
    from sdyscope.facts.origins import OriginAnnotation
    from sdyscope.facts.rematerializations import Rematerialization
    from sdyscope.facts.sharded import Sharded
    from sdyscope.stages.propagated.annotate import ModuleEdit

    _Partitioned: TypeAlias = tuple[Collectives, tuple[Rematerialization, ...]]

#: The word that names what the partitioner had to make whole.
REMATERIALIZATION = "full-rematerialization"

#: How many sets of edits are tried for one thing, a second each.
_MOST = 48

#: How many annotations are tried for one thing.
_CAUSES = 12

#: How many collectives of a kind, or rematerializations, are explained.
_EXPLAINED = 4


class _Outcome(NamedTuple):
    """What a program with some edits does.

    Attributes:
        is_there: whether what is asked about is still there.
        sent: bytes that a device sends; None where that was not asked.
        differing: values that are sharded differently; None likewise.
    """

    is_there: bool
    sent: int | None = None
    differing: int | None = None


#: What becomes of it with some edits; None where the compiler refuses the program, or can't say.
_Trial: TypeAlias = Callable[[Sequence[GroupEdit]], _Outcome | None]


class RemovalTrials:
    """Removes annotations from one program, under Shardy.

    Args:
        program: the program.
        axis: the axis that annotations are to lose; empty where they are to go as a whole.

    Raises:
        CompilerError: Shardy can't propagate it.
        TargetError: it is not on one mesh.
    """

    def __init__(self, program: Staged, axis: str = "") -> None:
        self.program, self.axis = program, axis
        self.answers = Counterfactuals(program)
        self.mesh, self.graph = self.answers.mesh, self.answers.graph
        self._known: dict[frozenset[GroupEdit], _Partitioned | None] = {}

    # --- what is asked about ----------------------------------------------------------------------

    def collective(self, collective: Collective) -> CollectiveCauses:
        """What a collective needs; with an axis, what it needs to run over that.

        Args:
            collective: one of the compiled program, with its origin.

        Raises:
            TargetError: it does not run over the axis.
        """
        part = collective.largest
        axes = tuple(axis.name for axis in collective.axes or ())
        if self.axis and self.axis not in axes:
            raise TargetError(f"{collective.name} does not run over {self.axis!r}.")
        named = () if part.origin is None else part.origin.every
        groups = [group for annotation in named for group in self._named(annotation)]

        def is_it(other: Collective) -> bool:
            over = tuple(axis.name for axis in other.axes or ())
            return (
                other.kind == collective.kind
                and (self.axis in over if self.axis else over == axes)
                and any(each.scope == part.scope for each in other.parts)
                and any(each.primitive == part.primitive for each in other.parts)
            )

        def trial(edits: Sequence[GroupEdit]) -> _Outcome | None:
            partitioned = self._partitioned(edits)
            if partitioned is None:
                return None
            collectives, _ = partitioned
            return _Outcome(any(map(is_it, collectives.collectives)), collectives.total.sent)

        removals = self._removals(groups, trial, collective.name)
        return CollectiveCauses(
            collective.name,
            collective.kind,
            axes,
            collective.sent,
            part.origin,
            part.source,
            removals,
            counted_once=collective.unknown_trips,
            over=collective.axes or (),
        )

    def rematerialization(self, remade: Rematerialization) -> RematerializationCauses:
        """What a rematerialization needs.

        Args:
            remade: what XLA's partitioner logs.
        """

        def place(other: Rematerialization) -> tuple[object, ...]:
            return other.scope, other.primitive, line_of(other.source)

        def trial(edits: Sequence[GroupEdit]) -> _Outcome | None:
            partitioned = self._partitioned(edits)
            if partitioned is None:
                return None
            collectives, logged = partitioned
            there = any(place(other) == place(remade) for other in logged)
            return _Outcome(there, collectives.total.sent)

        ops = [
            op
            for op in self.graph.operations()
            if remade.source is not None
            and line_of(op.source) == line_of(remade.source)
            and scope_of(op) == (remade.scope, remade.primitive)
        ]
        removals = self._removals(self._around(ops), trial, remade.operation)
        return RematerializationCauses(remade, removals)

    def difference(self, diff: PropagatedDiff) -> DifferenceCauses:
        """What the first difference between the partitioners needs.

        Args:
            diff: their propagations, which differ.
        """
        first = diff.beginnings[0]
        value, other = first.begins.value.id, first.begins.other

        def trial(edits: Sequence[GroupEdit]) -> _Outcome | None:
            return self._differing(self._edited(edits), value, other)

        around = self._around([self.graph.ops[value[0]]])
        groups = chain(around, self._over((first.begins.a, first.begins.b)))
        alike = self._alike(first.begins, diff.different_values)
        removals = self._removals(groups, trial, first.begins.value.name, alike)
        return DifferenceCauses(first.begins, diff.a, diff.b, first.values, removals)

    # --- trying -----------------------------------------------------------------------------------

    def _removals(
        self,
        groups: Iterable[AnnotationGroup],
        trial: _Trial,
        what: str,
        constraints: tuple[TriedEdits, ...] = (),
    ) -> Removals:
        """Which annotations something needs, which suffice, and the fewest without which it goes.

        Args:
            groups: the annotations, the likeliest first; may repeat.
            trial: what becomes of it with some edits.
            what: its name.
            constraints: one more constraint each with which it is gone.
        """
        edits: list[GroupEdit] = []
        for group in dict.fromkeys(groups):
            if not self.axis:
                edits.append((group, None))
            elif any(self.axis in names for names in axes_of(group.sharding)):
                edits.append((group, without_axes(group.spec, [self.axis])))
        untried = Removals(
            is_found=True,
            removed=self.axis,
            causes=(),
            remedies=(),
            constraints=constraints,
            is_kept=False,
            complete=True,
            sent=None,
            differing=None,
            tried=0,
        )
        if not edits:
            return untried
        every = range(min(len(edits), _CAUSES))
        known: dict[EditSet, _Outcome | None] = {}

        def without(numbers: Iterable[int]) -> _Outcome | None:
            key = tuple(numbers)
            if key not in known:
                doing(f"removing annotations of {what}: {len(known) + 1:,}")
                known[key] = trial([edits[number] for number in key])
            return known[key]

        now = without(())
        if now is None or not now.is_there:
            sent, differing = (None, None) if now is None else (now.sent, now.differing)
            return replace(
                untried,
                is_found=False,
                complete=False,
                sent=sent,
                differing=differing,
                tried=len(known),
            )
        causes = []
        for number in every:
            gone = without((number,))
            alone = without(other for other in every if other != number)
            causes.append(
                TriedCause(
                    edits[number][0].cause,
                    None if gone is None else not gone.is_there,
                    None if alone is None else alone.is_there,
                )
            )
        remedies, complete = self._smallest(edits[: len(every)], known, without)
        return replace(
            untried,
            causes=tuple(causes),
            remedies=tuple(remedies),
            is_kept=(all_gone := without(every)) is not None and all_gone.is_there,
            complete=complete and len(edits) == len(every),
            sent=now.sent,
            differing=now.differing,
            tried=len(known),
        )

    def _smallest(
        self,
        edits: Sequence[GroupEdit],
        known: Mapping[EditSet, _Outcome | None],
        without: Callable[[Iterable[int]], _Outcome | None],
    ) -> tuple[list[TriedEdits], bool]:
        """The smallest sets of edits without which it is gone, and whether every set was tried."""
        everything = without(range(len(edits)))
        if len(edits) > 1 and everything is not None and everything.is_there:
            return [], False

        def is_gone(numbers: EditSet) -> bool:
            outcome = without(numbers)
            return outcome is not None and not outcome.is_there

        sets, exhaustive = smallest_sets(
            len(edits),
            is_gone,
            lambda sets: len(known) + sum(numbers not in known for numbers in sets) <= _MOST,
        )
        remedies = [
            TriedEdits(
                tuple(edits[number][0].edit(edits[number][1]) for number in numbers),
                exhaustive,
                outcome.sent,
                outcome.differing,
            )
            for numbers in sets
            if (outcome := without(numbers)) is not None
        ]
        remedies.sort(key=lambda remedy: (remedy.sent or 0, remedy.differing or 0))
        return remedies[:REMEDIES], exhaustive

    def _partitioned(self, edits: Sequence[GroupEdit]) -> _Partitioned | None:
        """What XLA's partitioner makes of the program with some edits; None where it refuses that.

        Two collectives may need the same annotations: each set of edits is partitioned once.
        """
        key = frozenset(edits)
        if key not in self._known:
            try:
                self._known[key] = self._partition(edits)
            except CompilerError:
                self._known[key] = None
        return self._known[key]

    def _partition(self, edits: Sequence[GroupEdit]) -> _Partitioned:
        from sdyscope.analysis.collectives.on_cpu import collectives_on_cpu
        from sdyscope.analysis.collectives.read import collectives
        from sdyscope.analysis.collectives.rematerializations import rematerializations
        from sdyscope.hlo import read_hlo
        from sdyscope.stages.compiled.spmd import spmd
        from sdyscope.stages.propagated.annotate import annotate

        written = [edit for group, spec in edits for edit in self.answers.changed(group, spec)]
        changed = annotate(self.program.lowered["shardy"], self.graph, written)
        partitioned = spmd(changed, build(changed.module))
        module = read_hlo(partitioned.hlo)
        return (
            # What is asked about was compiled for virtual CPU devices.
            collectives_on_cpu(collectives(module, (self.mesh,))),
            rematerializations(partitioned.rematerializations, module, self.mesh),
        )

    def _edited(self, edits: Sequence[GroupEdit]) -> dict[Partitioner, list[ModuleEdit]] | None:
        """The edits in each partitioner's module; None where one does not have an annotation."""
        written: dict[Partitioner, list[ModuleEdit]] = {}
        for partitioner in self.program.lowered:
            written[partitioner] = []
            for group, spec in edits:
                there = [self._there(annotation, partitioner) for annotation in group.annotations]
                annotations = tuple(annotation for annotation in there if annotation is not None)
                if len(annotations) < len(there):
                    return None
                moved = AnnotationGroup(annotations, group.spec)
                written[partitioner] += self.answers.changed(moved, spec)
        return written

    def _there(self, annotation: Annotation, partitioner: Partitioner) -> Annotation | None:
        """The same annotation in a partitioner's module."""
        if partitioner == "shardy":
            return annotation
        for row in self.program.tensors.tensors:
            here = row.lowered.get("shardy")
            if here is not None and is_in(annotation, AnnotationGroup((here,), None)):
                return row.lowered.get(partitioner)
        return None

    # --- differences ------------------------------------------------------------------------------

    def _differing(
        self,
        edits: Mapping[Partitioner, Sequence[ModuleEdit]] | None,
        value: ValueId,
        other: ValueId,
    ) -> _Outcome | None:
        """Whether a value is sharded differently with some edits, and how many are.

        Args:
            edits: the edits of each partitioner's module.
            value: the value in Shardy's module.
            other: the value in GSPMD's.
        """
        if edits is None:
            return None
        try:
            diff = propagated_between(self.program.with_edits(edits))
        except (CompilerError, TargetError):
            return None
        ours, theirs = diff.propagation_a, diff.propagation_b
        for propagated, each in ((ours, value), (theirs, other)):
            decided = propagated.values.get(each)
            if decided is None or decided.node is None:
                return None
        there = any(
            each.value.id == value for begun in diff.beginnings for each in begun.all_values
        )
        return _Outcome(there, differing=diff.different_values)

    def _alike(self, begins: DifferingValue, now: int) -> tuple[TriedEdits, ...]:
        """What annotates the value itself so that both partitioners shard it alike.

        With the one sharding and with the other, those that do, fewest differences first; none that
        only moves the differences to other values.

        Args:
            begins: the value.
            now: how many values differ now.
        """
        from sdyscope.stages.propagated.annotate import NewConstraint, ShardingEdit

        value, other = begins.value.id, begins.other
        op = self.graph.ops[value[0]]
        rows = [
            row
            for row in self.program.tensors.tensors
            if row.kind in ("argument", "result") and row.path == begins.value.name
        ]
        is_boundary = op.is_result or begins.value.kind == "argument"
        if (op.is_argument and not is_boundary) or (is_boundary and not rows):
            return ()
        alike: list[TriedEdits] = []
        for spec in dict.fromkeys(filter(None, map(self._spec, (begins.a, begins.b)))):
            sharding = NamedSharding(self.mesh, spec)
            edits: dict[Partitioner, Sequence[ModuleEdit]] = {}
            if is_boundary:
                row = rows[0]
                kind: EditKind = "result" if row.kind == "result" else "argument"
                edit = SourceEdit(kind, row.path, None, spec, row.source)
                edits = {
                    partitioner: [ShardingEdit(annotation, sharding)]
                    for partitioner, annotation in row.lowered.items()
                }
            else:
                edit = SourceEdit("new constraint", op_name(op), None, spec, op.source)
                edits["shardy"] = [NewConstraint(value, sharding)]
                edits["gspmd"] = [NewConstraint(other, sharding)]
            doing(f"sharding {begins.value.name} as {spec}")
            outcome = self._differing(edits, value, other)
            if outcome is not None and not outcome.is_there and (outcome.differing or 0) < now:
                alike.append(TriedEdits((edit,), True, None, outcome.differing))
        return tuple(sorted(alike, key=lambda each: each.differing or 0))

    def _spec(self, sharded: Sharded) -> PartitionSpec | None:
        """A sharding as JAX writes it; None where it has no such form."""
        if sharded.placement is None or sharded.shape is None:
            return None
        try:
            return to_named_sharding(sharded.placement, len(sharded.shape), self.mesh).spec
        except ConversionError:
            return None

    # --- annotations ------------------------------------------------------------------------------

    def _named(self, annotation: OriginAnnotation) -> Iterator[AnnotationGroup]:
        """The annotations that an origin names."""
        for group in self.answers.groups:
            if any(
                member.named_kind == annotation.kind
                and (
                    # What is inside an inner function of JAX's may have no name at all.
                    bool(member.path) and member.path == annotation.name
                    if member.kind in ("argument", "result") or member.source is None
                    else line_of(member.source) == line_of(annotation.source)
                )
                for member in group.annotations
            ):
                yield group

    def _around(self, ops: Iterable[Op]) -> Iterator[AnnotationGroup]:
        """The annotations that shard what some ops make, take and give on, or stop an axis there.

        What the ops themselves are sharded by comes first, what else could have done it last.
        """
        results = [(op.id, result) for op in ops for result in range(len(op.types))]
        operands = [value for node, _ in results for value in self.graph.operand_values[node]]
        used = [
            (user.id, result)
            for node, result in results
            for user, _ in self.graph.uses(node, result)
            for result in range(len(user.types))
        ]
        values = [
            value for value in dict.fromkeys((*results, *operands, *used)) if self._is_known(value)
        ]
        for value in values:
            for way in self.answers.explainer.explain(value).chains:
                annotation = None if way.beginning is None else way.beginning.annotation
                for group in self.answers.groups:
                    if annotation is not None and is_in(annotation, group):
                        yield group
        for value in values:
            yield from self.answers.in_the_way(value)
        for value in values:
            yield from self.answers.behind(value)

    def _over(self, sides: Iterable[Sharded]) -> Iterator[AnnotationGroup]:
        """The annotations over an axis that a value has on one side.

        GSPMD does not say where an axis comes from.
        """
        axes = {
            axis
            for sharded in sides
            if sharded.placement is not None and sharded.shape is not None
            for names in axes_of(
                to_tensor_sharding(sharded.placement, len(sharded.shape), self.mesh)
            )
            for axis in names
        }
        for group in self.answers.groups:
            if any(axis in names for names in axes_of(group.sharding) for axis in axes):
                yield group

    def _is_known(self, value: ValueId) -> bool:
        return value in self.program.propagated("shardy").values


def explained_removals(program: Staged, name: str, axis: str = "") -> ExplainDocument:
    """What collectives, rematerializations or the first difference of a program need.

    Args:
        program: the program; for the difference under both partitioners.
        name: a collective's name in the compiled program or a kind, ``full-rematerialization`` or
            ``first-difference``.
        axis: the axis that annotations are to lose; empty where they are to go as a whole.

    Raises:
        CompilerError: the program can't be compiled, or propagated.
        TargetError: it has nothing of that name, or none that runs over the axis; or it is not
            lowered under Shardy.
    """
    check_can_be_edited(program, axis)
    collectives: tuple[CollectiveCauses, ...] = ()
    remade: tuple[RematerializationCauses, ...] = ()
    differences: tuple[DifferenceCauses, ...] = ()
    if name == FIRST_DIFFERENCE:
        diff = partitioners_differ(program)
        differences = (RemovalTrials(program, axis).difference(diff),)
    elif name == REMATERIALIZATION:
        logged = _located(collectives_under(program, "shardy", VIRTUAL_CPUS).rematerializations)
        if not logged:
            raise TargetError("XLA's partitioner logs no full rematerialization of the program.")
        trials = RemovalTrials(program, axis)
        remade = tuple(trials.rematerialization(each) for each in logged[:_EXPLAINED])
    else:
        every = collectives_under(program, "shardy", VIRTUAL_CPUS).collectives
        named = [collective for collective in every if name in (collective.name, collective.kind)]
        if not named:
            close = get_close_matches(name, [collective.name for collective in every], 3, 0.4)
            raise TargetError(
                f"The compiled program has no {name}.",
                hint=f"Did you mean {one_of(close)}?"
                if close
                else f"`sdyscope comms --on {VIRTUAL_CPUS}` lists them.",
            )
        over = [
            collective
            for collective in named
            if not axis or axis in {each.name for each in collective.axes or ()}
        ]
        if not over:
            raise TargetError(f"No {name} of the compiled program runs over {axis!r}.")
        over.sort(key=lambda collective: -collective.sent)
        trials = RemovalTrials(program, axis)
        collectives = tuple(trials.collective(each) for each in over[:_EXPLAINED])
    return ExplainDocument(
        name=program.name,
        value=name,
        meshes=program.meshes,
        propagations=tuple(
            propagated
            for _, propagated in program.propagations()
            if not isinstance(propagated, CompilerError)
        ),
        failures=(),
        changes=(),
        values=(),
        collectives=collectives,
        rematerializations=remade,
        differences=differences,
        account=account_of(program),
    )


def _located(logged: Iterable[Rematerialization]) -> list[Rematerialization]:
    """Each op that XLA names once; ops without a line only where none has one."""
    places = {(each.scope, each.primitive, line_of(each.source)): each for each in logged}
    located = [each for each in places.values() if each.source is not None]
    return located or [*places.values()]
