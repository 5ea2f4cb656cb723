"""Why a collective is there: the value it is about, and the annotations that made it necessary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from sdyscope.annotations import NamedKind
from sdyscope.once import Once
from sdyscope.values.mesh import AxisRef
from sdyscope.values.sharding import PartitionSpec, TensorSharding
from sdyscope.values.source import SourceLocation

OriginKind: TypeAlias = Literal[
    "reduction", "resharding", "lookup", "exchange", "rearrangement", "split", "program", "unknown"
]
"""``reduction``: an op sums over a dimension that is in pieces; ``resharding``: a value has one
sharding and is needed with another; ``lookup``: an op takes elements from a dimension that is in
pieces by their indices; ``exchange``: an op reaches into its neighbouring blocks (shifts);
``rearrangement``: an op cuts, joins, pads, turns or sorts a dimension that is in pieces;
``split``: XLA itself splits an op over axes, though nothing that the op sums or looks up has them;
``program``: the program itself says so, in a
``shard_map``; ``unknown``: none of these was found."""

NotFound: TypeAlias = Literal[
    "", "no axes", "no op", "not sharded", "not needed otherwise", "one device"
]
"""Why none was found: the collective runs over no axes of the mesh; the compiler kept no op that it
was made for; nothing around that op is sharded on its axes; something is, and nothing says that it
is needed otherwise; what the op takes is on one device, as a callback's result is, and no axis says
so. Empty where one was."""

Spec: TypeAlias = PartitionSpec | TensorSharding | str
"""A sharding as JAX writes it where it can be, else as Shardy does; its text where it follows no
axes."""

OriginRole: TypeAlias = Literal["has", "needed"]
"""``has``: the sharding of the value that is moved or summed; ``needed``: the one it is needed
with, or that another tensor of the same op has on these axes; of a value left unreduced, the first
behind it that is reduced."""


@dataclass(frozen=True, slots=True)
class OriginAnnotation:
    """An annotation of the program that axes of a collective come from.

    Attributes:
        kind: what is annotated.
        name: pytree path of an argument or result, scope of anything else.
        spec: what is written there.
        axes: those of the collective's axes that it is about.
        role: whose sharding it explains.
        source: its line, where one is known.
        recorded: whether the partitioner recorded that the axes come from there (Shardy does);
            otherwise they were followed along the data flow to the nearest annotation with them.
        mapped: the function of the `shard_map` that it is on the boundary of, where that is known.
    """

    kind: NamedKind
    name: str
    spec: Spec
    axes: tuple[AxisRef, ...]
    role: OriginRole
    source: SourceLocation | None
    recorded: bool
    mapped: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """Alike for what is written in one place: a line that runs once a layer is one place."""
        named = self.source is None or self.kind in ("argument", "result")
        place = self.name if named or self.source is None else str(self.source)
        return self.kind, place, self.mapped, self.spec

    @property
    def is_unreduced(self) -> bool:
        """Whether it says that a value is still to be reduced over all of its axes."""
        named = {axis.name for axis in self.axes}
        if isinstance(self.spec, TensorSharding):
            return named <= {axis.name for axis in self.spec.unreduced_axes}
        return isinstance(self.spec, PartitionSpec) and named <= self.spec.unreduced

    def written(self) -> OriginAnnotation:
        """The annotation alone, alike for whatever comes from it."""
        return replace(self, axes=(), role="has", recorded=True)


@dataclass(frozen=True)
class Together(Once):
    """Annotations that say axes on dimensions that hold these together.

    There is one for all collectives over them, however many: what is worked out of it is kept.
    """

    annotations: tuple[OriginAnnotation, ...] = ()

    @cached_property
    def by_key(self) -> Mapping[tuple[object, ...], OriginAnnotation]:
        """The first of those that are written in one place, by their key."""
        by_key: dict[tuple[object, ...], OriginAnnotation] = {}
        for annotation in self.annotations:
            by_key.setdefault(annotation.key, annotation)
        return by_key


NOBODY = Together()


@dataclass(frozen=True, slots=True)
class CollectiveOrigin:
    """Why one tensor of a collective is communicated.

    Attributes:
        kind: what makes it necessary.
        value: the value that is moved, or of a reduction the one whose pieces are summed: pytree
            path of an argument or result, else the scope of the op that makes it; empty where it
            was not found.
        form: the op that gives it the form in which it is moved (``transpose``); empty where it
            is moved as it is.
        carried: whether it is what a loop carries, whose name is that of what the loop begins with.
        before: sharding that the value has; None where it is not known.
        after: sharding that it is needed with; None likewise, and of a reduction.
        op: the op that needs it, by JAX's primitive or else by its name in StableHLO; `return` for
            the program's own.
        result: name of the result as which the program returns the value; empty where an op needs
            it.
        scope: that op's scope.
        source: that op's line.
        node: that op, as a node in the op graph of the lowered module; None where the program
            returns the value, or no op is known.
        annotations: where the axes come from: first those of the value, then those of the need.
        together: all annotations that say the axes of the value on dimensions that hold them
            together with its own, or that give them to a dimension that is summed or gathered once
            those are gone: any of them can be where they come from.
        needed_together: as ``together``, of what it is needed with: all annotations that say the
            axes of another tensor of the op together with its own, or that keep the axes away once
            those that are named do not.
        not_found: why it is not known.
        followed: whether the op was found along the value in the compiled program, since XLA
            names the collective after what makes the value, or not at all.
        may_split: whether XLA may split the op over these axes itself once no annotation shards
            what it sums: another axis is on a dimension that one operand sums and another keeps, or
            comes to one that is summed, once they are gone.
        elsewhere: whether the op is another than XLA names the collective after, on another line.
        backward: whether the backward pass itself calls the collective: JAX sums there what every
            device is given, and turns each collective of the forward pass into another.
        uncertain: whether the value is only the nearest that could be meant: what is communicated
            has the shape of no block of it and is not known to be taken from it alone, or was
            followed to another.
        own_result: whether the op itself makes the value, with other axes than it has, and XLA then
            moves it to these.
        in_turns: whether devices hand the sums on, each adding its own, in a loop that XLA makes.
    """

    __document__ = (
        *("kind", "known", "value", "form", "carried", "before", "after", "op", "result", "scope"),
        *("source", "annotations", "otherwise", "otherwise_count"),
        *("needed_otherwise", "needed_otherwise_count"),
        *("words", "followed", "may_split", "uncertain"),
    )

    kind: OriginKind
    value: str
    before: Spec | None
    after: Spec | None
    op: str
    scope: str
    source: SourceLocation | None
    annotations: tuple[OriginAnnotation, ...]
    together: Together = NOBODY
    needed_together: Together = NOBODY
    node: int | None = None
    result: str = ""
    form: str = ""
    carried: bool = False
    not_found: NotFound = ""
    followed: bool = False
    may_split: bool = False
    elsewhere: bool = False
    backward: bool = False
    uncertain: bool = False
    own_result: bool = False
    in_turns: bool = False

    @property
    def every(self) -> Iterator[OriginAnnotation]:
        """The annotations that are named, and those that stand in for them."""
        yield from self.every_of("has")
        yield from self.every_of("needed")

    def every_of(self, role: OriginRole) -> Iterator[OriginAnnotation]:
        """Likewise, those of one role."""
        yield from (annotation for annotation in self.annotations if annotation.role == role)
        yield from self.others(role)

    @property
    def otherwise(self) -> Iterator[OriginAnnotation]:
        """Where the axes of the value come from without the annotations that are named."""
        return self.others("has")

    @property
    def needed_otherwise(self) -> Iterator[OriginAnnotation]:
        """Who needs the value with another sharding without the annotations that are named."""
        return self.others("needed")

    @property
    def otherwise_count(self) -> int:
        """How many ``otherwise`` has."""
        return self._others_count("has")

    @property
    def needed_otherwise_count(self) -> int:
        """How many ``needed_otherwise`` has."""
        return self._others_count("needed")

    def _others_count(self, role: OriginRole) -> int:
        return len(self.all_together(role).by_key) - len(self.named_together(role))

    def others(self, role: OriginRole) -> Iterator[OriginAnnotation]:
        """Those of a role that are not named."""
        # By identity: there is an annotation for each layer, and a key takes long to compare.
        left_out = set(map(id, self.named_together(role)))
        every = self.all_together(role).by_key.values()
        return (annotation for annotation in every if id(annotation) not in left_out)

    def named_together(self, role: OriginRole) -> list[OriginAnnotation]:
        """Those of ``all_together`` that are named: all ``others`` are not."""
        by_key = self.all_together(role).by_key
        named = {annotation.key for annotation in self.annotations if annotation.role == role}
        return [by_key[key] for key in named if key in by_key]

    def all_together(self, role: OriginRole) -> Together:
        """All annotations that can have a role."""
        return self.together if role == "has" else self.needed_together

    @property
    def is_over_chosen_axes(self) -> bool:
        """Whether XLA chose the axes: nothing has them that is summed or looked up in.

        It splits the op itself, or first moves a dimension to them that has others.
        """
        sums = self.kind in ("reduction", "lookup") and not self.is_unreduced
        return self.kind == "split" or (sums and any(self.every_of("needed")))

    @property
    def is_unreduced(self) -> bool:
        """Whether it reduces what the program says is still to be reduced over all of its axes."""
        has = [annotation for annotation in self.annotations if annotation.role == "has"]
        return self.kind == "reduction" and bool(has) and all(each.is_unreduced for each in has)

    @property
    def known(self) -> bool:
        """Whether it leads to an annotation, or to a line of the program that says it itself."""
        return self.kind in ("program", "split") or (
            self.kind != "unknown" and bool(self.annotations)
        )
