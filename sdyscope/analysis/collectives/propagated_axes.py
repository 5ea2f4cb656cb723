"""The axes that each value of the lowered module is sharded on, alike for both partitioners."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of, part_size
from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError
from sdyscope.facts.origins import Spec
from sdyscope.facts.propagated import Propagated, PropagatedValue, ValueId
from sdyscope.graph import Op, OpGraph, Sharding
from sdyscope.graph.op_kinds import BRANCHES, TAKEN_OTHERWISE
from sdyscope.graph.rearranged_dims import operand_given_back
from sdyscope.values.convert import (
    to_hlo_sharding,
    to_named_sharding,
    to_tensor_sharding,
    unreversed,
)
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.tiling import TileAssignment

AxesByDim: TypeAlias = tuple[tuple[AxisPart, ...], ...]
"""Of each dimension the axes that it is sharded on, major to minor."""


class PropagatedAxes:
    """Shardings of the values of one propagation.

    Args:
        graph: op graph of the lowered module.
        propagated: its propagation.
        mesh: the program's mesh.
        calls: those that lead to the values that are asked about: what a function makes can be
            sharded otherwise at each of its calls. Without them it is as at the first.
    """

    def __init__(
        self, graph: OpGraph, propagated: Propagated, mesh: Mesh, calls: tuple[int, ...] = ()
    ) -> None:
        self.graph = graph
        self.propagated = propagated
        self.mesh = mesh
        self.calls = calls
        self._at: dict[tuple[int, ...], PropagatedAxes] = {calls: self}
        # By identity: values share shardings, placements and types, which are kept.
        self._forms: dict[tuple[int, int, int], tuple[TensorSharding | None, AxesByDim]] = {}
        self._by_value: dict[ValueId, tuple[TensorSharding | None, AxesByDim]] = {}

    def at(self, calls: tuple[int, ...]) -> PropagatedAxes:
        """The same, of values to which some calls lead."""
        if not self._is_copied:
            return self
        if calls not in self._at:
            axes = PropagatedAxes(self.graph, self.propagated, self.mesh, calls)
            axes._at, axes._is_copied = self._at, True
            self._at[calls] = axes
        return self._at[calls]

    @cached_property
    def _is_copied(self) -> bool:
        """Whether any value is another one at another call."""
        return any(value.counterparts for value in self.propagated.values.values())

    @cached_property
    def taking_otherwise(self) -> list[Op]:
        """The conditionals that take values into their branches sharded otherwise (GSPMD only)."""
        ops = (op for op in self.graph.operations() if op.kind in BRANCHES and op.types)
        there = ((op, self.counterpart((op.id, 0))) for op in ops)
        return [
            op
            for op, at in there
            if at is not None and TAKEN_OTHERWISE in self.propagated.graph.ops[at[0]].attributes
        ]

    def counterpart(self, value: ValueId) -> ValueId | None:
        """A value in the propagated graph, as the calls have it that lead to its function."""
        kept = self.propagated.values.get(value)
        if kept is None or kept.node is None:
            return None
        at = self._call_of(kept)
        return (kept.node, kept.result) if at is None else kept.counterparts[at]

    def _call_of(self, kept: PropagatedValue) -> int | None:
        """Which call of its function leads to a value; None where that makes no difference."""
        if not self.calls or not kept.counterparts:
            return None
        paths = self.graph.call_paths(self.graph.ops[kept.id[0]].function)
        counterparts = enumerate(zip(paths, kept.counterparts, strict=False))
        return next(
            (
                at
                for at, (path, there) in counterparts
                if there is not None and path[: len(self.calls)] == self.calls[: len(path)]
            ),
            None,
        )

    def sharding(self, value: ValueId) -> TensorSharding | None:
        """Shardy's form of what was decided; None where nothing was, or it follows no axes."""
        return self._form(value)[0]

    def is_known(self, value: ValueId) -> bool:
        """Whether it is known which axes a value is sharded on, or that it is on none."""
        sharding, axes = self._form(value)
        return sharding is not None or any(axes)

    def _form(self, value: ValueId) -> tuple[TensorSharding | None, AxesByDim]:
        """The sharding of a value, and the axes of each dimension."""
        form = self._by_value.get(value)
        if form is None:
            form = self._by_value[value] = self._read(value)
        return form

    def _read(self, value: ValueId) -> tuple[TensorSharding | None, AxesByDim]:
        decided = self.propagated.values.get(value)
        if decided is None:
            return None, ()
        at = self._call_of(decided) if decided.calls else None
        if at is None:
            return self._formed(value, decided.sharding, decided.placement)
        # Those calls at which it is gone have no placement.
        there = sum(each is not None for each in decided.counterparts[:at])
        return self._formed(value, None, decided.calls[there])

    def _formed(
        self, value: ValueId, written: Sharding | None, placement: Placement | None
    ) -> tuple[TensorSharding | None, AxesByDim]:
        types = self.graph.ops[value[0]].types
        key = (id(written), id(placement), id(types[value[1]]))
        form = self._forms.get(key)
        if form is None:
            rank, meshes = self.rank(value), self.propagated.graph.meshes
            sharding = _shardy_form(written, placement, rank, self.mesh, meshes)
            axes = axes_in(sharding, self.mesh)
            if sharding is None and placement is not None and placement.order:
                axes = _reversed_axes(placement, self.mesh)
            form = self._forms[key] = sharding, axes
        return form

    def result(self, index: int) -> TensorSharding | None:
        """Shardy's form of what a result of the program has in the end; None where nothing says."""
        results = self.graph.results()
        return self.sharding((results[index].id, 0)) if index < len(results) else None

    def axes(self, value: ValueId) -> AxesByDim:
        """The axes of each dimension; none where it is replicated, or nothing was decided."""
        return self._form(value)[1]

    def axes_at_calls(self, value: ValueId) -> tuple[AxesByDim, ...]:
        """The same at each call of its function, each once."""
        decided = self.propagated.values.get(value)
        if decided is None or not decided.calls:
            return (self.axes(value),)
        forms = (self._formed(value, None, placement) for placement in decided.calls)
        return tuple(dict.fromkeys(axes for _, axes in forms))

    def spec(self, value: ValueId) -> Spec | None:
        """The sharding as JAX writes it; None where nothing was decided."""
        return spec_in(self.sharding(value), self.rank(value), self.mesh)

    def spec_without(
        self, value: ValueId, axes: Sequence[AxisPart], pairs: Collection[tuple[int, int]] = ()
    ) -> Spec | None:
        """As ``spec``, once the value is gathered over some axes.

        Args:
            value: the value.
            axes: those over which it is gathered.
            pairs: the devices that sent their blocks to others before, as in ``spec_sent``.
        """
        sharding = self.sent(value, pairs) if pairs else self.sharding(value)
        if sharding is None:
            return None
        dims = tuple(
            replace(
                dim,
                axes=tuple(
                    left.axis(self.mesh)
                    for axis in dim.axes
                    for left in part_of(axis, self.mesh).without(axes)
                ),
            )
            for dim in sharding.dim_shardings
        )
        return spec_in(replace(sharding, dim_shardings=dims), self.rank(value), self.mesh)

    def spec_sent(self, value: ValueId, pairs: Iterable[tuple[int, int]]) -> Spec | None:
        """As ``spec``, once devices sent their blocks of the value to others, each to one."""
        return spec_in(self.sent(value, pairs), self.rank(value), self.mesh)

    def sent(self, value: ValueId, pairs: Iterable[tuple[int, int]]) -> TensorSharding | None:
        """As ``sharding``, likewise; None where it follows no axes."""
        sharding, rank, sent = self.sharding(value), self.rank(value), dict(pairs)
        if sharding is None:
            return None
        try:
            before = to_hlo_sharding(sharding, rank, self.mesh)
            tile = before.tile_assignment
            if tile is None or not sorted(sent) == sorted(sent.values()) == sorted(tile.listed()):
                return None
            devices = tuple(sent[device] for device in tile.listed())
            after = replace(before, tile_assignment=TileAssignment(tile.dims, devices))
            return to_tensor_sharding(after, rank, self.mesh)
        except ConversionError:
            return None

    def rank(self, value: ValueId) -> int:
        """How many dimensions a value has."""
        return len(self.shape(value) or ())

    def is_reshape(self, op: Op) -> bool:
        """Whether an op adds or drops dimensions of one element, which is a reshape to XLA.

        A broadcast adds them, and a reduction drops them again, as JAX sums what it broadcast.
        """
        if op.mnemonic not in ("broadcast_in_dim", "reduce") or len(op.types) != 1:
            return False
        shapes = self.shape(self.graph.operand_values[op.id][0]), self.shape((op.id, 0))
        return len({None if shape is None else math.prod(shape) for shape in shapes}) == 1

    def given_back(self, op: Op) -> ValueId | None:
        """The operand that an op has for a result, which XLA takes away; None of any other op."""
        operands = self.graph.operand_values[op.id]
        shapes = [self.shape(value) for value in operands]
        at = operand_given_back(op, [*shapes, self.shape((op.id, 0))]) if op.types else None
        return None if at is None else operands[at]

    def shape(self, value: ValueId) -> tuple[int, ...] | None:
        """Its whole shape; None where that is dynamic, or it is no tensor."""
        types = self.graph.ops[value[0]].types
        return types[value[1]].static_shape if value[1] < len(types) else None


