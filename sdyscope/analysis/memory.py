"""Bytes a device: by argument group, shared with results, held more than once, and why.

What we count from shardings is compared with what the compiler counted, so that neither has to be
believed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sdyscope.annotations import Annotation
from sdyscope.convert import to_named_sharding, to_placement
from sdyscope.dtypes import num_bytes
from sdyscope.entry_layout import EntryLayout, StoredArray, read_entry_layout
from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.findings import Finding
from sdyscope.mesh import Mesh
from sdyscope.partitioned import Partitioned
from sdyscope.placement import Placement
from sdyscope.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec, SpecEntry, entry_axes
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.tensors import Tensor, TensorTable
from sdyscope.tiling import TupleSharding

__all__ = ["Group", "Held", "Memory", "Option", "memory"]

Origin: TypeAlias = Literal["requested", "lowered", "compiled", "unknown"]
"""Who says where a tensor is: its author, the lowered module, or, where both leave it open, the
compiler."""

_ARGUMENT_GROUP = re.compile(r"[^\[.(]+")
_RESULT_GROUP = re.compile(r"[^\[.(]*(?:\[[^\]]*\])?")


@dataclass(frozen=True, slots=True)
class Option:
    """One dimension that could be cut along one more axis.

    Attributes:
        dim: the dimension.
        axis: the free mesh axis, whose size divides it.
        saves: bytes a device that this alone saves.
    """

    dim: int
    axis: str
    saves: int


@dataclass(frozen=True, slots=True)
class Held:
    """An argument or a result, and what a device holds of it.

    Attributes:
        name: pytree path.
        kind: what it is.
        group: the top-level argument or result that it belongs to.
        number: which parameter or result of the compiled module it is.
        shape: shape of the whole tensor.
        dtype: MLIR element type.
        origin: who says where it is.
        sharding: where it is, on the program's mesh; None where no PartitionSpec can say that.
        copies: how many devices hold the same block; None where nobody says.
        bytes: bytes of the whole tensor.
        bytes_per_device: bytes of the block that a device holds.
        stored: how the compiler stores that block.
        donated: whether the argument's buffer was donated.
        shares: the argument or result that lies in the same buffer; empty for none.
        options: single dimensions that could be cut further, what saves most first.
        best: with all that can be cut along free axes; None when nothing can.
        saves: bytes a device that `best` saves.
    """

    name: str
    kind: Literal["argument", "result"]
    group: str
    number: int
    shape: tuple[int, ...]
    dtype: str
    origin: Origin
    sharding: NamedSharding | None
    copies: int | None
    bytes: int
    bytes_per_device: int
    stored: StoredArray
    donated: bool = False
    shares: str = ""
    options: tuple[Option, ...] = ()
    best: PartitionSpec | None = None
    saves: int = 0

    @property
    def replicated(self) -> int:
        """Bytes a device that it would not hold if the copies were one."""
        return self.bytes_per_device - self.bytes_per_device // (self.copies or 1)


@dataclass(frozen=True, slots=True)
class Group:
    """What belongs to one top-level argument, or to one top-level result.

    Attributes:
        kind: what they are.
        name: the group's name: `params`, `result[0]`.
        tensors: how many.
        bytes: bytes of the whole tensors.
        bytes_per_device: bytes of what a device holds, without the padding of tiles.
        stored: bytes of what a device stores, with that padding.
        replicated: bytes a device that it would not hold if every copy were one.
        shared: bytes a device, as stored, that lie in the buffers of arguments (of results), or
            that are given to results (of arguments).
    """

    kind: Literal["argument", "result"]
    name: str
    tensors: int
    bytes: int
    bytes_per_device: int
    stored: int
    replicated: int
    shared: int


@dataclass(frozen=True)
class Memory:
    """What a device holds of one program.

    Attributes:
        partitioned: the compiled program.
        held: arguments, then results.
        groups: argument groups, then result groups, in order.
        table: bytes of the compiler's table of the results' addresses.
        equal: whether our arguments and results take the bytes that the compiler says; None where
            it does not say.
        findings: donations that were of no use, and bytes that differ.
    """

    partitioned: Partitioned
    held: tuple[Held, ...]
    groups: tuple[Group, ...]
    table: int
    equal: bool | None
    findings: tuple[Finding, ...]

    @property
    def under_sharded(self) -> tuple[Held, ...]:
        """What could be cut further, what saves most first.

        A result that takes the place of an argument and is placed alike is not told again.
        """
        told: Counter[tuple[object, ...]] = Counter()
        found = []
        for one in self.held:
            key = (one.shape, one.dtype, _placed_as(one))
            if one.kind == "argument":
                told[key] += 1
            elif told[key]:
                told[key] -= 1
                continue
            if one.best is not None:
                found.append(one)
        return tuple(sorted(found, key=lambda one: -one.saves))

    @property
    def passed(self) -> bool:
        """Whether nothing was found that is worse than a note."""
        return all(finding.severity == "note" for finding in self.findings)


def memory(table: TensorTable, partitioned: Partitioned, mesh: Mesh | None = None) -> Memory:
    """Counts what a device holds.

    Args:
        table: the program's tensors.
        partitioned: the compiled program.
        mesh: what shardings are named on where they do not name a mesh themselves.

    Raises:
        CompilerError: the compiled module does not say how it stores its parameters.
    """
    layout = read_entry_layout(partitioned.hlo)
    rows = _rows(table, partitioned)
    held = [_held(row, kind, number, layout, partitioned, mesh) for kind, number, row in rows]
    held = _with_shares(held, layout)
    groups = _groups(held)
    equal, count = _compared(layout, held, partitioned)
    findings = [
        *_unused_donations(held, layout, partitioned),
        *_dropped_donations(table),
        *([] if equal is not False else [_differs(held, partitioned)]),
    ]
    return Memory(partitioned, tuple(held), groups, count, equal, tuple(findings))


_Row: TypeAlias = tuple[Literal["argument", "result"], int, Tensor]


def _rows(table: TensorTable, partitioned: Partitioned) -> list[_Row]:
    """Arguments and results of the module in order, each with its number there."""
    found: list[_Row] = []
    for row in table.tensors:
        there = row.lowered.get(partitioned.partitioner)
        if there is None or there.index is None:
            continue
        if row.kind == "argument" or row.kind == "result":
            found.append((row.kind, there.index, row))
    return sorted(found, key=lambda entry: entry[:2])


# --- one tensor -----------------------------------------------------------------------------------


def _held(
    row: Tensor,
    kind: Literal["argument", "result"],
    number: int,
    layout: EntryLayout,
    partitioned: Partitioned,
    mesh: Mesh | None,
) -> Held:
    stored = (layout.parameters if kind == "argument" else layout.results)[number]
    annotation = row.lowered[partitioned.partitioner]
    shape = row.shape if row.shape is not None else stored.shape
    origin, place, sharding = _placed(row, annotation, kind, number, partitioned, mesh)
    whole = _bytes(shape, row.dtype)
    local = stored.shape if place is None else place.local_shape(shape)
    held = Held(
        name=row.name or f"{kind} {number}",
        kind=kind,
        group=_group(row.name, kind),
        number=number,
        shape=shape,
        dtype=row.dtype,
        origin=origin,
        sharding=sharding,
        copies=None if place is None else place.replication,
        bytes=whole,
        bytes_per_device=_bytes(local, row.dtype),
        stored=stored,
        donated=row.requested is not None and row.requested.donated,
    )
    return held if sharding is None else _with_options(held, sharding)


def _bytes(shape: Sequence[int], dtype: str) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return num_bytes(elements, dtype)


def _group(name: str, kind: str) -> str:
    found = (_ARGUMENT_GROUP if kind == "argument" else _RESULT_GROUP).match(name)
    return found[0] if found and found[0] else kind


def _placed(
    row: Tensor,
    annotation: Annotation,
    kind: str,
    number: int,
    partitioned: Partitioned,
    mesh: Mesh | None,
) -> tuple[Origin, Placement | None, NamedSharding | None]:
    """Where a tensor is, who says so, and that as a PartitionSpec."""
    rank = len(row.shape or ())
    asked = row.requested.sharding if row.requested is not None else None
    if asked is not None and UNCONSTRAINED not in asked.spec.entries:
        return "requested", to_placement(asked, rank), asked
    if annotation.placement is not None and not annotation.open_dims:
        return "lowered", annotation.placement, _named(annotation.placement, rank, mesh)
    texts = partitioned.parameter_shardings if kind == "argument" else partitioned.result_shardings
    if partitioned.devices == 1:
        return "compiled", Placement(1, ((),) * rank), None
    if number >= len(texts):
        return "unknown", None, None
    try:
        parsed = parse_hlo_sharding(texts[number])
        if isinstance(parsed, TupleSharding):
            return "unknown", None, None
        place = to_placement(parsed, rank, mesh, partitioned.devices)
    except (SyntaxTextError, ConversionError):  # such as {unknown}: the compiler does not say
        return "unknown", None, None
    return "compiled", place, _named(place, rank, mesh)


def _named(place: Placement, rank: int, mesh: Mesh | None) -> NamedSharding | None:
    if mesh is None:
        return None
    try:
        return to_named_sharding(place, rank, mesh)
    except ConversionError:
        return None  # no PartitionSpec can say it


# --- what could be cut further --------------------------------------------------------------------


def _with_options(held: Held, sharding: NamedSharding) -> Held:
    spec, sizes = sharding.spec, sharding.mesh.shape
    used = {*spec.axis_names(), *spec.unreduced, *spec.reduced}
    free = sorted(
        (axis for axis, size in sizes.items() if size > 1 and axis not in used),
        key=lambda axis: -sizes[axis],
    )
    entries = [*spec.entries, *[None] * (len(held.shape) - len(spec.entries))]
    # Only whole blocks are cut: JAX refuses an argument whose dimension does not divide.
    blocks = [_block(size, entry, sizes) for size, entry in zip(held.shape, entries, strict=True)]
    options = [
        Option(dim, axis, held.bytes_per_device - held.bytes_per_device // sizes[axis])
        for axis in free
        for dim, block in enumerate(blocks)
        if _divides(block, sizes[axis])
    ]
    factor = 1
    for axis in free:
        fitting = [dim for dim, block in enumerate(blocks) if _divides(block, sizes[axis])]
        if fitting:
            # A dimension that is whole yet, before one that is cut already; then the largest.
            best = max(fitting, key=lambda dim: (entries[dim] is None, blocks[dim]))
            entries[best] = (*entry_axes(entries[best]), axis)
            blocks[best] //= sizes[axis]
            factor *= sizes[axis]
    if factor == 1:
        return held
    return replace(
        held,
        options=tuple(sorted(options, key=lambda option: -option.saves)),
        best=replace(spec, entries=tuple(entries)),
        saves=held.bytes_per_device - held.bytes_per_device // factor,
    )


def _block(size: int, entry: SpecEntry, sizes: Mapping[str, int]) -> int:
    """Size of a dimension's block; 0 where it can't be cut further in whole blocks."""
    if entry is UNCONSTRAINED:
        return 0
    for axis in entry_axes(entry):
        if size % sizes[axis]:
            return 0
        size //= sizes[axis]
    return size


def _divides(block: int, size: int) -> bool:
    return block > 0 and block % size == 0


# --- buffers that are shared ----------------------------------------------------------------------


def _with_shares(held: Sequence[Held], layout: EntryLayout) -> list[Held]:
    names = {(one.kind, one.number): one.name for one in held}
    by_parameter = {parameter: result for result, parameter in layout.aliases.items()}
    made = []
    for one in held:
        if one.kind == "argument" and one.number in by_parameter:
            other = names.get(("result", by_parameter[one.number]), "")
            made.append(replace(one, shares=other, donated=True))
        elif one.kind == "result" and one.number in layout.aliases:
            made.append(
                replace(one, shares=names.get(("argument", layout.aliases[one.number]), ""))
            )
        elif one.kind == "argument" and one.number in layout.donors:
            made.append(replace(one, donated=True))
        else:
            made.append(one)
    return made


def _unused_donations(
    held: Sequence[Held], layout: EntryLayout, partitioned: Partitioned
) -> list[Finding]:
    results = [one for one in held if one.kind == "result"]
    return [
        Finding(
            "donation-unused",
            "warning",
            f"It is donated, and its {one.stored.bytes:,} bytes a device are not used for a "
            f"result: {reason}",
            tensor=one.name,
            kind="argument",
            partitioner=partitioned.partitioner,
            hint=hint,
        )
        for one in held
        if one.kind == "argument" and one.donated and not one.shares
        for reason, hint in [_why_unused(one, results)]
    ]


def _why_unused(one: Held, results: Sequence[Held]) -> tuple[str, str]:
    alike = [r for r in results if r.shape == one.shape and r.dtype == one.dtype]
    kind = f"{one.dtype}[{','.join(map(str, one.shape))}]"
    if not alike:
        return (
            f"no result is {kind}.",
            "Do not donate it, or return its next value.",
        )
    fitting = [r for r in alike if r.stored.shape == one.stored.shape]
    if not fitting:
        there = ", ".join(f"{r.name} is {_where(r)}" for r in alike[:3])
        return (
            f"no {kind} result is placed as it is, {_where(one)}: {there}.",
            "Give the result the argument's sharding (out_shardings, or a constraint).",
        )
    free = [r for r in fitting if not r.shares]
    if not free:
        count = "the only result" if len(fitting) == 1 else f"all {len(fitting)} results"
        return (
            f"{count} of its shape and placement, "
            f"{', '.join(r.name for r in fitting[:3])}, took another argument's buffer.",
            "Do not donate it.",
        )
    if all(_placed_as(r) != _placed_as(one) for r in free):
        there = ", ".join(f"{r.name} is {_where(r)}" for r in free[:3])
        return (
            f"no {kind} result is placed as it is, {_where(one)}: {there}.",
            "Give the result the argument's sharding (out_shardings, or a constraint).",
        )
    return (
        f"the compiler did not take it for {', '.join(r.name for r in free[:3])}.",
        "",
    )


def _placed_as(one: Held) -> object:
    """Something that is equal for two tensors of one shape that are placed alike."""
    if one.sharding is None:
        return one.stored.shape
    return to_placement(one.sharding, len(one.shape))


def _where(one: Held) -> str:
    if one.sharding is not None:
        return str(one.sharding)
    return f"in blocks of [{','.join(map(str, one.stored.shape))}]"


def _dropped_donations(table: TensorTable) -> list[Finding]:
    return [
        Finding(
            "donation-unused",
            "note",
            "It is donated, and the program does not use it: jit drops it, and its buffer is "
            "freed without being used.",
            tensor=row.name,
            kind="argument",
            hint="Do not pass it.",
        )
        for row in table.tensors
        if row.kind == "argument"
        and row.requested is not None
        and row.requested.donated
        and row.requested.dropped
    ]


# --- totals ---------------------------------------------------------------------------------------


def _groups(held: Iterable[Held]) -> tuple[Group, ...]:
    found: dict[tuple[Literal["argument", "result"], str], list[Held]] = {}
    for one in held:
        found.setdefault((one.kind, one.group), []).append(one)
    return tuple(
        Group(
            kind,
            name,
            len(members),
            sum(one.bytes for one in members),
            sum(one.bytes_per_device for one in members),
            sum(one.stored.bytes for one in members),
            sum(one.replicated for one in members),
            sum(one.stored.bytes for one in members if one.shares),
        )
        for (kind, name), members in found.items()
    )


#: A multiple of what XLA pads its tables to on TPUs.
_ALIGNMENT = 1024


def _compared(
    layout: EntryLayout, held: Sequence[Held], partitioned: Partitioned
) -> tuple[bool | None, int]:
    """Whether the bytes are what the compiler says, and those of the results' table."""
    said = partitioned.memory
    if said is None:
        return None, 0
    of_arguments = said.arguments - _on_device(layout.parameters)
    of_results = said.outputs - _on_device(layout.results)
    equal = (
        all(one.bytes_per_device == num_bytes(_elements(one.stored), one.dtype) for one in held)
        and len(held) == len(layout.parameters) + len(layout.results)
        and _is_table(
            of_arguments, len(layout.parameters) * layout.parameters_are_tuple, partitioned
        )
        and _is_table(of_results, len(layout.results) * layout.results_are_tuple, partitioned)
    )
    return equal, max(of_results, 0)


