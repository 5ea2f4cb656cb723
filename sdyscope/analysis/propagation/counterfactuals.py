"""Which annotations an axis needs, which suffice for it, and which edits change a sharding.

Every answer is propagated: annotations are taken away, or lose an axis, in a copy of the imported
module, and Shardy's own passes say what becomes of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.analysis.collectives.annotated_axes import AnnotatedAxes
from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes, spec_in
from sdyscope.analysis.propagation.axis_parts import part_of
from sdyscope.analysis.propagation.explain import ExplainDocument, Explainer, Explanation
from sdyscope.analysis.propagation.smallest import EditSet, smallest_sets
from sdyscope.analysis.trials.try_edits import TryEdits
from sdyscope.annotations import Annotation, op_name, shown_name
from sdyscope.errors import CompilerError, ConversionError, TargetError
from sdyscope.facts.counterfactuals import (
    AxisCause,
    AxisCauses,
    CheckedEdits,
    Counterfactual,
)
from sdyscope.facts.edits import EditKind, SourceEdit
from sdyscope.facts.moves import AnnotatedDim, Chain
from sdyscope.facts.origins import Spec
from sdyscope.facts.propagated import ValueId
from sdyscope.mesh_config.mesh_shape import unknown_axis
from sdyscope.staged import Staged
from sdyscope.values.convert import to_named_sharding, to_placement
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import (
    UNCONSTRAINED,
    NamedSharding,
    PartitionSpec,
    SpecEntry,
    TensorSharding,
    entry_axes,
)

if TYPE_CHECKING:
    from sdyscope.stages.propagated.annotate import ModuleEdit

#: How many propagations one answer may take.
_MOST = 160

#: How many annotations are looked at for one axis.
_GROUPS = 24

#: How many sets of edits are shown that are equally small.
REMEDIES = 3


@dataclass(frozen=True)
class AnnotationGroup:
    """Annotations that are one to whoever writes the program: a tensor's, or a line's."""

    annotations: tuple[Annotation, ...]
    spec: PartitionSpec | None = field(hash=False)

    @property
    def first(self) -> Annotation:
        """The first of them."""
        return self.annotations[0]

    @property
    def sharding(self) -> TensorSharding | None:
        """What is written on the first of them; None where that is not in Shardy's form."""
        written = self.first.sharding
        return written if isinstance(written, TensorSharding) else None

    @property
    def cause(self) -> AxisCause:
        """The annotations as a cause."""
        annotation = self.first
        spec: Spec | None = self.spec
        if spec is None and len({each.text for each in self.annotations}) == 1:
            spec = annotation.text
        return AxisCause(
            annotation.named_kind, annotation.path, spec, annotation.source, len(self.annotations)
        )

    def edit(self, after: PartitionSpec | None) -> SourceEdit:
        """The edit that has them say something else; None for nothing."""
        annotation = self.first
        kind: EditKind = "type" if annotation.named_kind == "type" else "constraint"
        if annotation.kind in ("argument", "result"):
            kind = "argument" if annotation.kind == "argument" else "result"
        name = shown_name(annotation.path, annotation.kind)
        return SourceEdit(kind, name, self.spec, after, annotation.source, len(self.annotations))


#: What annotations are to say instead; None takes them away.
GroupEdit: TypeAlias = tuple[AnnotationGroup, PartitionSpec | None]

#: Whether a sharding is what is asked for.
_Does: TypeAlias = Callable[[TensorSharding | None], bool]


