"""The table of a program's tensors as it is printed, and the words around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sdyscope.analysis.show import Show, ShownProgram, ShownTensor, TensorSection, sections
from sdyscope.errors import ConversionError
from sdyscope.facts.memory import TensorTotal
from sdyscope.facts.program import Partitioner
from sdyscope.facts.sharded import Sharded
from sdyscope.terminal.answer import account_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, fitted, number, shape
from sdyscope.values.convert import to_named_sharding
from sdyscope.values.sharding import NamedSharding
from sdyscope.views.layers import Cells, folded_rows
from sdyscope.words.counts import counted, size
from sdyscope.words.memory import apart_text
from sdyscope.words.mesh import NO_MESH, mesh_texts, mesh_words_of
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.paths import in_file
from sdyscope.words.places import common_file, shown_name, source_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import AT_MOST, NONE, UNKNOWN, short
from sdyscope.words.stages import lowered_words
from sdyscope.words.types import jax_type_text

#: What stands in a cell that says what was requested.
AGREES = "="

#: What stands for an UNCONSTRAINED dimension where there is no room for the word.
OPEN = "?"
_OPEN = "UNCONSTRAINED"

#: Header of what all partitioners' modules say where there is no room for a column each.
LOWERED = "lowered"

#: Header of the number of replicas where there is no room for the word.
REPLICAS = "x"


#: What stands above each group of tensors.
_TITLES: Mapping[TensorSection, str] = {
    "arguments": "arguments",
    "results": "results",
    "boundaries": "constraints and shard_map boundaries",
    "by JAX": "constraints that JAX wrote",
    "of inner functions": "arguments and results of inner functions",
    "other ops": "other ops with a sharding",
}


def heading(program: ShownProgram) -> str:
    """The program, its meshes and the JAX that lowered it, in a line."""
    parts = [in_file(program.name, program.file), *mesh_words_of(program.meshes)]
    if not program.meshes:
        parts.append(NO_MESH)
    is_file = program.file is not None
    shardings = (there.text for tensor in program.tensors for there in tensor.lowered.values())
    if is_file and any(shardings):
        parts.append(f"shardings for {partitioner_names(program.partitioners)}")
    parts += lowered_words(program.jax_version, program.recorded_by, is_file=is_file)
    return "; ".join(parts)


@fitted
def table(
    brief: bool,
    program: ShownProgram,
    *,
    written: bool = False,
    in_types: bool = False,
    everything: bool = True,
) -> Table:
    """A row a tensor, in groups.

    Args:
        brief: whether the table is wider than the line: partitioners share a column, or
            have none where they would only say that all is as requested; and a file that a
            whole group is from is only named once.
        program: the document.
        written: whether to show shardings as they are written in each module, in place of whether
            they are what was requested and of what a device holds.
        in_types: whether to write shardings in the types, as JAX does.
        everything: whether the tensors of repeated layers have a row each.
    """
    requested = not in_types and any(tensor.by_author for tensor in program.tensors)
    shown = _sharding_columns(program, written, requested=requested, brief=brief)
    columns = [Column("tensor"), Column("type", fold=False), *map(Column, shown)]
    if not written:
        columns += [
            Column("block", fold=False),
            number("bytes"),
            number(REPLICAS if brief else "replicas"),
        ]
    rows: list[Row] = []
    for section, group in sections(program.tensors):
        title = _TITLES[section]
        file = common_file(tensor.source for tensor in group) if brief else ""
        rows.append(Heading(f"{title} ({len(group):,})" + (f" in {file}" if file else "")))
        of_group: list[Cells] = []
        for tensor in group:
            type_ = _jax_type(tensor) if in_types else _type(tensor)
            cells: list[Cell | str] = [_name(tensor, brief=bool(file)), type_]
            shardings = [cell_of(tensor) for cell_of in shown.values()]
            if brief:
                shardings = [replace(s, text=s.text.replace(_OPEN, OPEN)) for s in shardings]
            cells += shardings
            if not written:
                cells += _held(tensor)
            of_group.append(tuple(cells))
        paths = group[0].kind in ("argument", "result")
        rows += folded_rows(of_group, "argument" if paths else "value", everything=everything)
    return Table(tuple(columns), tuple(rows))


def _sharding_columns(
    program: ShownProgram, written: bool, *, requested: bool, brief: bool
) -> dict[str, Callable[[ShownTensor], Cell]]:
    """What the columns between type and block say of a tensor, by their headers."""
    partitioners = program.partitioners
    asked: dict[str, Callable[[ShownTensor], Cell]] = {"requested": _requested} if requested else {}
    named = requested or len(partitioners) > 1
    separate = {
        partitioner_name(each) if named else "sharding": partial(_lowered, each, written=written)
        for each in partitioners
    }
    if not brief or written:
        return asked | separate
    together = partial(_lowered_together, partitioners)
    if _requests_hold(program):
        if all(tensor.by_author for tensor in program.tensors):
            return asked

        def sharding(tensor: ShownTensor) -> Cell:
            return _requested(tensor) if requested and tensor.by_author else together(tensor)

        return {"sharding": sharding}
    return asked | (separate if len(separate) == 1 else {LOWERED: together})


def _requests_hold(program: ShownProgram) -> bool:
    """Whether each tensor that could be requested is so, under each partitioner."""
    asked = [tensor for tensor in program.tensors if tensor.by_author]
    return bool(asked) and all(_as_requested(tensor, program.partitioners) for tensor in asked)


def _as_requested(tensor: ShownTensor, partitioners: Sequence[Partitioner]) -> bool:
    if tensor.dropped or set(tensor.agrees) != set(partitioners):
        return False
    return all(tensor.agrees.values()) and (
        tensor.requested is not None or not any(there.text for there in tensor.lowered.values())
    )


def _name(tensor: ShownTensor, *, brief: bool) -> str:
    if tensor.source is None and tensor.kind in ("argument", "result"):
        return tensor.name or f"{tensor.kind} {tensor.index}"
    source = source_text(tensor.source)
    place = f"line {source.rpartition(':')[2]}" if brief else source
    name = shown_name(tensor.name, tensor.kind, tensor.mapped)
    return " ".join(filter(None, (name or ("no scope," if place else "no scope"), place)))


def _type(tensor: ShownTensor) -> str:
    return f"{tensor.dtype}[?]" if tensor.shape is None else shape(tensor.shape, tensor.dtype)


def _jax_type(tensor: ShownTensor) -> str:
    """The type with what was requested, or with what is lowered where nothing was."""
    for there in (tensor.requested, *tensor.lowered.values()):
        if there is not None and there.mesh is not None:
            sharding, place = there.sharding, there.placement
            try:
                if isinstance(sharding, NamedSharding):
                    spec = sharding.spec
                elif place is not None:
                    spec = to_named_sharding(place, len(tensor.shape or ()), there.mesh).spec
                else:
                    continue
            except ConversionError:
                continue
            return jax_type_text(tensor.shape, tensor.dtype, spec, [*there.mesh.shape])
    return jax_type_text(tensor.shape, tensor.dtype, None)


def _requested(tensor: ShownTensor) -> Cell:
    if not tensor.by_author:
        return Cell("")
    return Cell(NONE, "muted") if tensor.requested is None else Cell(short(tensor.requested))


def _lowered_together(partitioners: Sequence[Partitioner], tensor: ShownTensor) -> Cell:
    """What all partitioners' modules say; where they differ, a line for each that has it."""
    cells = {each: _lowered(each, tensor, written=False) for each in partitioners}
    first = cells[partitioners[0]]
    if all(cell == first for cell in cells.values()):
        return first
    texts = [f"{partitioner_name(p)} {cell.text}" for p, cell in cells.items() if cell.text]
    bad = any(cell.tone == "bad" for cell in cells.values())
    return Cell("\n".join(texts), "bad" if bad else "plain")


