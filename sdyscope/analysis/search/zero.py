"""What a train step keeps of its parameters, and what it would hold and send by each ZeRO stage.

A step that trains keeps parameters, a gradient of each, and what its optimizer remembers of each:
with Adam in float32 4 + 4 + 8 = 16 bytes a parameter. Data parallelism has all of that on every
device. ZeRO (Rajbhandari et al., 2019, arXiv 1910.02054) shards it over the devices that the batch
is on: stage 1 the optimizer's state, stage 2 gradients as well, stage 3 parameters as well, which
is fully sharded data parallelism. What a step keeps besides, such as averages of the parameters, no
pass uses either, and is sharded with the optimizer's state.

The stages are tried on the program itself: its arguments, and the results that are their next
values, get the shardings of a stage, Shardy propagates them, and XLA's partitioner says what is
sent then. Other mesh axes stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.naming.data_axes import is_data_axis
from sdyscope.analysis.naming.next_values import next_values_of_rows
from sdyscope.analysis.naming.paths import Leaf, kept_for
from sdyscope.analysis.naming.roles import Role, pass_rows, roles, without_averages
from sdyscope.analysis.search.decisions import member
from sdyscope.analysis.search.space import Option, as_option, block_bytes, kept, spec_of
from sdyscope.analysis.trials.trials import Trials, Written
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.facts.tensors import Tensor
from sdyscope.facts.traffic import Traffic
from sdyscope.facts.zero import KeptKind, KeptState, TrainingState, ZeroStage, ZeroStageName
from sdyscope.hardware.names import LARGEST_CPU
from sdyscope.mesh_config.mesh_shape import unknown_axis
from sdyscope.staged import Staged
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec, entry_axes

#: Which of the three each stage shards over the batch's axes.
_SHARDED: Mapping[ZeroStageName, frozenset[KeptKind]] = {
    "data parallel": frozenset(),
    "ZeRO-1": frozenset({"optimizer state", "state"}),
    "ZeRO-2": frozenset({"optimizer state", "state", "gradients"}),
    "ZeRO-3": frozenset({"optimizer state", "state", "gradients", "parameters"}),
}


#: What arguments are called whose next values are returned.
_KIND: Mapping[Role, KeptKind] = {
    "parameters": "parameters",
    "optimizer state": "optimizer state",
    "state": "state",
}


@dataclass(frozen=True)
class _Array:
    """An array that goes from one step to the next, with the results that are its next values."""

    row: Tensor
    spec: PartitionSpec
    kind: KeptKind
    results: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.row.shape or ()

    @property
    def bytes(self) -> int:
        return num_bytes(math.prod(self.shape), self.row.dtype)

    @property
    def option(self) -> Option:
        return as_option(self.spec, len(self.shape)) or ((),) * len(self.shape)


def training_state(program: Staged, axes: Sequence[str] = ()) -> TrainingState:
    """What a program keeps from step to step; see ``Inspection.training_state``.

    Args:
        program: a train step, lowered for Shardy.
        axes: the mesh axes that the stages shard over; by default those that the batch is on.

    Raises:
        CompilerError: the program can't be propagated.
        TargetError: it is no train step, or has no mesh or no such axis.
    """
    program.for_shardy()
    partitioner: Partitioner = "shardy"
    mesh = program.only_mesh(partitioner)
    if mesh is None:
        raise TargetError(f"{program.name} is not on one mesh whose axes could be named.")
    arrays, others, owners = _carried(program, partitioner, mesh)
    over = _over(axes, others, mesh, partitioner)
    sizes = mesh.shape
    now = {array.row.name: array.option for array in arrays}
    parameters = [array for array in arrays if array.kind == "parameters"]
    kept_parts = tuple(
        KeptState(
            kind,
            len(parameters) if kind == "gradients" else sum(a.kind == kind for a in arrays),
            sum(array.bytes for array in arrays if array.kind == _like(kind)),
            _bytes_of(kind, arrays, now, owners, sizes),
        )
        for kind in _kinds(arrays)
    )
    devices = math.prod(sizes[axis] for axis in over)
    state = TrainingState(
        sum(math.prod(array.shape) for array in parameters),
        kept_parts,
        over,
        devices,
        partitioned=False,
        constraints=sum(each.kind == "constraint" for each in program.annotations("shardy")),
    )
    if not over:
        return state
    sender = _Sender(program)
    stages = [sender.stage("as it is", arrays, now, now, owners)]
    for name, sharded in _SHARDED.items():
        options = {
            array.row.name: _with(array, over, sizes, array.kind in sharded) for array in arrays
        }
        stages.append(sender.stage(name, arrays, options, now, owners, sharded))
    return replace(state, partitioned=sender.partitions, stages=tuple(stages))


def basis(state: TrainingState) -> Iterator[Remark]:
    """What the figures of the stages rest on."""
    yield Remark("gradients")
    if any(kept_part.kind == "state" for kept_part in state.kept):
        yield Remark("state beside")
    if state.stages:
        yield Remark("stages partitioned" if state.partitioned else "stages predicted")
        yield Remark("gradients are temporaries")
        if state.constraints:
            yield Remark("constraints stay", count=state.constraints)


def doubts(state: TrainingState) -> Iterator[Remark]:
    """What is not known of them."""
    if not state.axes:
        yield Remark("no data axes")
    for why in dict.fromkeys(stage.why for stage in state.stages if stage.why):
        yield Remark("stage unknown", why)


def _kinds(arrays: Iterable[_Array]) -> tuple[KeptKind, ...]:
    """The kinds of what is kept, in order; other state only where there is some."""
    beside: tuple[KeptKind, ...] = ("state",) if any(a.kind == "state" for a in arrays) else ()
    return ("parameters", "gradients", "optimizer state", *beside)


def _like(kind: KeptKind) -> KeptKind:
    """Gradients are as large as the parameters."""
    return "parameters" if kind == "gradients" else kind


def _carried(
    program: Staged, partitioner: Partitioner, mesh: Mesh
) -> tuple[list[_Array], list[Tensor], dict[str, str]]:
    """Arrays that go from step to step, the other arguments, and by parameter what is kept of it.

    Of each parameter it is the last array of optimizer state, where there is one.
    """
    arguments = program.tensors.of("argument", partitioner)
    results = program.tensors.of("result", partitioner)
    leaves = [Leaf.of(row) for row in arguments]
    graph = program.graph(partitioner)
    following: dict[int, list[Tensor]] = {}
    for result, value in next_values_of_rows(results, arguments, partitioner, graph).items():
        if value.relation != "gradient":
            following.setdefault(value.argument, []).append(results[result])
    if not following:
        raise TargetError(
            f"{program.name} is no train step: no result is recognizably the next value of an "
            "argument.",
            hint="It takes and returns params and opt_state, in the same structure.",
        )
    carried = [number for number in sorted(following) if arguments[number].shape]
    in_passes = pass_rows(graph, arguments, partitioner)
    index_of = [row.lowered[partitioner].index or 0 for row in arguments]
    role_of = without_averages(
        dict(zip(index_of, roles(leaves, following, in_passes, differentiated=True), strict=True)),
        [
            (index_of[number], row.lowered[partitioner].index or 0)
            for number, rows in following.items()
            for row in rows
        ],
        graph,
    )
    arrays = []
    for number in carried:
        spec = member(arguments[number], partitioner, mesh, "searched").spec
        rank = len(arguments[number].shape or ())
        plain = spec is not None and as_option(spec, rank) is not None
        arrays.append(
            _Array(
                arguments[number],
                spec if plain and spec is not None else PartitionSpec(),
                _KIND[role_of[index_of[number]]],
                tuple(following[number]),
            )
        )
    others = [row for number, row in enumerate(arguments) if number not in following]
    owners = {
        arguments[parameter].name: arguments[number].name
        for number, parameter in kept_for(leaves, in_passes, carried).items()
        if role_of[index_of[number]] == "optimizer state"
    }
    return arrays, others, owners


def _over(
    axes: Sequence[str], others: Iterable[Tensor], mesh: Mesh, partitioner: Partitioner
) -> tuple[str, ...]:
    """The axes that were named, or those that the batch is on."""
    for axis in axes:
        if axis not in mesh.shape:
            raise unknown_axis(axis, tuple(mesh.shape))
    if axes:
        return tuple(axis for axis in mesh.shape if axis in axes)
    used: set[str] = set()
    for row in others:
        spec = member(row, partitioner, mesh, "searched").spec if row.shape else None
        if spec is not None and spec.entries:
            used.update(axis for entry in spec.entries for axis in entry_axes(entry))
    on = [axis for axis, size in mesh.shape.items() if axis in used and size > 1]
    named = [axis for axis in on if is_data_axis(axis)]
    return tuple(named or on)


def _with(array: _Array, over: Sequence[str], sizes: Mapping[str, int], sharded: bool) -> Option:
    """An array's axes without those of the batch, or with all of them that divide a dimension."""
    parts = [part or () for part in kept(array.option, over)]
    if not sharded:
        return tuple(parts)
    before = [tuple(axis for axis in part or () if axis in over) for part in array.option]
    for axis in over:
        blocks = [
            size // math.prod(sizes[name] for name in part)
            if size % math.prod(sizes[name] for name in part) == 0
            else 0
            for size, part in zip(array.row.divisible, parts, strict=True)
        ]
        fitting = [dim for dim, block in enumerate(blocks) if block and block % sizes[axis] == 0]
        if fitting:
            # Where the program has it, before a dimension that is whole yet; then the largest.
            best = max(fitting, key=lambda dim: (axis in before[dim], not parts[dim], blocks[dim]))
            parts[best] = (*parts[best], axis)
    return tuple(parts)