class Counterfactuals:
    """Answers for one program under Shardy.

    Args:
        program: the program.

    Raises:
        CompilerError: Shardy can't propagate it.
        TargetError: it is not on one mesh.
    """

    def __init__(self, program: Staged) -> None:
        mesh = program.only_mesh("shardy")
        if mesh is None:
            raise TargetError(
                f"{program.name} is not on one mesh, so what its axes come from is not tried."
            )
        self.program, self.mesh = program, mesh
        self.graph = program.graph("shardy")
        self.explainer = Explainer.of(program, "shardy")
        self._trials = TryEdits(program.for_shardy(), self.graph)
        self._axes = PropagatedAxes(self.graph, program.propagated("shardy"), mesh)
        annotations = program.annotations("shardy")
        self._annotated = AnnotatedAxes(self._axes, annotations, self.explainer.pointers)
        self.groups = annotation_groups(annotations, self.mesh)
        self._known: dict[tuple[object, ...], tuple[TensorSharding | None, ...] | None] = {}
        self.propagations = self._crashed_before = 0

    # --- questions --------------------------------------------------------------------------------

    def without(self, value: ValueId, axis: str) -> Counterfactual:
        """What keeps an axis on a value, and the smallest edits without it.

        Raises:
            TargetError: the value is not sharded over the axis.
        """
        self._begin()
        now = self._now(value)
        dims = [at for at, names in enumerate(axes_of(now)) if axis in names]
        if not dims:
            raise TargetError(f"It is not sharded over {axis!r}: it is {self._spec(now)}.")
        causes = tuple(self._causes(value, axis, at) for at in dims)
        groups, left = self._candidates(value, [axis])
        edits: list[GroupEdit] = [(group, without_axes(group.spec, [axis])) for group in groups]

        def gone(sharding: TensorSharding | None) -> bool:
            return not any(axis in names for names in axes_of(sharding))

        remedies, complete = self._smallest(value, edits, gone)
        wanted = without_axes(_as_spec(self._spec(now)), [axis])
        return Counterfactual(
            self._spec(now),
            axis,
            None,
            causes,
            remedies,
            None if wanted is None else self._constrained(value, wanted),
            self.propagations,
            complete and not (left or self._crashed),
            self._crashed,
        )

    def wanted(self, value: ValueId, spec: PartitionSpec) -> Counterfactual:
        """The smallest edits with which a value is sharded so.

        Raises:
            TargetError: the value can't be sharded so.
        """
        self._begin()
        now = self._now(value)
        rank = len(self._axes.shape(value) or ())
        try:
            place = to_placement(NamedSharding(self.mesh, spec), rank)
        except ConversionError as error:
            raise TargetError(f"It can't be sharded as {spec}: {error.message}.") from error
        here = {(at, name) for at, names in enumerate(axes_of(now)) for name in names}
        there = {(at, name) for at, entry in enumerate(spec.entries) for name in entry_axes(entry)}
        leaving = list(dict.fromkeys(name for _, name in sorted(here - there)))
        causes = tuple(self._causes(value, name, at) for at, name in sorted(here - there))
        groups, left = self._candidates(value, leaving)
        edits: list[GroupEdit] = [(group, without_axes(group.spec, leaving)) for group in groups]
        edits += [(group, None) for group in self.in_the_way(value)]

        def is_it(sharding: TensorSharding | None) -> bool:
            if sharding is None:
                return not there
            try:
                return to_placement(sharding, rank, self.mesh) == place
            except ConversionError:
                return False

        if is_it(now):
            raise TargetError(f"It is already sharded as {self._spec(now)}.")
        remedies, complete = self._smallest(value, edits, is_it)
        return Counterfactual(
            self._spec(now),
            "",
            spec,
            causes,
            remedies,
            self._constrained(value, spec),
            self.propagations,
            complete and not (left or self._crashed),
            self._crashed,
        )

    # --- causes -----------------------------------------------------------------------------------

    def _causes(self, value: ValueId, axis: str, dimension: int) -> AxisCauses:
        """Whether the cause of an axis is necessary, and which annotations suffice for it."""
        groups, left = self._candidates(value, [axis])
        named = self._named(value, axis)
        cause = None
        if named is not None:
            cause = next((group for group in groups if is_in(named, group)), None)

        def there(edits: Sequence[ModuleEdit]) -> bool | None:
            shardings = self._shardings(value, edits)
            if not shardings:
                return None
            return any(
                dimension < len(axes_of(sharding)) and axis in axes_of(sharding)[dimension]
                for sharding in shardings
            )

        necessary = None
        if cause is not None and (stays := there([*self.removed(cause)])) is not None:
            necessary = not stays
        # Left open where the axis was, so that it can come back from the one that keeps it.
        stripped = [[*self.changed(group, _opened(group.spec, axis))] for group in groups]
        sufficient = [
            group.cause
            for number, group in enumerate(groups)
            if there([edit for at, each in enumerate(stripped) if at != number for edit in each])
        ]
        return AxisCauses(
            dimension,
            axis,
            None if cause is None else cause.cause,
            necessary,
            tuple(sufficient),
            len(groups) - (cause is not None),
            left,
        )

    def _named(self, value: ValueId, axis: str) -> Annotation | None:
        """The annotation that the chain of an axis begins at."""
        for chain in self._explained(value).chains:
            if chain.axis.name == axis and chain.beginning is not None:
                return chain.beginning.annotation
        return None

    def _explained(self, value: ValueId) -> Explanation:
        return self.explainer.explain(value)

    def _candidates(self, value: ValueId, axes: Sequence[str]) -> tuple[list[AnnotationGroup], int]:
        """The annotations that can be where axes of a value come from, and how many are left out.

        What the chains name comes first.
        """
        named = [self._named(value, axis) for axis in axes]
        candidates: dict[int, None] = {}
        for annotation in named:
            for number, group in enumerate(self.groups):
                if annotation is not None and is_in(annotation, group):
                    candidates[number] = None
        together: list[tuple[object, ...]] = []
        for axis in axes:
            part = part_of(AxisRef(axis), self.mesh)
            for component in self._annotated.components(value, part):
                together += [
                    (annotated.kind, annotated.name, annotated.source)
                    for annotated in self._annotated.together(*component)
                ]
        wanted = set(together)
        for number, group in enumerate(self.groups):
            if any(
                (annotation.kind, annotation.path, annotation.source) in wanted
                for annotation in group.annotations
            ) and any(axis in names for axis in axes for names in axes_of(group.sharding)):
                candidates[number] = None
        numbers = [*candidates]
        return [self.groups[number] for number in numbers[:_GROUPS]], max(len(numbers) - _GROUPS, 0)

    def behind(self, value: ValueId) -> list[AnnotationGroup]:
        """The annotations that the axes of a value can come from."""
        sharding = self._axes.sharding(value)
        return self._candidates(
            value, list(dict.fromkeys(axis for axes in axes_of(sharding) for axis in axes))
        )[0]

    def in_the_way(self, value: ValueId) -> list[AnnotationGroup]:
        """The annotations that stopped axes on their way to a value."""
        stopping: list[AnnotationGroup] = []
        for absence in self._explained(value).absences:
            stops: list[object] = [getattr(absence.stop, "by", None), absence.rival]
            for stop in stops:
                name = None
                if isinstance(stop, AnnotatedDim):
                    name = (stop.kind, stop.name)
                elif isinstance(stop, Chain) and stop.beginning is not None:
                    name = (stop.beginning.kind, stop.beginning.name)
                for group in self.groups:
                    is_named = bool(group.first.path)
                    if (
                        is_named
                        and name == (group.first.kind, group.first.path)
                        and group not in stopping
                    ):
                        stopping.append(group)
        return stopping

    # --- edits ------------------------------------------------------------------------------------

    def _smallest(
        self, value: ValueId, edits: Sequence[GroupEdit], does: _Does
    ) -> tuple[tuple[CheckedEdits, ...], bool]:
        """The smallest sets of edits that do, and whether every set was looked at."""

        def checked(numbers: EditSet) -> tuple[TensorSharding | None, ...]:
            written = [edit for number in numbers for edit in self.changed(*edits[number])]
            shardings = self._shardings(value, written)
            return shardings if all(map(does, shardings)) else ()

        sets, exhaustive = smallest_sets(
            len(edits),
            lambda numbers: bool(checked(numbers)),
            lambda sets: self.propagations + len(sets) <= _MOST,
        )
        remedies = tuple(
            CheckedEdits(
                tuple(edits[number][0].edit(edits[number][1]) for number in numbers),
                self._spec(checked(numbers)[0]),
                exhaustive and not self._crashed,
            )
            for numbers in sets[:REMEDIES]
        )
        return remedies, exhaustive

    def _constrained(self, value: ValueId, spec: PartitionSpec) -> CheckedEdits | None:
        """A constraint on the value itself, and how it is sharded with it."""
        from sdyscope.stages.propagated.annotate import NewConstraint

        op = self.graph.ops[value[0]]
        if op.is_argument or op.is_result:
            return None
        shardings = self._shardings(value, [NewConstraint(value, NamedSharding(self.mesh, spec))])
        if not shardings:
            return None
        edit = SourceEdit("new constraint", op_name(op), None, spec, op.source)
        # What the op makes may still differ: its uses get what is constrained.
        return CheckedEdits((edit,), spec, True)

    def changed(self, group: AnnotationGroup, spec: PartitionSpec | None) -> Iterator[ModuleEdit]:
        """The edits that have annotations say something else; None takes them away."""
        from sdyscope.stages.propagated.annotate import ShardingEdit

        if spec is None:
            yield from self.removed(group)
            return
        for annotation in group.annotations:
            yield ShardingEdit(annotation, NamedSharding(self.mesh, spec))

    def removed(self, group: AnnotationGroup) -> Iterator[ModuleEdit]:
        """The edits that take annotations away: constraints are opened, all else says nothing."""
        from sdyscope.stages.propagated.annotate import ShardingEdit

        for annotation in group.annotations:
            if annotation.kind == "constraint":
                opened = PartitionSpec((UNCONSTRAINED,) * len(annotation.shape or ()))
                yield ShardingEdit(annotation, NamedSharding(self.mesh, opened))
            else:
                yield ShardingEdit(annotation, unspecified=True)

    # --- propagating ------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._known.clear()
        self.propagations = 0
        self._crashed_before = self._trials.crashed

    @property
    def _crashed(self) -> int:
        """How many trials of this question Shardy crashed on."""
        return self._trials.crashed - self._crashed_before

    def _now(self, value: ValueId) -> TensorSharding | None:
        return self._axes.sharding(value)

    def _shardings(
        self, value: ValueId, edits: Sequence[ModuleEdit]
    ) -> tuple[TensorSharding | None, ...]:
        """How a value is sharded with some edits; nothing where that can't be propagated."""
        key = (value, *edits)
        if key not in self._known:
            self.propagations += 1
            try:
                self._known[key] = self._trials.shardings(value, edits)
            except (CompilerError, TargetError):
                self._known[key] = None
        return self._known[key] or ()

    def _spec(self, sharding: TensorSharding | None) -> Spec:
        if sharding is None:
            return PartitionSpec(())
        return spec_in(sharding, sharding.rank, self.mesh) or sharding


