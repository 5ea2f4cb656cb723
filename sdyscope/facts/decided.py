"""What a partitioner decided for a value, where each axis comes from, and what can't be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sdyscope.annotations import NamedKind
from sdyscope.facts.propagated import Fate
from sdyscope.facts.sharded import Sharded
from sdyscope.values.mesh import AxisRef
from sdyscope.values.placement import Placement
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class AxisOrigin:
    """The annotation that an axis on a value comes from.

    Attributes:
        axis: the axis, or the part of one.
        kind: what is annotated; None where it is not known.
        name: its pytree path or scope; empty likewise.
        source: its source line, where one is known.
        own: whether it is the value's own annotation.
        origin: as Shardy recorded it: ``input: 0``, ``constraint_3``, ``self``; None where it was
            followed along Shardy's steps instead.
        mapped: the function of the `shard_map` that it is on the boundary of, where that is known.
    """

    axis: AxisRef
    kind: NamedKind | None
    name: str
    source: SourceLocation | None
    own: bool
    origin: OriginSharding | None
    mapped: str = ""

    __document__ = ("axis", "kind", "name", "source", "own", "origin", "recorded", "mapped")

    @property
    def recorded(self) -> bool:
        """Whether Shardy recorded it."""
        return self.origin is not None


@dataclass(frozen=True, slots=True)
class DecidedValue:
    """What propagation decided for a value.

    Attributes:
        fate: what became of the value on its way to the partitioner: `kept`; `merged` with others
            that are the same; `folded` away; `not partitioned`, as it is nothing that has a
            sharding.
        sharding: the sharding that it has, and where that puts it.
        origins: where each axis comes from (Shardy only).
        merged_with: SSA names of the other values of the lowered module that became the same one,
            the first ten of them.
        merged: how many those are.
    """

    fate: Fate
    sharding: Sharded
    origins: tuple[AxisOrigin, ...] = ()
    merged_with: tuple[str, ...] = ()
    merged: int = 0

    @property
    def placement(self) -> Placement | None:
        """Where it is; None where nothing says."""
        return self.sharding.placement

    @property
    def is_sharded(self) -> bool:
        """Whether the devices hold different parts of it."""
        return self.placement is not None and any(size > 1 for size in self.placement.shards)


@dataclass(frozen=True, slots=True)
class ExplanationNote:
    """What else there is to know of how a value came to be sharded.

    Attributes:
        kind: `merged`: the compiler made one value of it and others; `folded`: it is gone before
            propagation; `not partitioned`: it has no sharding by nature; `not recorded`: the
            partitioner does not say where shardings come from; `annotated`: nor need it, as the
            module has it on the value itself; `no steps`: no steps are known;
            `parts of axes`: Shardy took them off a result of the program; `untouched`: no axis
            came to it, and none was stopped beside it; `all manual`: nor could one, inside
            `shard_map`s that are manual on all axes; `no dimension`: it has none to shard.
        names: SSA names of the first of the others; the parts of axes; or what is annotated: an
            argument, a result, a constraint.
        more: how many others there are besides.
    """

    kind: Literal[
        "merged",
        "folded",
        "not partitioned",
        "not recorded",
        "annotated",
        "no steps",
        "parts of axes",
        "untouched",
        "all manual",
        "no dimension",
    ]
    names: tuple[str, ...] = ()
    more: int = 0
