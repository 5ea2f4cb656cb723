"""What is most worth knowing about a program, in sentences, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.collectives.groups import collective_groups
from sdyscope.analysis.fix.values import Fix
from sdyscope.analysis.memory.memory import Memory, MemoryDocument
from sdyscope.analysis.propagation.propagate import PropagateDocument
from sdyscope.analysis.show import ShownProgram
from sdyscope.errors import indefinite
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.differences import Divergence
from sdyscope.facts.program import Partitioner
from sdyscope.words.account import reason_text, unknown_text
from sdyscope.words.counts import counted, listed, sentence, size
from sdyscope.words.differences import begins_text, inputs_text
from sdyscope.words.edits import edits_text, loops_text
from sdyscope.words.findings import Check
from sdyscope.words.mesh import axes_text
from sdyscope.words.origins import causes_text
from sdyscope.words.partitioners import (
    needs_sentence,
    partitioner_name,
    partitioner_names,
    sends_sentence,
)
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.rematerializations import rematerialization_text, resharding_text

Tone: TypeAlias = Literal["good", "plain", "warning", "bad"]

#: A difference between partitioners below this factor is not worth a headline.
_FACTOR = 1.1

#: A smaller share is not given in percent.
_LEAST_PERCENT = 0.01

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
        words = "No sharding is requested: where tensors live is left to the compiler."
        good = (Headline("plain", words, "", "tensors"),)
    elif not wrong and checked.compared:
        where = partitioner_names(checked.partitioners)
        good = (
            Headline(
                "good",
                f"Every tensor is lowered as requested under {where}.",
                f"{counted(checked.compared, 'comparison')}, all agree.",
                "tensors",
            ),
        )
    return (*wrong, *_edit(fix), *costs, *good, *_largest(sent))


def _edit(fix: Fix | None) -> Iterator[Headline]:
    """The best proven edit."""
    if fix is None or not fix.proven:
        return
    best = fix.proven[0]
    before, after = fix.before, best.after
    wins = []
    if after.sent < before.sent:
        wins.append(f"sends {size(after.sent)} per step, not {size(before.sent)}")
    if after.total is not None and before.total is not None and after.total < before.total:
        wins.append(f"needs {size(after.total)}, not {size(before.total)}")
    if best.verdict == "corrects":
        wins.append("computes the right numbers")
    won = f": a device {', and '.join(wins)}" if wins else ""
    edited = counted(len(best.edits), "edit")
    source = source_text(best.edits[0].source)
    verb = "pays" if len(best.edits) == 1 else "pay"
    words = f"{edited} of the source {verb}{won}."
    detail = f"{sentence(edits_text(best.edits))} Compiled, and its numbers compared."
    if best.more_from is not None:
        detail += f" {sentence(loops_text(best.more_from))}"
    yield Headline("good", words, detail, "overview", "at=edits", source)


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
            line = source_text(finding.source)
            place = _subject(finding.kind, finding.tensor, line)
            more = sum(f.severity == "warning" for f in checked.findings) - 1
            also = f" {counted(more, 'more warning')}." if more else ""
            yield Headline("warning", finding.message, f"{place}.{also}", "findings", line=line)
            break
    moved = [v for v in decided.values if not all(v.as_requested.values())] if decided else []
    if moved:
        yield Headline(
            "bad",
            f"{counted(len(moved), 'tensor ends', 'tensors end')} elsewhere than requested.",
            f"{_subject(moved[0].kind, moved[0].name, source_text(moved[0].source))} is the first.",
            "tensors",
            "verdict=moved",
            source_text(moved[0].source),
        )


def _between_partitioners(
    decided: PropagateDocument | None,
    held: MemoryDocument | None,
    sent: CommsDocument | None,
    begun: Sequence[Divergence],
) -> Iterator[Headline]:
    differing = decided.differing if decided is not None else 0
    because, line = _begins(differing, begun)
    view, query = ("differences", "open=1") if begun else ("tensors", "verdict=partitioners")
    needs = needs_of(held)
    sends = [
        (program.partitioner, program.total.sent)
        for program in (sent.programs if sent is not None else ())
    ]
    worse = []
    if len(needs) == 2 and _is_worse(*(memory.total for _, memory in needs)):
        worse.append(needs_sentence(needs))
    if len(sends) == 2 and _is_worse(*(bytes_ for _, bytes_ in sends)):
        worse.append(sends_sentence(sends))
    if not worse and differing:
        worse = [f"Shardy and GSPMD place {counted(differing, 'value')} differently."]
    for number, words in enumerate(worse):
        # Where they begin is said in full once.
        again = f"The differences begin at {line}." if line else ""
        detail = again if number else because
        yield Headline(
            "warning",
            words,
            detail,
            view if differing else "tensors",
            query * bool(differing),
            line,
        )


def _is_worse(count: int, other: int) -> bool:
    few, many = sorted((count, other))
    return many > few > 0 and many >= few * _FACTOR


def _begins(differing: int, begun: Sequence[Divergence]) -> tuple[str, str]:
    """Where the partitioners begin to differ, in sentences, and its line."""
    if not differing:
        return "", ""
    many = f"They place {counted(differing, 'value')} differently"
    if not begun:
        return f"{many}.", ""
    first = begun[0].begins
    line = source_text(first.value.source)
    text = begins_text(first.value.name, line, (first.a, first.b), ("under Shardy", "under GSPMD"))
    places = f", beginning at {counted(len(begun), 'place')}" if begun[1:] else ""
    inputs = inputs_text((each.name, each.sharding) for each in begun[0].inputs)
    return " ".join(
        filter(None, (f"{many}{places}: {text}.", inputs and f"{sentence(inputs)}"))
    ), line


def needs_of(held: MemoryDocument | None) -> list[tuple[Partitioner | None, MemoryAnalysis]]:
    """What the compiler counts under each partitioner, as far as it says."""
    compiled = held.compiled if held is not None else ()
    return [
        (memory.partitioner, memory.compiler) for memory in compiled if memory.compiler is not None
    ]


def _remade(sent: CommsDocument | None) -> Iterator[Headline]:
    for program in sent.programs if sent is not None else ():
        if program.rematerializations:
            first = program.rematerializations[0]
            words = f"{rematerialization_text(first)}, {resharding_text(first)}".rstrip(", ")
            many = len(program.rematerializations)
            yield Headline(
                "warning",
                f"{counted(many, 'resharding makes', 'reshardings make')} a whole tensor on every "
                f"device under {partitioner_name(program.partitioner)}.",
                sentence(words),
                "communication",
                line=source_text(first.source),
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
        f"Of the {size(whole)} of arguments on each device, {size(total)} could be sharded "
        "further.",
        f"{most.name} is held {most.replicas} times; {most.best} would save {size(most.saves)}.",
        "memory",
    )


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
    place = source or largest.scope
    share = _percent(largest.sent / program.total.sent)
    under = f" under {partitioner_name(program.partitioner)}" if len(sent.programs) > 1 else ""
    over = (
        f"in groups of {first.group_size}"
        if program.mesh is None
        else f"over {axes_text(first.axes, program.mesh)}"
    )
    what = (
        f"collective{under} is {indefinite(first.kind)} {over}"
        if largest.count == 1
        else f"collectives{under} are {counted(largest.count, first.kind)} {over}"
    )
    why = causes_text(largest.origins, callers=largest.callers)
    detail = f"{size(largest.sent)} per step" + (f", for {place}" if place else "")
    yield Headline(
        "plain",
        f"The largest {what}, {share} of what is sent.",
        f"{detail}{', ' if why else ''}{why}.",
        "communication",
        f"open={quote(first.name)}",
        source,
    )


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= _LEAST_PERCENT else "less than 1%"


def _subject(kind: str, name: str, source: str) -> str:
    """`constraint layer0/mlp at models/mlp.py:98`."""
    shown = shown_name(name, kind)
    own = "" if shown.startswith("jit(") and source else shown
    words = " ".join(filter(None, (kind, own, f"at {source}" if source else "")))
    return words or "The module"