def annotation_groups(annotations: Iterable[Annotation], mesh: Mesh) -> list[AnnotationGroup]:
    """The annotations that can be edited, those of a tensor or a line together."""
    together: dict[object, list[Annotation]] = {}
    for annotation in annotations:
        if annotation.sharding is None or annotation.is_unreadable or annotation.manual_axes:
            continue
        if annotation.kind in ("argument", "result"):
            together.setdefault((annotation.kind, annotation.path), []).append(annotation)
        elif annotation.kind == "constraint":
            key = (
                (annotation.kind, annotation.source)
                if annotation.source is not None
                else (annotation.kind, annotation.op)
            )
            together.setdefault(key, []).append(annotation)
    groups = []
    for each in together.values():
        specs = {written_spec(annotation, mesh) for annotation in each}
        groups.append(AnnotationGroup(tuple(each), next(iter(specs)) if len(specs) == 1 else None))
    return groups


def written_spec(annotation: Annotation, mesh: Mesh) -> PartitionSpec | None:
    """What is written, as JAX writes it on a mesh; None where it has no such form."""
    sharding = _written(annotation)
    if sharding is None:
        return None
    try:
        return to_named_sharding(sharding, len(annotation.shape or ()), mesh).spec
    except ConversionError:
        return None


def _written(annotation: Annotation) -> TensorSharding | None:
    return annotation.sharding if isinstance(annotation.sharding, TensorSharding) else None


