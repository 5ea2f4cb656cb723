"""What is most worth knowing about a program: a sentence, and what stands behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sdyscope.errors import indefinite
from sdyscope.facts.account import Reason, Unknown
from sdyscope.facts.differences import Divergence
from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.memory import Held
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.values.source import SourceLocation
from sdyscope.words.account import reason_text, unknown_text
from sdyscope.words.counts import counted, listed, sentence, size
from sdyscope.words.differences import begins_text, inputs_text
from sdyscope.words.edits import edits_text, loops_text
from sdyscope.words.origins import causes_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.rematerializations import rematerialization_text, resharding_text

#: A sentence, and what stands behind it; empty where nothing is to be added.
Said = tuple[str, str]

#: A smaller share is not given in percent.
_LEAST_PERCENT: Final = 0.01

#: Where nobody asks for a sharding.
NO_REQUEST: Final[Said] = (
    "No sharding is requested: where tensors live is left to the compiler.",
    "",
)


def as_requested_said(partitioners: Iterable[str], compared: int) -> Said:
    """Every tensor that was compared is lowered as requested."""
    return (
        f"Every tensor is lowered as requested under {partitioner_names(partitioners)}.",
        f"{counted(compared, 'comparison')}, all agree.",
    )


def edit_said(
    edits: Sequence[SourceEdit],
    sent: tuple[int, int],
    needed: tuple[int | None, int | None],
    *,
    corrects: bool,
    more_from: int | None,
) -> Said:
    """Edits of the source that were proven.

    Args:
        edits: the edits, taken together.
        sent: bytes that a device sends in a step, before and after.
        needed: bytes that it needs, likewise; None where the compiler does not say.
        corrects: whether they make wrong numbers right.
        more_from: from how many iterations of a loop on more is sent; None for never.
    """
    wins = [f"sends {size(sent[1])} per step, not {size(sent[0])}"] if sent[1] < sent[0] else []
    before, after = needed
    if after is not None and before is not None and after < before:
        wins.append(f"needs {size(after)}, not {size(before)}")
    if corrects:
        wins.append("computes the right numbers")
    won = f": a device {', and '.join(wins)}" if wins else ""
    verb = "pays" if len(edits) == 1 else "pay"
    detail = f"{sentence(edits_text(edits))} Compiled, and its numbers compared."
    if more_from is not None:
        detail += f" {sentence(loops_text(more_from))}"
    return f"{counted(len(edits), 'edit')} of the source {verb}{won}.", detail


def no_module_said(partitioners: Sequence[str], reason: Reason) -> Said:
    """There is no module under some partitioner."""
    return f"There is no module under {listed(partitioners)}.", reason_text(reason)


def unread_said(unknown: Unknown, others: int) -> Said:
    """A sharding that can't be read or can't be, the first of several."""
    return sentence(unknown_text(unknown)), f"And {others:,} more." if others else ""


def disagree_text(tensors: int) -> str:
    """How many tensors are lowered otherwise than requested."""
    return f"{counted(tensors, 'tensor is', 'tensors are')} lowered otherwise than requested."


def warned_text(kind: str, name: str, line: str, others: int) -> str:
    """What a warning is about, and how many others there are."""
    more = f" {counted(others, 'more warning')}." if others else ""
    return f"{_subject(kind, name, line)}.{more}"


def moved_said(tensors: int, kind: str, name: str, line: str) -> Said:
    """Tensors that propagation puts elsewhere than requested, and the first of them."""
    return (
        f"{counted(tensors, 'tensor ends', 'tensors end')} elsewhere than requested.",
        f"{_subject(kind, name, line)} is the first.",
    )


def differing_text(values: int) -> str:
    """How many values the partitioners place differently."""
    return f"Shardy and GSPMD place {counted(values, 'value')} differently."


def begins_again_text(line: str) -> str:
    """Where they begin to, where that was said in full already; empty where it is not known."""
    return f"The differences begin at {line}." if line else ""


def begins_said(values: int, begun: Sequence[Divergence], *, counts: bool = True) -> str:
    """Where the partitioners begin to differ, in sentences; empty where they don't.

    Args:
        values: how many they place differently.
        begun: where that begins, the largest first.
        counts: whether to say how many they are, where that was not said before.
    """
    if not values or not (begun or counts):
        return ""
    many = f"They place {counted(values, 'value')} differently"
    if not begun:
        return f"{many}."
    first = begun[0].begins
    line = source_text(first.value.source)
    text = begins_text(first.value.name, line, first.a, first.b)
    places = f"at {counted(len(begun), 'place')}" if begun[1:] else ""
    if counts:
        opening = f"{many}, beginning {places}" if places else many
    else:
        opening = f"The differences begin {places}" if places else "The first of them"
    inputs = inputs_text((each.name, each.sharding) for each in begun[0].inputs)
    return " ".join(filter(None, (f"{opening}: {text}.", inputs and sentence(inputs))))


def remade_said(remade: Sequence[Rematerialization], partitioner: str | None) -> Said:
    """Reshardings that make a whole tensor on every device."""
    words = f"{rematerialization_text(remade[0])}, {resharding_text(remade[0])}".rstrip(", ")
    count = counted(len(remade), "resharding makes", "reshardings make")
    under = partitioner_name(partitioner)
    return f"{count} a whole tensor on every device under {under}.", sentence(words)


def savings_said(whole: int, savings: Sequence[Held]) -> Said:
    """What of the arguments could be sharded further.

    Args:
        whole: bytes of arguments on a device.
        savings: the arguments that could be, at least one, what saves most first.
    """
    saves, most = sum(argument.saves for argument in savings), savings[0]
    return (
        f"Of the {size(whole)} of arguments on each device, {size(saves)} could be sharded "
        "further.",
        f"{most.name} is held {most.replicas} times; {most.best} would save {size(most.saves)}.",
    )


def largest_said(
    kind: str,
    over: str,
    count: int,
    share: float,
    sent: int,
    place: str,
    origins: Iterable[CollectiveOrigin],
    callers: Sequence[SourceLocation],
    under: str | None,
) -> Said:
    """What most is sent for, repeated layers together.

    Args:
        kind: the collectives' kind.
        over: what they run over: ``over data=4``, ``in groups of 4``.
        count: how many they are.
        share: what share of all bytes they send.
        sent: bytes that a device sends for them in a step.
        place: their line, or their scope; empty for none.
        origins: why they are there.
        callers: the lines behind theirs.
        under: the partitioner, where that needs to be said.
    """
    by = f" under {partitioner_name(under)}" if under else ""
    what = (
        f"collective{by} is {indefinite(kind)} {over}"
        if count == 1
        else f"collectives{by} are {counted(count, kind)} {over}"
    )
    why = causes_text(origins, callers=callers)
    detail = f"{size(sent)} per step" + (f", for {place}" if place else "")
    percent = f"{share:.0%}" if share >= _LEAST_PERCENT else "less than 1%"
    return (
        f"The largest {what}, {percent} of what is sent.",
        f"{detail}{', ' if why else ''}{why}.",
    )


def _subject(kind: str, name: str, line: str) -> str:
    """`constraint layer0/mlp at models/mlp.py:98`."""
    shown = shown_name(name, kind)
    own = "" if shown.startswith("jit(") and line else shown
    return " ".join(filter(None, (kind, own, f"at {line}" if line else ""))) or "The module"
