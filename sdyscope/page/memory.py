"""The memory of the report: what a device holds, by group, and what could be held by others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sdyscope.analysis.memory.memory import Memory, MemoryDocument
from sdyscope.analysis.memory.options import Saving, redundant, saved_together
from sdyscope.errors import SdyscopeError
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.memory import MemoryPart
from sdyscope.facts.over_time import CATEGORIES, MemoryOverTime
from sdyscope.facts.program import Partitioner
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.page.headlines import needs_of
from sdyscope.terminal.paragraphs import by_partitioner
from sdyscope.terminal.steps import distinct_memory
from sdyscope.words.counts import sentence
from sdyscope.words.hardware import compiled_text
from sdyscope.words.memory import (
    NOTHING_SAVED,
    agreement_text,
    group_text,
    held_text,
    memory_legend,
    memory_remarks,
    part_text,
    peak_text,
    redundant_text,
    results_table_text,
    savings_text,
    sureness_texts,
)
from sdyscope.words.over_time import (
    CATEGORY_TEXTS,
    LEGEND,
    PHASE_TEXTS,
    basis,
    holding_name,
    peak_sentence,
)
from sdyscope.words.partitioners import needs_sentence, partitioner_name, stored_sentence
from sdyscope.words.places import source_text
from sdyscope.words.propagation import origin_text
from sdyscope.words.tone import Tone

#: How many members of a suggestion are listed.
MEMBERS = 200

#: How many things are listed that are held at the peak.
HELD = 100


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The bars, groups and suggestions; `reports/js/memory/view.js` shows them.

    Args:
        report: the inspection as a document.
        pool: not needed.

    Raises:
        SdyscopeError: nothing was compiled.
    """
    if report.memory is None:
        raise SdyscopeError(f"Memory is not known. {report.why_not_compiled}".strip())
    return {
        "title": stored_sentence(report.memory.compiled[0].stored)
        if report.memory.compiled[0].is_text
        else needs_sentence(needs_of(report.memory)),
        "needs": needs(report.memory),
        "holds": [
            {"partitioners": list(partitioners), **_holds(memory)}
            for memory, partitioners in by_partitioner(report.memory.compiled, _holds)
        ],
        "steps": [
            _step(step, partitioners)
            for step, partitioners in distinct_memory(report.memory.over_time)
        ],
        "notes": [note for memory in report.memory.compiled for note in _notes(memory)],
    }


def _holds(memory: Memory) -> dict[str, Any]:
    """What a device holds by group, and what of it others could hold."""
    savings = saved_together(memory.under_sharded)
    return {
        "groups": [
            {
                "kind": group.kind,
                "name": group_text(group.title),
                "tensors": group.tensors,
                "bytes": group.bytes,
                "device": group.bytes_per_device,
                "stored": group.stored,
                "replicated": group.replicated,
                "shared": group.shared,
            }
            for group in memory.groups
        ],
        "savings": list(map(_saving, savings)),
        "saved": sentence(savings_text(sum(saving.saves for saving in savings)))
        if savings
        else NOTHING_SAVED,
        "beyond": [sentence(redundant_text(tensors)) for tensors in redundant(memory.tensors)],
        "legend": list(map(sentence, _legend(memory))),
    }


def _step(over_time: MemoryOverTime, partitioners: Sequence[Partitioner]) -> dict[str, Any]:
    """Memory over a step: what is held at each moment, and at the peak."""
    moments = over_time.moments
    names = [name for name in CATEGORIES if any(name in moment.by_category for moment in moments)]
    peak = max(range(len(moments)), key=lambda number: moments[number].bytes, default=0)
    return {
        "partitioners": list(partitioners),
        "title": sentence(peak_sentence(over_time)),
        "line": source_text(over_time.source),
        "peak": over_time.peak,
        "moment": peak,
        "instructions": over_time.instructions,
        "positions": [moment.position for moment in moments],
        "categories": [
            {
                "name": name,
                "words": CATEGORY_TEXTS[name],
                "bytes": [moment.by_category.get(name, 0) for moment in moments],
            }
            for name in names
        ],
        "phases": [
            {"name": PHASE_TEXTS[stretch.phase], "start": stretch.start, "end": stretch.end}
            for stretch in over_time.phases
        ],
        "held": [
            {
                "name": holding_name(holding),
                "tensor": "" if holding.op or holding.count > 1 else holding.name,
                "category": holding.category,
                "array": holding.array.partition("{")[0],
                "count": holding.count,
                "bytes": holding.bytes,
                "line": source_text(holding.source),
                "origins": list(map(origin_text, holding.origins)),
            }
            for holding in over_time.held[:HELD]
        ],
        "more": max(len(over_time.held) - HELD, 0),
        "rest": sum(holding.bytes for holding in over_time.held[HELD:]),
        "basis": [sentence(text) for text, _ in basis(over_time)] + [sentence(LEGEND)],
    }


#: What stands in the bar of what a device needs, in order.
_STACKED = (
    MemoryPart.ARGUMENTS,
    MemoryPart.RESULTS,
    MemoryPart.TEMPORARIES,
    MemoryPart.CODE,
)


def needs(held: MemoryDocument | None) -> list[dict[str, Any]]:
    """What a device needs under each partitioner, as far as the compiler says.

    In all, and by the parts that there are under any: a name, what it is called and bytes.
    """
    known = needs_of(held)
    parts = [part for part in _STACKED if any(analysis.part(part) for _, analysis in known)]

    def row(analysis: MemoryAnalysis, part: MemoryPart) -> tuple[str, str, int]:
        return part.value, part_text(part, analysis.aliases), analysis.part(part)

    return [
        {
            "partitioner": partitioner,
            "total": analysis.total,
            "parts": [row(analysis, part) for part in parts],
            "aliases": row(analysis, MemoryPart.ALIASES),
        }
        for partitioner, analysis in known
    ]


def _legend(memory: Memory) -> tuple[str, ...]:
    return memory_legend(
        padded=any(group.stored != group.bytes_per_device for group in memory.groups),
        shared=any(group.shared for group in memory.groups),
    )


def _notes(memory: Memory) -> Iterator[tuple[str, Tone]]:
    """What stands below, each with its tone."""
    under = f"{partitioner_name(memory.partitioner)}: " if memory.partitioner else ""
    if compiled := compiled_text(memory.hardware, memory.device_kind):
        yield f"{under}{compiled}.", "plain"
    if memory.equal is False:
        yield f"{under}{sentence(agreement_text(memory.equal))}", "bad"
    for text, tone in sureness_texts(memory.sureness):
        yield f"{under}{sentence(text)}", tone
    if memory.results_table:
        yield f"{under}{sentence(results_table_text(memory.results_table))}", "plain"
    if memory.compiler is not None and memory.compiler.peak:
        yield f"{under}{sentence(peak_text(memory.compiler.peak))}", "plain"
    for text in memory_remarks(memory.notes):
        yield f"{under}{text}", "warning"


def _saving(saving: Saving) -> dict[str, Any]:
    """What could be sharded further; the tensors of layers that are placed alike are one row."""
    first = saving.tensors[0]
    return {
        "name": saving.name,
        "kind": first.kind,
        "tensors": len(saving.tensors),
        "names": [tensor.name for tensor in saving.tensors[:MEMBERS]],
        "shape": first.shape,
        "dtype": first.dtype,
        "sharding": held_text(first),
        "replicas": first.replicas,
        "best": str(first.best),
        "saves": saving.saves,
    }
