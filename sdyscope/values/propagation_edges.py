"""What Shardy's propagation says about itself: where axes came from, and by which step.

*Edges* (``PropagationEdgesAttr`` of ``shardy/dialect/sdy/ir/attrs.td``, the attribute
``sdy.propagation_edges``): in step 4, axis "data" went from operand 0 to result 0. *Origins* (the
attribute ``sdy.sharding_origins``, strings written by ``source_sharding.cc`` of Shardy): the axis
"data" of this value comes from the sharding of input 0. ``str`` of a value is its text.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Literal

from sdyscope.errors import ConversionError
from sdyscope.values.mesh import AxisRef, quote

EdgeNodeType = Literal["operand", "result"]

OriginType = Literal[
    "input", "output", "constraint", "mc_input", "mc_output", "manual_computation", "self"
]


@dataclass(frozen=True, slots=True)
class EdgeValueRef:
    """An operand or result of the op that carries the edge, counted from 0: ``operand-0``."""

    type: EdgeNodeType
    index: int

    def __str__(self) -> str:
        return f"{self.type}-{self.index}"


@dataclass(frozen=True, slots=True)
class AxisToPropagationDetails:
    """An axis that went from one value to others: ``{"data" = operand-0 -> [result-0]}``.

    Raises:
        ConversionError: a value is a target twice, or both source and target.
    """

    axis_name: AxisRef
    source: EdgeValueRef
    targets: tuple[EdgeValueRef, ...]

    def __post_init__(self) -> None:
        if self.source in self.targets:
            raise ConversionError(f"{self.source} is both the source and a target of an edge")
        for target in self.targets:
            if self.targets.count(target) > 1:
                raise ConversionError(f"{target} is the target of one edge twice")

    def __str__(self) -> str:
        targets = ", ".join(map(str, self.targets))
        return f"{{{self.axis_name} = {self.source} -> [{targets}]}}"


@dataclass(frozen=True, slots=True)
class PropagationOneStep:
    """What one numbered step of the propagation did: ``{step-4 = [...]}``.

    Raises:
        ConversionError: the step number is negative.
    """

    step_index: int
    axis_entries: tuple[AxisToPropagationDetails, ...]

    def __post_init__(self) -> None:
        if self.step_index < 0:
            raise ConversionError(f"steps are counted from 0, not {self.step_index}")

    def __str__(self) -> str:
        entries = ", ".join(map(str, self.axis_entries))
        return f"{{step-{self.step_index} = [{entries}]}}"


@dataclass(frozen=True, slots=True)
class PropagationEdges:
    """The steps that sharded the operands and results of one op.

    Raises:
        ConversionError: a step number occurs twice.
    """

    steps: tuple[PropagationOneStep, ...]

    def __post_init__(self) -> None:
        seen: set[int] = set()
        for step in self.steps:
            if step.step_index in seen:
                raise ConversionError(f"step {step.step_index} is listed twice")
            seen.add(step.step_index)

    def __str__(self) -> str:
        return "<[" + ", ".join(map(str, self.steps)) + "]>"


@dataclass(frozen=True, slots=True)
class OriginSharding:
    """A sharding that the user wrote, as Shardy numbers them.

    ``input: 0`` and ``output: 1`` are arguments and results of the function (``index``),
    ``constraint_0`` a sharding constraint (``source_id``), ``mc_0_input: 1`` an operand or result
    of a manual computation (both), ``mc_0`` the manual computation as a whole
    (``manual_computation``; only as the name of one), ``self`` the value's own annotation.
    """

    type: OriginType
    index: int | None = None
    source_id: int | None = None

    def __post_init__(self) -> None:
        has_index = self.type in ("input", "output", "mc_input", "mc_output")
        has_source = self.type not in ("input", "output", "self")
        if has_index != (self.index is not None) or has_source != (self.source_id is not None):
            raise ConversionError(
                f"an origin of type {self.type} "
                + (f"has {'an' if has_index else 'no'} index and ")
                + (f"{'a' if has_source else 'no'} source id")
            )

    def __str__(self) -> str:
        match self.type:
            case "input" | "output":
                return f"{self.type}: {self.index}"
            case "constraint":
                return f"constraint_{self.source_id}"
            case "mc_input" | "mc_output":
                return f"mc_{self.source_id}_{self.type[3:]}: {self.index}"
            case "manual_computation":
                return f"mc_{self.source_id}"
            case "self":
                return "self"


@dataclass(frozen=True, slots=True)
class ShardingOrigins:
    """The origin of each axis of one value: ``{a = "input: 0", "c:(1)2" = "self"}``.

    Kept sorted by the text of the axis, as MLIR keeps dictionaries.

    Raises:
        ConversionError: an axis occurs twice.
    """

    origins: tuple[tuple[AxisRef, OriginSharding], ...] = ()

    def __post_init__(self) -> None:
        by_key = sorted(self.origins, key=lambda item: _axis_key(item[0]).encode())
        for (before, _), (after, _) in itertools.pairwise(by_key):
            if _axis_key(before) == _axis_key(after):
                raise ConversionError(f"axis {after} has two origins")
        object.__setattr__(self, "origins", tuple(by_key))

    def of(self, axis: AxisRef) -> OriginSharding | None:
        """The origin of ``axis``; None when the value is not sharded on it."""
        return dict(self.origins).get(axis)

    def __str__(self) -> str:
        entries = (f'{_key(_axis_key(axis))} = "{origin}"' for axis, origin in self.origins)
        return "{" + ", ".join(entries) + "}"


@dataclass(frozen=True, slots=True)
class ShardingOriginsPerValue:
    """Origins of each result of an op: ``[{a = "input: 0"}, {}]``."""

    values: tuple[ShardingOrigins, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.values)) + "]"


def _axis_key(axis: AxisRef) -> str:
    # Shardy prints the axis and then drops the quotes, not what is escaped between them.
    return str(axis).replace('"', "")


def _key(name: str) -> str:
    """A key of a dictionary as MLIR prints it: quoted unless it is an identifier."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$.]*", name) else quote(name)
