"""What a device holds, as tables, and the words around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.memory.memory import Group, Memory, MemoryDocument
from sdyscope.analysis.memory.options import saved_together
from sdyscope.analysis.memory.predicted import PredictedMemory
from sdyscope.analysis.search.zero import TrainingState
from sdyscope.facts.program import Partitioner
from sdyscope.terminal.alike import alike
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, fitted, number, shape
from sdyscope.views.check import finding_paragraphs
from sdyscope.views.show import REPLICAS
from sdyscope.words.counts import counted, size
from sdyscope.words.findings import told as told_finding
from sdyscope.words.memory import (
    NOT_COMPILED,
    agreement_text,
    chosen_text,
    propagated_text,
    remade_text,
    results_table_text,
    savings_text,
    unknown_text,
)
from sdyscope.words.mesh import mesh_words_of

#: What of the compiler's notes is for those who ask for costs.
_COSTS = "cost analysis"


def told(document: MemoryDocument) -> Iterator[tuple[Memory, tuple[Partitioner, ...]]]:
    """What to tell of, each with the partitioners under which a device holds the same."""
    for same in alike(document.compiled, _bare):
        yield same[0], tuple(one.partitioner for one in same if one.partitioner is not None)


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


def heading(document: MemoryDocument, compiled: Memory, partitioners: Sequence[Partitioner]) -> str:
    """The program, its meshes and what it was compiled for, in a line."""
    kind = compiled.device_kind
    name = f"{document.name} ({document.file})" if compiled.hardware is None else document.name
    if compiled.hardware is None:
        made = f"compiled for {counted(compiled.devices, 'device')}"
    else:
        on = str(compiled.hardware) if kind == "cpu" else f"{compiled.hardware} ({kind})"
        made = f"compiled for {on} under {' and '.join(partitioners)} by JAX {document.jax_version}"
    return "; ".join([name, *mesh_words_of(document.meshes), made])


def predicted_heading(document: MemoryDocument, predicted: PredictedMemory) -> str:
    """The program, its meshes and whose propagation it is by, in a line."""
    name = f"{document.name} ({document.file})" if document.file else document.name
    made = f"predicted by {predicted.partitioner}'s propagation, not compiled"
    return "; ".join([name, *mesh_words_of(document.meshes), made])


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
    cells: list[Cell | str] = [group.title, f"{group.tensors:,}"]
    if whole:
        cells.append(size(group.bytes))
    cells.append(size(group.bytes_per_device))
    if padded:
        cells.append(size(group.stored))
    cells.append(_size_or_dash(group.replicated))
    if shared:
        cells.append(_size_or_dash(group.shared))
    return tuple(cells)


def _size_or_dash(count: int) -> Cell:
    return Cell(size(count)) if count else Cell("-", "muted")


def _needed(compiled: Memory | PredictedMemory, *, before: int, empty: int) -> list[Row]:
    said = compiled.compiler if isinstance(compiled, Memory) else None
    if said is None:
        held = ("arguments and results", *[""] * before, size(compiled.stored), *[""] * empty)
        return [Heading("a device holds"), held]
    lines = [
        ("arguments", said.arguments),
        (
            "results" if not said.aliases else "other results",
            said.results,
        ),
        ("temporaries", said.temporaries),
        ("code", said.generated_code),
        ("total", said.total),
        ("and of the host's memory", said.host),
    ]
    optional = ("code", "and of the host's memory")
    return [
        Heading("a device needs, by the compiler"),
        *(
            (what, *[""] * before, size(count), *[""] * empty)
            for what, count in lines
            if count or what not in optional
        ),
    ]


def savings(compiled: Memory | PredictedMemory, top: int, columns: int | None = None) -> Table:
    """A row for each tensor that could be sharded further, what saves most first.

    Args:
      compiled: the document.
      top: how many rows; 0 for all.
      columns: the width to keep to. Where the table is wider, the types are left out.
    """
    return fitted(lambda brief: _savings_table(compiled, top, brief=brief), columns)


def _savings_table(compiled: Memory | PredictedMemory, top: int, *, brief: bool) -> Table:
    found = saved_together(compiled.under_sharded)
    rows: list[Row] = []
    for saving in found[: top or None]:
        first = saving.tensors[0]
        count = len(saving.tensors)
        name = first.name if count == 1 else f"{saving.name} ({count:,})"
        kind = [] if brief else [shape(*first.type)]
        held = (str(first.sharding), f"{first.replicas or 0:,}")
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
            one.kind,
            f"{one.tensors:,}",
            size(one.bytes),
            size(one.bytes_per_device),
            f"{one.bytes / state.parameters:.3g}",
        )
        for one in state.kept
    ]
    rows.append(
        (
            f"total of {counted(state.parameters, 'parameter')}",
            "",
            size(sum(one.bytes for one in state.kept)),
            size(sum(one.bytes_per_device for one in state.kept)),
            f"{state.bytes_a_parameter:.3g}",
        )
    )
    return Table(columns, tuple(rows))


def stages(state: TrainingState) -> Table:
    """A row a ZeRO stage: what a device would hold of each, and send in a step."""
    over = " x ".join(state.axes)
    columns = (
        Column(f"over {over}={state.devices:,}", fold=False),
        *(number(one.kind) for one in state.kept),
        number("held"),
        number("sent"),
    )
    rows: list[Row] = [
        (
            stage.name,
            *(size(stage.kept[one.kind]) for one in state.kept),
            size(stage.held),
            Cell("-", "muted") if stage.sent is None else size(stage.sent),
        )
        for stage in state.stages
    ]
    return Table(columns, tuple(rows))


def stages_traffic(state: TrainingState) -> Table:
    """A row a kind and axes of collectives, a column a stage: bytes that a device sends."""
    named = [stage for stage in state.stages if stage.traffic is not None]
    keys = dict.fromkeys((one.kind, one.axes) for stage in named for one in stage.traffic or ())
    columns = (
        Column("a device sends", fold=False),
        Column("over"),
        *(number(stage.name) for stage in named),
    )
    rows: list[Row] = []
    for kind, axes in keys:
        cells: list[Cell | str] = []
        for stage in named:
            found = [one for one in stage.traffic or () if (one.kind, one.axes) == (kind, axes)]
            cells.append(
                f"{size(sum(one.sent for one in found))} in {sum(one.count for one in found):,}"
                if found
                else Cell("-", "muted")
            )
        rows.append((kind, " x ".join(axes) or "?", *cells))
    return Table(columns, tuple(rows))


def training_footer(state: TrainingState) -> Iterator[Paragraph]:
    """What the figures of the stages are."""
    yield from (Paragraph(text, tone, hang=3) for text, tone in training_remarks(state))


def training_remarks(state: TrainingState) -> Iterator[tuple[str, Tone]]:
    """What is not known of the stages, and whose figures they are."""
    yield (
        "gradients: of the parameters' types, sharded like their optimizer state, or else like the "
        "parameters",
        "muted",
    )
    if not state.axes:
        yield "no ZeRO stages: no axis of the mesh carries the batch; --axes names some", "warning"
        return
    by = "XLA's partitioner" if state.partitioned else "Shardy's reshards"
    yield (
        f"stages: the program's own state sharded so, propagated by Shardy; sent: by {by}, an "
        "all-reduce of which a device takes its slice counted as a reduce-scatter",
        "muted",
    )
    yield (
        "ZeRO-1 and ZeRO-2 are one program here: a gradient is a temporary, which the compiler "
        "reduces into slices or whole",
        "muted",
    )
    for why in dict.fromkeys(stage.why for stage in state.stages if stage.why):
        yield f"a stage is not known: {why}", "warning"


def footer(compiled: Memory, top: int, partitioners: Sequence[Partitioner]) -> Iterator[Paragraph]:
    """What the numbers are, what was left out, and what was found.

    Args:
      compiled: the document.
      top: how many rows the table of savings has at most; 0 for all.
      partitioners: of whose program this is told.
    """
    for paragraph in _footer(compiled, top):
        yield replace(paragraph, hang=3)
    findings = compiled.findings
    if len(partitioners) > 1:
        findings = tuple(replace(finding, partitioner=None) for finding in findings)
    yield from finding_paragraphs(tuple(map(told_finding, findings)))


def predicted_footer(predicted: PredictedMemory, top: int) -> Iterator[Paragraph]:
    """What the numbers are, and what was left out; ``top`` is as of ``footer``."""
    for paragraph in (*_saved(predicted, top), *_predicted_legend(predicted)):
        yield replace(paragraph, hang=3)


def _predicted_legend(predicted: PredictedMemory) -> Iterator[Paragraph]:
    if unknown := sum(tensor.origin == "unknown" for tensor in predicted.tensors):
        yield Paragraph(unknown_text(unknown), "warning")
    if placed := sum(tensor.origin == "propagated" for tensor in predicted.tensors):
        yield Paragraph(propagated_text(placed), "muted")
    yield Paragraph(NOT_COMPILED, "muted")
    yield from _legend(predicted)


def _saved(compiled: Memory | PredictedMemory, top: int) -> Iterator[Paragraph]:
    found = saved_together(compiled.under_sharded)
    if found:
        left = len(found) - len(found[: top or None])
        more = f"; {counted(left, 'row')} left out by --top" if left else ""
        yield Paragraph(savings_text(sum(saving.saves for saving in found)) + more)


def _legend(compiled: Memory | PredictedMemory) -> Iterator[Paragraph]:
    yield Paragraph(
        "per device: what a device holds; redundant: what it would not hold if every block were "
        "stored once",
        "muted",
    )
    if any(group.stored != group.bytes_per_device for group in compiled.groups):
        yield Paragraph("stored: with the padding of the hardware's tiles", "muted")
    if any(group.shared for group in compiled.groups):
        yield Paragraph(
            "reused: buffers of donated arguments, in which results are stored", "muted"
        )


def _footer(compiled: Memory, top: int) -> Iterator[Paragraph]:
    yield from _saved(compiled, top)
    if compiled.hardware is not None:
        yield from map(Paragraph, beyond_help(compiled))
    if compiled.hardware is None:
        left = len(compiled.tensors) - top if top else 0
        if left > 0:
            yield Paragraph(f"{left:,} left out by --top")
        if compiled.compiler is None:
            yield Paragraph(
                "the text of a compiled program has neither temporaries nor global tensor "
                "sizes: name the program itself to compile it",
                "muted",
            )
    yield from (Paragraph(text, tone) for text, tone in remarks(compiled))
    yield from _legend(compiled)
    if compiled.results_table:
        yield Paragraph(results_table_text(compiled.results_table), "muted")
    yield from (Paragraph(note, "warning") for note in notes(compiled))


def notes(compiled: Memory) -> list[str]:
    """What else the compiler has to say of memory."""
    return [note for note in compiled.notes if _COSTS not in note]


def remarks(compiled: Memory) -> Iterator[tuple[str, Tone]]:
    """How sure the figures are, and who placed the tensors; no finding says that."""
    if compiled.hardware is not None:
        if compiled.equal is not False:  # That they differ is a finding.
            yield agreement_text(compiled.equal), "good" if compiled.equal else "warning"
        origins = Counter(tensor.origin for tensor in compiled.tensors)
        if origins["unknown"]:
            yield unknown_text(origins["unknown"]), "warning"
        if origins["compiled"]:
            yield chosen_text(origins["compiled"]), "muted"
    if compiled.rematerializations:
        yield remade_text(len(compiled.rematerializations)), "warning"


#: What takes a smaller part of all that is redundant is not worth a line.
_WORTH_TELLING = 0.01


def beyond_help(compiled: Memory) -> Iterator[str]:
    """What is redundant in tensors that the table of savings can't have."""
    tensors = [tensor for tensor in compiled.tensors if tensor.replicated and not tensor.best]
    least = _WORTH_TELLING * sum(tensor.replicated for tensor in compiled.tensors)
    for named, why in (
        (True, "that no free axis divides"),
        (False, "whose sharding has no name here for the axes of a mesh"),
    ):
        members = [tensor for tensor in tensors if (tensor.sharding is not None) is named]
        wasted = sum(tensor.replicated for tensor in members)
        if wasted > least:
            words = counted(len(members), "tensor")
            yield f"{size(wasted)} per device are redundant in {words} {why}"
