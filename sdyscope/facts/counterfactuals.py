"""What would be otherwise without an annotation: each checked by propagating again."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.facts.differences import DifferingValue
from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.origins import CollectiveOrigin, Spec
from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.values.mesh import AxisRef
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class AxisCause:
    """An annotation that brings an axis to a value.

    Attributes:
        kind: what is annotated: an argument, a result, a constraint, or the type of a value.
        name: its pytree path or scope.
        spec: what is written there; null where annotations of one line say different things.
        source: its line.
        count: how many annotations that is: those of a line that runs for each layer are one cause.
    """

    kind: str
    name: str
    spec: Spec | None
    source: SourceLocation | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class AxisCauses:
    """Why a dimension of a value is sharded over an axis, by removing annotations.

    Attributes:
        dimension: the dimension.
        axis: the axis.
        cause: the annotation that it comes from; null where none was found, or it can't be removed.
        necessary: whether the axis is gone without that annotation; null where there is none, or
            the program can't be propagated without it.
        sufficient: the annotations that bring the axis there on their own, every other one without
            it; among them the cause, if it does.
        others: how many other annotations were looked at.
        not_tried: how many more there are.
    """

    dimension: int
    axis: str
    cause: AxisCause | None
    necessary: bool | None
    sufficient: tuple[AxisCause, ...]
    others: int
    not_tried: int = 0


@dataclass(frozen=True, slots=True)
class CheckedEdits:
    """Edits with which a value is sharded as wanted, propagated to see that it is.

    Attributes:
        edits: the edits.
        after: how the value then is sharded.
        smallest: whether every smaller set was propagated, too, and does not do.
    """

    edits: tuple[SourceEdit, ...]
    after: Spec
    smallest: bool


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What brings the axes of a value, and what would change its sharding.

    Attributes:
        now: how it is sharded.
        removed: the axis that it is to be without; empty where another sharding is wanted.
        wanted: how it is to be sharded; null where only an axis is to go.
        causes: of each axis that is to go.
        remedies: sets of edits of annotations with which it is; none where no set was found.
        constraint: the same by a constraint on the value itself; null for an argument, which is
            sharded by its own annotation.
        propagations: how often was propagated to know all this.
        complete: whether every set of annotations was tried; otherwise there may be a remedy that
            was not found.
        crashed: how many propagations crashed Shardy, and so tell nothing.
    """

    now: Spec
    removed: str
    wanted: Spec | None
    causes: tuple[AxisCauses, ...]
    remedies: tuple[CheckedEdits, ...]
    constraint: CheckedEdits | None
    propagations: int
    complete: bool
    crashed: int = 0


@dataclass(frozen=True, slots=True)
class TriedCause:
    """An annotation that something is explained by, and what becomes of that without it.

    Attributes:
        cause: the annotation.
        necessary: whether it is gone without the annotation; null where the compiler refuses the
            program without it.
        sufficient: whether it is there with this annotation and none of the others that were
            tried; null where the compiler refuses that program, or it was not tried.
    """

    cause: AxisCause
    necessary: bool | None
    sufficient: bool | None = None


@dataclass(frozen=True, slots=True)
class TriedEdits:
    """Edits with which something is gone, and what the program then does.

    Attributes:
        edits: the edits.
        smallest: whether every smaller set was tried, too, and does not do.
        sent: bytes that a device then sends in a step, as the program is partitioned; null where it
            was only propagated.
        differing: how many values then are sharded differently under the partitioners; null where
            these were not compared.
    """

    edits: tuple[SourceEdit, ...]
    smallest: bool
    sent: int | None = None
    differing: int | None = None


@dataclass(frozen=True, slots=True)
class Removals:
    """What becomes of something that the compiler makes when annotations are removed.

    Attributes:
        is_found: whether the program has it under the same names as the annotations were left;
            otherwise nothing can be tried.
        removed: the axis that the annotations lose; empty where they go as a whole.
        causes: the annotations that it is explained by.
        remedies: the fewest of them without which it is gone; none where none was found.
        constraints: the same by one more constraint.
        is_kept: whether it is there without all of these annotations, too.
        complete: whether every set of these annotations was tried where there is no remedy.
        sent: bytes that a device sends in a step, as the program is partitioned; null where it was
            only propagated.
        differing: how many values are sharded differently under the partitioners; null where these
            were not compared.
        tried: how often XLA partitioned the program, or both partitioners propagated it.
    """

    is_found: bool
    removed: str
    causes: tuple[TriedCause, ...]
    remedies: tuple[TriedEdits, ...]
    constraints: tuple[TriedEdits, ...]
    is_kept: bool
    complete: bool
    sent: int | None
    differing: int | None
    tried: int


@dataclass(frozen=True, slots=True)
class CollectiveCauses:
    """What a collective needs.

    Attributes:
        name: its name in the compiled program.
        kind: what it does.
        axes: the mesh axes that it runs over, by name.
        sent: bytes that a device sends for it in a step.
        origin: why it is there; null where that is not known.
        source: its line.
        removals: what becomes of it, by XLA's partitioner.
        counted_once: whether it is in a loop of unknown trip count, and is counted once.
        over: the axes, or the parts of axes, that it runs over.
    """

    name: str
    kind: str
    axes: tuple[str, ...]
    sent: int
    origin: CollectiveOrigin | None
    source: SourceLocation | None
    removals: Removals
    counted_once: bool = False
    over: tuple[AxisRef, ...] = ()


@dataclass(frozen=True, slots=True)
class RematerializationCauses:
    """What an involuntary full rematerialization needs.

    Attributes:
        rematerialization: what XLA's partitioner logs.
        removals: what becomes of it, by XLA's partitioner.
    """

    rematerialization: Rematerialization
    removals: Removals


@dataclass(frozen=True, slots=True)
class DifferenceCauses:
    """What the first difference between the partitioners needs.

    Attributes:
        begins: the value at which it begins: all that it is computed from is sharded alike.
        a: the first partitioner.
        b: the second.
        values: how many values are sharded differently from there on, itself included.
        removals: what becomes of it, by both partitioners.
    """

    begins: DifferingValue
    a: str
    b: str
    values: int
    removals: Removals
