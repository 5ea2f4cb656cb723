"""What each line of the author's files does, at every stage that knows lines.

Which line an op belongs to is `values.source`'s decision, which collectives there are and why is
that of `analysis.collectives`, and where partitioners differ that of `analysis.diff`: here they are
put beside the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.propagation.propagate import ProgramValue
from sdyscope.analysis.show import shown
from sdyscope.analysis.source.text import Unread, read_lines
from sdyscope.facts.program import CompiledUnder, Partitioner
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.sharded import Sharded
from sdyscope.facts.source import LineCollectives, LineValues
from sdyscope.formatters import in_place
from sdyscope.graph import OpGraph
from sdyscope.staged import Staged
from sdyscope.values.mesh import AxisRef
from sdyscope.values.source import FilePath, SourceLocation, is_library, stack_around

Place: TypeAlias = tuple[str, int]
"""A file and a line of it, counted from 1."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of a file.

    Attributes:
        line: its number, counted from 1.
        text: its text; null where that could not be read.
        function: the function that it is in, as Python calls it; empty where no op is on it.
        values: its values, the largest tensors first.
        collectives: its collectives, by partitioner, what sends most first.
        sent: bytes that a device sends per step for it, by partitioner (by an empty text for a
            compiled program's text, which names none); empty without collectives.
        block: bytes of the largest block that a device has of one of its values, by partitioner.
        through: the distinct ways in which it reaches its ops, each the frames that it calls, its
            own call first; a line whose ops are its own has none.
        callers: the distinct ways in which it is reached, each the frames behind it, the nearest
            first.
    """

    line: int
    text: str | None = None
    function: str = ""
    values: tuple[LineValues, ...] = ()
    collectives: tuple[LineCollectives, ...] = ()
    through: tuple[tuple[SourceLocation, ...], ...] = ()
    callers: tuple[tuple[SourceLocation, ...], ...] = ()

    __document__ = in_place(collectives=("collectives", "sent", "block"))

    @property
    def sent(self) -> dict[CompiledUnder, int]:
        """Bytes that a device sends per step for it."""
        sent: dict[CompiledUnder, int] = {}
        for collectives in self.collectives:
            by = collectives.partitioner
            sent[by] = sent.get(by, 0) + collectives.sent
        return sent

    @property
    def block(self) -> dict[Partitioner, int]:
        """Bytes of the largest block that a device has of one of its values."""
        block: dict[Partitioner, int] = {}
        for values in self.values:
            for by, sharding in values.shardings.items():
                block[by] = max(block.get(by, 0), sharding.bytes_per_device or 0)
        return block

    @property
    def differs(self) -> bool:
        """Whether the partitioners place one of its values differently."""
        return any(values.same is False for values in self.values)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: the lines that the program's ops come from, and some around them.

    Attributes:
        file: its path.
        library: whether it is Python's, or of an installed package that stands between a model and
            JAX: its ops have no line of the author's.
        unread: why there is no text; null where there is.
        cut: whether a line is named that the file does not have, so that it is not as it was when
            the program was traced.
        lines: the lines in order.
    """

    file: FilePath
    library: bool
    unread: Unread | None
    cut: bool
    lines: tuple[SourceLine, ...]

    @property
    def sent(self) -> dict[CompiledUnder, int]:
        """Bytes that a device sends per step for its lines."""
        sent: dict[CompiledUnder, int] = {}
        for line in self.lines:
            for by, count in line.sent.items():
                sent[by] = sent.get(by, 0) + count
        return sent


@dataclass(frozen=True, slots=True)
class LineValue:
    """One value of a program, at the last stage that knows it.

    Attributes:
        name: pytree path or scope.
        kind: what it is: argument, constraint, ... or the operation.
        op: what JAX calls the operation.
        shape: shape of the whole tensor; None where it is dynamic, or no tensor.
        dtype: MLIR element type.
        bytes: bytes of the whole tensor; None where they are not known.
        source: line of user code.
        shardings: what each partitioner decided, or what its module says.
        same: whether they place it alike; None where that can't be compared.
        ids: which value of each partitioner's lowered module it is.
    """

    name: str
    kind: str
    op: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    source: SourceLocation | None
    shardings: Mapping[Partitioner, Sharded]
    same: bool | None
    ids: Mapping[Partitioner, ValueId]

    @property
    def needs_line(self) -> bool:
        """Whether an op makes it: arguments and results have no line of their own."""
        return self.kind not in ("argument", "result")


def propagated_values(values: Iterable[ProgramValue]) -> Iterator[LineValue]:
    """Values as partitioners decided, but for what is gone or has no sharding by nature."""
    for value in values:
        yield LineValue(
            value.name,
            value.kind,
            value.primitive or value.kind,
            value.shape,
            value.dtype,
            value.bytes,
            value.source,
            {
                by: decided.sharding
                for by, decided in value.propagated.items()
                if decided.fate in ("kept", "merged")
            },
            value.same,
            value.ids,
        )


def lowered_values(program: Staged) -> Iterator[LineValue]:
    """Tensors as the lowered modules say, of a program that no partitioner propagates."""
    for tensor, row in zip(shown(program).tensors, program.tensors.tensors, strict=True):
        there = {by: sharding for by, sharding in tensor.lowered.items() if sharding.text}
        places = [sharding.placement for sharding in there.values()]
        is_known = len(places) > 1 and None not in places
        yield LineValue(
            tensor.name,
            tensor.kind,
            tensor.kind,
            tensor.shape,
            tensor.dtype,
            tensor.bytes,
            tensor.source,
            there,
            len(set(places)) == 1 if is_known else None,
            {
                by: (annotation.op, 0)
                for by, annotation in row.lowered.items()
                if annotation.op >= 0
            },
        )


class _Alike(NamedTuple):
    """What collectives of a line have in common that are counted together."""

    partitioner: CompiledUnder
    kind: str
    axes: tuple[AxisRef, ...] | None


@dataclass
class _Gathered:
    """What is known of a line so far."""

    functions: dict[str, None] = field(default_factory=dict)
    values: list[LineValue] = field(default_factory=list)
    collectives: dict[_Alike, list[tuple[Collective, Part]]] = field(default_factory=dict)
    through: dict[tuple[SourceLocation, ...], None] = field(default_factory=dict)
    callers: dict[tuple[SourceLocation, ...], None] = field(default_factory=dict)


def source_files(
    values: Iterable[LineValue],
    graphs: Mapping[Partitioner, OpGraph],
    programs: Sequence[Collectives],
    begins: Iterable[ValueId] = (),
    others: Iterable[SourceLocation] = (),
    context: int = 1,
    text: bool = True,
) -> tuple[SourceFile, ...]:
    """The lines that a program's ops come from, with what they do, those of libraries last.

    Args:
        values: the program's values.
        graphs: op graphs of its lowered modules.
        programs: the collectives of its compiled programs.
        begins: the values of the first module at which the partitioners' differences begin.
        others: further lines that are to be there, such as those of findings.
        context: how many lines to add above and below each.
        text: whether to read the files.
    """
    gathered: dict[Place, _Gathered] = {}
    _gather_values(gathered, values, graphs)
    devices = 0
    for program in programs:
        devices = max(devices, program.devices)
        _gather_collectives(gathered, program)
    for source in others:
        gathered.setdefault((source.file, source.line), _Gathered()).functions[source.function] = (
            None
        )
    first = next(iter(graphs), None)
    beginning = frozenset(begins)
    lines_of: dict[str, dict[int, SourceLine]] = {}
    for (file, line), known in sorted(gathered.items()):
        lines_of.setdefault(file, {})[line] = SourceLine(
            line,
            None,
            next(filter(None, known.functions), ""),
            tuple(_line_values(known.values, first, beginning)),
            tuple(_line_collectives(known, devices)),
            tuple(filter(None, known.through)),
            tuple(filter(None, known.callers)),
        )
    files = [
        _with_text(file, lines, read_lines(file) if text else "left out", context)
        for file, lines in lines_of.items()
    ]
    return tuple(sorted(files, key=lambda file: (file.library, file.file)))


def _gather_values(
    gathered: dict[Place, _Gathered],
    values: Iterable[LineValue],
    graphs: Mapping[Partitioner, OpGraph],
) -> None:
    for value in values:
        source = value.source
        if source is None or not source.line:
            continue
        known = gathered.setdefault((source.file, source.line), _Gathered())
        known.functions[source.function] = None
        if value.kind != "shard_map input":  # Its value has a row of its own.
            known.values.append(value)
        for partitioner, (node, _) in value.ids.items():
            frames = graphs[partitioner].ops[node].location.frames
            if source in frames:
                through, callers = stack_around(frames, source)
                known.through[through] = known.callers[callers] = None
                break


def _gather_collectives(gathered: dict[Place, _Gathered], program: Collectives) -> None:
    for collective in program.collectives:
        for part in collective.parts:
            if part.source is not None and part.source.line:
                place = part.source.file, part.source.line
                known = gathered.setdefault(place, _Gathered())
                known.functions[part.source.function] = None
                alike = _Alike(program.partitioner or "", collective.kind, collective.axes)
                known.collectives.setdefault(alike, []).append((collective, part))


def _line_values(
    values: Iterable[LineValue], first: Partitioner | None, begins: Collection[ValueId]
) -> Iterator[LineValues]:
    groups: dict[object, list[LineValue]] = {}
    for value in values:
        if value.shardings:
            where = tuple(
                (by, sharding.placement or sharding) for by, sharding in value.shardings.items()
            )
            groups.setdefault((value.shape, value.dtype, where, value.same), []).append(value)
    for group in sorted(groups.values(), key=lambda group: -(group[0].bytes or 0)):
        value = group[0]
        yield LineValues(
            count=len(group),
            name=value.name,
            op=value.op,
            shape=value.shape,
            dtype=value.dtype,
            bytes=value.bytes,
            shardings=dict(value.shardings),
            same=value.same,
            begins=first is not None and any(each.ids.get(first) in begins for each in group),
        )


def _line_collectives(known: _Gathered, devices: int) -> Iterator[LineCollectives]:
    rows = [
        LineCollectives(
            *alike,
            tensors=sum(each.count for each, _ in moved),
            sent=sum(each.count * part.sent for each, part in moved),
            received=sum(each.count * part.received for each, part in moved),
            counted_once=any(each.unknown_trips for each, _ in moved),
            at_most=any(each.at_most or each.conditional for each, _ in moved),
            some_idle=any(each.leaves_out(devices) for each, _ in moved),
            origins=tuple(
                part.origin
                for _, part in sorted(moved, key=lambda pair: -pair[1].bytes)
                if part.origin is not None
            ),
        )
        for alike, moved in known.collectives.items()
    ]
    # Shardy's first, as everywhere: those of each partitioner were gathered in that order.
    order = list(dict.fromkeys(row.partitioner for row in rows))
    yield from sorted(rows, key=lambda row: (order.index(row.partitioner), -row.sent))


def _with_text(
    file: str, lines: Mapping[int, SourceLine], text: tuple[str, ...] | Unread, context: int
) -> SourceFile:
    """A file with its text, and the lines around those that ops come from."""
    library = is_library(file)
    if isinstance(text, str):
        return SourceFile(file, library, text, False, tuple(lines.values()))
    wanted = {
        near
        for line in lines
        for near in range(max(line - context, 1), line + context + 1)
        if near <= len(text)
    }
    # No blank line begins or ends what stands around a line.
    wanted = {line for line in wanted if text[line - 1].strip() or {line - 1, line + 1} <= wanted}
    return SourceFile(
        file,
        library,
        None,
        max(lines) > len(text),
        tuple(
            replace(
                lines.get(line, SourceLine(line)),
                text=text[line - 1] if line <= len(text) else None,
            )
            for line in sorted(wanted | lines.keys())
        ),
    )
