"""What `search` found, as tables, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from sdyscope.analysis.search.cost import Prediction
from sdyscope.analysis.search.space import Decision
from sdyscope.analysis.search.values import Candidate, Compiled, Search
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, fitted, number, shape
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.counts import counted, size
from sdyscope.words.mesh import mesh_words_of
from sdyscope.words.rates import bandwidth_text, metric_text, time_text
from sdyscope.words.remarks import remark_text, remark_texts

__all__ = ["candidates", "changes", "decisions", "footer", "heading", "traffic"]

#: Candidates of the front that are shown hold at least a tenth less than the one before.
_LESS = 0.9

#: How many of them.
_SHOWN = 6

_OPEN = "left open"


def heading(found: Search) -> Iterator[Paragraph]:
    """The program, what was searched, and what came of it."""
    words = [found.name, *mesh_words_of(found.meshes), f"lowered by JAX {found.jax_version}"]
    yield Paragraph("; ".join(words), "heading")
    tensors = sum(
        member.kind == "argument" for one in found.space.decisions for member in one.members
    )
    axes = found.space.axes
    yield Paragraph(
        f"{counted(tensors, 'argument')} in {counted(len(found.space.decisions), 'decision')} over "
        f"{counted(len(axes), 'axis', 'axes')} ({', '.join(axes)}): "
        f"{_large(found.space.size)} candidates",
        hang=3,
    )
    checked = f", {found.checked:,} of them partitioned by XLA" if found.checked else ""
    yield Paragraph(f"{found.tried:,} predicted ({found.a_minute:,.0f} a minute){checked}", hang=3)


def candidates(found: Search) -> Table:
    """A row for the program as it is, the best, and what holds less memory for more cost."""
    rows = [_row(found, "as it is", found.start)]
    if found.chosen is not None:
        rows.append(_row(found, "best", found.chosen, "good"))
    for index, one in enumerate(shown(found), 1):
        rows.append(_row(found, f"other {index}", one))
    checked = [number("by XLA")] if found.partitioned else []
    timed = [number("estimate")] if found.rates.bandwidths else []
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


def shown(found: Search) -> list[Candidate]:
    """The candidates of the front that differ much enough to be shown, without the best."""
    limit = found.start.prediction.held if found.chosen is None else found.chosen.prediction.held
    made = []
    for one in found.front:
        if one.prediction.held < _LESS * limit and one.changes and one != found.chosen:
            made.append(one)
            limit = one.prediction.held
    return made[:_SHOWN]


def _row(found: Search, name: str, one: Candidate, tone: Tone = "plain") -> Row:
    known = one.known
    checked = [size(one.partitioned.sent if one.partitioned else None)] if found.partitioned else []
    timed = [time_text(one.seconds)] if found.rates.bandwidths else []
    return (
        Cell(name, tone),
        size(one.prediction.sent),
        *checked,
        metric_text(known.flops),
        size(round(one.cost)),
        *timed,
        size(known.held),
        f"{len(one.changes):,}" if one.changes else "-",
    )


def changes(found: Search, *, everything: bool = False) -> Table:
    """What to write in the program for the best, and with `everything` for the others, too."""
    groups: list[tuple[str, Candidate]] = []
    if found.chosen is not None:
        groups.append(("best", found.chosen))
    if everything:
        groups += [(f"other {index}", one) for index, one in enumerate(shown(found), 1)]
    rows: list[Row] = []
    for title, one in groups:
        if len(groups) > 1:
            rows.append(Heading(title))
        rows += [
            (
                _name(change.decision),
                _spec(change.before),
                Cell(str(change.after), "good"),
                _members(change.decision),
            )
            for change in one.changes
        ]
    return Table(
        (Column("change"), Column("now", fold=False), Column("to", fold=False), Column("with it")),
        tuple(rows),
    )


def _spec(spec: PartitionSpec | None) -> str:
    return _OPEN if spec is None else str(spec)


def _name(one: Decision) -> str:
    searched = sum(member.part == "searched" for member in one.members)
    return f"{one.name} ({searched:,})" if searched > 1 else one.name


def _members(one: Decision) -> str:
    """What has to be changed in the same way."""
    follows = sum(member.part == "follows" for member in one.members)
    results = sum(member.part == "result" for member in one.members)
    words = []
    if follows:
        words.append(counted(follows, "state tensor"))
    if results:
        words.append(counted(results, "result"))
    return ", ".join(words) or "-"


def decisions(found: Search) -> Table:
    """What is decided."""
    return Table(
        (Column("decision"), Column("type"), Column("now"), number("whole"), number("options")),
        tuple(
            (
                _name(one),
                shape(one.shape, one.dtype),
                _spec(one.now),
                size(one.bytes),
                f"{one.option_count:,}",
            )
            for one in found.space.decisions
        ),
    )


def traffic(found: Search, columns: int | None = None) -> Table | None:
    """What a device sends by kind and axes, as it is and as it would be; None without a best.

    Args:
      found: the document.
      columns: the width to keep to. Where the table is wider, what is predicted is left out if
        something better is known.
    """
    best = found.chosen
    if best is None:
        return None
    known = bool(found.partitioned)
    return fitted(lambda brief: _traffic(found, best, predicted=not (brief and known)), columns)


def _traffic(found: Search, best: Candidate, *, predicted: bool) -> Table:
    columns: list[tuple[str, Prediction]] = []
    if predicted:
        columns += [("predicted now", found.start.prediction), ("best", best.prediction)]
    if found.start.partitioned is not None and best.partitioned is not None:
        columns += [("by XLA now", found.start.partitioned), ("best", best.partitioned)]
    pair = compiled_pair(found)
    if pair is not None:
        columns += [("compiled now", pair[0].measured), ("best", pair[1].measured)]
    totals: dict[tuple[str, str], list[int]] = {}
    for at, (_, figures) in enumerate(columns):
        for one in figures.traffic:
            key = (one.kind, " x ".join(one.axes) or "no single axis")
            totals.setdefault(key, [0] * len(columns))[at] += one.sent
    ordered = sorted(totals.items(), key=lambda item: -max(item[1]))
    rows: list[Row] = [
        (kind, over, *(_sent(count) for count in counts))
        for (kind, over), counts in ordered
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


def _sent(count: int) -> Cell:
    return Cell(size(count)) if count else Cell("-", "muted")


def compiled_pair(found: Search) -> tuple[Compiled, Compiled] | None:
    """What the compiler made of the program and of the best; None where it was not asked."""
    made = next(
        (one.compiled for one in found.trials if one.candidate == found.chosen and one.compiled),
        None,
    )
    if found.compiled_start is None or made is None:
        return None
    return found.compiled_start, made


def footer(found: Search, *, everything: bool = False) -> Iterator[Paragraph]:
    """What came of it, what the numbers are, and what was left out."""
    yield from _outcome(found)
    for trial in found.trials:
        if not trial.better:
            words = ", ".join(f"{one.name} {one.after}" for one in trial.candidate.changes)
            yield Paragraph(
                f"compiled and not taken: {words}: {remark_text(trial.why)}", "warning", hang=3
            )
    if found.refused:
        yield Paragraph(
            f"{counted(found.refused, 'candidate')} refused: {found.refusal}", "warning", hang=3
        )
    others = shown(found)
    if others and not everything:
        yield Paragraph("--all shows the changes of the others, and what is decided", hang=3)
    for text in (*remark_texts(found.notes), *_legend(found)):
        yield Paragraph(text, "muted", hang=3)


def _outcome(found: Search) -> Iterator[Paragraph]:
    if found.chosen is None:
        yield Paragraph("nothing better than the program's own shardings was found", "good")
        return
    start, best = found.start, found.chosen
    before, after = start.known, best.known
    label = "by XLA's partitioner" if best.partitioned else "predicted"
    yield Paragraph(
        f"a device sends {_times(before.sent, after.sent)} and holds "
        f"{_times(before.held, after.held)} ({label})",
        "good",
        hang=3,
    )
    pair = compiled_pair(found)
    if pair is not None:
        one, two = pair
        confirmed = "confirmed" if found.outcome == "confirmed" else "not confirmed"
        needs = (
            f": a device needs {size(two.total)} in all, and {size(one.total)} as it is"
            if one.total is not None and two.total is not None
            else ""
        )
        tone: Tone = "good" if found.outcome == "confirmed" else "warning"
        yield Paragraph(f"{confirmed} by a compile for {two.hardware}{needs}", tone, hang=3)
    elif found.outcome == "not confirmed":
        yield Paragraph("not confirmed by a compile", "warning")
    else:
        yield Paragraph("not compiled", "warning")


def _times(before: int, after: int) -> str:
    if before == after:
        return f"as much ({size(after)})"
    if not before:
        return f"{size(after)} instead of nothing"
    if after < before:
        return f"{100 * (1 - after / before):.0f}% less ({size(after)})"
    if after < 2 * before:
        return f"{100 * (after / before - 1):.0f}% more ({size(after)})"
    return f"{after / before:.1f} times as much ({size(after)})"


def _legend(found: Search) -> Iterable[str]:
    made = []
    if found.partitioned:
        made.append(
            "sent, predicted: by Shardy's own reshards; by XLA: what XLA's partitioner makes of it"
        )
    per_byte = found.rates.flops_per_byte
    cost = "bytes sent"
    if found.rates.bandwidths:
        given = ", ".join(
            f"{axis} {bandwidth_text(v)}" for axis, v in found.rates.bandwidths.items()
        )
        cost += f", as over the fastest axis ({given})"
    if not math.isinf(per_byte):
        cost += f", and a byte for {per_byte:,.0f} FLOPs of matmuls"
    made.append(f"cost: {cost}; held: arguments and results, which is not part of the cost")
    if found.limit is not None:
        made.append(f"at most {size(found.limit)} of arguments and results on a device")
    pair = compiled_pair(found)
    if pair is not None and not pair[1].comparable:
        made.append(
            "compiled: a CPU has no reduce-scatter, and sends bf16 as f32; compile for the real "
            "hardware with --on"
        )
    return made


def _large(count: int) -> str:
    """A number in full, or to two digits: `1.0e11`."""
    if count < 1_000_000:
        return f"{count:,}"
    exponent = len(str(count)) - 1
    return f"{count / 10**exponent:.1f}e{exponent}"