def _lowered(partitioner: Partitioner, tensor: ShownTensor, *, written: bool) -> Cell:
    there = tensor.lowered.get(partitioner)
    if there is None:
        if tensor.dropped:
            return Cell("dropped", "muted")
        return Cell("missing", "bad") if tensor.by_author else Cell("")
    if there.problem:
        return Cell(short(there), "bad")
    tone: Tone = "plain" if tensor.agrees.get(partitioner, True) else "bad"
    text = there.text if written else short(there)
    requested = None if written or tone != "plain" else tensor.requested
    if requested is not None and requested.memory == there.memory:
        return Cell(AGREES, "muted")
    if not text or text == NONE:
        return Cell(NONE, "muted" if tone == "plain" else tone)
    return Cell(text + _open_words(there), tone)


def _open_words(there: Sharded) -> str:
    # Shardy's text and a PartitionSpec say it themselves; HLO's is told on the op.
    if not there.open_dims or any(sign in short(there) for sign in ("?", "UNCONSTRAINED")):
        return ""
    return f" open {','.join(map(str, there.open_dims))}"


def _held(tensor: ShownTensor) -> list[Cell | str]:
    sharding = tensor.placement
    if sharding is None or sharding.placement is None or sharding.local_shape is None:
        return [Cell(UNKNOWN, "bad") if tensor.problem else Cell(NONE, "muted")] * 3
    padded = any(sharding.padding or ())
    local = shape(sharding.local_shape) + (" padded" if padded else "")
    return [
        Cell(local, "warning" if padded else "plain"),
        size(sharding.bytes_per_device),
        f"{sharding.placement.replication:,}",
    ]


def footer(program: ShownProgram, table: Table) -> Iterator[Paragraph]:
    """The totals, what the signs stand for, and all that the table leaves out.

    Args:
        program: the document.
        table: its table.
    """
    for text, tone in _footer(program, table):
        yield Paragraph(text, tone)
    yield from account_paragraphs(program.account)