def _reversed_axes(placement: Placement, mesh: Mesh) -> AxesByDim:
    """The axes of what is sharded in an order that a reversal left; none where that is not so."""
    try:
        return axes_in(unreversed(placement, mesh), mesh)
    except ConversionError:
        return ()


def axes_in(sharding: TensorSharding | None, mesh: Mesh) -> AxesByDim:
    """The axes of each dimension of a sharding; none without one."""
    if sharding is None:
        return ()
    return tuple(tuple(part_of(axis, mesh) for axis in dim.axes) for dim in sharding.dim_shardings)


def spec_of(
    annotation: Annotation, mesh: Mesh, meshes: Mapping[str, Mesh | str]
) -> tuple[Spec, AxesByDim]:
    """A written sharding as JAX writes it, and its axes in the program's mesh.

    Its own text, and no axes, where it follows none.

    Args:
        annotation: what is written.
        mesh: the mesh that values are sharded on.
        meshes: those of the module, by symbol: an annotation can be on another one of them.
    """
    rank = len(annotation.shape or ())
    sharding = _shardy_form(
        annotation.sharding, annotation.placement, rank, mesh, meshes, annotation.open_dims
    )
    if sharding is None:
        return annotation.text, ()
    written = annotation.sharding if isinstance(annotation.sharding, TensorSharding) else sharding
    own = _mesh_of(written, meshes) or mesh
    return spec_in(written, rank, own) or written, axes_in(sharding, mesh)