def axes_of(sharding: TensorSharding | None) -> list[tuple[str, ...]]:
    """The names of the axes of each dimension, parts of axes by the names of the whole."""
    if sharding is None:
        return []
    return [tuple(axis.name for axis in dim.axes) for dim in sharding.dim_shardings]


def _as_spec(spec: Spec) -> PartitionSpec | None:
    return spec if isinstance(spec, PartitionSpec) else None


def without_axes(spec: PartitionSpec | None, axes: Iterable[str]) -> PartitionSpec | None:
    """A sharding without some axes; None where it has no form to write."""
    if spec is None:
        return None
    gone = set(axes)
    entries: list[SpecEntry] = []
    for entry in spec.entries:
        if isinstance(entry, tuple):
            entries.append(tuple(name for name in entry if name not in gone) or None)
        else:
            entries.append(None if entry in gone else entry)
    return PartitionSpec(tuple(entries), spec.unreduced, spec.reduced)


def _opened(spec: PartitionSpec | None, axis: str) -> PartitionSpec | None:
    """A sharding without an axis, the compiler free to shard the dimension that it was on."""
    if spec is None:
        return None
    entries: list[SpecEntry] = []
    for entry in spec.entries:
        if entry == axis:
            entries.append(UNCONSTRAINED)
        elif isinstance(entry, tuple):
            entries.append(tuple(name for name in entry if name != axis))
        else:
            entries.append(entry)
    return PartitionSpec(tuple(entries), spec.unreduced, spec.reduced)


