"""What a device holds, as tables, and the words around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.memory.memory import Group, Memory, MemoryDocument
from sdyscope.analysis.memory.options import redundant, saved_together
from sdyscope.analysis.memory.predicted import PredictedMemory
from sdyscope.analysis.search.zero import basis, doubts
from sdyscope.facts.memory import MemoryPart
from sdyscope.facts.program import Partitioner, Versions
from sdyscope.facts.zero import TrainingState
from sdyscope.terminal.answer import Block
from sdyscope.terminal.answer import heading as headline
from sdyscope.terminal.findings import finding_paragraphs
from sdyscope.terminal.paragraphs import Paragraph, by_partitioner
from sdyscope.terminal.table import (
    Cell,
    Column,
    Heading,
    Row,
    Table,
    fitted,
    number,
    shape,
    size_cell,
)
from sdyscope.views.show import REPLICAS
from sdyscope.words.counts import counted, size
from sdyscope.words.findings import finding_of
from sdyscope.words.hardware import compiled_text
from sdyscope.words.memory import (
    NOT_COMPILED,
    PARTS,
    group_text,
    held_text,
    memory_legend,
    memory_remarks,
    part_text,
    propagated_text,
    redundant_text,
    results_table_text,
    savings_text,
    sureness_texts,
    unknown_text,
)
from sdyscope.words.mesh import mesh_words_of, names_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.remarks import remark_texts


def distinct(document: MemoryDocument) -> Iterator[tuple[Memory, tuple[Partitioner, ...]]]:
    """What to tell of, each with the partitioners under which a device holds the same."""
    return by_partitioner(document.compiled, _bare)


def _bare(memory: Memory) -> object:
    """What is left of it when it does not matter whose it is."""
    findings = tuple(replace(finding, partitioner=None) for finding in memory.findings)
    return (
        memory.tensors,
        memory.groups,
        memory.compiler,
        memory.equal,
        memory.rematerializations,
        memory.notes,
        findings,
    )


def compiled(document: MemoryDocument, top: int, columns: int | None) -> Iterator[Block]:
    """Every compiled program, `top` rows of each table."""
    for program, partitioners in distinct(document):
        yield headline(heading(document, program, partitioners))
        yield groups(program)
        if program.savings:
            yield savings(columns, program, top)
        elif program.is_text:
            yield largest(program, top)
        yield footer(program, top, partitioners)


def predicted(
    document: MemoryDocument, memory: PredictedMemory, top: int, columns: int | None
) -> Iterator[Block]:
    """What propagated shardings say, `top` rows of each table."""
    yield headline(predicted_heading(document, memory))
    yield groups(memory)
    if memory.savings:
        yield savings(columns, memory, top)
    yield predicted_footer(memory, top)


def trained(state: TrainingState) -> Iterator[Block]:
    """What a train step keeps, and what each ZeRO stage would hold and send."""
    yield training(state)
    if state.stages:
        yield stages(state)
        yield stages_traffic(state)
    yield training_footer(state)


def heading(document: MemoryDocument, compiled: Memory, partitioners: Sequence[Partitioner]) -> str:
    """The program, its meshes and what it was compiled for, in a line."""
    name = f"{document.name} ({document.file})" if compiled.hardware is None else document.name
    if compiled.is_text:
        origin = f"compiled for {counted(compiled.devices, 'device')}"
    else:
        origin = compiled_text(
            compiled.hardware,
            compiled.device_kind,
            under=partitioner_names(partitioners),
            by=str(compiled.compiled.recorded_by or Versions(document.jax_version)),
        )
    return "; ".join([name, *mesh_words_of(document.meshes), origin])


def predicted_heading(document: MemoryDocument, predicted: PredictedMemory) -> str:
    """The program, its meshes and whose propagation it is by, in a line."""
    name = f"{document.name} ({document.file})" if document.file else document.name
    origin = f"predicted by {partitioner_name(predicted.partitioner)}'s propagation, not compiled"
    return "; ".join([name, *mesh_words_of(document.meshes), origin])


def groups(compiled: Memory | PredictedMemory) -> Table:
    """A row a group of arguments or results, then what the program needs in all."""
    padded = any(group.stored != group.bytes_per_device for group in compiled.groups)
    shared = any(group.shared for group in compiled.groups)
    whole = any(group.bytes is not None for group in compiled.groups)
    columns = [Column("group"), number("tensors"), number("per device")]
    if whole:
        columns.insert(2, number("whole"))
    if padded:
        columns.append(number("stored"))
    columns.append(number("redundant"))
    if shared:
        columns.append(number("reused"))
    rows: list[Row] = []
    for kind, title in (("argument", "arguments"), ("result", "results")):
        members = [group for group in compiled.groups if group.kind == kind]
        if members:
            rows.append(Heading(title))
            rows += [_group(group, whole=whole, padded=padded, shared=shared) for group in members]
    rows += _needed(compiled, before=1 + whole + padded, empty=1 + shared)
    return Table(tuple(columns), tuple(rows))


def _group(group: Group, *, whole: bool, padded: bool, shared: bool) -> Row:
    cells: list[Cell | str] = [group_text(group.title), f"{group.tensors:,}"]
    if whole:
        cells.append(size(group.bytes))
    cells.append(size(group.bytes_per_device))
    if padded:
        cells.append(size(group.stored))
    cells.append(size_cell(group.replicated))
    if shared:
        cells.append(size_cell(group.shared))
    return tuple(cells)


def _needed(compiled: Memory | PredictedMemory, *, before: int, empty: int) -> list[Row]:
    said = compiled.compiler if isinstance(compiled, Memory) else None
    if said is None:
        held = ("arguments and results", *[""] * before, size(compiled.stored), *[""] * empty)
        return [Heading("a device holds"), held]
    return [
        Heading("a device needs, by the compiler"),
        *(
            (part_text(part, said.aliases), *[""] * before, size(said.part(part)), *[""] * empty)
            for part in PARTS
            if part is not MemoryPart.ALIASES and (said.part(part) or part not in _OPTIONAL)
        ),
    ]


#: What is only worth a row where there is any.
_OPTIONAL = (MemoryPart.CODE, MemoryPart.HOST)


@fitted
def savings(brief: bool, compiled: Memory | PredictedMemory, top: int) -> Table:
    """A row for each tensor that could be sharded further, what saves most first.

    Args:
        brief: whether the table is wider than the line: the types are left out.
        compiled: the document.
        top: how many rows; 0 for all.
    """
    savings = saved_together(compiled.under_sharded)
    rows: list[Row] = []
    for saving in savings[: top or None]:
        first = saving.tensors[0]
        count = len(saving.tensors)
        name = first.name if count == 1 else f"{saving.name} ({count:,})"
        kind = [] if brief else [shape(*first.type)]
        held = (held_text(first), f"{first.replicas or 0:,}")
        rows.append((name, *kind, *held, str(first.best), size(saving.saves)))
    types = () if brief else (Column("type", fold=False),)
    return Table(
        columns=(
            Column("held more than once"),
            *types,
            Column("as"),
            number(REPLICAS),
            Column("could be"),
            number("saves"),
        ),
        rows=tuple(rows),
    )


def largest(compiled: Memory, top: int) -> Table:
    """A row for each of the largest arguments and results, where only blocks are known.

    Args:
        compiled: the document.
        top: how many rows; 0 for all.
    """
    tensors = sorted(compiled.tensors, key=lambda tensor: -tensor.stored.bytes)[: top or None]
    return Table(
        columns=(Column("the largest"), Column("block"), number("stored"), Column("shares with")),
        rows=tuple(
            (tensor.name, shape(*tensor.type), size(tensor.stored.bytes), tensor.shares)
            for tensor in tensors
        ),
    )


# --- the state of training ------------------------------------------------------------------------


def training(state: TrainingState) -> Table:
    """A row each of parameters, gradients and optimizer state, and what they come to."""
    columns = (
        Column("training state"),
        number("tensors"),
        number("whole"),
        number("per device"),
        number("bytes a parameter"),
    )
    rows: list[Row] = [
        (
            kept.kind,
            f"{kept.tensors:,}",
            size(kept.bytes),
            size(kept.bytes_per_device),
            f"{kept.bytes / state.parameters:.3g}",
        )
        for kept in state.kept
    ]
    rows.append(
        (
            f"total of {counted(state.parameters, 'parameter')}",
            "",
            size(sum(kept.bytes for kept in state.kept)),
            size(sum(kept.bytes_per_device for kept in state.kept)),
            f"{state.bytes_a_parameter:.3g}",
        )
    )
    return Table(columns, tuple(rows))


def stages(state: TrainingState) -> Table:
    """A row a ZeRO stage: what a device would hold of each, and send in a step."""
    columns = (
        Column(f"over {names_text(state.axes)}={state.devices:,}", fold=False),
        *(number(kept.kind) for kept in state.kept),
        number("held"),
        number("sent"),
    )
    rows: list[Row] = [
        (
            stage.name,
            *(size(stage.kept[kept.kind]) for kept in state.kept),
            size(stage.held),
            Cell("-", "muted") if stage.sent is None else size(stage.sent),
        )
        for stage in state.stages
    ]
    return Table(columns, tuple(rows))


def stages_traffic(state: TrainingState) -> Table:
    """A row a kind and axes of collectives, a column a stage: bytes that a device sends."""
    named = [stage for stage in state.stages if stage.traffic is not None]
    keys = dict.fromkeys(
        (traffic.kind, traffic.axes) for stage in named for traffic in stage.traffic or ()
    )
    columns = (
        Column("a device sends", fold=False),
        Column("over"),
        *(number(stage.name) for stage in named),
    )
    rows: list[Row] = []
    for kind, axes in keys:
        cells: list[Cell | str] = []
        for stage in named:
            sent = [
                traffic.sent
                for traffic in stage.traffic or ()
                if (traffic.kind, traffic.axes) == (kind, axes)
            ]
            cells.append(size(sum(sent)) if sent else Cell("-", "muted"))
        rows.append((kind, names_text(axes) if axes else "?", *cells))
    return Table(columns, tuple(rows))


def training_footer(state: TrainingState) -> Iterator[Paragraph]:
    """What is not known of the stages, and whose figures they are."""
    yield from (Paragraph(text, "warning") for text in remark_texts(doubts(state)))
    yield from (Paragraph(text, "muted") for text in remark_texts(basis(state)))


def footer(compiled: Memory, top: int, partitioners: Sequence[Partitioner]) -> Iterator[Paragraph]:
    """What the numbers are, what was left out, and what was found.

    Args:
        compiled: the document.
        top: how many rows the table of savings has at most; 0 for all.
        partitioners: of whose program this is told.
    """
    for paragraph in _footer(compiled, top):
        yield replace(paragraph)
    findings = compiled.findings
    if len(partitioners) > 1:
        findings = tuple(replace(finding, partitioner=None) for finding in findings)
    yield from finding_paragraphs(tuple(map(finding_of, findings)))


def predicted_footer(predicted: PredictedMemory, top: int) -> Iterator[Paragraph]:
    """What the numbers are, and what was left out; ``top`` is as of ``footer``."""
    for paragraph in (*_saved(predicted, top), *_predicted_legend(predicted)):
        yield replace(paragraph)


def _predicted_legend(predicted: PredictedMemory) -> Iterator[Paragraph]:
    if unknown := sum(tensor.origin == "unknown" for tensor in predicted.tensors):
        yield Paragraph(unknown_text(unknown), "warning")
    if placed := sum(tensor.origin == "propagated" for tensor in predicted.tensors):
        yield Paragraph(propagated_text(placed), "muted")
    yield Paragraph(NOT_COMPILED, "muted")
    yield from _legend(predicted)


def _saved(compiled: Memory | PredictedMemory, top: int) -> Iterator[Paragraph]:
    savings = saved_together(compiled.under_sharded)
    if savings:
        left = len(savings) - len(savings[: top or None])
        more = f"; {counted(left, 'row')} left out by --top" if left else ""
        yield Paragraph(savings_text(sum(saving.saves for saving in savings)) + more)


def _legend(compiled: Memory | PredictedMemory) -> Iterator[Paragraph]:
    legend = memory_legend(
        padded=any(group.stored != group.bytes_per_device for group in compiled.groups),
        shared=any(group.shared for group in compiled.groups),
    )
    yield from (Paragraph(text, "muted") for text in legend)


def _footer(compiled: Memory, top: int) -> Iterator[Paragraph]:
    yield from _saved(compiled, top)
    if not compiled.is_text:
        yield from map(Paragraph, map(redundant_text, redundant(compiled.tensors)))
    if compiled.is_text:
        left = len(compiled.tensors) - top if top else 0
        if left > 0:
            yield Paragraph(f"{left:,} left out by --top")
    yield from (Paragraph(text, tone) for text, tone in sureness_texts(compiled.sureness))
    yield from _legend(compiled)
    if compiled.results_table:
        yield Paragraph(results_table_text(compiled.results_table), "muted")
    yield from (Paragraph(text, "warning") for text in memory_remarks(compiled.notes))
