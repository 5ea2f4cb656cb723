"""What would be otherwise without an annotation: each checked by propagating again."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.origins import CollectiveOrigin, Spec
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class Cause:
    """An annotation that brings an axis to a value.

    Attributes:
        kind: what is annotated: an argument, a result or a constraint.
        name: its pytree path or scope.
        spec: what is written there.
        source: its line.
        count: how many annotations that is: those of a line that runs for each layer are one cause.
    """

    kind: str
    name: str
    spec: Spec
    source: SourceLocation | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class AxisCauses:
    """Why a dimension of a value is sharded over an axis, by removing annotations.

    Attributes:
        dimension: the dimension.
        axis: the axis.
        cause: the annotation that it comes from; null where none was found, or it can't be removed.
        necessary: whether the axis is gone without that annotation; null where there is none.
        sufficient: the annotations that bring the axis there on their own, every other one without
            it; among them the cause, if it does.
        others: how many other annotations were looked at.
        not_tried: how many more there are.
    """

    dimension: int
    axis: str
    cause: Cause | None
    necessary: bool | None
    sufficient: tuple[Cause, ...]
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
    """

    now: Spec
    removed: str
    wanted: Spec | None
    causes: tuple[AxisCauses, ...]
    remedies: tuple[CheckedEdits, ...]
    constraint: CheckedEdits | None
    propagations: int
    complete: bool


@dataclass(frozen=True, slots=True)
class TriedCause:
    """An annotation that a collective is explained by.

    Attributes:
        cause: the annotation.
        necessary: whether XLA's partitioner makes no such collective without it; null where it
            refuses the program without it.
    """

    cause: Cause
    necessary: bool | None


@dataclass(frozen=True, slots=True)
class EditsOfCollective:
    """Annotations without which a collective is gone, and what the program then sends.

    Attributes:
        edits: the edits.
        sent: bytes that a device then sends in a step, as the program is partitioned.
        smallest: whether every smaller set was propagated, too, and does not do.
    """

    edits: tuple[SourceEdit, ...]
    sent: int
    smallest: bool


@dataclass(frozen=True, slots=True)
class CollectiveCauses:
    """What a collective needs, each answer by XLA's partitioner with annotations removed.

    Attributes:
        name: its name in the compiled program.
        kind: what it does.
        axes: the mesh axes that it runs over, by name.
        sent: bytes that a device sends for it in a step.
        origin: why it is there; null where that is not known.
        source: its line.
        is_found: whether the partitioned program has it under the same names; otherwise nothing can
            be tried.
        causes: the annotations that it is explained by.
        remedies: the fewest of them without which it is gone; none where all of them do not do.
        sent_now: bytes that a device sends in a step, as the program is partitioned.
        partitioned: how often XLA partitioned the program.
    """

    name: str
    kind: str
    axes: tuple[str, ...]
    sent: int
    origin: CollectiveOrigin | None
    source: SourceLocation | None
    is_found: bool
    causes: tuple[TriedCause, ...]
    remedies: tuple[EditsOfCollective, ...]
    sent_now: int
    partitioned: int
