"""Shardings as Shardy and JAX write them.

Shardy: ``DimensionShardingAttr``, ``TensorShardingAttr``, ``TensorShardingPerValueAttr``,
``ManualAxesAttr`` (https://openxla.org/shardy/sharding_representation).
JAX: ``PartitionSpec`` and ``NamedSharding`` (jax.sharding), without importing jax.
``str`` of a value is its text in its own language.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from sdyscope.errors import ConversionError
from sdyscope.formatters import Displayed
from sdyscope.values.mesh import AxisRef, Mesh, quote

ReductionKind = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class DimSharding:
    """Axes a dimension is split over, major to minor: ``{"a", "b":(1)2, ?}p1``.

    Closed: propagation may not add axes; open (``?``): it may. ``priority`` None is Shardy's
    default, 0, the highest.
    """

    axes: tuple[AxisRef, ...] = ()
    is_closed: bool = True
    priority: int | None = None

    def __str__(self) -> str:
        items = [str(axis) for axis in self.axes]
        if not self.is_closed:
            items.append("?")
        priority = "" if self.priority is None else f"p{self.priority}"
        return "{" + ", ".join(items) + "}" + priority


@dataclass(frozen=True, slots=True)
class TensorSharding(Displayed):
    """Shardy's sharding of one tensor: ``<@mesh, [{"a"}, {?}], replicated={"c"}>``.

    ``mesh`` is the symbol of a mesh in the module, or an inlined mesh. ``replicated_axes`` say
    that propagation must not use them; ``unreduced_axes`` that the tensor still is to be reduced
    over them, with ``reduction`` (``max`` and ``min`` from JAX 0.12 on).
    """

    mesh: str | Mesh
    dim_shardings: tuple[DimSharding, ...] = ()
    replicated_axes: tuple[AxisRef, ...] = ()
    unreduced_axes: tuple[AxisRef, ...] = ()
    reduction: ReductionKind = "sum"

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dim_shardings)

    def axes(self) -> Iterator[AxisRef]:
        """Every axis the sharding mentions."""
        for dim in self.dim_shardings:
            yield from dim.axes
        yield from self.replicated_axes
        yield from self.unreduced_axes

    def without(self, names: Container[str]) -> TensorSharding:
        """Without some axes: of the block that a body which is manual on them works on."""

        def left(axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
            return tuple(axis for axis in axes if axis.name not in names)

        return replace(
            self,
            dim_shardings=tuple(replace(dim, axes=left(dim.axes)) for dim in self.dim_shardings),
            replicated_axes=left(self.replicated_axes),
            unreduced_axes=left(self.unreduced_axes),
        )

    def __str__(self) -> str:
        if isinstance(self.mesh, Mesh):
            parts = [f"mesh{self.mesh}"]
        else:
            parts = [symbol(self.mesh)]
        parts.append("[" + ", ".join(map(str, self.dim_shardings)) + "]")
        if self.replicated_axes:
            parts.append("replicated={" + ", ".join(map(str, self.replicated_axes)) + "}")
        if self.unreduced_axes:
            kind = "" if self.reduction == "sum" else self.reduction
            axes = ", ".join(map(str, self.unreduced_axes))
            parts.append(f"unreduced={kind}{{{axes}}}")
        return "<" + ", ".join(parts) + ">"

    @property
    def attribute(self) -> str:
        """The MLIR attribute: ``#sdy.sharding<...>``."""
        return f"#sdy.sharding{self}"


def symbol(name: str) -> str:
    """An MLIR symbol reference: ``@mesh``, ``@"my mesh"``."""
    bare = name and name.isascii() and all(c.isalnum() or c in "_$." for c in name)
    return f"@{name}" if bare and (name[0].isalpha() or name[0] == "_") else f"@{quote(name)}"


@dataclass(frozen=True, slots=True)
class MeshOp:
    """A mesh and its name in the module: ``sdy.mesh @mesh = <["a"=2]>``."""

    sym_name: str
    mesh: Mesh

    def __str__(self) -> str:
        return f"sdy.mesh {symbol(self.sym_name)} = {self.mesh}"