def _on_device(arrays: Iterable[StoredArray]) -> int:
    return sum(one.bytes for one in arrays if not one.memory_space)


def _is_table(count: int, entries: int, partitioned: Partitioned) -> bool:
    """Whether so many bytes are a table of addresses: 8 bytes each, on TPUs 4 and some padding."""
    if partitioned.hardware.platform == "tpu" and entries:
        return 4 * entries <= count <= -(-8 * entries // _ALIGNMENT) * _ALIGNMENT
    return count == 8 * entries


def _elements(stored: StoredArray) -> int:
    elements = 1
    for size in stored.shape:
        elements *= size
    return elements


def _differs(held: Sequence[Held], partitioned: Partitioned) -> Finding:
    said = partitioned.memory
    wrong = [
        one.name
        for one in held
        if one.bytes_per_device != num_bytes(_elements(one.stored), one.dtype)
    ]
    ours = sum(one.stored.bytes for one in held if one.kind == "argument")
    other = f" ({', '.join(wrong[:3])})" if wrong else ""
    return Finding(
        "bytes-differ",
        "warning",
        f"By the shardings a device holds other bytes than the compiler says{other}.",
        partitioner=partitioned.partitioner,
        expected=f"{ours:,} bytes of arguments",
        found=f"{0 if said is None else said.arguments:,} bytes of arguments",
        hint="sdyscope check compares what was requested with what was lowered.",
    )
