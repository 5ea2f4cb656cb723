"""Edits of a program's source, and what became of them, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sdyscope.facts.counterfactuals import (
    AxisCause,
    AxisCauses,
    CheckedEdits,
    Counterfactual,
    Removals,
    TriedEdits,
)
from sdyscope.facts.edits import MovedResult, NotTakenBecause, Numbers, SourceEdit
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.counts import counted, few, idle_text, size
from sdyscope.words.mesh import sizes_words
from sdyscope.words.origins import spec_text
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.run import UNSIMPLIFIED
from sdyscope.words.sharding import REPLICATED
from sdyscope.words.tone import Tone

#: An expression longer than this is shown by its beginning.
_LONGEST = 48


def then_text(checked: CheckedEdits) -> str:
    """How a value is sharded with edits, a clause."""
    after = checked.after
    is_whole = isinstance(after, PartitionSpec) and not (any(after.entries) or after.unreduced)
    return f"it is then {REPLICATED if is_whole else spec_text(after)}"


def not_tried_text() -> str:
    """That no edits were looked for, and what looks for them."""
    return (
        "Edits of the source were not tried: `sdyscope report --fix` looks for those that send or "
        "hold less."
    )


#: What a step is measured by, before an edit and after.
FIGURES: Final[Mapping[str, str]] = {
    "sent": "sent per step",
    "count": "collectives",
    "total": "memory per device",
    "seconds": "estimated step",
}


def tried_text(tried: int, compiled: int, hardware: object | None) -> str:
    """How many edits were tried; without hardware none of them pays."""
    words = f"{tried:,} edits were tried, {compiled:,} compiled"
    return f"No edit pays: {words}." if hardware is None else f"{words} for {hardware}."


def edit_text(edit: SourceEdit) -> str:
    """`constrain params['embedding'][tokens] to P('fsdp', None, None)`."""
    name = _short(edit.name)
    if edit.kind == "new constraint":
        return f"constrain {name} to {_spec(edit.after)}"
    if edit.kind == "constraint":
        if edit.after is None:
            now = f" {edit.before}" if edit.before is not None else ""
            return f"remove the constraint{now}" + (f" of {name}" if name else "")
        return f"constrain {name or 'the value'} to {edit.after} instead of {_spec(edit.before)}"
    if edit.kind == "type":
        of = f" of {name}" if name else ""
        if edit.after is None:
            return f"leave out the type {_spec(edit.before)}{of}"
        return f"make the type{of} {edit.after} instead of {_spec(edit.before)}"
    if edit.kind == "reshard":
        return f"leave out the reshard of {name} to {_spec(edit.before)}"
    if edit.kind == "logical axis" and edit.before is not None and edit.after is not None:
        (before,), (after,) = edit.before.entries, edit.after.entries
        return f"map the logical axis {edit.name!r} to {after!r} instead of {before!r}"
    if edit.kind in ("argument", "result"):
        shown = shown_name(edit.name, edit.kind)
        others = f" and {counted(edit.count - 1, 'more tensor')}" if edit.count > 1 else ""
        if edit.after is None:
            return f"leave {shown}{others} to the compiler instead of {_spec(edit.before)}"
        return f"shard {shown}{others} as {_spec(edit.after)} instead of {_spec(edit.before)}"
    if edit.kind == "optimizer state":
        shown, count = shown_name(edit.name, "argument"), edit.count - 1
        others = f" and {counted(count, 'more tensor')}" if count else ""
        whose = "their parameters" if count else "its parameter"
        return f"shard {shown}{others} as {whose} instead of {_spec(edit.before)}"
    if edit.kind == "shard_map":
        return f"map {name} with {_spec(edit.after)} instead of {_spec(edit.before)}"
    if edit.kind == "donation":
        others = f" and {counted(edit.count - 1, 'more tensor')}" if edit.count > 1 else ""
        # Proven or not, a caller that goes on using it fails.
        return f"donate {shown_name(edit.name, 'argument')}{others}, which the call then deletes"
    if edit.kind == "mesh" and edit.mesh is not None:
        return f"put the axes of the mesh in the order {', '.join(edit.mesh.shape)}"
    if edit.kind == "mesh sizes" and edit.mesh is not None:
        return f"make the mesh {sizes_words(edit.mesh.shape)}"
    return _OTHERS[edit.kind].format(name=name)


_OTHERS: Final[Mapping[str, str]] = {
    "repeated reduction": "leave out {name}: it is already summed",
    "reduction in a loop": "sum {name} once after the loop, not in each iteration",
    "reduction and slice": "reduce-scatter {name} instead of slicing its sum",
    "gather and slice": "use each device's own block of {name} instead of gathering it",
    "setting": "set {name}",
}

_WHY_NOT: Final[Mapping[NotTakenBecause, str]] = {
    "not written": "not written",
    "left open": "not written: the program leaves it to the compiler",
    "no place": "not written: nothing in the source was found that shards just that",
    "shared place": "not written: what shards it in the source shards another tensor as well",
    "not built": "the edited source does not build",
    "no other program": "the edited source traces to the same program",
    "not donated": "traced again, the program does not donate it",
    "refused": "the compiler refuses it",
    "sends no less": "traced again, it is predicted to gain nothing",
    "loses": "compiled, it gains nothing",
    "numbers differ": "its numbers differ",
}


def edits_text(edits: Iterable[SourceEdit]) -> str:
    """Edits that are taken together, each with its line."""
    return "; ".join(
        f"{edit_text(edit)} ({source_text(edit.source)})" if edit.source else edit_text(edit)
        for edit in edits
    )


_WORTH: Final[Mapping[str, str]] = {
    "pays": "",
    "trade": ", less of one thing for more of another",
    "corrects": ", corrects the numbers",
    "loses": ", gains nothing",
}


def gain_text(
    sent: tuple[int, int], total: tuple[int | None, int | None], count: int, *, proven: bool
) -> str:
    """What an edited program sends and needs instead, and whether that is proven.

    Args:
        sent: bytes that a device sends in a step, before and after.
        total: bytes that it needs, likewise; None where the compiler does not say.
        count: collectives of a step of the edited program.
        proven: whether it is proven.
    """
    needs = (
        ""
        if total[0] is None or total[1] is None
        else f", and needs {size(total[1])} instead of {size(total[0])}"
    )
    return (
        f"{'Proven' if proven else 'Not proven'}: a device then sends {size(sent[1])} instead of "
        f"{size(sent[0])} per step in {counted(count, 'collective')}{needs}"
    )


def worth_text(verdict: str, *, proven: bool) -> str:
    """What a remedy is worth, behind its name: `, corrects the numbers: proven`."""
    return f"{_WORTH[verdict]}: {'proven' if proven else 'not proven'}"


def remedy_title(number: int, verdict: str, *, proven: bool) -> str:
    """``Remedy 1, corrects the numbers: proven``."""
    return f"Remedy {number}{worth_text(verdict, proven=proven)}"


def loops_text(more_from: int) -> str:
    """That an edit sends less only where loops of unknown trip count are short, a clause."""
    turns = counted(more_from, "iteration")
    return f"from {turns} of a loop of unknown trip count on, a device sends more than now"


def numbers_text(numbers: Numbers) -> tuple[str, Tone]:
    """Whether an edited program computes the same, and how that is known; with its tone."""
    where = f" on {numbers.devices}" if numbers.devices else ""
    error = (
        f"largest relative error {numbers.error:.1e} of {numbers.tolerance:.1e} allowed, "
        f"{numbers.worst}"
        if numbers.error
        else "no difference"
    )
    results = counted(numbers.results, "result")
    if numbers.compared < numbers.results:
        results = f"{numbers.compared:,} of {results}"
        error += "; the others are zero, empty, not finite or not reduced"
    equal, do = ("equals", "does") if results == "1 result" else ("equal", "do")
    alone = "one device computes"
    if not numbers.is_simplified:
        alone += f", {UNSIMPLIFIED}"
    texts: Mapping[str, tuple[str, Tone]] = {
        "same": (
            f"{results} of the edited program {equal} the original's{where} ({error})",
            "good",
        ),
        "corrected": (
            f"{results} of the edited program {equal} what {alone}, and the original's "
            f"{do} not{where} ({error})",
            "good",
        ),
        "other random": (
            f"the edited program draws other random numbers{where} ({error})",
            "warning",
        ),
        "differ": (f"results differ{where} ({error})", "bad"),
        "not compared": (f"not compared: {numbers.reason}", "warning"),
    }
    text, tone = texts[numbers.verdict]
    idle = idle_text(numbers.idle_loops, numbers.idle_branches)
    if idle and numbers.verdict in ("same", "corrected"):
        text += f"; {idle} did not run on these inputs: give the program inputs on which each runs"
        tone = "warning"
    return text, tone


#: How many results are named that an edited program leaves elsewhere.
_MOVED: Final = 3

#: Where a result is that no PartitionSpec describes.
_ELSEWHERE: Final = "what no PartitionSpec says"


def moved_text(moved: Sequence[MovedResult]) -> str:
    """That results are sharded otherwise than before: ``result is P('x'), not P('x', 'y')``."""
    named = [_moved_result(result) for result in moved[:_MOVED]]
    if len(moved) > _MOVED:
        more = len(moved) - _MOVED
        named.append(f"{more:,} more {'is' if more == 1 else 'are'} sharded differently")
    return "; ".join(named)


def next_step_text(moved: Sequence[MovedResult], sent: int | None, needs: int | None) -> str:
    """What becomes of a step with these as its arguments; empty where it is the same program.

    Args:
        moved: results that are elsewhere.
        sent: bytes that a device sends in that step; None where not known.
        needs: bytes that it needs; None likewise.
    """
    fed = [result for result in moved if result.no_longer_fed]
    # Where JAX refuses some, that is all there is to say.
    said = [result for result in fed if result.is_refused] or fed
    if not said:
        return ""
    names = few([result.no_longer_fed for result in said], _MOVED)
    takes = f"takes the next {'value' if len(said) == 1 else 'values'} of {names} sharded otherwise"
    if said[0].is_refused:
        return f"{takes} than in_shardings say: JAX refuses it"
    figures = "what it takes is not known"
    if sent is not None:
        figures = f"it sends {size(sent)}" + ("" if needs is None else f" and needs {size(needs)}")
    return f"{takes} than this one, so it is another program, compiled again: {figures}"


def _moved_result(result: MovedResult) -> str:
    """One of them; with the meshes, where these are all that differs."""
    before, after = result.before, result.after
    texts = f"{after or _ELSEWHERE}", f"{before or _ELSEWHERE}"
    if before is not None and after is not None and texts[0] == texts[1]:
        meshes = (sizes_words(each.mesh.shape) for each in (after, before))
        return f"{result.name} is {texts[0]} on {', not on '.join(meshes)}"
    return f"{result.name} is {', not '.join(texts)}"


def causes_texts(causes: AxisCauses) -> Iterator[str]:
    """Whether the annotation that an axis comes from is necessary, and which others suffice."""
    where = f"dim {causes.dimension} on {causes.axis}"
    if causes.cause is None:
        yield f"{where}: it comes from no annotation that can be removed"
    elif causes.necessary is None:
        cause = cause_text(causes.cause)
        yield f"{where}: {cause} may be necessary: the program can't be propagated without it"
    elif causes.necessary:
        yield f"{where}: {cause_text(causes.cause)} is necessary: the axis is gone without it"
    else:
        yield f"{where}: {cause_text(causes.cause)} is not necessary: the axis stays without it"
    others = [cause for cause in causes.sufficient if cause != causes.cause]
    if causes.cause is not None and causes.cause not in causes.sufficient:
        yield f"{where}: it is not sufficient on its own, with no other annotation over the axis"
    if others:
        yield f"{where}: sufficient on their own: {_first_causes(others)}"
    elif causes.others:
        count = counted(causes.others, "other annotation")
        yield f"{where}: none of the {count} is sufficient on its own"


def aim_text(counterfactual: Counterfactual) -> str:
    """What edits are to do: `to take model off it`; `to shard it as P('data', None)`."""
    if counterfactual.removed:
        return f"to take {counterfactual.removed} off it"
    return f"to shard it as {counterfactual.wanted}"


def checked_edits_text(counterfactual: Counterfactual, checked: CheckedEdits) -> str:
    """What edits of annotations do, before the edits themselves."""
    how = "the fewest removals" if checked.smallest else "removals none of which can be left out"
    return f"{aim_text(counterfactual)}, {how} (propagated again)"


def no_edits_text(counterfactual: Counterfactual) -> str:
    """That none of the removals of annotations does what is asked for; other edits may."""
    if counterfactual.removed:
        behind, does = "behind it", f"takes {counterfactual.removed} off it"
    else:
        behind, does = "behind it or in its way", f"shards it as {counterfactual.wanted}"
    if counterfactual.complete:
        return f"no removal of annotations {behind} {does}"
    return f"none of the removals of annotations that were tried {does}"


def trials_texts(counterfactual: Counterfactual) -> Iterator[str]:
    """How often was propagated to know it, and what could not be known that way."""
    yield f"checked with {counted(counterfactual.propagations, 'propagation')}"
    if counterfactual.crashed:
        count = counted(counterfactual.crashed, "propagation")
        yield f"{count} crashed Shardy: what those edits do is not known"


def _first_causes(causes: Sequence[AxisCause]) -> str:
    return few(list(map(cause_text, causes)), _NAMED)


def removal_texts(removals: Removals, what: str) -> Iterator[str]:
    """What becomes of something without each annotation, and with each alone.

    Args:
        removals: what was tried.
        what: what it is: `the collective`.
    """
    without_it, without_any, without_all = (
        ("if it loses the axis", "if any one of them loses the axis", "if all of them lose it")
        if removals.removed
        else ("without it", "without any one of them", "without all of them")
    )
    for tried in removals.causes:
        if tried.necessary is None:
            yield (
                f"{cause_text(tried.cause)} can't be removed: the compiler refuses the program "
                "without it"
            )
        elif tried.necessary:
            yield f"{cause_text(tried.cause)} is necessary: {what} is gone {without_it}"
    others = [tried.cause for tried in removals.causes if tried.necessary is False]
    if len(others) == 1:
        yield f"{cause_text(others[0])} is not necessary: {what} stays {without_it}"
    elif others:
        none = "these are not" if len(others) < len(removals.causes) else "none of these is"
        yield f"{none} necessary; {what} stays {without_any}: {_first_causes(others)}"
    if removals.is_kept and len(removals.causes) > 1:
        yield f"{what} stays even {without_all}: something else causes it"
    if len(removals.causes) < 2 or removals.is_kept:
        return
    alone = [tried.cause for tried in removals.causes if tried.sufficient]
    if alone:
        yield f"sufficient on {'its' if len(alone) == 1 else 'their'} own: {_first_causes(alone)}"
    elif all(tried.sufficient is False for tried in removals.causes):
        yield "none of them is sufficient on its own"


def no_removal_text(removals: Removals) -> str:
    """That no edits were found without which something is gone."""
    if not removals.causes:
        over = f" over {removals.removed}" if removals.removed else ""
        return f"no annotation{over} that can be removed is known to cause it"
    now, then = (
        ("lose the axis", "lost the axis") if removals.removed else ("are removed", "were removed")
    )
    if removals.complete and not removals.is_kept:
        return f"it stays whichever of these annotations {now}"
    return f"it stayed in every trial in which some of these annotations {then}"


def not_identified_text(what: str) -> str:
    """That nothing was tried: what is asked about has another name in a trial.

    Args:
        what: what it is: `the collective`.
    """
    return f"no annotation was removed: trials of the program can't identify {what}"


def removal_trials_text(removals: Removals) -> str:
    """How often the compiler was asked."""
    how = "partitioning" if removals.differing is None else "propagating"
    return f"checked by {how} the program {counted(removals.tried, 'time')}"


def tried_edits_text(
    remedy: TriedEdits, removals: Removals, *, adds: bool = False
) -> tuple[str, bool]:
    """What a program with some edits then does, as it was tried, and whether that is better.

    Args:
        remedy: the edits.
        removals: what was tried.
        adds: whether they are one more annotation.
    """
    how = "the fewest removals that end it"
    if adds:
        how = "one more annotation that ends it"
    elif not remedy.smallest:
        how = "removals that end it, none of which can be left out"
    if remedy.sent is not None and removals.sent is not None:
        return (
            f"{how}; partitioned again, a device sends {size(remedy.sent)} per step instead of "
            f"{size(removals.sent)}",
            remedy.sent < removals.sent,
        )
    if remedy.differing is not None and removals.differing is not None:
        count = remedy.differing
        values = counted(count, "comparable value")
        return (
            f"{how}; propagated again, {values} differ{'s' * (count == 1)} instead of "
            f"{removals.differing:,}",
            count < removals.differing,
        )
    return how, True


def cause_text(cause: AxisCause) -> str:
    """`params['w1'] P(None, 'model')`, `the constraint at train.py:42 P('data', None)`."""
    spec = f"({cause.count} of different shardings)" if cause.spec is None else cause.spec
    if cause.kind in ("constraint", "type") and cause.source is not None:
        return f"the {cause.kind} at {source_text(cause.source)} {spec}"
    return f"{shown_name(cause.name, cause.kind)} {spec}"


#: How many annotations are named that suffice.
_NAMED = 4


def why_not_text(why: NotTakenBecause, detail: str = "") -> str:
    """Why an edit was not taken, as a clause."""
    said = detail.strip().rstrip(".")
    return f"{_WHY_NOT[why]}: {said}" if said else _WHY_NOT[why]


def _spec(spec: PartitionSpec | None) -> str:
    return "no sharding" if spec is None else str(spec)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
