"""The memory of the report: what a device holds, by group, and what could be held by others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.memory.options import Saving, saved_together
from sdyscope.errors import SdyscopeError
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.page.headlines import needs_of
from sdyscope.terminal.table import Tone
from sdyscope.views.memory import beyond_help, notes, remarks
from sdyscope.words.counts import sentence
from sdyscope.words.memory import agreement_text, peak_text, results_table_text, savings_text
from sdyscope.words.partitioners import needs_sentence, partitioner_name

#: How many members of a suggestion are listed.
MEMBERS = 200


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The bars, groups and suggestions; `reports/js/memory/view.js` shows them.

    Args:
      report: the inspection as a document.
      pool: not needed.

    Raises:
      SdyscopeError: nothing was compiled.
    """
    if report.memory is None:
        reasons = [one.reason for one in report.unavailable if one.stage == "compiled"]
        raise SdyscopeError(" ".join(["Memory is not known.", *reasons[:1]]))
    return {
        "title": needs_sentence(needs_of(report.memory)),
        "programs": [_program(one) for one in report.memory.compiled],
        "notes": [note for one in report.memory.compiled for note in _notes(one)],
    }


def _program(one: Memory) -> dict[str, Any]:
    said = one.compiler
    savings = saved_together(one.under_sharded)
    return {
        "partitioner": one.partitioner,
        "needs": None if said is None else figures(said),
        "groups": [
            {
                "kind": group.kind,
                "name": group.title,
                "tensors": group.tensors,
                "bytes": group.bytes,
                "device": group.bytes_per_device,
                "stored": group.stored,
                "replicated": group.replicated,
                "shared": group.shared,
            }
            for group in one.groups
        ],
        "savings": list(map(_saving, savings)),
        "saved": sentence(savings_text(sum(saving.saves for saving in savings)))
        if savings
        else "Every tensor is held once, or no free mesh axis divides it.",
        "beyond": list(map(sentence, beyond_help(one))),
    }


def figures(said: MemoryAnalysis) -> dict[str, int]:
    """What a device needs, by part and in all."""
    return {
        "arguments": said.arguments,
        "outputs": said.results,
        "aliased": said.aliases,
        "temporaries": said.temporaries,
        "code": said.generated_code,
        "total": said.total,
    }


def _notes(one: Memory) -> Iterator[tuple[str, Tone]]:
    """What stands below, each with its tone."""
    name = partitioner_name(one.partitioner)
    kind = "" if str(one.hardware).startswith(one.device_kind) else f" ({one.device_kind})"
    yield f"{name}: compiled for {one.hardware}{kind}.", "plain"
    if one.equal is False:
        yield f"{name}: {sentence(agreement_text(one.equal))}", "bad"
    for text, tone in remarks(one):
        yield f"{name}: {sentence(text)}", tone
    if one.results_table:
        yield f"{name}: {sentence(results_table_text(one.results_table))}", "plain"
    if one.compiler is not None and one.compiler.peak:
        yield f"{name}: {sentence(peak_text(one.compiler.peak))}", "plain"
    for note in notes(one):
        yield f"{name}: {note}", "warning"


def _saving(one: Saving) -> dict[str, Any]:
    """What could be sharded further; the tensors of layers that are placed alike are one row."""
    first = one.tensors[0]
    return {
        "name": one.name,
        "kind": first.kind,
        "tensors": len(one.tensors),
        "names": [tensor.name for tensor in one.tensors[:MEMBERS]],
        "shape": first.shape,
        "dtype": first.dtype,
        "sharding": str(first.sharding),
        "replicas": first.replicas,
        "best": str(first.best),
        "saves": one.saves,
    }