def spec_in(sharding: TensorSharding | None, rank: int, mesh: Mesh) -> Spec | None:
    """A sharding as JAX writes it, else as Shardy does; None without one."""
    if sharding is None:
        return None
    try:
        return to_named_sharding(sharding, rank, mesh).spec
    except ConversionError:
        return sharding


def spec_at(placement: Placement, rank: int, mesh: Mesh) -> Spec | None:
    """A placement as JAX writes it, else as Shardy does; None where no axes of the mesh say it."""
    try:
        return spec_in(to_tensor_sharding(placement, rank, mesh), rank, mesh)
    except ConversionError:
        return None


def _shardy_form(
    sharding: Sharding | None,
    placement: Placement | None,
    rank: int,
    mesh: Mesh,
    meshes: Mapping[str, Mesh | str],
    open_dims: tuple[int, ...] = (),
) -> TensorSharding | None:
    """In axes of ``mesh``; of a sharding on another mesh that cuts otherwise, in its own."""
    written = sharding if isinstance(sharding, TensorSharding) else None
    if written is not None and _mesh_of(written, meshes) in (None, mesh):
        return written
    if placement is None or placement.device is not None:
        return written
    try:
        return to_tensor_sharding(replace(placement, manual=()), rank, mesh, open_dims=open_dims)
    except ConversionError:
        return written


def _mesh_of(sharding: TensorSharding, meshes: Mapping[str, Mesh | str]) -> Mesh | None:
    """The mesh that a sharding names; None where it names none that was understood."""
    mesh = sharding.mesh if isinstance(sharding.mesh, Mesh) else meshes.get(sharding.mesh)
    return mesh if isinstance(mesh, Mesh) else None


def without_axes(axes: AxesByDim, others: Sequence[AxisPart]) -> AxesByDim:
    """The axes of each dimension but some."""
    return tuple(tuple(left for own in dim for left in own.without(others)) for dim in axes)


def local_shape(shape: Sequence[int], axes: AxesByDim) -> tuple[int, ...]:
    """Shape of the block that a device has, padding included."""
    cut = [part_size(dim) for dim in axes] or [1] * len(shape)
    return tuple(-(-size // blocks) for size, blocks in zip(shape, cut, strict=True))
