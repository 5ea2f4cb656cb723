"""What `search` found, as tables, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from sdyscope.analysis.search.space import MOST_OPTIONS, Decision
from sdyscope.analysis.search.values import Candidate, DecisionChange, Search
from sdyscope.analysis.trials.cost import Prediction
from sdyscope.facts.traffic import sent_side_by_side
from sdyscope.terminal.answer import Block
from sdyscope.terminal.answer import heading as headline
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import (
    Cell,
    Column,
    Heading,
    Row,
    Table,
    Tone,
    fitted,
    number,
    shape,
    size_cell,
)
from sdyscope.values.sharding import UNCONSTRAINED
from sdyscope.views import fix
from sdyscope.words.counts import counted, size
from sdyscope.words.mesh import mesh_words_of, names_text
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.rates import bandwidth_text, metric_text, time_text
from sdyscope.words.remarks import remark_text, remark_texts

#: Candidates of the front that are shown hold at least a tenth less than the one before.
_LESS = 0.9

#: How many of them.
_SHOWN = 6

_OPEN = "left open"
_DIFFER = "several ways"


def heading(search: Search) -> Iterator[Paragraph]:
    """The program, what was searched, and what came of it."""
    words = [search.name, *mesh_words_of(search.meshes), f"lowered by JAX {search.jax_version}"]
    yield Paragraph("; ".join(words), "heading")
    tensors = sum(
        member.kind == "argument"
        for decision in search.space.decisions
        for member in decision.members
    )
    constraints = sum(
        len(decision.members) for decision in search.space.decisions if decision.is_constraint
    )
    inside = f" and {counted(constraints, 'constraint')}" if constraints else ""
    axes = search.space.axes
    yield Paragraph(
        f"{counted(tensors, 'argument')}{inside} in "
        f"{counted(len(search.space.decisions), 'decision')} "
        f"over {counted(len(axes), 'axis', 'axes')} ({', '.join(axes)}): "
        f"{_large(search.space.size)} candidates",
    )
    parts = ""
    if search.checked:
        parts = (
            f": {search.tried - search.near:,} first, then {search.near:,} near the best of the "
            f"{search.checked:,} that XLA partitioned"
        )
    yield Paragraph(f"{search.tried:,} predicted ({search.a_minute:,.0f} per minute){parts}")


def candidates(search: Search) -> Table:
    """A row for the program as it is, the best, and what holds less memory for more cost."""
    rows = [_row(search, "as it is", search.start)]
    if search.chosen is not None:
        rows.append(_row(search, "best", search.chosen, "good"))
    for index, candidate in enumerate(shown(search), 1):
        rows.append(_row(search, f"other {index}", candidate))
    checked = [number("by XLA")] if search.partitioned else []
    timed = [number("estimate")] if search.rates.bandwidths else []
    return Table(
        (
            Column("shardings", fold=False),
            number("sent, predicted"),
            *checked,
            number("FLOPs"),
            number("cost"),
            *timed,
            number("held"),
            number("changes"),
        ),
        tuple(rows),
    )


def shown(search: Search) -> list[Candidate]:
    """The candidates of the front that differ much enough to be shown, without the best."""
    limit = search.start.prediction.held if search.chosen is None else search.chosen.prediction.held
    others = []
    for candidate in search.front:
        if (
            candidate.prediction.held < _LESS * limit
            and candidate.changes
            and candidate != search.chosen
        ):
            others.append(candidate)
            limit = candidate.prediction.held
    return others[:_SHOWN]


def _row(search: Search, name: str, candidate: Candidate, tone: Tone = "plain") -> Row:
    known = candidate.known
    checked = (
        [size(candidate.partitioned.sent if candidate.partitioned else None)]
        if search.partitioned
        else []
    )
    timed = [time_text(candidate.seconds)] if search.rates.bandwidths else []
    return (
        Cell(name, tone),
        size(candidate.prediction.sent),
        *checked,
        metric_text(known.flops),
        size(round(candidate.cost)),
        *timed,
        size(known.held),
        f"{len(candidate.changes):,}" if candidate.changes else "-",
    )


def changes(search: Search, *, everything: bool = False) -> Table:
    """What to write in the program for the best, and with `everything` for the others, too."""
    groups: list[tuple[str, Candidate]] = []
    if search.chosen is not None:
        groups.append(("best", search.chosen))
    if everything:
        groups += [
            (f"other {index}", candidate) for index, candidate in enumerate(shown(search), 1)
        ]
    rows: list[Row] = []
    for title, candidate in groups:
        if len(groups) > 1:
            rows.append(Heading(title))
        rows += [
            (
                _name(change.decision),
                _now(change.decision),
                Cell(_after(change), "good"),
                _members(change.decision),
            )
            for change in candidate.changes
        ]
    return Table(
        (Column("change"), Column("now", fold=False), Column("to", fold=False), Column("with it")),
        tuple(rows),
    )


def _after(change: DecisionChange) -> str:
    spec = change.after
    gone = change.decision.is_constraint and {*spec.entries} == {UNCONSTRAINED}
    return "none" if gone else str(spec)


def _now(decision: Decision) -> str:
    if decision.differ:
        return _DIFFER
    return _OPEN if decision.now is None else str(decision.now)


def _name(decision: Decision) -> str:
    searched = sum(member.part == "searched" for member in decision.members)
    if decision.is_constraint:
        where = source_text(decision.source) or shown_name(decision.name, "constraint")
        return f"constraint at {where}" + (f" ({searched:,})" if searched > 1 else "")
    return f"{decision.name} ({searched:,})" if searched > 1 else decision.name


def _members(decision: Decision) -> str:
    """What has to be changed in the same way."""
    follows = sum(member.part == "follows" for member in decision.members)
    results = sum(member.part == "result" for member in decision.members)
    words = []
    if follows:
        words.append(counted(follows, "state tensor"))
    if results:
        words.append(counted(results, "result"))
    return ", ".join(words) or "-"


def decisions(search: Search) -> Table:
    """What is decided."""
    return Table(
        (Column("decision"), Column("type"), Column("now"), number("whole"), number("options")),
        tuple(
            (
                _name(decision),
                shape(decision.shape, decision.dtype),
                _now(decision),
                size(decision.bytes),
                f"{decision.option_count:,}{' of more' if decision.limited else ''}",
            )
            for decision in search.space.decisions
        ),
    )


def traffic(search: Search, columns: int | None = None) -> Table | None:
    """What a device sends by kind and axes, as it is and as it would be; None without a best.

    Args:
        search: the document.
        columns: the width to keep to. Where the table is wider, what is predicted is left out if
            something better is known.
    """
    best = search.chosen
    if best is None:
        return None
    known = bool(search.partitioned)
    return fitted(lambda brief: _traffic(search, best, predicted=not (brief and known)))(columns)


def _traffic(search: Search, best: Candidate, *, predicted: bool) -> Table:
    columns: list[tuple[str, Prediction]] = []
    if predicted:
        columns += [("predicted now", search.start.prediction), ("best", best.prediction)]
    if search.start.partitioned is not None and best.partitioned is not None:
        columns += [("by XLA now", search.start.partitioned), ("best", best.partitioned)]
    pair = search.compiled_pair
    if pair is not None:
        columns += [("compiled now", pair[0].measured), ("best", pair[1].measured)]
    rows: list[Row] = [
        (kind, names_text(axes), *map(size_cell, counts))
        for (kind, axes), counts in sent_side_by_side([each.traffic for _, each in columns])
        if any(counts)
    ]
    rows.append(("total", "", *(size(figures.sent) for _, figures in columns)))
    return Table(
        (
            Column("a device sends", fold=False),
            Column("over", fold=False),
            *(number(title) for title, _ in columns),
        ),
        tuple(rows),
    )


def footer(search: Search, *, everything: bool = False) -> Iterator[Paragraph]:
    """What came of it, what the numbers are, and what was left out."""
    yield from _outcome(search)
    yield from _not_taken(search)
    if search.refused > search.crashed:
        count = counted(search.refused - search.crashed, "candidate")
        yield Paragraph(f"{count} refused: {search.refusal}", "warning")
    if search.crash is not None:
        yield Paragraph(
            f"{counted(search.crashed, 'candidate')} crashed the compiler ({search.crash.how}), "
            f"{'the first with' if search.crashed > 1 else 'with'} "
            f"{_in_words(search.crash.changes)}",
            "warning",
        )
    limited = sum(decision.limited for decision in search.space.decisions)
    if limited:
        yield Paragraph(
            f"{counted(limited, 'decision')} with more than {MOST_OPTIONS:,} options: only the "
            "first of them are tried, those with the fewest axes",
            "warning",
        )
    others = shown(search)
    if others and not everything:
        yield Paragraph("--all shows the changes of the others and every decision")
    for text in (*remark_texts(search.notes), *_legend(search)):
        yield Paragraph(text, "muted")


def _not_taken(search: Search) -> Iterator[Paragraph]:
    """The plans that were compiled for nothing, by what was wrong with them."""
    plans: dict[str, list[str]] = {}
    for trial in search.trials:
        if not trial.better:
            words = _in_words(trial.candidate.changes)
            plans.setdefault(remark_text(trial.why), []).append(words)
    for why, several in plans.items():
        if len(several) == 1:
            yield Paragraph(f"not taken: {several[0]}. {why}", "warning")
            continue
        yield Paragraph(f"not taken, {counted(len(several), 'plan')}: {why}", "warning")
        for words in several:
            yield Paragraph(words, "warning", indent=2)


def _in_words(changes: Iterable[DecisionChange]) -> str:
    return ", ".join(f"{_name(change.decision)} {_after(change)}" for change in changes)


def patch(search: Search, *, applied: bool = False) -> list[Block]:
    """The best as a patch, with its proof; nothing where none was asked for."""
    answer = search.patch
    if answer is None:
        return []
    remedies = answer.remedies[:1]
    none = [Paragraph("no part of it that can be written into the source pays", "warning")]
    parts: list[Block] = [headline("as a patch"), *([] if remedies else [none])]
    for remedy in remedies:
        parts += fix.blocks(answer, remedy)
    return [*parts, fix.footer(answer, everything=True, applied=applied)]


def _outcome(search: Search) -> Iterator[Paragraph]:
    if search.chosen is None:
        yield Paragraph("nothing better than the program's own shardings was found", "good")
        return
    start, best = search.start, search.chosen
    before, after = start.known, best.known
    if search.outcome == "not confirmed":
        yield from _not_confirmed(search)
        return
    label = "by XLA's partitioner" if best.partitioned else "predicted"
    yield Paragraph(
        f"{label}: a device sends {_times(before.sent, after.sent)} and holds "
        f"{_times(before.held, after.held)}",
        "good",
    )
    pair = search.compiled_pair
    if pair is not None:
        written, chosen = pair
        sends = f"a device sends {_times(written.measured.sent, chosen.measured.sent)}"
        needs = (
            f" and needs {_times(written.total, chosen.total)} in total"
            if written.total is not None and chosen.total is not None
            else ""
        )
        yield Paragraph(f"confirmed by a compile for {chosen.hardware}: {sends}{needs}", "good")
    else:
        yield Paragraph("not compiled", "warning")


def _not_confirmed(search: Search) -> Iterator[Paragraph]:
    """What was promised most and what the compiler made of it."""
    yield Paragraph(
        f"once compiled, none of the best {counted(len(search.trials), 'plan')} is better than the "
        "program as it is",
        "warning",
    )
    pair = search.compiled_pair
    best = search.chosen
    if pair is None or best is None:
        return
    label = "by XLA's partitioner" if best.partitioned else "predicted"
    first, two = pair
    yield Paragraph(
        f"the best was expected to send {size(best.known.sent)} ({label}); compiled for "
        f"{two.hardware}, a device sends {size(two.measured.sent)} and needs {size(two.total)}, "
        f"against {size(first.measured.sent)} and {size(first.total)} as it is",
        "warning",
    )


def _times(before: int, after: int) -> str:
    if before == after:
        return f"as much ({size(after)})"
    if not before:
        return f"{size(after)} instead of nothing"
    if abs(after / before - 1) < 0.005:
        return f"about as much ({size(after)})"
    if after < before:
        return f"{100 * (1 - after / before):.0f}% less ({size(after)})"
    if after < 2 * before:
        return f"{100 * (after / before - 1):.0f}% more ({size(after)})"
    return f"{after / before:.1f} times as much ({size(after)})"


def _legend(search: Search) -> Iterable[str]:
    sentences = []
    if search.partitioned:
        sentences.append(
            "sent, predicted: from Shardy's own reshards; by XLA: from XLA's partitioner"
        )
    per_byte = search.rates.flops_per_byte
    cost = "bytes sent"
    if search.rates.bandwidths:
        given = ", ".join(
            f"{axis} {bandwidth_text(v)}" for axis, v in search.rates.bandwidths.items()
        )
        cost += f", scaled to the fastest axis ({given})"
    if not math.isinf(per_byte):
        cost += f", plus one byte per {per_byte:,.0f} FLOPs of matmuls"
    sentences.append(f"cost: {cost}; held: arguments and results, which the cost does not include")
    if search.limit is not None:
        sentences.append(f"at most {size(search.limit)} of arguments and results on a device")
    pair = search.compiled_pair
    if pair is not None and not pair[1].comparable:
        sentences.append(
            "compiled: a CPU has no reduce-scatter, and sends bf16 as f32; compile for the real "
            "hardware with --on"
        )
    return sentences


def _large(count: int) -> str:
    """A number in full, or to two digits: `1.0e11`."""
    if count < 1_000_000:
        return f"{count:,}"
    exponent = len(str(count)) - 1
    return f"{count / 10**exponent:.1f}e{exponent}"
