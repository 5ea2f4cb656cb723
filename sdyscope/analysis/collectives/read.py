"""Every collective that one step executes, read from the compiled program.

How often, over which mesh axes, with how many bytes, from which line. Nothing is counted twice: a
``-start`` and its ``-done`` are one, a fusion that goes on with a collective that another one began
is none, and a computation counts as often as it runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.axes import axes_of_groups, axes_of_pairs
from sdyscope.analysis.collectives.bytes import wire_bytes_by_tensor
from sdyscope.analysis.collectives.instruction_flow import ValuePlace
from sdyscope.analysis.collectives.made_for import MadeFor, SentTensor, Tags
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.naming.scopes import is_differentiated, phase_of, scope_of
from sdyscope.errors import SdyscopeError
from sdyscope.facts.traffic import KINDS, CollectiveKind, Tally
from sdyscope.hlo import (
    Computation,
    ExecutionCount,
    HloModule,
    Instruction,
    Shape,
    UnreadLine,
    call_sites,
    executions,
)
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.replica_groups import CollectiveDeviceList, ReplicaGroups

__all__ = ["Collective", "Collectives", "Part", "Tags", "Tally", "collectives"]

_START = "-start"
_DONE = re.compile(r"-(done|update)$")
_SYNCHRONOUS = '"is_sync":true'
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")

#: Kinds whose tuple is one tensor in pieces, not several tensors.
_IN_PIECES = ("all-to-all", "ragged-all-to-all")

#: Kinds with ``use_global_device_ids``; without it they take whole replicas.
_GLOBAL_IDS = ("all-gather", "all-reduce", "reduce-scatter")


def collectives(
    module: HloModule, meshes: Iterable[Mesh] = (), tags: Mapping[str, Tags] | None = None
) -> Collectives:
    """Every collective that one run of a module executes.

    Args:
        module: the program of one device.
        meshes: meshes of the program. Of those with as many devices as the module is for, the axes
            of the first are named in which most groups are axes, and fewest are parts of one.
        tags: by instruction, the ops of the lowered module that it was made from
            (``Compiled.tags``).

    Raises:
        SdyscopeError: the text is cut off or a computation calls itself.
    """
    reader = _Reader(module, tags or {})
    collectives, unread = reader.all()
    total = module.num_partitions * module.replica_count
    best = Collectives(collectives, total, None, reader.differentiated)
    least: tuple[int, int] | None = None
    for mesh in meshes:
        if mesh.size != total or mesh.is_maximal:
            continue
        placed = tuple(_placed(collective, reader, mesh) for collective in collectives)
        left = sum(collective.axes is None for collective in placed)
        cut = sum(
            axis.sub_axis_info is not None
            for collective in placed
            for axis in collective.axes or ()
        )
        if least is None or (left, cut) < least:
            least, best = (left, cut), replace(best, collectives=placed, mesh=mesh)
    return replace(
        best,
        not_understood=(*module.not_understood, *unread),
        not_understood_count=module.not_understood_count + len(unread),
    )


def _placed(collective: Collective, reader: _Reader, mesh: Mesh) -> Collective:
    """A collective with the axes of a mesh that it runs over."""
    pairs = reader.pairs.get(collective.name)
    if pairs is not None:
        axes = axes_of_pairs(pairs, mesh)
        size = None if axes is None else _along(axes, mesh)
        return replace(collective, axes=axes, group_size=size)
    groups = reader.groups.get(collective.name)
    return collective if groups is None else replace(collective, axes=axes_of_groups(groups, mesh))


def _along(axes: Sequence[AxisRef], mesh: Mesh) -> int:
    size = 1
    for axis in axes:
        size *= mesh.axis_size(axis)
    return size


class _Reader:
    """Finds the collectives of one module.

    Attributes:
        groups: replica groups by instruction, in global device numbers.
        pairs: source-target pairs by instruction.
        differentiated: whether the program has a backward pass.
        before: by all-gather and number of its tensor the one that gathered it before.
    """

    def __init__(self, module: HloModule, tags: Mapping[str, Tags]) -> None:
        self.module = module
        self.devices = module.num_partitions * module.replica_count
        self.groups: dict[str, ReplicaGroups] = {}
        self.pairs: dict[str, tuple[tuple[int, int], ...]] = {}
        self.differentiated = is_differentiated(
            instruction.rest for instruction in module.instructions()
        )
        self.sites = call_sites(module)
        self.made_for = MadeFor(module, self.sites, tags)
        self.before: dict[tuple[str, int], str] = {}
        self.fused_by: dict[str, Instruction] = {}
        for sites in self.sites.values():
            for instruction, called in sites:
                if instruction.opcode in ("fusion", "fusion-start", "async-start", "call-start"):
                    self.fused_by.setdefault(called, instruction)

    def all(self) -> tuple[tuple[Collective, ...], list[UnreadLine]]:
        """The collectives without axes, and what should be one and can't be read."""
        collectives: list[Collective] = []
        unread: list[UnreadLine] = []
        continued: dict[tuple[str, int], int] = {}
        for name, execution in executions(self.module).items():
            computation = self.module.computations[name]
            for instruction in computation.instructions.values():
                kind = _kind(instruction.opcode)
                if kind is None or execution.times == 0:
                    continue
                try:
                    collective = self.collective(computation, instruction, kind, execution)
                except SdyscopeError as error:
                    text = f"%{instruction.name}: {error.message}"
                    unread.append(UnreadLine.of(instruction.line, text))
                    continue
                if execution.fused and collective.channel_id is not None:
                    # TPU: one collective goes on in fusion after fusion, on the same channel.
                    known = continued.setdefault((kind, collective.channel_id), len(collectives))
                    if known < len(collectives):
                        again = max(collectives[known].count, collective.count)
                        collectives[known] = replace(
                            collectives[known], count=again, asynchronous=True
                        )
                        continue
                collectives.append(collective)
        collectives.sort(key=lambda collective: collective.line)
        return tuple(self.in_rows(collectives)), unread

    def in_rows(self, collectives: Sequence[Collective]) -> Iterator[Collective]:
        """The collectives; of a tensor that several all-gather, one after the other, each has all.

        Those that are for one op, as the tags say: what is gathered for another goes on besides.
        """
        numbers = {
            (collective.name, part.tags): number
            for collective in collectives
            for number, part in enumerate(collective.parts)
            if collective.kind == "all-gather" and part.tags
        }
        too: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        for (name, tags), number in numbers.items():
            row = [name]
            before = self.before[name, number]
            while (before, tags) in numbers and before not in row:
                row.append(before)
                before = self.before[before, numbers[before, tags]]
            for each in row:
                others = (other for other in row if other != each)
                too[each, numbers[each, tags]].update(dict.fromkeys(others))
        for collective in collectives:
            parts = (
                replace(part, gathered_too=tuple(too.get((collective.name, number), ())))
                for number, part in enumerate(collective.parts)
            )
            yield replace(collective, parts=tuple(parts))

    def collective(
        self,
        computation: Computation,
        instruction: Instruction,
        kind: CollectiveKind,
        execution: ExecutionCount,
    ) -> Collective:
        attributes = instruction.attributes
        if kind == "all-reduce" and execution.fused and _is_sliced(computation, instruction):
            kind = "reduce-scatter"
        pairs_text = attributes.get("source_target_pairs")
        groups: ReplicaGroups | None = None
        if pairs_text is not None:
            pairs = tuple((int(a), int(b)) for a, b in _PAIR.findall(pairs_text))
            self.pairs[instruction.name] = pairs
            size: int | None = None
            moving = 2 if any(source != target for source, target in pairs) else 1
        elif kind in ("send", "recv"):
            size, moving = None, 2
        else:
            groups = self.global_groups(instruction, kind, attributes)
            self.groups[instruction.name] = groups
            size = groups.group_size
            moving = size or max((len(group) for group in groups.groups(self.devices)), default=1)
            if size is None and isinstance(groups, CollectiveDeviceList) and not str(groups)[1:-1]:
                size = self.devices
        return Collective(
            name=instruction.name,
            kind=kind,
            axes=None,
            group_size=size,
            count=execution.times,
            unknown_trips=execution.unknown_trips,
            conditional=execution.conditional,
            asynchronous=self.is_asynchronous(computation, instruction, execution),
            channel_id=instruction.channel_id,
            groups=pairs_text or attributes.get("replica_groups", ""),
            parts=self.parts(computation, instruction, kind, moving),
            line=instruction.line,
            devices=groups,
        )

    def is_asynchronous(
        self, computation: Computation, instruction: Instruction, execution: ExecutionCount
    ) -> bool:
        """Whether other work goes on meanwhile; GPUs write all as if, and say where it does not."""
        starter = self.fused_by.get(computation.name) if execution.asynchronous else None
        if any(_SYNCHRONOUS in each.rest for each in (instruction, starter) if each is not None):
            return False
        is_start = instruction.opcode.endswith(_START) or instruction.opcode in ("send", "recv")
        return execution.asynchronous or is_start

    def global_groups(
        self, instruction: Instruction, kind: CollectiveKind, attributes: Mapping[str, str]
    ) -> ReplicaGroups:
        """Groups of devices, numbered replica by replica, as ``use_global_device_ids`` does.

        See ``CollectiveOpGroupMode`` in ``xla/service/collective_ops_utils.h``.
        """
        groups = instruction.replica_groups or CollectiveDeviceList()
        if kind not in _GLOBAL_IDS or attributes.get("use_global_device_ids") == "true":
            return groups
        partitions = self.module.num_partitions
        replicas = groups.groups(self.module.replica_count)
        if instruction.channel_id is None:
            return CollectiveDeviceList(
                tuple(
                    tuple(replica * partitions + partition for replica in group)
                    for group in replicas
                    for partition in range(partitions)
                )
            )
        return CollectiveDeviceList(
            tuple(
                tuple(r * partitions + partition for r in group for partition in range(partitions))
                for group in replicas
            )
        )

    def parts(
        self,
        computation: Computation,
        instruction: Instruction,
        kind: CollectiveKind,
        group_size: int,
    ) -> tuple[Part, ...]:
        """The tensors of a collective."""
        shapes = self.shapes(computation, instruction, kind)
        if kind in _IN_PIECES and len(shapes) > 1:
            shapes = (Shape("tuple", elements=shapes),)
        named = [instruction] * len(shapes)
        if len(shapes) > 1:
            named = self.elements(computation, instruction, len(shapes))
            if kind == "all-reduce" and len(instruction.operands) == len(shapes):
                named = self.own_makers(computation, instruction, named)
        elif kind == "all-reduce" and not instruction.op_name:
            joined = self.joined(computation, instruction)
            if sum(operand.shape.bytes for operand in joined) == shapes[0].bytes:
                shapes, named = tuple(operand.shape for operand in joined), joined
        moved = wire_bytes_by_tensor(kind, [shape.bytes for shape in shapes], group_size)
        along = instruction.attributes.get("dimensions", "").strip("{}")
        parts = []
        for number, (shape, value, (sent, received)) in enumerate(
            zip(shapes, named, moved, strict=True)
        ):
            sent_tensor = SentTensor(computation, instruction, value)
            if kind == "all-gather":
                self.before[instruction.name, number] = self.made_for.gathered_before(sent_tensor)
            purpose = self.made_for.purpose(sent_tensor, kind)
            op_name = purpose.said[0].op_name if purpose.said else ""
            scope, primitive = scope_of(op_name)
            located = next((op for op in purpose.said if self.module.source(op)), None)
            parts.append(
                Part(
                    shape=shape,
                    bytes=shape.bytes,
                    sent=sent,
                    received=received,
                    scope=scope,
                    primitive=primitive,
                    phase=phase_of(op_name, self.differentiated),
                    source=None if located is None else self.module.source(located),
                    callers=() if located is None else self.module.callers(located),
                    tags=purpose.tags,
                    makers=purpose.makers,
                    argument=purpose.argument,
                    result=purpose.result,
                    named_after=purpose.named_after,
                    own=purpose.is_own,
                    single=purpose.is_single,
                    moved_on=kind == "all-gather"
                    and self.made_for.is_moved_on(sent_tensor, purpose),
                    pairs=self.pairs_of(sent_tensor, kind),
                    before=self.made_for.moved_before(sent_tensor) if kind == "all-gather" else "",
                    dimension=int(along) if kind == "all-gather" and along.isdecimal() else None,
                )
            )
        return tuple(parts)

    def pairs_of(self, sent: SentTensor, kind: CollectiveKind) -> tuple[tuple[int, int], ...]:
        """The devices between which the blocks of a value go, by this or right before it."""
        move: Instruction | None = None
        if kind == "all-gather":
            before = self.made_for.permuted_before(sent)
            if before is not None and before.name in sent.computation.instructions:
                as_it_is = self.made_for.is_made(SentTensor(sent.computation, before, before))
                move = before if as_it_is else None
        elif kind == "collective-permute" and self.made_for.is_all(sent):
            move = sent.collective
        return () if move is None else self.pairs.get(move.name, ())

    def elements(
        self, computation: Computation, instruction: Instruction, count: int
    ) -> list[Instruction]:
        """What takes each element out of the tuple that an instruction makes, or itself."""
        instructions = [instruction] * count
        makers = [instruction.name]
        for name in makers:
            for user in self.made_for.flow.users(ValuePlace(computation.name, name)):
                if user.operands[:1] != (name,):
                    continue
                if user.element is not None:
                    instructions[min(user.element, count - 1)] = user
                elif user.opcode.endswith("-done") and name == instruction.name:
                    makers.append(user.name)
        return instructions

    def own_makers(
        self, computation: Computation, instruction: Instruction, named: Sequence[Instruction]
    ) -> list[Instruction]:
        """For an element that nothing takes out, as of a tuple that is returned, what makes it.

        What a device adds up before has the name of the sum, of which the tuple has all.
        """
        names = self.made_for.key(instruction)
        own = list(named)
        for number, (element, operand) in enumerate(zip(named, instruction.operands, strict=True)):
            maker = computation.instructions.get(operand)
            if element is instruction and maker is not None and self.made_for.is_named(maker):
                own[number] = maker if self.made_for.key(maker) <= names else element
        return own

    def joined(self, computation: Computation, instruction: Instruction) -> list[Instruction]:
        """The values that an operand without a name is a concatenation of: GPUs join so."""
        operand = computation.instructions.get(next(iter(instruction.operands), ""))
        if operand is None:
            return []
        if operand.opcode == "fusion":
            roots = [inner.root for inner in self.module.called(operand, "calls")]
            if not all(root and root.opcode == "concatenate" for root in roots):
                return []
        elif operand.opcode != "concatenate":
            return []
        elements = [computation.behind(name, ("bitcast", "reshape")) for name in operand.operands]
        return [element for element in elements if element is not None]

    def shapes(
        self, computation: Computation, instruction: Instruction, kind: CollectiveKind
    ) -> tuple[Shape, ...]:
        """What a device has after an all-gather, or before anything else."""
        own = instruction.shape
        if kind in ("send", "recv"):
            # (data, context, token)
            return own.leaves[:1]
        if kind in ("all-gather", "collective-broadcast"):
            is_pair = instruction.opcode.endswith(_START) and len(own.elements) > 1
            return own.elements[1].leaves if is_pair else own.leaves
        operands = computation.operands(instruction)
        if kind == "ragged-all-to-all":
            # (data, room for the result, four vectors of offsets and sizes)
            operands = operands[:1]
        known = [operand.shape for operand in operands if operand is not None]
        if known and len(known) == len(operands):
            return tuple(leaf for shape in known for leaf in shape.leaves)
        raise SdyscopeError("its operands are not in its computation", line=instruction.line)


def _kind(opcode: str) -> CollectiveKind | None:
    """The kind of an opcode; None for what is no collective or was counted at its start."""
    base = opcode.removesuffix(_START)
    if _DONE.search(opcode) is not None or base not in KINDS:
        return None
    return next(kind for kind in KINDS if kind == base)


def _is_sliced(computation: Computation, instruction: Instruction) -> bool:
    """Whether a fusion keeps only slices of what it reduces, which makes it a reduce-scatter."""
    kept = [computation.instructions.get(name) for name in computation.results]
    whole = {instruction.name}
    for element in computation.instructions.values():
        if element.opcode == "get-tuple-element" and element.operands[:1] == (instruction.name,):
            whole.add(element.name)
    return bool(kept) and all(
        user is not None and user.opcode == "dynamic-slice" and whole.issuperset(user.operands[:1])
        for user in kept
    )
