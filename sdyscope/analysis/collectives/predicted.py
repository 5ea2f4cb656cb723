"""The collectives of a program as Shardy's reshards predict them, without compiling.

What XLA sends is decided by its own partitioner, which sees the same shardings. So kinds, axes and
bytes are mostly the same, and differ where XLA knows another way: see ``docs/comms.md``, which has
the figures of ``benchmarks/predictions.py``. Everything made here is labelled as predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.analysis.collectives.axes import axes_of_groups, axes_of_pairs
from sdyscope.analysis.collectives.bytes import wire_bytes
from sdyscope.analysis.collectives.on_cpu import shape_on_cpu
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.scopes import is_differentiated, phase_of, scope_of
from sdyscope.errors import SdyscopeError
from sdyscope.facts.remarks import Remark, RemarkKind
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.formatters import Summarized
from sdyscope.graph import OpGraph
from sdyscope.graph.custom_calls import RAGGED_ALL_TO_ALL
from sdyscope.hlo import Shape, UnreadLine
from sdyscope.stages.compiled.explicit_collectives import ControlFlow, MovedProducts
from sdyscope.values.dtypes import hlo_dtype
from sdyscope.values.explicit_collectives import AllToAllParamList, AxisRefList, ListOfAxisRefLists
from sdyscope.values.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.values.replica_groups import CollectiveDeviceList
from sdyscope.values.sharding import TensorSharding

if TYPE_CHECKING:
    from sdyscope.stages.compiled.explicit_collectives import (
        ExplicitCollective,
        ExplicitCollectives,
        Value,
    )
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit

_KINDS: dict[str, CollectiveKind] = {
    "sdy.all_gather": "all-gather",
    "sdy.all_reduce": "all-reduce",
    "sdy.all_to_all": "all-to-all",
    "sdy.collective_permute": "collective-permute",
    "sdy.reduce_scatter": "reduce-scatter",
    "stablehlo.all_gather": "all-gather",
    "stablehlo.all_reduce": "all-reduce",
    "stablehlo.all_to_all": "all-to-all",
    "stablehlo.collective_broadcast": "collective-broadcast",
    "stablehlo.collective_permute": "collective-permute",
    "stablehlo.recv": "recv",
    "stablehlo.reduce_scatter": "reduce-scatter",
    "stablehlo.send": "send",
    RAGGED_ALL_TO_ALL: "ragged-all-to-all",
}

#: How many collectives of other predictions are remembered.
_REMEMBERED = 1 << 15

#: What every device has already: nothing is sent.
_FREE = "sdy.all_slice"


@dataclass(frozen=True, slots=True, repr=False)
class PredictedCollectives(Summarized):
    """What a program would send and hold.

    Attributes:
        collectives: its collectives, ``predicted``; slices, which send nothing, are left out. Their
            notes say what is not certain.
        argument_bytes: bytes on one device of all arguments, as they are sharded after
            propagation.
        result_bytes: of all results.
        flops: floating-point operations of a device in matmuls, of every branch and of one trip of
            a loop of unknown trip count.
        control_flow: how many of these there are.
    """

    collectives: Collectives
    argument_bytes: int
    result_bytes: int
    flops: int = 0
    control_flow: ControlFlow = field(default_factory=ControlFlow)


_Known: TypeAlias = dict[
    tuple[int, int, int, bool], tuple["ExplicitCollective", Mesh | None, tuple[Collective, ...]]
]


class Predictor:
    """Predicts the collectives of a program, also if its tensors were annotated otherwise.

    Args:
        lowered: the module, lowered under Shardy or read from a file with Shardy's shardings.
        graph: its op graph.

    Raises:
        CompilerError: the module is not for Shardy.
    """

    def __init__(self, lowered: LoweredModule, graph: OpGraph) -> None:
        from sdyscope.stages.compiled.reshards import Resharder

        self._resharder = Resharder(lowered, graph)
        self._differentiated = is_differentiated(op.scope for op in graph.ops)
        self._num_devices = lowered.num_devices
        self._blocks: dict[int, tuple[Value, Shape, int]] = {}
        self._known: _Known = {}

    def predict(
        self, changes: Sequence[ModuleEdit] = (), *, on_cpu: bool = False
    ) -> PredictedCollectives:
        """What the program would send and hold with these changes.

        Args:
            changes: what to write instead on arguments, results and constraints. Those of arguments
                and results take no import of the program, only Shardy's passes.
            on_cpu: whether as XLA has it on CPUs, where a reduce-scatter is an all-reduce, there is
                one for each reduced dimension, and bf16 is sent as f32. Otherwise as on TPUs and
                GPUs, where one all-reduce does for a sum of several.

        Raises:
            CompilerError: a pass of Shardy failed; with the compiler's message.
            TargetError: a change that the module can't carry; says which and why.
        """
        explicit = self._resharder.collectives(changes)
        mesh = _main_mesh(explicit)
        devices = self._num_devices or (1 if mesh is None else mesh.size)
        reader = _Reader(explicit.meshes, mesh, self._differentiated, on_cpu, self._blocks)
        read = [
            self._read(reader, number, collective)
            for number, collective in enumerate(explicit.collectives)
        ]
        unread = (*explicit.not_understood, *reader.not_understood)
        collectives = Collectives(
            tuple(collective for each in read for collective in each),
            devices,
            mesh,
            self._differentiated,
            not_understood=tuple(UnreadLine.of(0, text) for text in unread),
            not_understood_count=len(unread),
            predicted=True,
            partitioner="shardy",
            notes=(
                *self._resharder.doubts,
                *_counted("no rule", explicit.without_rule),
                *_counted("unknown calls", explicit.unknown_calls),
                *_counted("between blocks", explicit.between_blocks),
                *_moved_products("products moved", explicit.moved_products),
                *_moved_products("products summed", explicit.summed_products),
                *reader.notes(),
            ),
        )
        return PredictedCollectives(
            collectives,
            reader.bytes(explicit.arguments),
            reader.bytes(explicit.results),
            explicit.flops,
            explicit.control_flow,
        )

    def _read(
        self, reader: _Reader, number: int, collective: ExplicitCollective
    ) -> tuple[Collective, ...]:
        """The collectives of one op; what was read before and understood is not read again."""
        key = (id(collective), number, id(reader.main), reader.on_cpu)
        known = self._known.get(key)
        if known is not None:
            return known[-1]
        problems = reader.problems
        read = reader.collectives(number, collective)
        if reader.problems == problems:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            # With what the `id`s are of, so that nothing else can have them.
            self._known[key] = collective, reader.main, read
        return read


def _main_mesh(collectives: ExplicitCollectives) -> Mesh | None:
    """The mesh that most tensors are sharded on; None where there is none with axes."""
    named = {name: mesh for name, mesh in collectives.meshes.items() if mesh.axes}
    values = [value for collective in collectives.collectives for value in collective.results]
    used: dict[str, int] = dict.fromkeys(named, 0)
    for value in (*collectives.arguments, *values):
        name = None if value.sharding is None else value.sharding.mesh
        if isinstance(name, str) and name in used:
            used[name] += 1
    best = max(used, key=lambda name: used[name], default=None)
    return None if best is None else named[best]


def _counted(kind: RemarkKind, counts: Mapping[str, int]) -> tuple[Remark, ...]:
    return (Remark(kind, names=tuple(sorted(counts.items()))),) if counts else ()


def _moved_products(kind: RemarkKind, products: MovedProducts) -> tuple[Remark, ...]:
    return (Remark(kind, count=products.count, of=products.bytes),) if products.count else ()


class _Reader:
    """Turns Shardy's collectives into those of a device's program."""

    def __init__(
        self,
        meshes: Mapping[str, Mesh],
        main: Mesh | None,
        differentiated: bool,
        on_cpu: bool,
        blocks: dict[int, tuple[Value, Shape, int]],
    ) -> None:
        self.meshes = meshes
        self.on_cpu = on_cpu
        self.main = main
        self.differentiated = differentiated
        self.not_understood: list[str] = []
        #: By the `id` of a value, which is read once: the value, its block, and the bytes of that.
        self._blocks = blocks
        self._unsized: set[str] = set()

    @property
    def problems(self) -> int:
        """How many things could not be read so far."""
        return len(self.not_understood) + len(self._unsized)

    def notes(self) -> tuple[Remark, ...]:
        return _counted("no bytes", dict.fromkeys(self._unsized, 0))

    def bytes(self, values: Sequence[Value]) -> int:
        """Bytes of several values on one device."""
        return sum(self._known(value)[2] for value in values)

    def local(self, value: Value) -> Shape:
        """Shape of the block of a value that a device holds."""
        return self._known(value)[1]

    def _known(self, value: Value) -> tuple[Value, Shape, int]:
        known = self._blocks.get(id(value))
        if known is None:
            shape = self._block(value)
            known = self._blocks[id(value)] = value, shape, shape.bytes
        return known

    def _block(self, value: Value) -> Shape:
        shape, sharding = value.type.shape, value.sharding
        if shape is None or None in shape:
            self._unsized.add(str(value.type))
            return Shape("token")
        sizes = [size or 0 for size in shape]
        if sharding is not None and sharding.dim_shardings:
            mesh = self.mesh_of(sharding)
            for at, dim in enumerate(sharding.dim_shardings):
                sizes[at] = -(-sizes[at] // math.prod(map(mesh.axis_size, dim.axes)))
        return Shape(hlo_dtype(value.type.dtype), tuple(sizes))

    def mesh_of(self, sharding: TensorSharding | None) -> Mesh:
        mesh = None if sharding is None else sharding.mesh
        if isinstance(mesh, str):
            mesh = self.meshes.get(mesh)
        mesh = mesh or self.main
        if mesh is None:
            raise SdyscopeError("its mesh is not in the module")
        return mesh

    def collectives(self, number: int, collective: ExplicitCollective) -> tuple[Collective, ...]:
        """The collectives of one op; none of what sends nothing or can't be understood."""
        if collective.op == _FREE or (collective.summed and not self.on_cpu):
            return ()
        name = f"{collective.op.rpartition('.')[2]}.{number}"
        kind = _KINDS[collective.op]
        if self.on_cpu and collective.op == "sdy.reduce_scatter":
            kind = "all-reduce"
        try:
            if self.on_cpu and collective.dimensions:
                mesh = self.mesh_of(collective.results[0].sharding)
                each = [_in_order(axes, mesh) for axes in collective.dimensions]
                return tuple(self._over(name, kind, collective, axes, mesh) for axes in each)
            if collective.taken is not None and (
                scattered := self._scattered(number, collective, collective.taken)
            ):
                return scattered
            if collective.groups is None:
                mesh = self.mesh_of(collective.results[0].sharding)
                return (self._over(name, kind, collective, _axes(collective, mesh), mesh),)
            axes, size = _axes_of_written(collective, self.mesh_of(None))
            return (self._collective(name, kind, collective, axes, size),)
        except SdyscopeError as error:
            self.not_understood.append(
                f"{collective.op} in {collective.location.scope}: {error.message}."
            )
            return ()

    def _scattered(
        self, number: int, collective: ExplicitCollective, taken: ExplicitCollective
    ) -> tuple[Collective, ...]:
        """An all-reduce of which a device takes a slice over some of its axes, as XLA makes it.

        That is a reduce-scatter over these axes, and an all-reduce of the slice over the others: so
        are gradients of weights that are sharded over some of the axes that the batch is on.
        Nothing where the slice is not over some of the axes alone.
        """
        mesh = self.mesh_of(collective.results[0].sharding)
        every, own = _axes(collective, mesh), _axes(taken, mesh)
        rest = tuple(axis for axis in every if axis not in own)
        if not rest or not own or len(rest) + len(own) != len(every):
            return ()
        kind: CollectiveKind = "all-reduce" if self.on_cpu else "reduce-scatter"
        of_slice = replace(collective, results=taken.results)
        return (
            self._over(f"reduce_scatter.{number}", kind, collective, own, mesh),
            self._over(f"all_reduce.{number}", "all-reduce", of_slice, rest, mesh),
        )

    def _over(
        self,
        name: str,
        kind: CollectiveKind,
        collective: ExplicitCollective,
        axes: tuple[AxisRef, ...],
        mesh: Mesh,
    ) -> Collective:
        size = math.prod(map(mesh.axis_size, axes))
        return self._collective(name, kind, collective, axes, size)

    def _collective(
        self,
        name: str,
        kind: CollectiveKind,
        collective: ExplicitCollective,
        axes: tuple[AxisRef, ...] | None,
        size: int,
    ) -> Collective:
        values = collective.results
        if kind in ("send", "recv"):
            values = (*collective.operands, *collective.results)
        elif kind == "ragged-all-to-all":
            values = collective.operands[:1]  # behind it the room for the result, offsets and sizes
        parts = [
            self.part(kind, value, collective, size)
            for value in values
            if value.type.shape is not None
        ]
        return Collective(
            name=name,
            kind=kind,
            axes=axes,
            group_size=size,
            count=collective.times,
            unknown_trips=collective.unknown_trips,
            conditional=collective.conditional,
            asynchronous=collective.asynchronous,
            channel_id=None,
            groups=collective.written,
            parts=tuple(parts),
            line=0,
        )

    def before_scatter(self, collective: ExplicitCollective, result: Value) -> Shape:
        """What a device has before a reduce-scatter, from what it has after it."""
        after, sharding = self.local(result), result.sharding
        sizes = list(after.dimensions)
        whole = [size or 0 for size in result.type.shape or ()]
        if isinstance(collective.axes, ListOfAxisRefLists):
            mesh = self.mesh_of(sharding)
            for at, scattered in enumerate(collective.axes.lists):
                by = math.prod(map(mesh.axis_size, scattered.axes))
                of = () if sharding is None else sharding.dim_shardings[at].axes
                left = math.prod(map(mesh.axis_size, of)) // by
                sizes[at] = -(-whole[at] // left)
        else:
            before = collective.operands[collective.results.index(result)].type.shape or ()
            for at, (size, own) in enumerate(zip(before, whole, strict=True)):
                sizes[at] *= (size or 1) // (own or 1)
        return Shape(after.dtype, tuple(sizes))

    def part(
        self, kind: CollectiveKind, value: Value, collective: ExplicitCollective, size: int
    ) -> Part:
        """One tensor: what a device has after an all-gather, and before anything else."""
        shape = self.local(value)
        if collective.op.endswith("reduce_scatter"):
            shape = self.before_scatter(collective, value)
        if self.on_cpu:
            shape = shape_on_cpu(shape)
        own = self._known(value)
        count = own[2] if shape is own[1] else shape.bytes
        sent, received = wire_bytes(kind, count, size)
        op_name = collective.location.scope
        scope, primitive = scope_of(op_name)
        return Part(
            shape=shape,
            bytes=count,
            sent=sent,
            received=received,
            scope=scope,
            primitive=primitive,
            phase=phase_of(op_name, self.differentiated),
            source=collective.location.source,
            callers=collective.location.callers,
        )


def _axes(collective: ExplicitCollective, mesh: Mesh) -> tuple[AxisRef, ...]:
    """The axes of one of Shardy's collectives, in the order of the mesh."""
    written = collective.axes
    if isinstance(written, AxisRefList):
        return _in_order(written.axes, mesh)
    if isinstance(written, ListOfAxisRefLists):
        return _in_order([axis for each in written.lists for axis in each.axes], mesh)
    if isinstance(written, AllToAllParamList):
        return _in_order([axis for param in written.params for axis in param.axes], mesh)
    return _in_order(
        _moved(collective.operands[0].sharding, collective.results[0].sharding, mesh), mesh
    )


def _moved(
    before: TensorSharding | None, after: TensorSharding | None, mesh: Mesh
) -> list[AxisRef]:
    """The axes that say of another digit of a block's number after a permutation than before."""
    digits = _digits(before, mesh) ^ _digits(after, mesh)
    return list({axis: None for _, _, axis in sorted(digits, key=str)})


def _digits(sharding: TensorSharding | None, mesh: Mesh) -> set[tuple[int, int, AxisRef]]:
    """(dimension, stride in its blocks, axis) of each axis of a sharding."""
    digits = set()
    for number, dim in enumerate(() if sharding is None else sharding.dim_shardings):
        stride = 1
        for axis in reversed(dim.axes):
            digits.add((number, stride, axis))
            stride *= mesh.axis_size(axis)
    return digits


def _in_order(axes: Sequence[AxisRef], mesh: Mesh) -> tuple[AxisRef, ...]:
    """Axes in the order of the mesh, each once; parts that follow one another are one."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for axis in axes:
        info = axis.sub_axis_info
        start = 1 if info is None else info.pre_size
        spans.setdefault(axis.name, []).append((start, start * mesh.axis_size(axis)))
    ordered: list[AxisRef] = []
    for whole in mesh.axes:
        merged: list[tuple[int, int]] = []
        for start, end in sorted(set(spans.get(whole.name, ()))):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        for start, end in merged:
            part = None if end // start == whole.size else SubAxisInfo(start, end // start)
            ordered.append(AxisRef(whole.name, part))
    return tuple(ordered)


def _axes_of_written(
    collective: ExplicitCollective, mesh: Mesh
) -> tuple[tuple[AxisRef, ...] | None, int]:
    """The axes of the groups or pairs that a program wrote itself, and how many work together."""
    groups = collective.groups or ()
    if collective.pairs:
        axes = axes_of_pairs([(pair[0], pair[1]) for pair in groups], mesh)
        moving = 2 if any(pair[0] != pair[1] for pair in groups) else 1
        return axes, moving if axes is None else math.prod(map(mesh.axis_size, axes))
    listed = CollectiveDeviceList(groups)
    size = listed.group_size or max(map(len, groups), default=mesh.size)
    return axes_of_groups(listed, mesh), size