@dataclass(frozen=True, slots=True)
class TensorShardingPerValue:
    """One sharding a value (results of an op, operands of a manual computation)."""

    shardings: tuple[TensorSharding, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.shardings)) + "]"

    @property
    def attribute(self) -> str:
        """The MLIR attribute: ``#sdy.sharding_per_value<[...]>``."""
        return f"#sdy.sharding_per_value<{self}>"


@dataclass(frozen=True, slots=True)
class ManualAxes:
    """The axes a manual computation is manual on: ``{"data", "model"}``."""

    axes: tuple[str, ...]

    def __str__(self) -> str:
        return "{" + ", ".join(quote(axis) for axis in self.axes) + "}"

    @property
    def attribute(self) -> str:
        """The MLIR attribute: ``#sdy<manual_axes{...}>``."""
        return f"#sdy<manual_axes{self}>"


class Unconstrained(enum.Enum):
    """``PartitionSpec.UNCONSTRAINED``: the compiler may shard the dimension as it likes."""

    UNCONSTRAINED = "UNCONSTRAINED"

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED: Final = Unconstrained.UNCONSTRAINED

SpecEntry = None | str | tuple[str, ...] | Unconstrained


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """JAX's ``PartitionSpec``: an entry a dimension, trailing dimensions unsharded.

    An entry is None, an axis name, a tuple of axis names (major to minor) or ``UNCONSTRAINED``.
    A tuple of one is that one, an empty tuple or name is None, as in JAX. ``unreduced_kind`` says
    how ``unreduced`` is to be reduced (in JAX from 0.12 on; ``sum`` before).

    Raises:
        ConversionError: an axis is used twice.
    """

    entries: tuple[SpecEntry, ...] = ()
    unreduced: frozenset[str] = frozenset()
    reduced: frozenset[str] = frozenset()
    unreduced_kind: ReductionKind = "sum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(map(_canonical_entry, self.entries)))
        object.__setattr__(self, "unreduced", frozenset(self.unreduced))
        object.__setattr__(self, "reduced", frozenset(self.reduced))
        seen: set[str] = set()
        if not self.unreduced:
            object.__setattr__(self, "unreduced_kind", "sum")
        for name in (*self.axis_names(), *sorted(self.unreduced), *sorted(self.reduced)):
            if name in seen:
                raise ConversionError(f"axis {name!r} is used twice in {self}")
            seen.add(name)

    @classmethod
    def of(cls, *entries: SpecEntry, **sets: Iterable[str]) -> PartitionSpec:
        """``PartitionSpec.of("data", None, ("x", "y"))``."""
        return cls(
            entries, frozenset(sets.get("unreduced", ())), frozenset(sets.get("reduced", ()))
        )

    def axis_names(self) -> Iterator[str]:
        """The axis names of the dimensions, in order."""
        for entry in self.entries:
            yield from entry_axes(entry)

    def __str__(self) -> str:
        parts = [repr(entry) for entry in self.entries]
        parts += [
            f"{name}={{{', '.join(map(repr, sorted(axes)))}}}"
            for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced))
            if axes
        ]
        if self.unreduced_kind != "sum":
            parts.append(f"unreduced_kind={self.unreduced_kind}")
        return f"P({', '.join(parts)})"


def _canonical_entry(entry: SpecEntry) -> SpecEntry:
    if isinstance(entry, tuple):
        return entry if len(entry) > 1 else _canonical_entry(entry[0] if entry else None)
    return entry or None


def entry_axes(entry: SpecEntry) -> tuple[str, ...]:
    """The axis names of one entry of a ``PartitionSpec``."""
    if isinstance(entry, str):
        return (entry,)
    return entry if isinstance(entry, tuple) else ()


@dataclass(frozen=True)
class NamedSharding(Displayed):
    """JAX's ``NamedSharding``: a mesh and a ``PartitionSpec`` over its axes.

    Raises:
        ConversionError: the spec names an axis that the mesh does not have.
    """

    mesh: Mesh
    spec: PartitionSpec

    def __post_init__(self) -> None:
        for name in (*self.spec.axis_names(), *sorted(self.spec.unreduced | self.spec.reduced)):
            self.mesh.axis_size(AxisRef(name))

    def __str__(self) -> str:
        return str(self.spec)