def is_in(annotation: Annotation, group: AnnotationGroup) -> bool:
    """Whether an annotation is one of a group, by what it stands on."""
    return any(
        (member.kind, member.op, member.index, member.path)
        == (annotation.kind, annotation.op, annotation.index, annotation.path)
        for member in group.annotations
    )


def check_can_be_edited(program: Staged, axis: str) -> None:
    """Raises ``TargetError`` where annotations can't be edited, or can't lose an axis.

    Args:
        program: the program.
        axis: the axis; empty for none.
    """
    program.for_shardy()
    axes = [name for mesh in program.meshes.values() for name in mesh.shape]
    if axis and axis not in axes:
        raise unknown_axis(axis, axes)


def with_counterfactuals(
    document: ExplainDocument, program: Staged, axis: str = "", wanted: PartitionSpec | None = None
) -> ExplainDocument:
    """The document with what would change the sharding of its values.

    Args:
        document: the explanations.
        program: the program that they are of.
        axis: the axis that values are to be without; empty for none.
        wanted: how they are to be sharded; None where only an axis is to go.

    Raises:
        TargetError: no value is sharded over the axis, or can be sharded so; or the program is not
            propagated by Shardy.
    """
    check_can_be_edited(program, axis)
    answers = Counterfactuals(program)
    explanations: list[Explanation] = []
    failure: TargetError | None = None
    for explanation in document.values:
        try:
            counterfactual = (
                answers.without(explanation.value.id, axis)
                if wanted is None
                else answers.wanted(explanation.value.id, wanted)
            )
        except TargetError as error:
            failure = failure or error
            explanations.append(replace(explanation, unanswered=error.message))
            continue
        explanations.append(replace(explanation, counterfactual=counterfactual))
    if failure is not None and all(
        explanation.counterfactual is None for explanation in explanations
    ):
        raise TargetError(f"{document.values[0].value.name}: {failure.message}")
    return replace(document, values=tuple(explanations))
