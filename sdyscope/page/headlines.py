"""What is most worth knowing about a program, in sentences, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.collectives.groups import collective_groups
from sdyscope.analysis.figures import differ_notably
from sdyscope.analysis.fix.values import Fix
from sdyscope.analysis.memory.memory import Memory, MemoryDocument
from sdyscope.analysis.propagation.propagate import PropagateDocument
from sdyscope.analysis.show import ShownProgram
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.differences import Divergence
from sdyscope.facts.program import Partitioner
from sdyscope.words import headlines as words
from sdyscope.words.findings import Check
from sdyscope.words.mesh import along_text
from sdyscope.words.partitioners import needs_sentence, sends_sentence
from sdyscope.words.places import source_text

Tone: TypeAlias = Literal["good", "plain", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Headline:
    """One thing worth knowing.

    Attributes:
        tone: how it is to be taken.
        words: it, in a sentence.
        detail: what stands behind it, or what to do; empty where nothing is to be added.
        view: the view of the report that shows it.
        query: what to show there, as the address says it; empty for all.
        line: the source line that `detail` names, as it is written there; empty for none.
    """

    tone: Tone
    words: str
    detail: str
    view: str
    query: str = ""
    line: str = ""


def headlines(
    shown: ShownProgram | None,
    checked: Check | None,
    decided: PropagateDocument | None,
    held: MemoryDocument | None,
    sent: CommsDocument | None,
    begun: Sequence[Divergence] = (),
    fix: Fix | None = None,
) -> tuple[Headline, ...]:
    """All there are. Where nothing is wrong, the first says so.

    Args:
        shown: its tensors; None for a compiled program's text.
        checked: what was requested against what was lowered; None likewise.
        decided: its values; None where they are not known.
        held: what a device holds; None likewise.
        sent: what a device sends; None likewise.
        begun: where the partitioners begin to differ, the largest first.
        fix: edits of its source; None where none were looked for.
    """
    costs = (*_between_partitioners(decided, held, sent, begun), *_remade(sent), *_savings(held))
    if shown is None or checked is None:
        return (*costs, *_largest(sent))
    wrong = sorted(_wrong(shown, checked, decided), key=lambda headline: headline.tone != "bad")
    good: tuple[Headline, ...] = ()
    if shown.is_authored and not any(tensor.requested for tensor in shown.tensors):
        good = (Headline("plain", *words.NO_REQUEST, "tensors"),)
    elif not wrong and checked.compared:
        said = words.as_requested_said(checked.partitioners, checked.compared)
        good = (Headline("good", *said, "tensors"),)
    return (*wrong, *_edit(fix), *costs, *good, *_largest(sent))


def _edit(fix: Fix | None) -> Iterator[Headline]:
    """The best proven edit."""
    if fix is None or not fix.proven:
        return
    best = fix.proven[0]
    said = words.edit_said(
        best.edits,
        (fix.before.sent, best.after.sent),
        (fix.before.total, best.after.total),
        corrects=best.verdict == "corrects",
        more_from=best.more_from,
    )
    source = source_text(best.edits[0].source)
    yield Headline("good", *said, "overview", "at=edits", source)


def _wrong(
    shown: ShownProgram, checked: Check, decided: PropagateDocument | None
) -> Iterator[Headline]:
    unknowns = shown.account.unknowns
    for unknown in unknowns:
        if unknown.kind == "refused" and unknown.stage == "lowered":
            said = words.no_module_said(unknown.partitioners, unknown.reason)
            yield Headline("bad", *said, "findings")
    unread = [each for each in unknowns if each.kind in ("not understood", "impossible")]
    if unread:
        said = words.unread_said(unread[0], len(unread) - 1)
        yield Headline("bad", *said, "tensors", "verdict=impossible")
    disagree = checked.compared - checked.agreed
    if disagree:
        first = next((f.message for f in checked.findings if f.severity == "error"), "")
        text = words.disagree_text(disagree)
        yield Headline("bad", text, first, "tensors", "verdict=differs")
    warnings = [finding for finding in checked.findings if finding.severity == "warning"]
    for finding in warnings[:1]:
        line = source_text(finding.source)
        detail = words.warned_text(finding.kind, finding.tensor, line, len(warnings) - 1)
        yield Headline("warning", finding.message, detail, "findings", line=line)
    moved = [v for v in decided.values if v.disagrees] if decided else []
    if moved:
        line = source_text(moved[0].source)
        said = words.moved_said(len(moved), moved[0].kind, moved[0].name, line)
        yield Headline("bad", *said, "tensors", "verdict=moved", line)


def _between_partitioners(
    decided: PropagateDocument | None,
    held: MemoryDocument | None,
    sent: CommsDocument | None,
    begun: Sequence[Divergence],
) -> Iterator[Headline]:
    differing = decided.differing if decided is not None else 0
    line = source_text(begun[0].begins.value.source) if differing and begun else ""
    view, query = ("differences", "open=1") if begun else ("tensors", "verdict=partitioners")
    needs = needs_of(held)
    sends = [
        (program.partitioner, program.total.sent)
        for program in (sent.programs if sent is not None else ())
    ]
    worse = []
    if len(needs) == 2 and differ_notably(*(memory.total for _, memory in needs)):
        worse.append(needs_sentence(needs))
    if len(sends) == 2 and differ_notably(*(bytes_ for _, bytes_ in sends)):
        worse.append(sends_sentence(sends))
    because = words.begins_said(differing, begun, counts=bool(worse))
    if not worse and differing:
        worse = [words.differing_text(differing)]
    for number, text in enumerate(worse):
        # Where they begin is said in full once.
        detail = words.begins_again_text(line) if number else because
        where = (view, query) if differing else ("tensors", "")
        yield Headline("warning", text, detail, *where, line)


def needs_of(held: MemoryDocument | None) -> list[tuple[Partitioner | None, MemoryAnalysis]]:
    """What the compiler counts under each partitioner, as far as it says."""
    compiled = held.compiled if held is not None else ()
    return [
        (memory.partitioner, memory.compiler) for memory in compiled if memory.compiler is not None
    ]


def _remade(sent: CommsDocument | None) -> Iterator[Headline]:
    for program in sent.programs if sent is not None else ():
        if remade := program.rematerializations:
            said = words.remade_said(remade, program.partitioner)
            line = source_text(remade[0].source)
            yield Headline("warning", *said, "communication", line=line)


def _savings(held: MemoryDocument | None) -> Iterator[Headline]:
    memory: Memory | None = None if held is None else next(iter(held.compiled), None)
    if memory is None or not memory.large_savings:
        return
    said = words.savings_said(memory.argument_bytes, memory.large_savings)
    yield Headline("plain", *said, "memory")


def _largest(sent: CommsDocument | None) -> Iterator[Headline]:
    """What is sent most for, repeated layers together."""
    if sent is None:
        return
    program = sent.programs[0]
    groups = collective_groups(program)
    if not groups or not program.total.sent:
        return
    largest = groups[0]
    first = largest.first
    source = source_text(first.largest.source)
    said = words.largest_said(
        first.kind,
        along_text(first.axes, program.mesh, first.group_size),
        largest.count,
        largest.sent / program.total.sent,
        largest.sent,
        source or largest.scope,
        largest.origins,
        largest.callers,
        program.partitioner if len(sent.programs) > 1 else None,
    )
    yield Headline("plain", *said, "communication", f"open={quote(first.name)}", source)