def _footer(program: ShownProgram, table: Table) -> Iterator[tuple[str, Tone]]:
    donated = sum(t.donated and t.kind == "argument" for t in program.tensors)
    for what, total in (("arguments", program.arguments), ("results", program.results)):
        if total.tensors:
            extra = f"; {donated} donated" if donated and what == "arguments" else ""
            yield _total(what, total) + extra, "plain"
    names = [partitioner_name(each) for each in program.partitioners]
    prefix = re.compile(rf"^(?:{'|'.join(names)}) ")
    signs = {
        prefix.sub("", line)
        for row in table.cells
        for cell in row
        for line in cell.text.split("\n")
    }
    headers = [column.header for column in table.columns]
    is_shown = any(header in headers for header in (*names, LOWERED))
    if AGREES not in signs and _requests_hold(program) and not is_shown:
        what = "tensor" if all(tensor.by_author for tensor in program.tensors) else "request"
        yield (
            f"every {what} is lowered as requested under {partitioner_names(program.partitioners)}",
            "muted",
        )
    if "block" in headers:
        replicas = f"{REPLICAS}: replicas," if REPLICAS in headers else "replicas:"
        yield (
            f"block, bytes: what a device holds; {replicas} how many devices hold the same block",
            "muted",
        )
        if any(tensor.is_bound for tensor in program.tensors):
            yield AT_MOST, "muted"
    if any(f"{sign}{OPEN}" in text for text in signs for sign in ("(", ", ")):
        yield f"{OPEN}  {_OPEN}: the compiler may shard it", "muted"
    if AGREES in signs:
        yield f"{AGREES}  as requested, in placement and in what is left open", "muted"
    if NONE in signs:
        yield f"{NONE}  left to the compiler", "muted"
    if UNKNOWN in signs:
        yield f"{UNKNOWN}  a sharding that can't be read or is impossible: not known", "bad"
    dropped = sum(tensor.dropped for tensor in program.tensors)
    if dropped:
        yield f"{counted(dropped, 'argument is', 'arguments are')} dropped by jit, unused", "muted"
    disagree = sum(tensor.disagrees for tensor in program.tensors)
    if disagree:
        yield (
            f"{counted(disagree, 'tensor is', 'tensors are')} lowered otherwise than requested: "
            "sdyscope check says how",
            "bad",
        )
    if program.hidden:
        yield f"{counted(program.hidden, 'tensor')} left out by the filters", "muted"
    for note in remark_texts(program.notes):
        yield note, "muted"


def _total(what: str, total: TensorTotal) -> str:
    text = f"{what}: {size(total.bytes)}, a device holds {size(total.bytes_per_device)}"
    if total.bytes_on_host:
        text += f", its host {size(total.bytes_on_host)}"
    apart = apart_text(total)
    return f"{text} ({apart})" if apart else text


@fitted
def overview(brief: bool, show: Show) -> Table:
    """A row a module of a directory of dumps.

    Args:
        brief: whether the table is wider than the line: a file's name has an asterisk for
            the module's, which most of them repeat.
        show: the document.
    """
    rows: list[Row] = []
    for program in show.programs:
        partitioner = program.partitioners[0]
        meshes = mesh_texts(program.meshes, brief=brief)
        annotated = sum(bool(there.text) for t in program.tensors for there in t.lowered.values())
        rows.append(
            (
                program.name,
                _file_name(program.file, program.name if brief else ""),
                partitioner_name(partitioner),
                "; ".join(meshes) or Cell(NONE, "muted"),
                f"{program.ops[partitioner]:,}",
                f"{annotated:,}",
                size(program.arguments.bytes_per_device),
            )
        )
    count = counted(len(show.programs), "module")
    return Table(
        title=f"{show.target}: {count}; --module shows one",
        columns=(
            Column("module"),
            Column("file"),
            Column("for"),
            Column("mesh"),
            number("ops"),
            number("shardings"),
            number("bytes"),
        ),
        rows=tuple(rows),
    )


def overview_footer(show: Show) -> Iterator[Paragraph]:
    """What the overview's numbers are, and the files that could not be read."""
    yield Paragraph(
        "shardings: annotations in the module; bytes: what a device holds of the arguments", "muted"
    )
    if show.unread:
        yield Paragraph("")
        yield Paragraph(f"{counted(len(show.unread), 'file')} could not be read", "bad")
        for unread in show.unread:
            said = unread.error.partition("\n")[0]
            place, _, message = said.rpartition(f"{unread.file}:")
            yield Paragraph(f"{place}{_file_name(unread.file)}:{message}", indent=2)


def _file_name(path: str | None, module: str = "") -> str:
    *_, folder, name = ("", "", *(path or "").split("/"))
    shown = f"{folder}/{name}" if name == "00.input_module.mlir" else name
    return shown.replace(module, "*", 1) if module else shown
