"""What is most worth knowing about a program, in sentences, the most important first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.memory.memory import Memory, MemoryDocument
from sdyscope.analysis.propagation.propagate import PropagateDocument
from sdyscope.analysis.show import ShownProgram
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.program import Partitioner
from sdyscope.words.account import reason_text, unknown_text
from sdyscope.words.counts import counted, listed, sentence, size
from sdyscope.words.findings import Check
from sdyscope.words.mesh import axes_text
from sdyscope.words.partitioners import needs_sentence, partitioner_name, sends_sentence
from sdyscope.words.places import shown_name, source_text

Tone: TypeAlias = Literal["good", "plain", "warning", "bad"]

#: A difference between partitioners below this factor is not worth a headline.
_FACTOR = 1.1

#: Bytes that could be saved are worth a headline from this part of the arguments on.
_SAVING = 0.1


@dataclass(frozen=True, slots=True)
class Headline:
    """One thing worth knowing.

    Attributes:
        tone: how it is to be taken.
        words: it, in a sentence.
        detail: what stands behind it, or what to do; empty where nothing is to be added.
        view: the view of the report that shows it.
        query: what to show there, as the address says it; empty for all.
    """

    tone: Tone
    words: str
    detail: str
    view: str
    query: str = ""


def headlines(
    shown: ShownProgram,
    checked: Check,
    decided: PropagateDocument | None,
    held: MemoryDocument | None,
    sent: CommsDocument | None,
) -> tuple[Headline, ...]:
    """All there are. Where nothing is wrong, the first says so."""
    wrong = sorted(_wrong(shown, checked, decided), key=lambda headline: headline.tone != "bad")
    costs = (*_between_partitioners(decided, held, sent), *_remade(held), *_savings(held))
    good: tuple[Headline, ...] = ()
    if not any(tensor.requested for tensor in shown.tensors) and any(
        tensor.by_author for tensor in shown.tensors
    ):
        words = "No sharding is requested: where tensors live is left to the compiler."
        good = (Headline("plain", words, "", "tensors"),)
    elif not wrong and checked.compared:
        where = " and ".join(map(partitioner_name, checked.partitioners))
        good = (
            Headline(
                "good",
                f"Every tensor is lowered as requested under {where}.",
                f"{counted(checked.compared, 'comparison')}, all agree.",
                "tensors",
            ),
        )
    return (*wrong, *costs, *good, *_largest(sent))


def _wrong(
    shown: ShownProgram, checked: Check, decided: PropagateDocument | None
) -> Iterator[Headline]:
    for unknown in shown.account.unknowns:
        if unknown.kind == "refused" and unknown.stage == "lowered":
            under = listed(unknown.partitioners)
            yield Headline(
                "bad", f"There is no module under {under}.", reason_text(unknown.reason), "findings"
            )
    unread = [
        unknown
        for unknown in shown.account.unknowns
        if unknown.kind in ("not understood", "impossible")
    ]
    if unread:
        words = sentence(unknown_text(unread[0]))
        detail = f"And {len(unread) - 1:,} more." if unread[1:] else ""
        yield Headline("bad", words, detail, "tensors", "verdict=impossible")
    disagree = checked.compared - checked.agreed
    if disagree:
        yield Headline(
            "bad",
            f"{counted(disagree, 'tensor is', 'tensors are')} lowered otherwise than requested.",
            next((f.message for f in checked.findings if f.severity == "error"), ""),
            "tensors",
            "verdict=differs",
        )
    for finding in checked.findings:
        if finding.severity == "warning":
            place = _subject(finding.kind, finding.tensor, source_text(finding.source))
            more = sum(f.severity == "warning" for f in checked.findings) - 1
            also = f" {counted(more, 'more warning')}." if more else ""
            yield Headline("warning", finding.message, f"{place}.{also}", "findings")
            break
    moved = [v for v in decided.values if not all(v.as_requested.values())] if decided else []
    if moved:
        yield Headline(
            "bad",
            f"{counted(len(moved), 'tensor ends', 'tensors end')} elsewhere than requested.",
            f"{_subject(moved[0].kind, moved[0].name, source_text(moved[0].source))} is the first.",
            "tensors",
            "verdict=moved",
        )


def _between_partitioners(
    decided: PropagateDocument | None, held: MemoryDocument | None, sent: CommsDocument | None
) -> Iterator[Headline]:
    needs = needs_of(held)
    sends = [
        (program.partitioner, program.total.sent)
        for program in (sent.programs if sent is not None else ())
    ]
    differing = decided.differing if decided is not None else 0
    because = f"They place {counted(differing, 'value')} differently." if differing else ""
    query = "verdict=partitioners" if differing else ""
    if len(needs) == 2:
        few, many = sorted(memory.total for _, memory in needs)
        if few and many >= few * _FACTOR:
            yield Headline("warning", needs_sentence(needs), because, "tensors", query)
    if len(sends) == 2:
        few, many = sorted(bytes_ for _, bytes_ in sends)
        if many > few and many >= few * _FACTOR:
            yield Headline("warning", sends_sentence(sends), because, "tensors", query)
    if differing and len(needs) < 2:
        yield Headline(
            "warning",
            f"Shardy and GSPMD place {counted(differing, 'value')} differently.",
            "",
            "tensors",
            "verdict=partitioners",
        )


def needs_of(held: MemoryDocument | None) -> list[tuple[Partitioner | None, MemoryAnalysis]]:
    """What the compiler counts under each partitioner, as far as it says."""
    compiled = held.compiled if held is not None else ()
    return [
        (memory.partitioner, memory.compiler) for memory in compiled if memory.compiler is not None
    ]


def _remade(held: MemoryDocument | None) -> Iterator[Headline]:
    for memory in held.compiled if held is not None else ():
        if memory.rematerializations:
            many = len(memory.rematerializations)
            yield Headline(
                "warning",
                f"{counted(many, 'resharding makes', 'reshardings make')} a whole tensor on every "
                f"device under {partitioner_name(memory.partitioner)}.",
                memory.rematerializations[0],
                "communication",
            )


def _savings(held: MemoryDocument | None) -> Iterator[Headline]:
    memory: Memory | None = None if held is None else next(iter(held.compiled), None)
    if memory is None or not memory.savings:
        return
    saved = {tensor.name: tensor for tensor in memory.tensors if tensor.kind == "argument"}
    named = [saved[name] for name in memory.savings if name in saved]
    total = sum(tensor.saves for tensor in named)
    whole = sum(tensor.bytes_per_device for tensor in saved.values())
    if not named or total < whole * _SAVING:
        return
    most = named[0]
    yield Headline(
        "plain",
        f"{size(total)} of the {size(whole)} of arguments that a device holds could be held by "
        "other devices.",
        f"{most.name} is held {most.replicas} times; {most.best} would save {size(most.saves)}.",
        "memory",
    )


def _largest(sent: CommsDocument | None) -> Iterator[Headline]:
    if sent is None:
        return
    program = sent.programs[0]
    if not program.collectives or not program.total.sent:
        return
    largest = program.collectives[0]
    part = largest.parts[0] if largest.parts else None
    place = "" if part is None else source_text(part.source) or part.scope
    share = largest.sent / program.total.sent
    under = f" under {partitioner_name(program.partitioner)}" if len(sent.programs) > 1 else ""
    yield Headline(
        "plain",
        f"The largest collective{under} is {_article(largest.kind)} over "
        f"{axes_text(largest.axes, program.mesh)}, {share:.0%} of what is sent.",
        f"{size(largest.sent)} per step" + (f", for {place}" if place else "") + ".",
        "communication",
    )


def _subject(kind: str, name: str, source: str) -> str:
    """`constraint layer0/mlp at models/mlp.py:98`."""
    shown = shown_name(name, kind)
    own = "" if shown.startswith("jit(") and source else shown
    words = " ".join(filter(None, (kind, own, f"at {source}" if source else "")))
    return words or "The module"


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