def _bytes_of(
    kind: KeptKind,
    arrays: Sequence[_Array],
    options: Mapping[str, Option],
    owners: Mapping[str, str],
    sizes: Mapping[str, int],
) -> int:
    """Bytes that a device holds of a kind, with these axes."""
    total = 0
    for array in arrays:
        if array.kind == _like(kind):
            option = options[array.row.name]
            if kind == "gradients":
                option = options[owners.get(array.row.name, array.row.name)]
            total += block_bytes(array.shape, array.row.dtype, option, sizes)
    return total


class _Sender:
    """Asks what a device sends in a step with other shardings."""

    def __init__(self, program: Staged) -> None:
        self._trials = Trials(program)
        self._mesh = self._trials.mesh
        #: Whether XLA's partitioner is asked, which takes so many devices.
        self.partitions = self._trials.devices <= LARGEST_CPU
        self._known: dict[tuple[object, ...], tuple[tuple[Traffic, ...] | None, str]] = {}

    def stage(
        self,
        name: ZeroStageName,
        arrays: Sequence[_Array],
        options: Mapping[str, Option],
        now: Mapping[str, Option],
        owners: Mapping[str, str],
        sharded: frozenset[KeptKind] | None = None,
    ) -> ZeroStage:
        """A stage with these axes of each array; ``now`` are the program's own."""
        written: list[Written] = []
        for array in arrays:
            option = options[array.row.name]
            if name == "as it is" or option == now[array.row.name]:
                continue
            for row in (array.row, *array.results):
                part = member(row, "shardy", self._mesh, "searched")
                written.append((part.kind, part.number, spec_of(option)))
        sizes = self._mesh.shape
        kept: dict[KeptKind, int] = {
            kind: _bytes_of(kind, arrays, options, owners, sizes) for kind in _kinds(arrays)
        }
        if sharded is not None and "gradients" not in sharded:
            whole = {array.row.name: options[array.row.name] for array in arrays}
            kept["gradients"] = _bytes_of("gradients", arrays, whole, {}, sizes)
        sent, why = self._sent(written)
        return ZeroStage(name, kept, sent, why)

    def _sent(self, written: Sequence[Written]) -> tuple[tuple[Traffic, ...] | None, str]:
        key = tuple(written)
        if key not in self._known:
            changes = self._trials.changes(written)
            try:
                if self.partitions:
                    sent = self._trials.partition(changes)
                else:
                    sent = self._trials.predict(changes).traffic
                self._known[key] = sent, ""
            except (CompilerError, TargetError) as error:
                self._known[key] = None, error.message
        return self._known[key]
